"""The parts of the harness of groups that need no process: counted histories, added figures, the page."""

import json
from pathlib import Path

from tests.failures import group_report
from tests.failures.callers import QUEUES, CallHistory
from tests.failures.group_report import rows_in, rows_of, save, write_page
from tests.failures.group_runs import GroupFigures, GroupOutcome, count
from tests.failures.group_scenarios import GROUP_TABLE
from tests.failures.linear import OPEN, AppendCall, Leadership, QueueAnomaly, ReadCall
from tests.failures.members import MEMBERS

FIRST = Leadership(1, 0)
NAME, OTHER = GROUP_TABLE[0].name, GROUP_TABLE[1].name


def stored(*values: str) -> list[list[list[str]]]:
    """What all members have at the end, all of it in queue 0."""
    return [[[*values], *([] for _ in range(QUEUES - 1))] for _ in MEMBERS]


def test_acknowledged_and_open_appends_are_counted_and_a_message_that_was_sent_twice_is_no_anomaly() -> None:
    history = CallHistory(
        [
            AppendCall(0, "c0-1-0", 1.0, 2.0, 0, FIRST),
            AppendCall(0, "c0-2-0", 3.0, OPEN),
            AppendCall(0, "c0-2-1", 6.0, 7.0, 2, FIRST),
            AppendCall(0, "c0-3-0", 8.0, OPEN),
        ],
        [ReadCall(0, 7.5, 7.6, 0, (), 3, 3, FIRST)],
        [FIRST, FIRST],
    )
    figures = count(history, stored("c0-1-0", "c0-2-0", "c0-2-1"))
    assert (figures.acknowledged, figures.open, figures.open_stored) == (2, 2, 1)
    assert (figures.twice, figures.reads, figures.leaderships) == (1, 1, 1)
    assert not figures.is_broken
    assert figures.anomalies == {}


def test_an_anomaly_two_leaders_and_a_member_that_has_not_the_same_are_not_taken_for_success() -> None:
    history = CallHistory([AppendCall(0, "c0-1-0", 1.0, 2.0, 0, FIRST)])
    lost = count(history, stored())
    assert lost.anomalies == {QueueAnomaly.LOST.name: 1}
    assert lost.examples == ["LOST in queue 0: c0-1-0, acknowledged at 0"]
    apart = [*stored("c0-1-0")[:2], stored()[0]]
    diverged = count(history, apart)
    history.leaderships.extend([FIRST, Leadership(1, 2)])
    shared = count(history, stored("c0-1-0"))
    assert (diverged.diverged, shared.shared_terms) == (1, 1)
    assert all(one.is_broken for one in (lost, diverged, shared))


def test_a_leader_that_was_replaced_may_not_know_it_yet() -> None:
    second = Leadership(2, 1)
    appends = [
        AppendCall(0, "c0-1-0", 1.0, 2.0, 0, FIRST),
        AppendCall(0, "c0-2-0", 3.0, 4.0, 1, second),
    ]
    history = CallHistory(appends, [ReadCall(0, 5.0, 5.1, 0, (), 1, 1, FIRST)])
    figures = count(history, stored("c0-1-0", "c0-2-0"))
    assert figures.anomalies == {QueueAnomaly.DEPOSED.name: 1}
    assert not figures.is_broken


def outcome(scenario: str, acknowledged: int, lost: int = 0) -> GroupOutcome:
    figures = GroupFigures(acknowledged=acknowledged, leaderships=2)
    if lost:
        figures.anomalies[QueueAnomaly.LOST.name] = lost
    return GroupOutcome(scenario, figures=figures)


def test_runs_of_a_group_are_added_up_in_the_order_of_the_table() -> None:
    rows = rows_of([outcome(OTHER, 5, lost=1), outcome(NAME, 3), outcome(OTHER, 6, lost=2)])
    assert [(row.scenario, row.runs) for row in rows] == [(NAME, 1), (OTHER, 2)]
    assert (rows[1].figures.acknowledged, rows[1].figures.anomalies["LOST"]) == (11, 3)


def test_figures_of_groups_are_added_to_those_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    for one in (outcome(NAME, 5), outcome(OTHER, 7, lost=1), GroupOutcome(NAME, error="stopped")):
        save(file, "group", 1.5, 1, [one], add=True)
    saved = json.loads(file.read_text())
    assert saved["minutes"] == 4.5
    assert [(row.scenario, row.runs, row.errors) for row in rows_in(saved)] == [
        (NAME, 1, ["stopped"]),
        (OTHER, 1, []),
    ]
    assert rows_in(saved)[1].figures.anomalies["LOST"] == 1


def test_a_run_that_could_not_be_made_is_shown_as_such() -> None:
    missing = GroupOutcome(NAME, not_possible="no namespaces")
    assert "not possible here: no namespaces" in group_report.line(missing)
    assert "not possible: no namespaces" in group_report.text_table(rows_of([missing]))


def test_the_page_shows_both_groups_side_by_side(tmp_path: Path) -> None:
    for kind, lost in (("group", 0), ("group-4.9.7", 7)):
        save(tmp_path / f"failures-{kind}.json", kind, 1.5, 1, [outcome(NAME, 90, lost)], add=False)
    write_page(tmp_path)
    page = (tmp_path / "failures-groups.md").read_text()
    assert f"| `lost`: {QueueAnomaly.LOST.value} | 0 | **7** |" in page
    assert "| of acknowledged appends and reads | 90 | 90 |" in page
