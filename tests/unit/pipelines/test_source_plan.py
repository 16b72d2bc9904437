"""What a stream reads next, without Spark and without brokers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from turbopump.client.message import MessageQueue
from turbopump.pipelines.source.offsets import BadOffsets, DataLost, Ends, MissingBrokers, Range
from turbopump.pipelines.source.plan import StreamPlan, batch_ranges
from turbopump.pipelines.source.settings import query_of


def q(number: int, topic: str = "T", broker: str = "a") -> MessageQueue:
    return MessageQueue(topic, broker, number)


@dataclass
class Cluster:
    """Looks at itself."""

    ends: dict[MessageQueue, Ends]
    silent: tuple[str, ...] = ()
    committed: list[Mapping[MessageQueue, int]] = field(default_factory=list)
    times: dict[MessageQueue, int | None] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)
    records: dict[MessageQueue, str] = field(default_factory=dict)
    """Each queue's name: a mark is that and the offset. Without one, marks are not told."""
    gives_no_records: bool = False
    """Brokers answer questions about ends, and then no more."""

    def snapshot(self, known=(), is_whole: bool = False) -> "Cluster":
        return self

    def marks(self, at):
        if self.gives_no_records:
            return {}
        return {
            queue: f"{self.records[queue]}{offset}@{offset}" if queue in self.records else None
            for queue, offset in at.items()
        }

    def resumed(self, marks, ends):
        return {queue: ends[queue].low for queue in marks}

    def away(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [queue for queue in queues if queue.broker in self.silent]

    def offsets_at(self, times_ms, ends):
        return {queue: self.times[queue] for queue in times_ms}

    def commit(self, positions):
        self.committed.append(dict(positions))


NOW_MS = 1_700_000_000_000


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def query(is_stream: bool = True, **given: str):
    topics = {} if "subscribePattern" in given else {"subscribe": "T"}
    return query_of({"nameServer": "h:1", **topics, **given}, is_stream)


def stream(cluster: Cluster, clock: Clock | None = None, **given: str) -> StreamPlan:
    return StreamPlan(query(**given), cluster, clock or Clock(), lambda: NOW_MS)


def at(*offsets: int, **proof: object) -> dict:
    found = {"T": {"a": {str(number): offset for number, offset in enumerate(offsets)}}}
    return {**found, "@": proof} if proof else found


def test_a_stream_begins_at_the_latest_message_and_says_the_same_twice():
    cluster = Cluster({q(0): Ends(2, 9), q(1): Ends(0, 4)})
    one = stream(cluster)
    assert one.initial() == at(9, 4, since=NOW_MS)
    cluster.ends[q(0)] = Ends(2, 12)
    assert one.initial() == at(9, 4, since=NOW_MS)
    assert one.next(at(9, 4, since=NOW_MS), None) == at(12, 4, since=NOW_MS)
    assert one.latest() == at(12, 4)
    assert one.ranges(at(9, 4), at(12, 4)) == [Range(q(0), 9, 12)]


def test_an_empty_topic_and_no_topic_at_all():
    assert stream(Cluster({q(0): Ends(0, 0)})).initial() == at(0, since=NOW_MS)
    none = stream(Cluster({}), subscribePattern="T.*")
    begun = {"@": {"since": NOW_MS}}
    assert none.initial() == begun
    assert none.next(begun, None) == begun
    assert none.ranges(begun, begun) == none.ranges({}, {}) == []


def test_earliest_and_offsets_by_json_and_by_time():
    ends = {q(0): Ends(2, 9), q(1): Ends(0, 4)}
    assert stream(Cluster(ends), startingOffsets="earliest").initial() == at(2, 0)
    named = '{"T":{"a":{"0":-1,"1":3}}}'
    assert stream(Cluster(ends), startingOffsets=named).initial() == at(9, 3, since=NOW_MS)
    cluster = Cluster(ends, times={q(0): 5, q(1): None})
    with pytest.raises(BadOffsets, match="no message of queue 1 of T on a was stored at that time or later"):
        stream(cluster, startingTimestamp="1700000000077").initial()
    late = stream(cluster, startingTimestamp="1700000000077", startingOffsetsByTimestampStrategy="latest")
    assert late.initial() == at(5, 4, since=NOW_MS)
    with pytest.raises(BadOffsets, match="exactly the queues that are read: see queue 1 of T on a"):
        stream(cluster, startingOffsetsByTimestamp='{"T":{"a":{"0":5}}}').initial()


def test_a_limit_holds_and_available_now_stops_where_it_began():
    cluster = Cluster({q(0): Ends(0, 90), q(1): Ends(0, 10)})
    one = stream(cluster)
    one.fix_goal()
    cluster.ends = {q(0): Ends(0, 500), q(1): Ends(0, 10), q(2): Ends(0, 7)}  # what came after does not count
    steps, start = [], at(0, 0)
    while (end := one.next(start, 40)) != start:
        steps.append(end)
        start = end
    assert steps == [at(36, 4), at(72, 8), at(90, 10)]


def test_a_new_queue_is_taken_up_at_its_earliest_message_also_by_available_now():
    cluster = Cluster({q(0): Ends(0, 5), q(1): Ends(3, 8)})
    one = stream(cluster)
    one.fix_goal()
    assert one.next(at(5), None) == at(5, 3)
    assert one.next(at(5, 3), None) == at(5, 8)
    assert one.next(at(5, 8), None) == at(5, 8)


def test_available_now_reads_queues_that_the_topic_does_not_have_any_more():
    cluster = Cluster({q(0): Ends(0, 9)})
    one = stream(cluster)
    one.fix_goal()
    cluster.ends[q(1)] = Ends(0, 40)  # looked at, since the checkpoint knows it
    assert one.next(at(5, 10), None) == at(9, 40)
    cluster.ends[q(1)] = Ends(0, 50)
    assert one.next(at(9, 40), None) == at(9, 40)


def test_a_broker_that_is_away_stands_still_and_is_no_loss():
    start = {"T": {"a": {"0": 5}, "b": {"0": 7}}}
    cluster = Cluster({q(0): Ends(0, 9)}, silent=("b",))
    assert stream(cluster).next(start, None) == {"T": {"a": {"0": 9}, "b": {"0": 7}}}
    with pytest.raises(DataLost, match="queue 0 of T on b is gone"):
        stream(Cluster({q(0): Ends(0, 9)})).next(start, None)
    assert stream(Cluster({q(0): Ends(0, 9)}), failOnDataLoss="false").next(start, None) == at(9)


def test_what_retention_took_stops_a_stream_or_is_passed_over():
    cluster = Cluster({q(0): Ends(50, 60)})
    with pytest.raises(DataLost, match="messages 10 to 49 of queue 0 of T on a are gone"):
        stream(cluster).next(at(10), None)
    assert stream(cluster, failOnDataLoss="false").next(at(10), None) == at(60)


def test_a_topic_that_was_recreated_stops_a_stream_or_is_read_from_its_beginning():
    cluster = Cluster({q(0): Ends(0, 3)})
    with pytest.raises(DataLost, match="ends at 3, but this query had read up to 10"):
        stream(cluster).next(at(10), None)
    one = stream(cluster, failOnDataLoss="false")
    assert one.next(at(10), None) == at(0)
    assert one.ranges(at(10), at(0)) == []
    assert one.next(at(0), None) == at(3)


def test_a_checkpoint_of_another_topic_is_refused_whatever_is_done_about_losses():
    with pytest.raises(BadOffsets, match="the checkpoint is of T, and this query reads U"):
        stream(Cluster({q(0, "U"): Ends(0, 3)}), subscribe="U", failOnDataLoss="false").next(at(10), None)


def test_a_pattern_whose_brokers_are_away_waits_for_them():
    assert stream(Cluster({}, silent=("a",)), subscribePattern="T.*").next(at(10), None) == at(10)
    with pytest.raises(BadOffsets, match=r"this query reads topics that match U\.\*"):
        stream(Cluster({}, silent=("a",)), subscribePattern="U.*").next(at(10), None)


def test_a_topic_that_is_not_subscribed_any_more_is_a_loss():
    start = {"T": {"a": {"0": 5}}, "U": {"a": {"0": 7}}}
    cluster = Cluster({q(0): Ends(0, 9)})
    with pytest.raises(
        DataLost, match="queue 0 of U on a was read until 7, and is no longer part of the query"
    ):
        stream(cluster).next(start, None)
    assert stream(cluster, failOnDataLoss="false").next(start, None) == at(9)


def test_what_was_processed_is_committed_the_last_batch_too():
    cluster = Cluster({q(0): Ends(0, 9), q(1): Ends(0, 4)})
    one = stream(cluster, groupId="g")
    one.next(at(0, 0), None)
    one.next(at(9, 4), None)
    one.next(at(9, 4), None)
    cluster.ends[q(0)] = Ends(0, 12)
    one.next(at(12, 4), None)
    assert cluster.committed == [{q(0): 0, q(1): 0}, {q(0): 9, q(1): 4}, {q(0): 12}]
    silent = Cluster({q(0): Ends(0, 9)})
    stream(silent).next(at(0), None)
    assert silent.committed == []


def test_small_batches_are_put_off_until_enough_is_there_or_the_time_is_up():
    cluster, clock = Cluster({q(0): Ends(0, 5)}), Clock()
    one = stream(cluster, clock, minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    assert one.next(at(0), None) == at(0)
    cluster.ends[q(0)] = Ends(0, 10)
    assert one.next(at(0), None) == at(10)
    cluster.ends[q(0)] = Ends(0, 11)
    clock.now_s += 59
    assert one.next(at(10), None) == at(10)
    clock.now_s += 1
    assert one.next(at(10), None) == at(11)
    assert one.next(at(11), None) == at(11)


# missing brokers

ABSENT = {"b": "is not registered with the name server"}


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_stream_does_not_begin_without_a_broker_unless_it_may(starting):
    cluster = Cluster({q(0): Ends(2, 9)}, missing=ABSENT)
    with pytest.raises(MissingBrokers, match="part of T is missing: broker b is not registered"):
        stream(cluster, startingOffsets=starting).initial()
    begun = stream(cluster, startingOffsets=starting, allowMissingBrokers="true").initial()
    assert begun["T"] == at(9 if starting == "latest" else 2)["T"]
    assert begun["@"]["missing"] == ["b"]


def test_a_broker_that_is_named_and_nowhere_is_missing():
    ends = {q(0): Ends(0, 9)}
    named = '{"T":{"a":{"0":3},"b":{"0":7}}}'
    for given in ({"startingOffsets": named}, {"startingOffsetsByTimestamp": named}):
        with pytest.raises(MissingBrokers, match="broker b is not registered"):
            stream(Cluster(ends, silent=("b",)), **given).initial()
    allowed = stream(Cluster(ends, silent=("b",)), startingOffsets=named, allowMissingBrokers="true")
    begun = allowed.initial()
    assert begun == {"T": {"a": {"0": 3}, "b": {"0": 7}}}
    assert allowed.next(begun, None) == {"T": {"a": {"0": 9}, "b": {"0": 7}}}


def test_available_now_fails_while_a_broker_is_missing_that_it_has_not_read():
    start = {"T": {"a": {"0": 5}, "b": {"0": 7}}}
    with pytest.raises(MissingBrokers, match="broker b is not registered"):
        stream(Cluster({q(0): Ends(0, 9)}, missing=ABSENT)).fix_goal()
    one = stream(Cluster({q(0): Ends(0, 9)}, silent=("b",)))  # a name server that has forgotten it
    one.fix_goal()
    with pytest.raises(MissingBrokers, match="broker b is missing or does not answer"):
        one.next(start, None)
    both = Cluster({q(0): Ends(0, 9), q(0, broker="b"): Ends(0, 7)})
    done = stream(both)
    done.fix_goal()
    both.ends, both.silent = {q(0): Ends(0, 9)}, ("b",)
    assert done.next(start, None) == {"T": {"a": {"0": 9}, "b": {"0": 7}}}  # all that was there of b is read
    allowed = stream(Cluster({q(0): Ends(0, 9)}, silent=("b",)), allowMissingBrokers="true")
    allowed.fix_goal()
    assert allowed.next(start, None) == {"T": {"a": {"0": 9}, "b": {"0": 7}}}


def test_a_stream_says_once_that_a_broker_is_away(caplog):
    start = {"T": {"a": {"0": 5}, "b": {"0": 7}}}
    one = stream(Cluster({q(0): Ends(0, 9)}, silent=("b",)))
    one.next(start, None)
    one.next(start, None)
    assert [line.getMessage() for line in caplog.records] == [
        "Brokers b are missing or do not answer; 1 queues are not read until they are back"
    ]


def test_history_of_a_broker_that_was_missing_at_the_start_does_not_appear_later():
    """The fake finds the offset of a time in `times`, whatever the time is."""
    begun = at(9, since=NOW_MS, missing=["b"])
    back = {q(0): Ends(0, 9), q(0, broker="b"): Ends(0, 50)}
    one = stream(Cluster(back, times={q(0, broker="b"): 48}))
    assert one.next(begun, None)["T"] == {"a": {"0": 9}, "b": {"0": 48}}
    unknown = stream(Cluster(back, times={q(0, broker="b"): None}))  # nothing is so young
    assert unknown.next(at(9, since=NOW_MS), None)["T"] == {"a": {"0": 9}, "b": {"0": 50}}
    new = stream(Cluster(back, times={q(0, broker="b"): 0}))  # all of it is younger than the query
    assert new.next(at(9, since=NOW_MS), None)["T"] == {"a": {"0": 9}, "b": {"0": 0}}
    earliest = stream(Cluster(back))
    assert earliest.next(at(9), None)["T"] == {"a": {"0": 9}, "b": {"0": 0}}


def test_a_batch_fails_without_a_broker_unless_it_may():
    cluster = Cluster({q(0): Ends(2, 9)}, missing=ABSENT)
    with pytest.raises(MissingBrokers, match="broker b is not registered with the name server"):
        batch_ranges(query(False), cluster)
    assert batch_ranges(query(False, allowMissingBrokers="true"), cluster) == [Range(q(0), 2, 9)]
    both = '{"T":{"a":{"0":4},"b":{"0":4}}}'
    with pytest.raises(MissingBrokers, match="broker b"):
        batch_ranges(query(False, startingOffsets=both), Cluster({q(0): Ends(2, 9)}, silent=("b",)))


# proofs


def test_offsets_carry_the_cluster_and_the_record_before_them():
    cluster = Cluster({q(0): Ends(0, 9), q(1): Ends(0, 0)}, clusters={"a": "C"}, records={q(0): "x"})
    one = stream(cluster, startingOffsets="earliest")
    assert one.initial() == at(0, 0, clusters={"a": "C"})
    end = one.next(one.initial(), None)
    assert end == at(9, 0, clusters={"a": "C"}, marks={"T": {"a": {"0": "x8@8"}}})
    assert one.next(end, None) is end


def test_a_checkpoint_without_proofs_is_read_and_gets_them_with_the_next_batch():
    cluster = Cluster({q(0): Ends(0, 9)}, clusters={"a": "C"}, records={q(0): "x"})
    assert stream(cluster).next(at(9), None) == at(9)
    assert stream(cluster).next(at(5), None)["@"]["marks"] == {"T": {"a": {"0": "x8@8"}}}


def test_a_topic_with_other_records_stops_a_stream_or_is_read_from_its_beginning():
    before = at(5, marks={"T": {"a": {"0": "x4@4"}}})
    cluster = Cluster({q(0): Ends(0, 9)}, records={q(0): "y"})
    with pytest.raises(
        DataLost, match=r"queue 0 of T on a is not the one that was read up to 5: .*recreated"
    ):
        stream(cluster).next(before, None)
    one = stream(cluster, failOnDataLoss="false")
    again = one.next(before, None)
    assert again == at(0)
    assert one.ranges(before, again) == []
    assert one.next(again, None) == at(9, marks={"T": {"a": {"0": "y8@8"}}})


def test_records_are_compared_at_the_start_and_whenever_a_queue_has_more():
    before = at(5, marks={"T": {"a": {"0": "x4@4"}}})
    cluster = Cluster({q(0): Ends(0, 5)}, records={q(0): "x"})
    one = stream(cluster)
    assert one.next(before, None) is before
    cluster.ends, cluster.records = {q(0): Ends(0, 7)}, {q(0): "y"}  # recreated while the query runs
    with pytest.raises(DataLost, match="the record before that offset is another one now"):
        one.next(before, None)


def test_another_cluster_is_a_loss_unless_the_records_are_the_same():
    before = at(5, 0, clusters={"a": "C"}, marks={"T": {"a": {"0": "x4@4"}}})
    ends = {q(0): Ends(0, 9), q(1): Ends(0, 4)}
    same = Cluster(ends, clusters={"a": "D"}, records={q(0): "x", q(1): "z"})
    assert stream(same).next(before, None)["@"]["clusters"] == {"a": "D"}
    other = Cluster(ends, clusters={"a": "D"})
    with pytest.raises(DataLost, match="broker a belonged to cluster C and belongs to cluster D now"):
        stream(other).next(before, None)
    assert stream(other, failOnDataLoss="false").next(before, None)["T"] == at(0, 0)["T"]


def test_a_queue_whose_broker_does_not_give_the_record_stands_still():
    before = at(5, marks={"T": {"a": {"0": "x4@4"}}})
    cluster = Cluster({q(0): Ends(0, 9)}, records={q(0): "x"}, gives_no_records=True)
    one = stream(cluster)
    assert one.next(before, None) is before
    assert one.next(at(5), None) == at(5)
    with pytest.raises(MissingBrokers, match="broker a does not answer"):
        stream(cluster).initial()
    cluster.gives_no_records = False
    assert one.next(before, None) == at(9, marks={"T": {"a": {"0": "x8@8"}}})


def test_a_batch_that_a_former_run_planned_is_compared_too():
    start = at(5, marks={"T": {"a": {"0": "x4@4"}}})
    end = at(9, marks={"T": {"a": {"0": "x8@8"}}})
    cluster = Cluster({q(0): Ends(0, 12)}, records={q(0): "x"})
    assert stream(cluster).ranges(start, end) == [Range(q(0), 5, 9)]
    cluster.records = {q(0): "y"}
    with pytest.raises(DataLost, match="recreated"):
        stream(cluster).ranges(start, end)
    assert stream(cluster, failOnDataLoss="false").ranges(start, end) == [Range(q(0), 5, 9)]


# batches


def test_a_batch_reads_from_start_to_end_and_is_split():
    cluster = Cluster({q(0): Ends(2, 12), q(1): Ends(0, 4)})
    assert batch_ranges(query(False), cluster) == [Range(q(0), 2, 12), Range(q(1), 0, 4)]
    wanted = query(
        False, startingOffsets='{"T":{"a":{"0":4,"1":-2}}}', endingOffsets='{"T":{"a":{"0":8,"1":-1}}}'
    )
    assert batch_ranges(wanted, cluster) == [Range(q(0), 4, 8), Range(q(1), 0, 4)]
    assert len(batch_ranges(query(False, minPartitions="7"), cluster)) >= 7


def test_a_batch_that_asks_for_what_is_gone_fails_or_reads_the_rest():
    cluster = Cluster({q(0): Ends(20, 30)})
    given = {"startingOffsets": '{"T":{"a":{"0":5}}}', "endingOffsets": '{"T":{"a":{"0":50}}}'}
    with pytest.raises(
        DataLost, match=r"messages 5 to 19.*endingOffsets asks for queue 0 .* up to 50, and it ends at 30"
    ):
        batch_ranges(query(False, **given), cluster)
    assert batch_ranges(query(False, failOnDataLoss="false", **given), cluster) == [Range(q(0), 20, 30)]


def test_a_batch_that_ends_before_it_begins_is_refused():
    given = {"startingOffsets": '{"T":{"a":{"0":8}}}', "endingOffsets": '{"T":{"a":{"0":5}}}'}
    with pytest.raises(BadOffsets, match="queue 0 of T on a would be read from 8 to 5"):
        batch_ranges(query(False, **given), Cluster({q(0): Ends(0, 9)}))


@pytest.mark.parametrize("queues", ['{"T":[0,7]}', '{"T":{"a":[0,7]}}'])
def test_assigned_queues_that_are_not_there_are_named(queues):
    wanted = query_of({"nameServer": "h:1", "assign": queues}, False)
    with pytest.raises(BadOffsets, match="option assign names queues that do not exist: queue 7 of T"):
        batch_ranges(wanted, Cluster({q(0): Ends(0, 9)}))


def test_a_batch_ends_before_a_time():
    cluster = Cluster({q(0): Ends(0, 9), q(1): Ends(0, 4)}, times={q(0): 5, q(1): None})
    assert batch_ranges(query(False, endingTimestamp="1700000000007"), cluster) == [
        Range(q(0), 0, 5),
        Range(q(1), 0, 4),
    ]


def test_a_stream_that_ends_ends_before_a_time():
    cluster = Cluster({q(0): Ends(0, 9), q(1): Ends(0, 4)}, times={q(0): 5, q(1): None})
    made = stream(cluster, endingTimestamp="1700000000007", startingOffsets="earliest")
    made.fix_goal()
    assert made.next(made.initial(), None) == at(5, 4)
    endless = stream(cluster, endingTimestamp="1700000000007", startingOffsets="earliest")
    with pytest.raises(BadOffsets, match="availableNow"):
        endless.next(endless.initial(), None)
