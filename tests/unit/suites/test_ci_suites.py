"""The shell functions of `.ci/run`, with suites that take a moment."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
CI = ROOT / ".ci"


def run(directory: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Runs a script with the functions of `.ci/suites.sh` and a budget of three suites."""
    ci = directory / ".ci"
    ci.mkdir()
    (ci / "suites.sh").write_text((CI / "suites.sh").read_text())
    (ci / "budget").write_text("one 1.0\ntwo 2.5\nother 9.0 beside\n")
    (ci / "run").write_text(f'source "$(dirname "$0")/suites.sh"\n{script}\n')
    command = ["bash", str(ci / "run")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def rows(text: str) -> list[list[str]]:
    """The table at the end, a list of words for each suite."""
    return [line.split() for line in text[text.rindex("suite ") :].splitlines()[1:]]


def test_suites_that_pass_are_listed_with_planned_minutes(tmp_path: Path) -> None:
    ended = run(tmp_path, "beside 0 other true\nsuite one true\nsuite two true\njoined other")
    assert ended.returncode == 0, ended.stdout
    assert rows(ended.stdout)[:3] == [
        ["one", "1.0", "0.0"],
        ["two", "2.5", "0.0"],
        ["other", "9.0", "0.0", "beside"],
    ]
    assert rows(ended.stdout)[3][:2] == ["total", "3.5"]


def test_a_suite_that_fails_does_not_end_the_run_but_fails_it(tmp_path: Path) -> None:
    ended = run(tmp_path, "suite one false\nsuite two true")
    assert ended.returncode == 1
    assert "FAILED: one" in ended.stdout
    assert ["two", "2.5", "0.0"] in rows(ended.stdout)


def test_a_suite_that_was_killed_beside_others_fails_with_its_minutes(tmp_path: Path) -> None:
    group = '"$(cat "$logs/other.pid")"'
    kill = f"until pgrep -g {group} sleep; do :; done; kill -9 -- -{group}"
    ended = run(tmp_path, f"beside 0 other sleep 50\n{kill}\njoined other\nsuite one true")
    assert ended.returncode == 1
    assert "other was killed, exit status 137" in ended.stdout
    assert ["other", "9.0", "0.0", "beside", "FAILED"] in rows(ended.stdout)
    assert ["one", "1.0", "0.0"] in rows(ended.stdout)
    assert "FAILED: other" in ended.stdout


def test_the_budget_has_the_suites_of_the_run() -> None:
    found = re.findall(r"^(suite|beside \d+) (\S+)", (CI / "run").read_text(), re.MULTILINE)
    ran = {name: kind.startswith("beside") for kind, name in found}
    lines = [line.split() for line in (CI / "budget").read_text().splitlines() if not line.startswith("#")]
    assert ran == {name: "beside" in rest for name, _, *rest in lines}
    assert sum(float(minutes) for _, minutes, *rest in lines if "beside" not in rest) <= 45


def test_every_suite_beside_others_is_joined() -> None:
    text = (CI / "run").read_text()
    assert sorted(re.findall(r"^beside \d+ (\S+)", text, re.MULTILINE)) == sorted(
        re.findall(r"^joined (\S+)", text, re.MULTILINE)
    )
