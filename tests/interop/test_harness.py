"""The harness itself: what counts as a difference, and what a machine without the tools is told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from . import artifacts, lanes, members, mqadmin, peers, push, recordings, rotation, two_brokers
from .allowed import ALLOWED, ALLOWED_PUSH, Allowed, Judge
from .compare import ABSENT, Difference, differences


def test_a_difference_names_its_place() -> None:
    recorded = {"send": {"one byte": {"status": "SEND_OK", "queue": 0}}}
    seen = {"send": {"one byte": {"status": "SEND_OK", "queue": 1}}}
    assert list(differences(recorded, seen)) == [Difference("send / one byte / queue", 0, 1)]


def test_what_is_missing_or_too_much_is_a_difference() -> None:
    assert list(differences({"a": 1}, {"b": 2})) == [Difference("a", 1, ABSENT), Difference("b", ABSENT, 2)]
    assert list(differences({"a": [1]}, {"a": [1, 2]})) == [Difference("a", [1], [1, 2])]


def test_the_text_of_a_java_exception_is_no_promise() -> None:
    assert list(differences({"remark": "<exception>"}, {"remark": "a field is missing"})) == []
    assert list(differences({"code": 1, "remark": "<exception>"}, {"code": 2, "remark": ""})) == [
        Difference("code", 1, 2)
    ]


def judged(row: Allowed, recorded: str, older: str, seen: str) -> tuple[list[Difference], list[str]]:
    judge = Judge((row,))
    answers = ({"send": {"empty": {"code": code}}} for code in (recorded, older, seen))
    return judge.unexpected(*answers), judge.stale()


def test_a_row_allows_what_it_names_and_nothing_else() -> None:
    row = Allowed("send / empty / code", "why", recorded="1", seen="13|14")
    assert judged(row, "1", "1", "13") == ([], [])
    assert judged(row, "1", "1", "0")[0] == [Difference("send / empty / code", "1", "0")]
    assert judged(row, "1", "1", "1") == ([], ["send / empty / code: why"])


def test_a_row_must_be_right_about_4_9_7() -> None:
    silent, named = (Allowed("send / *", "why", seen="13", as_4_9_7=said) for said in (False, True))
    assert judged(named, "1", "13", "13") == ([], [])
    assert judged(named, "1", "2", "13")[0] == [Difference("send / empty / code", "1", "13")]
    assert judged(silent, "1", "13", "13") == ([], ["send / *: as_4_9_7 must not be False"])


def test_a_place_above_or_below_counts_as_a_difference_from_4_9_7() -> None:
    judge = Judge((Allowed("pull / *", "why", as_4_9_7=True),))
    assert judge.unexpected({"pull": {"a": [1]}}, {"pull": {"a": [3, 3]}}, {"pull": {"a": [2]}})
    assert judge.unexpected({"pull": {"a": [1, 1]}}, {"pull": {"a": [3]}}, {"pull": {"a": [2]}})
    assert not Judge(judge.rows).unexpected(
        {"pull": {"a": 1, "ab": 5}}, {"pull": {"a": 2, "ab": 4}}, {"pull": {"a": 2, "ab": 5}}
    )


def test_every_row_says_what_ours_is() -> None:
    assert [row.where for row in (*ALLOWED, *ALLOWED_PUSH) if "*" in row.seen.split("|")] == []


def test_a_recording_has_one_line_per_step_and_reads_back() -> None:
    answers = {"send": {"one": {"status": "SEND_OK"}, "two": [1, "\u4e2d"]}, "pull": {"none": None}}
    text = recordings.pretty(answers)
    assert json.loads(text) == answers
    assert '  "two": [1, "\\u4e2d"]\n' in text


def test_a_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(artifacts.Missing, match=r"Java client 4\.5\.1: mvn not found"):
        artifacts.tool("mvn", "Java client 4.5.1")


def test_the_ports_of_a_place_do_not_meet(tmp_path: Path) -> None:
    place = peers.place(tmp_path)
    assert place.namesrv_port not in range(place.broker_port - 2, place.broker_port + 2)


def test_every_pair_of_client_and_server_has_been_recorded() -> None:
    pairs = (*recordings.PAIRS, *push.PAIRS, *members.PAIRS, *two_brokers.PAIRS, *mqadmin.PAIRS)
    assert [pair for pair in pairs if not recordings.path(*pair).exists()] == []


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_file_is_in_one_lane(count: int) -> None:
    every = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py"))
    divided = [lanes.files(lanes.Lane(number + 1, count), every) for number in range(count)]
    assert sorted(name for lane in divided for name in lane) == every


def test_a_minute_is_counted_for_a_file_that_exists() -> None:
    every = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert set(lanes.MINUTES) <= every


def test_each_group_has_its_turn_and_a_third_runs_at_a_time() -> None:
    groups = [f"group {number}" for number in range(31)]
    turns = [rotation.chosen(groups, f"commit {number}") for number in range(60)]
    assert {len(turn) for turn in turns} == {11}
    assert set().union(*turns) == set(groups)
    assert rotation.chosen(reversed(groups), "commit 0") == turns[0]


def test_what_shares_expensive_work_is_one_group() -> None:
    def group(module: str, test: str, parameters: str = "", early: str = "") -> str:
        return rotation.Case(module, test, parameters, early).group

    assert group("timers", "test_one", "a") == group("timers", "test_two")
    assert group("members", "test_one", "a", "ours") == group("members", "test_one", "b", "ours")
    assert group("store_round_trip", "test_one", "a") == group("store_round_trip", "test_two", "a")
    assert group("store_round_trip", "test_one", "a") != group("store_round_trip", "test_one", "b")
    assert group("filters", "test_one", "a") != group("filters", "test_one", "b")


def test_a_row_of_the_rotation_names_a_test_that_exists() -> None:
    for pattern in rotation.CORE:
        module, _, test = pattern.partition("::")
        path = Path(__file__).parent / f"test_{module}.py"
        assert re.search(rf"def {re.split(r'[*?]', test)[0]}", path.read_text()), pattern
    every = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert every >= rotation.BY_CASE | rotation.BY_PARAMETER


def test_a_lane_counts_the_share_of_a_file_that_runs() -> None:
    shares = {"test_filters": 0.0, "test_mqadmin": 1.0, "test_scenarios": 1.0}
    divided = [lanes.files(lanes.Lane(number, 2), shares, shares) for number in (1, 2)]
    assert divided == [{"test_mqadmin"}, {"test_scenarios", "test_filters"}]
