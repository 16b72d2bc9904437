"""What a stream reads next, without Spark and without brokers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from turbopump.client.message import MessageQueue
from turbopump.pipelines.source.offsets import BadOffsets, DataLost, Ends, Range
from turbopump.pipelines.source.plan import Stream, batch_ranges
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

    def look(self, is_first: bool = False) -> "Cluster":
        return self

    def away(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [queue for queue in queues if queue.broker in self.silent]

    def offsets_at(self, times_ms, ends):
        return {queue: self.times[queue] for queue in times_ms}

    def commit(self, positions):
        self.committed.append(dict(positions))


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def query(is_stream: bool = True, **given: str):
    topics = {} if "subscribePattern" in given else {"subscribe": "T"}
    return query_of({"nameServer": "h:1", **topics, **given}, is_stream)


def stream(cluster: Cluster, clock: Clock | None = None, **given: str) -> Stream:
    return Stream(query(**given), cluster, clock or Clock())


def at(*offsets: int) -> dict:
    return {"T": {"a": {str(number): offset for number, offset in enumerate(offsets)}}}


def test_a_stream_begins_at_the_latest_message_and_says_the_same_twice():
    cluster = Cluster({q(0): Ends(2, 9), q(1): Ends(0, 4)})
    one = stream(cluster)
    assert one.initial() == at(9, 4)
    cluster.ends[q(0)] = Ends(2, 12)
    assert one.initial() == at(9, 4)
    assert one.next(at(9, 4), None) == at(12, 4)
    assert one.latest() == at(12, 4)
    assert one.ranges(at(9, 4), at(12, 4)) == [Range(q(0), 9, 12)]


def test_an_empty_topic_and_no_topic_at_all():
    assert stream(Cluster({q(0): Ends(0, 0)})).initial() == at(0)
    none = stream(Cluster({}), subscribePattern="T.*")
    assert none.initial() == {}
    assert none.next({}, None) == {}
    assert none.ranges({}, {}) == []


def test_earliest_and_offsets_by_json_and_by_time():
    ends = {q(0): Ends(2, 9), q(1): Ends(0, 4)}
    assert stream(Cluster(ends), startingOffsets="earliest").initial() == at(2, 0)
    named = '{"T":{"a":{"0":-1,"1":3}}}'
    assert stream(Cluster(ends), startingOffsets=named).initial() == at(9, 3)
    cluster = Cluster(ends, times={q(0): 5, q(1): None})
    with pytest.raises(BadOffsets, match="no message of queue 1 of T on a was stored at that time or later"):
        stream(cluster, startingTimestamp="77").initial()
    late = stream(cluster, startingTimestamp="77", startingOffsetsByTimestampStrategy="latest")
    assert late.initial() == at(5, 4)
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


def test_a_topic_that_was_made_anew_stops_a_stream_or_goes_on_at_its_end():
    cluster = Cluster({q(0): Ends(0, 3)})
    with pytest.raises(DataLost, match="ends at 3, and this query had come to 10"):
        stream(cluster).next(at(10), None)
    one = stream(cluster, failOnDataLoss="false")
    assert one.next(at(10), None) == at(3)
    assert one.ranges(at(10), at(3)) == []


def test_a_checkpoint_of_another_topic_is_refused_whatever_is_done_about_losses():
    with pytest.raises(BadOffsets, match="the checkpoint is of T, and this query reads U"):
        stream(Cluster({q(0, "U"): Ends(0, 3)}), subscribe="U", failOnDataLoss="false").next(at(10), None)


def test_a_pattern_whose_brokers_are_away_waits_for_them():
    assert stream(Cluster({}, silent=("a",)), subscribePattern="T.*").next(at(10), None) == at(10)
    with pytest.raises(BadOffsets, match=r"this query reads what U\.\* matches"):
        stream(Cluster({}, silent=("a",)), subscribePattern="U.*").next(at(10), None)


def test_a_topic_that_is_not_subscribed_any_more_is_a_loss():
    start = {"T": {"a": {"0": 5}}, "U": {"a": {"0": 7}}}
    cluster = Cluster({q(0): Ends(0, 9)})
    with pytest.raises(DataLost, match="queue 0 of U on a was read until 7, and is not asked for any more"):
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
    with pytest.raises(DataLost, match="messages 5 to 19"):
        batch_ranges(query(False, **given), cluster)
    assert batch_ranges(query(False, failOnDataLoss="false", **given), cluster) == [Range(q(0), 20, 30)]


def test_a_batch_ends_before_a_time():
    cluster = Cluster({q(0): Ends(0, 9), q(1): Ends(0, 4)}, times={q(0): 5, q(1): None})
    assert batch_ranges(query(False, endingTimestamp="7"), cluster) == [Range(q(0), 0, 5), Range(q(1), 0, 4)]
