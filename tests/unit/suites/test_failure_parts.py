"""The parts of the harness of failures that need no process: sizes, cleared logs, added figures, the page."""

import json
from pathlib import Path

import pytest
from tests.failures import report
from tests.failures.count import Figures
from tests.failures.disks import PAGE, NotPossible, SmallDisk, lose_unsynced
from tests.failures.pairs import body_of, name_of, size_of
from tests.failures.runs import Outcome
from tests.failures.scenarios import TABLE


@pytest.mark.parametrize(
    ("text", "size"), [("0 B", 0), ("1023 B", 1023), ("1.5 KiB", 1638), ("2.0 MiB", 2202009)]
)
def test_sizes_are_read_as_brokers_print_them_and_never_too_small(text: str, size: int) -> None:
    assert size_of(text) == size


def test_a_power_cut_clears_the_log_from_the_page_of_what_was_synced_on(tmp_path: Path) -> None:
    for begin in (0, 2 * PAGE, 4 * PAGE):
        (tmp_path / f"{begin:020d}").write_bytes(b"x" * 2 * PAGE)
    assert lose_unsynced(tmp_path, 3 * PAGE + 14) == 3 * PAGE
    contents = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    assert contents == [b"x" * 2 * PAGE, b"x" * PAGE + bytes(PAGE), bytes(2 * PAGE)]


def test_a_power_cut_may_be_inside_of_a_page(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(b"x" * 2 * PAGE)
    assert lose_unsynced(tmp_path, PAGE + 14, unit=1) == PAGE - 14
    assert next(tmp_path.iterdir()).read_bytes() == b"x" * (PAGE + 14) + bytes(PAGE - 14)


def test_nothing_is_cleared_when_all_was_synced(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(b"x" * PAGE + bytes(PAGE))
    assert lose_unsynced(tmp_path, PAGE) == 0


def test_a_body_tells_the_name_of_its_message() -> None:
    assert len(body_of("3-000001", 100)) == 100
    assert name_of(body_of("3-000001", 100)) == "3-000001"


def test_runs_of_a_scenario_are_added_up_in_the_order_of_the_table() -> None:
    later, sooner = TABLE[2].name, TABLE[0].name
    lost = Figures(sent=5, ok=4, lost=1, lost_ok=1, examples=["one"])
    rows = report.rows_of([Outcome(later, figures=lost), Outcome(sooner), Outcome(later, figures=lost)])
    assert [(row.scenario, row.runs) for row in rows] == [(sooner, 1), (later, 2)]
    assert rows[1].figures == Figures(sent=10, ok=8, lost=2, lost_ok=2, examples=["one", "one"])
    assert [row.is_broken for row in rows] == [False, True]


def test_figures_are_added_to_those_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    rows = [report.rows_of([Outcome(TABLE[at].name, figures=Figures(sent=5))]) for at in (1, 0)]
    for one in (*rows, rows[0]):
        report.save(file, "ours", 1.0, 1, one, add=True)
    saved = json.loads(file.read_text())
    assert [(row.scenario, row.runs, row.figures.sent) for row in report.rows_in(saved)] == [
        (TABLE[0].name, 1, 5),
        (TABLE[1].name, 2, 10),
    ]
    assert saved["minutes"] == 3.0


def test_an_error_and_a_slave_that_is_no_copy_are_not_taken_for_success() -> None:
    name = TABLE[0].name
    assert report.rows_of([Outcome(name, error="x")])[0].is_broken
    assert report.rows_of([Outcome(name, figures=Figures(not_copied=1))])[0].is_broken
    assert not report.rows_of([Outcome(name, figures=Figures(excused=1, unread=1))])[0].is_broken
    assert report.rows_of([Outcome(name, figures=Figures(unread=1, skipped=1))])[0].is_broken


def test_a_scenario_that_is_not_possible_is_named() -> None:
    name = TABLE[0].name
    rows = report.rows_of([Outcome(name, not_possible="no namespaces")])
    assert f"{name:15} not possible here: no namespaces" in report.text_table(rows)
    assert "not possible here: no namespaces" in report.line(Outcome(name, not_possible="no namespaces"))


def test_a_machine_without_namespaces_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotPossible, match="needs unshare and nsenter"):
        SmallDisk(tmp_path / "disk", 1 << 20)


def test_the_page_shows_the_figures_that_were_saved(tmp_path: Path) -> None:
    name = TABLE[0].name
    for pair, lost in (("ours", 0), ("4.9.7", 7)):
        rows = report.rows_of([Outcome(name, figures=Figures(ok=90, lost=lost, lost_ok=lost))])
        report.save(tmp_path / f"failures-{pair}.json", pair, 1.5, 1, rows)
    report.write_page(tmp_path)
    page = (tmp_path / "failures.md").read_text()
    assert f"| `{name}`: {TABLE[0].title} | 0 of 90 in 1 | **7** of 90 in 1 |" in page
    assert "| not run | not run |" in page
