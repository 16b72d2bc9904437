import importlib.util
import json
from pathlib import Path
from types import ModuleType

from scripts import walks
from scripts.tree.recorder import Recorder, Walk, common

MODULE = """\
def outer(flag):
    if flag:
        inner()
    return flag


def inner():
    return [n for n in range(2)]
"""
RESULTS = Path(__file__).parents[3] / "docs" / "results"


def module(package: Path) -> ModuleType:
    path = package / "broker" / "a.py"
    path.parent.mkdir(parents=True)
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("walked", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_a_recorder_notes_lines_below_its_package_while_it_records(tmp_path: Path) -> None:
    walked = module(tmp_path)
    recorder = Recorder(str(tmp_path))
    recorder.install()
    try:
        walked.outer(True)
        recorder.begin()
        walked.outer(False)
        lines, _ = recorder.end()
        walked.outer(True)
    finally:
        recorder.uninstall()
    assert list(lines) == [("broker/a.py", "outer", 2), ("broker/a.py", "outer", 4)]


def test_figures_count_files_functions_and_lines(tmp_path: Path) -> None:
    walked = module(tmp_path)
    recorder = Recorder(str(tmp_path))
    recorder.install()
    try:
        recorder.begin()
        walked.outer(True)
        walk = common([recorder.end()])
    finally:
        recorder.uninstall()
    figures = walk.figures(tmp_path)
    assert (figures["files"], figures["lines"]) == (1, 8)
    assert (figures["functions"], figures["lines_on_path"]) == (2, 4)
    assert figures["by_file"] == {"broker/a.py": 4}


def test_what_is_not_in_every_round_falls_out() -> None:
    path, tick = ("a.py", "send", 1), ("b.py", "tick", 1)
    walk = common([({path: None, tick: None}, {"take"}), ({path: None}, {"take", "put_keys"})])
    assert walk == Walk([path], ["take"])


def test_files_that_run_the_same_lines_while_idle_are_left_out() -> None:
    send, loop, tick = ("a.py", "send", 1), ("a.py", "loop", 9), ("b.py", "tick", 1)
    walk = Walk([send, loop, tick], []).without(Walk([loop, tick], []))
    assert walk.lines == [send, loop]


def test_the_page_is_that_of_the_stored_results() -> None:
    results = [json.loads((RESULTS / f"walks-{name}.json").read_text()) for name in ("before", "after")]
    written = (RESULTS / "walks.md").read_text()
    files = "docs/results/walks-before.json docs/results/walks-after.json"
    assert written == walks.page(results), f"run scripts/walks.py --compare {files} > docs/results/walks.md"
    for name in results[-1]["walks"]:
        assert f"| {name} | " in written
