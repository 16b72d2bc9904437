"""The long run, with pieces that take a moment."""

import json
import subprocess
from pathlib import Path

import pytest
from tests import long_run

PIECES = """
# name and command
good    echo one >>.cache/ran; echo '3 passed, 1 skipped in 0.12s'; echo "in $HYPOTHESIS_PROFILE"
bad     echo two >>.cache/ran; echo '2 failed, 5 passed in 1.00s'; exit 3
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".ci/long").write_text(PIECES)
    (tmp_path / ".gitignore").write_text(".cache\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(root: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *words], cwd=root, check=True)


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-qm", "change")


def run(root: Path, *names: str) -> None:
    pieces = long_run.parse((root / ".ci/long").read_text())
    long_run.run_all(root, [one for one in pieces if not names or one.name in names])


def ran(root: Path) -> list[str]:
    path = root / ".cache/ran"
    return path.read_text().split() if path.exists() else []


def result(root: Path, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((root / f"docs/results/long-{name}.json").read_text())
    return found


def test_each_piece_leaves_its_figures(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYPOTHESIS_PROFILE", raising=False)
    run(root)
    good, bad = result(root, "good"), result(root, "bad")
    assert (good["status"], good["tests"]) == (0, {"passed": 3, "skipped": 1})
    assert (bad["status"], bad["tests"]) == (3, {"failed": 2, "passed": 5})
    assert good["last_lines"] == ["3 passed, 1 skipped in 0.12s", "in long"]
    assert good["commit"] == long_run.state_of(root)[0]
    assert not good["dirty"]


def test_a_result_names_no_directory_of_the_machine() -> None:
    lines = [
        "..F. [100%]",
        "/home/me/turbopump/tests/unit/test_x.py:5: AssertionError",
        "1 failed, 3 passed in 0.10s",
        "make[1]: Leaving directory '/home/me/turbopump'",
    ]
    kept = long_run.last_lines(lines, Path("/home/me/turbopump"))
    assert kept == ["tests/unit/test_x.py:5: AssertionError", "1 failed, 3 passed in 0.10s"]


def test_what_has_passed_at_this_commit_is_not_run_again(root: Path) -> None:
    run(root)
    run(root)
    assert ran(root) == ["one", "two", "two"]


def test_a_commit_of_results_alone_does_not_count(root: Path) -> None:
    run(root)
    commit(root)
    run(root, "good")
    assert ran(root) == ["one", "two"]
    (root / "code.py").write_text("")
    commit(root)
    run(root, "good")
    assert ran(root) == ["one", "two", "one"]


def test_what_passed_with_uncommitted_changes_is_run_again(root: Path) -> None:
    (root / "code.py").write_text("")
    run(root, "good")
    assert result(root, "good")["dirty"]
    (root / "code.py").unlink()
    run(root, "good")
    assert ran(root) == ["one", "one"]


def test_a_changed_command_is_run_again(root: Path) -> None:
    run(root, "good")
    good, _ = long_run.parse(PIECES)
    assert long_run.is_done(root, good)
    assert not long_run.is_done(root, long_run.Piece("good", "true"))


def test_a_run_that_was_stopped_goes_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(root: Path, piece: long_run.Piece) -> long_run.Result:
        if piece.name == "bad":
            raise KeyboardInterrupt
        return really(root, piece)

    really = long_run.run
    monkeypatch.setattr(long_run, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(root)
    assert ran(root) == ["one"]
    monkeypatch.undo()
    run(root)
    assert ran(root) == ["one", "two"]


def test_the_table_says_what_was_run_and_what_was_not(root: Path) -> None:
    run(root, "bad")
    lines = long_run.table(root, long_run.parse(PIECES)).splitlines()
    assert lines[1].split() == ["good", "not", "run"]
    assert lines[2].startswith("bad             FAILED, status 3")
    assert "2 failed, 5 passed" in lines[2]
    assert lines[-1] == "0 of 2 pieces have passed at this commit"


@pytest.mark.parametrize("text", ["alone", "one true\none false", "one "])
def test_a_line_that_is_no_piece_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a new name and a command"):
        long_run.parse(text)


def test_the_pieces_of_this_repository_can_be_read() -> None:
    names = [piece.name for piece in long_run.parse((long_run.ROOT / ".ci/long").read_text())]
    assert {"properties", "matrix-1", "spark", "kills", "python-3.13"} <= set(names)
