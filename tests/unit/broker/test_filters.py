"""Expressions that groups register: which one counts, how long, and what the file says of them."""

import json

import pytest
from tests.unit.broker.kit import HandClock

from turbopump.broker.config import FilterRules
from turbopump.broker.consume import filters
from turbopump.broker.consume.filters import GroupFilters
from turbopump.filter import compile_sql
from turbopump.protocol.bodies import SubscriptionData
from turbopump.protocol.errors import (
    FilterDataNotFound,
    FilterDataNotLatest,
    Refused,
    SubscriptionUnreadable,
    SystemFailure,
)

NOW = 1_794_732_388_000
DAY = 86_400_000
ON = FilterRules(enabled=True)
ONE, TWO = b"a\x011\x02", b"a\x012\x02"


def wants(text: str, version: int = 1, topic: str = "T", kind: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(topic=topic, subString=text, subVersion=version, expressionType=kind)


class Bench:
    def __init__(self, rules: FilterRules = ON) -> None:
        self.clock = HandClock(NOW)
        self.filters = GroupFilters(rules, self.clock)
        self.changes = 0
        self.filters.on_change = self._changed

    def matches(self, message: bytes, version: int = 1, group: str = "G", topic: str = "T") -> bool:
        return self.filters.of_group(group, topic, "SQL92", version).matches(message)

    def stored(self, group: str = "G", topic: str = "T") -> dict[str, object]:
        found = json.loads(self.filters.dump())["filterDataByTopic"][topic]["groupFilterData"][group]
        assert isinstance(found, dict)
        return found

    def _changed(self) -> None:
        self.changes += 1


def test_a_group_chooses_by_what_its_heartbeat_said() -> None:
    bench = Bench()
    bench.filters.register("G", [wants("a = 1"), wants("*", topic="%RETRY%G", kind="TAG")])
    assert bench.matches(ONE)
    assert not bench.matches(TWO)
    with pytest.raises(FilterDataNotFound, match="Your expression may be wrong"):
        bench.matches(ONE, group="other")
    with pytest.raises(FilterDataNotFound):
        bench.matches(ONE, topic="%RETRY%G")


def test_a_higher_version_replaces_an_expression_and_a_lower_one_does_not() -> None:
    bench = Bench()
    bench.filters.register("G", [wants("a = 1", 5)])
    bench.filters.register("G", [wants("a = 2", 4)])
    assert bench.matches(ONE, 5)
    before = bench.filters.version
    bench.filters.register("G", [wants("a = 2", 6)])
    assert bench.matches(TWO, 6)
    assert bench.filters.version > before


def test_a_pull_that_knows_more_than_the_broker_is_told_so() -> None:
    bench = Bench()
    bench.filters.register("G", [wants("a = 1", 5)])
    with pytest.raises(FilterDataNotLatest):
        bench.matches(ONE, 6)


def test_the_same_heartbeat_again_changes_nothing() -> None:
    bench = Bench()
    bench.filters.register("G", [wants("a = 1")])
    changes = bench.changes
    bench.filters.register("G", [wants("a = 1")])
    assert bench.changes == changes


def test_a_bad_expression_takes_the_place_of_none_and_removes_the_good_one_before() -> None:
    bench = Bench()
    bench.filters.register("G", [wants("a = 1")])
    bench.filters.register("G", [wants("a = ", 2)])
    with pytest.raises(FilterDataNotFound):
        bench.matches(ONE)


def test_with_the_feature_off_all_but_tags_is_refused() -> None:
    bench = Bench(FilterRules())
    bench.filters.register("G", [wants("a = 1")])
    words = "The broker does not support consumer to filter message by SQL92"
    with pytest.raises(SystemFailure, match=words):
        bench.matches(ONE)
    with pytest.raises(SystemFailure, match=words):
        bench.filters.of_pull("SQL92", "a = 1")
    with pytest.raises(SystemFailure, match=words):
        bench.filters.check("SQL92", "a = ")
    bench.filters.check("TAG", "*")


@pytest.mark.parametrize("text", ["a = ", "", None, "a = 1 AND"])
def test_what_cannot_be_read_is_refused_with_its_place(text: str | None) -> None:
    with pytest.raises(SubscriptionUnreadable) as refused:
        Bench().filters.check("SQL92", text)
    assert not text or "column" in refused.value.remark


def test_another_kind_of_expression_is_refused() -> None:
    for ask in (Bench().filters.check, Bench().filters.of_pull):
        with pytest.raises(SubscriptionUnreadable, match="TAG or SQL92, got XPATH"):
            ask("XPATH", "a")


def test_a_long_expression_looks_at_fewer_messages_in_one_pull() -> None:
    long = " OR ".join(["a = 1"] * 1000)
    assert Bench().filters.of_pull("SQL92", "a = 1").max_scanned > 800
    assert Bench().filters.of_pull("SQL92", long).max_scanned < 40


def test_what_is_tried_again_is_judged_by_the_topic_it_came_from() -> None:
    again = ONE + b"RETRY_TOPIC\x01T\x02"
    for retries, matches in ((False, False), (True, True)):
        bench = Bench(FilterRules(enabled=True, retries=retries))
        bench.filters.register("G", [wants("a = 1"), wants("a = 7", topic="%RETRY%G")])
        assert bench.matches(again, topic="%RETRY%G") is matches
    assert bench.matches(b"a\x011\x02RETRY_TOPIC\x01unknown\x02", topic="%RETRY%G")


# The file


def test_the_file_has_apaches_form() -> None:
    bench = Bench()
    bench.filters.register("G", [wants("a = 1", 7)])
    assert bench.stored() == {
        "bloomFilterData": {"bitNum": 112, "bitPos": list(bench.filters.bloom.positions("G", "T"))},
        "bornTime": NOW,
        "clientVersion": 7,
        "consumerGroup": "G",
        "dead": False,
        "deadTime": 0,
        "expression": "a = 1",
        "expressionType": "SQL92",
        "topic": "T",
    }


def test_after_a_start_the_expression_is_there_and_its_group_is_not() -> None:
    bench, later = Bench(), Bench()
    bench.filters.register("G", [wants("a = 1", 7)])
    later.clock.ms = NOW + 100_000
    assert later.filters.load(bench.filters.dump()) == 1
    assert later.matches(ONE, 7)
    assert (later.stored()["dead"], later.stored()["deadTime"]) == (True, NOW + 70_000)
    later.filters.register("G", [wants("a = 1", 7)])
    assert (later.stored()["dead"], later.stored()["bornTime"]) == (False, NOW)


def test_filters_made_for_another_bloom_filter_are_not_taken() -> None:
    bench = Bench()
    bench.filters.register("G", [wants("a = 1")])
    other = Bench(FilterRules(enabled=True, expected_groups=64))
    assert other.filters.load(bench.filters.dump()) == 0
    with pytest.raises(FilterDataNotFound):
        other.matches(ONE)


def test_who_left_is_forgotten_after_a_day() -> None:
    bench = Bench()
    bench.filters.register("G", [wants("a = 1"), wants("a = 1", topic="U")])
    bench.filters.register("H", [wants("a = 1")])
    bench.filters.register("G", [wants("a = 1")])  # no longer interested in U
    assert bench.stored(topic="U")["dead"] is True
    bench.filters.unregister("H")
    bench.clock.ms += DAY - 1
    assert bench.stored("H")["deadTime"] == NOW
    bench.clock.ms += 1
    assert json.loads(bench.filters.dump())["filterDataByTopic"].keys() == {"T"}
    assert bench.matches(ONE)
    with pytest.raises(FilterDataNotFound):
        bench.matches(ONE, group="H")


def test_who_was_long_gone_does_not_come_back_with_the_file() -> None:
    bench, later = Bench(), Bench()
    bench.filters.register("G", [wants("a = 1")])
    bench.filters.unregister("G")
    data = bench.filters.dump()
    later.clock.ms = NOW + DAY
    assert later.filters.load(data) == 0
    later.clock.ms = NOW + DAY - 1
    assert later.filters.load(data) == 1


def test_there_is_room_for_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MAX_FILTERS", 2)
    bench = Bench()
    for group in ("A", "B", "C"):
        bench.filters.register(group, [wants("a = 1")])
    assert bench.matches(ONE, group="B")
    with pytest.raises(FilterDataNotFound):
        bench.matches(ONE, group="C")
    bench.filters.register("A", [wants("a = 2", 2)])  # the places that are taken can be used
    assert bench.matches(TWO, group="A")


def test_an_expression_of_the_file_that_we_cannot_read_is_kept_and_not_used() -> None:
    bench = Bench()
    bench.filters.register("G", [wants("a = 1")])
    damaged = bench.filters.dump().replace(b"a = 1", b"a = #")
    assert bench.filters.load(damaged) == 1
    with pytest.raises(FilterDataNotFound):
        bench.matches(ONE)
    assert bench.stored()["expression"] == "a = #"


def test_the_sum_of_it_an_expression_is_a_predicate_or_a_refusal() -> None:
    assert filters.predicate_of("SQL92", "a = 1").text == compile_sql("a = 1").text
    with pytest.raises(Refused):
        filters.predicate_of("SQL92", "a = ;" + " " * filters.MAX_PARSED_LENGTH)
