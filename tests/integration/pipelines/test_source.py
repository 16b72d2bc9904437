"""Topics through brokers, without Spark: rows, looks, times, groups, restarts."""

import os
import time

import pyarrow as pa
import pytest
from tests.interop.asking import asked

from turbopump import Message
from turbopump.client.message import MessageQueue
from turbopump.pipelines.source import broker_client
from turbopump.pipelines.source.cluster_view import BlockingClusterView
from turbopump.pipelines.source.offsets import BadOffsets, DataLost, MissingBrokers, Range
from turbopump.pipelines.source.plan import StreamPlan, batch_ranges
from turbopump.pipelines.source.range_reader import read
from turbopump.pipelines.source.settings import SourceQuery, query_of
from turbopump.protocol.codes import RequestCode
from turbopump.testing import Cluster


def query(cluster, topic: str, is_stream: bool = False, **given: str) -> SourceQuery:
    return query_of({"nameServer": cluster.name_servers, "subscribe": topic, **given}, is_stream)


def table(wanted: SourceQuery) -> pa.Table:
    batches = [
        batch for one in batch_ranges(wanted, BlockingClusterView(wanted)) for batch in read(one, wanted)
    ]
    assert all(batch.schema == wanted.schema.arrow for batch in batches)
    return pa.Table.from_batches(batches, wanted.schema.arrow)


def queue(topic: str, number: int = 0, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic, broker, number)


def fill(producer, topic: str, count: int, number: int = 0, tag_of=lambda n: "", **properties: str) -> None:
    messages = [
        Message(topic, b"%d" % n, tags=tag_of(n), keys=f"K{n}", properties=properties) for n in range(count)
    ]
    producer.send_batch(messages, queue=queue(topic, number))


def bodies(found: pa.Table) -> list[bytes]:
    return found.column("body").to_pylist()


def test_a_topic_is_a_table(cluster, producer, topic):
    fill(producer, topic, 500, 0)
    fill(producer, topic, 20, 3, lambda n: "paid", region="EU")
    found = table(query(cluster, topic, includeProperties="true"))
    assert found.num_rows == 520
    last = found.to_pylist()[-1]
    assert (last["queueId"], last["queueOffset"], last["brokerName"]) == (3, 19, "broker-a")
    assert (last["tags"], last["keys"], dict(last["properties"])["region"]) == ("paid", "K19", "EU")


def test_an_empty_topic_has_no_rows(cluster, topic):
    assert table(query(cluster, topic)).num_rows == 0


def test_a_topic_that_is_nowhere_is_named(cluster):
    with pytest.raises(BadOffsets, match=r"has topic NoSuchTopic, or the queues .* check the name"):
        table(query(cluster, "NoSuchTopic"))


def test_assigned_queues_alone_are_read(cluster, producer, topic):
    fill(producer, topic, 5, 0)
    fill(producer, topic, 7, 1)
    given = {"nameServer": cluster.name_servers, "assign": f'{{"{topic}":[1]}}'}
    assert table(query_of(given, False)).num_rows == 7


def test_a_pattern_matches_no_topic_of_the_system_unless_asked_to(cluster, producer, topic):
    fill(producer, topic, 1)
    plain = query_of({"nameServer": cluster.name_servers, "subscribePattern": ".*"}, False)
    names = BlockingClusterView(plain).snapshot().topics
    assert topic in names
    assert not {"TBW102", "DefaultCluster", "broker-a", "SCHEDULE_TOPIC_XXXX"} & set(names)
    everything = {"subscribePattern": ".*", "includeSystemTopics": "true"}
    more = (
        BlockingClusterView(query_of({"nameServer": cluster.name_servers, **everything}, False))
        .snapshot()
        .topics
    )
    assert "SCHEDULE_TOPIC_XXXX" in more


def test_delayed_messages_can_be_read_where_they_wait(cluster, producer, topic):
    producer.send(Message(topic, b"later", delay_level=18))
    found = table(query(cluster, "SCHEDULE_TOPIC_XXXX"))
    assert b"later" in bodies(found)


def test_tags_choose_by_their_text_and_sparse_ones_reach_the_end(cluster, producer, topic):
    fill(producer, topic, 3000, 0, lambda n: "Aa" if n in (5, 2990) else "BB" if n == 700 else "other")
    assert bodies(table(query(cluster, topic, tags="Aa"))) == [b"5", b"2990"]  # "BB" has the hash of "Aa"
    assert table(query(cluster, topic, tags="none || nobody")).num_rows == 0


def test_sql_chooses_at_the_broker(cluster, producer, topic):
    fill(producer, topic, 900, 0, price="5")
    fill(producer, topic, 3, 0, price="50")
    found = table(query(cluster, topic, sql="price > 10", columns="queueOffset"))
    assert found["queueOffset"].to_pylist() == [900, 901, 902]


def test_compressed_and_large_bodies_come_whole(cluster, topic):
    with cluster.producer(compress_msg_body_over_howmuch=1000, compress_type="ZLIB") as producer:
        producer.send(Message(topic, b"x" * 100_000), queue=queue(topic))
    with cluster.producer(compress_msg_body_over_howmuch=1 << 30) as producer:
        for _ in range(3):
            producer.send(Message(topic, os.urandom(4_190_000)), queue=queue(topic))
        fill(producer, topic, 40)
    found = bodies(table(query(cluster, topic, columns="body")))
    assert [len(body) for body in found[:4]] == [100_000, 4_190_000, 4_190_000, 4_190_000]
    assert found[4:] == [b"%d" % n for n in range(40)]


def test_properties_that_are_none_cost_no_row(cluster, producer, topic):
    fill(producer, topic, 2)
    address = cluster.admin().clusters.layout().master_of("broker-a")
    header = {"topic": topic, "queueId": 0, "producerGroup": "g", "defaultTopic": "TBW102", "flag": 7}
    counts = {"defaultTopicQueueNums": 4, "sysFlag": 0, "bornTimestamp": 1, "reconsumeTimes": 0}
    for odd in ("a\x01b\x01c\x02TAGS\x01x", "no separator", "\x01\x02\x02\x01", "KEYS\x01"):
        asked(address, RequestCode.SEND_MESSAGE, b"odd", **header, **counts, properties=odd)
    rows = table(query(cluster, topic, includeProperties="true")).to_pylist()
    assert [row["body"] for row in rows] == [b"0", b"1", *[b"odd"] * 4]
    assert rows[2]["tags"] == "x"
    assert rows[5]["keys"] is None


def test_times_find_their_offsets(cluster, producer, topic):
    fill(producer, topic, 5)
    time.sleep(0.02)
    middle = str(int(time.time() * 1000))
    time.sleep(0.02)
    fill(producer, topic, 3)
    only = f'{{"{topic}":{{"broker-a":[0]}}}}'
    given = {"nameServer": cluster.name_servers, "assign": only}
    assert table(query_of({**given, "startingTimestamp": middle}, False)).num_rows == 3
    assert table(query_of({**given, "endingTimestamp": middle}, False)).num_rows == 5
    future = str(int(time.time() * 1000) + 60_000)
    with pytest.raises(BadOffsets, match="no message of queue 0"):
        table(query_of({**given, "startingTimestamp": future}, False))


def test_one_queue_is_read_by_many_tasks(cluster, producer, topic):
    fill(producer, topic, 1000)
    wanted = query(cluster, topic, minPartitions="7", columns="queueOffset")
    tasks = batch_ranges(wanted, BlockingClusterView(wanted))
    assert len(tasks) >= 7
    assert table(wanted)["queueOffset"].to_pylist() == list(range(1000))


def test_one_connection_serves_all_tasks_of_a_process(cluster, producer, topic):
    fill(producer, topic, 10)
    wanted = query(cluster, topic)
    table(wanted)
    first = broker_client.shared_client(wanted.access)
    table(wanted)
    assert broker_client.shared_client(query(cluster, topic, tags="x").access) is first


def test_a_group_is_seen_by_tools_and_its_lag_too(cluster, producer, topic):
    fill(producer, topic, 10)
    group = cluster.new_group()
    wanted = query(cluster, topic, True, groupId=group, startingOffsets="earliest")
    stream = StreamPlan(wanted, BlockingClusterView(wanted), time.monotonic)
    start = stream.initial()
    end = stream.next(start, None)
    fill(producer, topic, 3)
    stream.next(end, None)
    progress = cluster.admin().groups.progress(group).offsetTable
    snapshot = {at.queueId: (one.brokerOffset, one.consumerOffset) for at, one in progress.items()}
    assert snapshot[0] == (13, 10)


def test_offsets_that_a_tool_resets_do_not_disturb_the_reading(cluster, producer, topic):
    fill(producer, topic, 300)
    group = cluster.new_group()
    wanted = query(cluster, topic, True, groupId=group, startingOffsets="earliest")
    stream = StreamPlan(wanted, BlockingClusterView(wanted), time.monotonic)
    end = stream.next(stream.initial(), None)
    stream.next(end, None)
    cluster.admin().offsets.reset_to(group, topic, 0)
    (one,) = [one for one in stream.ranges(stream.initial(), end) if one.queue.id == 0]
    assert sum(batch.num_rows for batch in read(one, wanted)) == 300


@pytest.mark.turbopump(brokers=2)
def test_new_queues_and_brokers_are_taken_up(cluster):
    name = cluster.new_topic()
    cluster.stop_broker("broker-b")
    cluster.create_topic(name, queues=1)
    with cluster.producer() as producer:
        fill(producer, name, 4)
    wanted = query(cluster, name, True, startingOffsets="earliest")
    stream = StreamPlan(wanted, BlockingClusterView(wanted), time.monotonic)
    start = stream.initial()
    assert start[name] == {"broker-a": {"0": 0}}
    start = stream.next(start, None)
    cluster.start_broker("broker-b")
    cluster.create_topic(name, queues=2)
    with cluster.producer() as producer:
        producer.send(Message(name, b"new"), queue=queue(name, 1, "broker-b"))
    grown = stream.next(start, None)
    assert grown[name] == {"broker-a": {"0": 4, "1": 0}, "broker-b": {"0": 0, "1": 0}}
    assert stream.next(grown, None)[name]["broker-b"] == {"0": 0, "1": 1}


@pytest.mark.turbopump(brokers=1)
def test_a_broker_that_restarts_is_waited_for(cluster):
    name = cluster.create_topic(queues=1)
    with cluster.producer() as producer:
        fill(producer, name, 2000)
    wanted = query(cluster, name, True, startingOffsets="earliest")
    stream = StreamPlan(wanted, BlockingClusterView(wanted), time.monotonic)
    start = stream.initial()
    end = stream.next(start, None)
    rows = read(Range(queue(name), 0, 2000), wanted)
    cluster.stop_broker()
    assert stream.next(end, None) == end  # it stands still
    cluster.start_broker()
    assert sum(batch.num_rows for batch in rows) == 2000
    assert stream.next(start, None) == end


ONCE = {"fetchOffset.numRetries": "0"}


def both(cluster, name: str, count: int = 5) -> None:
    """Messages in one queue of each broker."""
    with cluster.producer() as producer:
        for broker in ("broker-a", "broker-b"):
            at = queue(name, 0, broker)
            producer.send_batch([Message(name, b"%d" % n) for n in range(count)], queue=at)


@pytest.mark.turbopump(brokers=2)
def test_a_batch_without_a_broker_fails_and_names_it(cluster):
    name = cluster.create_topic(queues=1)
    both(cluster, name)
    assert table(query(cluster, name)).num_rows == 10
    cluster.stop_broker("broker-b")
    with pytest.raises(MissingBrokers, match="broker broker-b is not registered with the name server"):
        table(query(cluster, name, **ONCE))
    assert table(query(cluster, name, allowMissingBrokers="true")).num_rows == 5
    assert (
        table(
            query(
                cluster,
                name,
                startingOffsets=f'{{"{name}":{{"broker-a":{{"0":2}},"broker-b":{{"0":1}}}}}}',
                allowMissingBrokers="true",
            )
        ).num_rows
        == 3
    )
    only_a = {"nameServer": cluster.name_servers, "assign": f'{{"{name}":{{"broker-b":[0]}}}}', **ONCE}
    with pytest.raises(MissingBrokers, match="broker-b"):
        table(query_of(only_a, False))
    pattern = {"nameServer": cluster.name_servers, "subscribePattern": f"{name}.*", **ONCE}
    with pytest.raises(MissingBrokers, match="broker-b"):
        table(query_of(pattern, False))
    cluster.stop_broker("broker-a")
    with pytest.raises(MissingBrokers, match=r"broker broker-a is not .*; broker broker-b is not"):
        table(query(cluster, name, **ONCE))


@pytest.mark.turbopump(brokers=2)
def test_a_broker_can_be_expected_or_forgotten(cluster):
    name = cluster.create_topic(queues=1)
    both(cluster, name)
    with pytest.raises(MissingBrokers, match="broker broker-c is not registered"):
        table(query(cluster, name, expectedBrokers="broker-a, broker-c", **ONCE))
    cluster.stop_broker("broker-b")
    cluster.admin().name_servers.delete_value("TURBOPUMP_KNOWN_BROKERS", "broker-b")
    assert table(query(cluster, name, **ONCE)).num_rows == 5
    cluster.admin().name_servers.put_value("ORDER_TOPIC_CONFIG", name, "broker-a:1;broker-b:1")
    with pytest.raises(MissingBrokers, match="broker broker-b is not registered"):
        table(query(cluster, name, **ONCE))


@pytest.mark.turbopump(brokers=2)
@pytest.mark.parametrize("by_time", [False, True], ids=["latest", "time"])
def test_history_of_a_missing_broker_does_not_appear_when_it_is_back(cluster, by_time):
    name = cluster.create_topic(queues=1)
    both(cluster, name)
    time.sleep(0.01)
    given = {"startingTimestamp": str(int(time.time() * 1000))} if by_time else {"startingOffsets": "latest"}
    given |= {"startingOffsetsByTimestampStrategy": "latest"}
    cluster.stop_broker("broker-b")
    strict = query(cluster, name, True, **given, **ONCE)
    with pytest.raises(MissingBrokers, match="broker-b"):
        StreamPlan(strict, BlockingClusterView(strict), time.monotonic).initial()
    wanted = query(cluster, name, True, allowMissingBrokers="true", **given)
    stream = StreamPlan(wanted, BlockingClusterView(wanted), time.monotonic)
    start = stream.initial()
    cluster.start_broker("broker-b")
    both(cluster, name, 3)
    taken_up = stream.next(start, None)
    assert taken_up[name] == {"broker-a": {"0": 8}, "broker-b": {"0": 5}}
    assert stream.next(taken_up, None)[name] == {"broker-a": {"0": 8}, "broker-b": {"0": 8}}


def begun(cluster, name: str, **given: str) -> tuple[SourceQuery, dict]:
    """A stream that has read all, and a query to go on with."""
    wanted = query(cluster, name, True, startingOffsets="earliest", **given)
    stream = StreamPlan(wanted, BlockingClusterView(wanted), time.monotonic)
    return wanted, dict(stream.next(stream.initial(), None))


def go_on(wanted: SourceQuery, start: dict) -> list[bytes]:
    """The rows that a new run of the query reads."""
    stream, found = StreamPlan(wanted, BlockingClusterView(wanted), time.monotonic), []
    while (end := stream.next(start, None)) != start:
        for one in stream.ranges(start, end):
            found += [body for batch in read(one, wanted) for body in batch.column("body").to_pylist()]
        start = dict(end)
    return found


@pytest.mark.turbopump(brokers=1)
def test_a_topic_that_was_recreated_is_a_loss_although_it_has_more_messages(cluster):
    name = cluster.create_topic(queues=1)
    with cluster.producer() as producer:
        fill(producer, name, 5)
        wanted, start = begun(cluster, name)
        cluster.admin().topics.delete(name)
        cluster.create_topic(name, queues=1)
        fill(producer, name, 9)
    with pytest.raises(DataLost, match=r"queue 0 of .* is not the one that was read up to 5"):
        go_on(wanted, start)
    may_lose = query(cluster, name, True, failOnDataLoss="false")
    assert go_on(may_lose, start) == [b"%d" % n for n in range(9)]


def test_another_cluster_of_the_same_names_is_a_loss():
    with Cluster() as one, Cluster() as two:
        for cluster, count in ((two, 9), (one, 5)):  # the other one is the older one
            cluster.create_topic("Orders", queues=1)
            with cluster.producer() as producer:
                fill(producer, "Orders", count)
        _, start = begun(one, "Orders")
        with pytest.raises(DataLost, match="this is another cluster"):
            go_on(query(two, "Orders", True), start)
        may_lose = query(two, "Orders", True, failOnDataLoss="false")
        assert go_on(may_lose, start) == [b"%d" % n for n in range(9)]


@pytest.mark.turbopump(brokers=1)
def test_a_topic_that_gets_fewer_queues_is_read_to_the_end_of_the_others(cluster):
    name = cluster.create_topic(queues=3)
    with cluster.producer() as producer:
        for number in range(3):
            fill(producer, name, 4, number)
        wanted, start = begun(cluster, name)
        for number in range(3):
            fill(producer, name, 40, number)
        cluster.create_topic(name, queues=1)
        fill(producer, name, 2, 0)
        stream = StreamPlan(wanted, BlockingClusterView(wanted), time.monotonic)
        end = stream.next(start, None)
        assert end[name] == {"broker-a": {"0": 46, "1": 44, "2": 44}}
        rows = [row for one in stream.ranges(start, end) for b in read(one, wanted) for row in b.to_pylist()]
        assert sorted((row["queueId"], row["queueOffset"]) for row in rows) == [
            (number, offset) for number, high in ((0, 46), (1, 44), (2, 44)) for offset in range(4, high)
        ]
        assert go_on(wanted, dict(end)) == []
        cluster.create_topic(name, queues=2)  # and it grows again
        fill(producer, name, 1, 1)
        assert len(go_on(wanted, dict(end))) == 1


def test_ending_offsets_beyond_the_end_are_an_error(cluster, producer, topic):
    fill(producer, topic, 5)
    ends = f'{{"{topic}":{{"broker-a":{{"0":50,"1":-1,"2":-1,"3":-1}}}}}}'
    with pytest.raises(DataLost, match=r"endingOffsets asks for queue 0 .* up to 50, and it ends at 5"):
        table(query(cluster, topic, endingOffsets=ends))
    assert table(query(cluster, topic, endingOffsets=ends, failOnDataLoss="false")).num_rows == 5


def test_messages_that_no_one_can_read_are_counted(cluster, producer, topic, caplog):
    fill(producer, topic, 5, 0)
    fill(producer, topic, 7, 3)
    address = cluster.admin().clusters.layout().master_of("broker-a")
    config = cluster.admin().topics.config(address, topic)
    config.readQueueNums = 2
    cluster.admin().topics.create(address, config)
    assert table(query(cluster, topic)).num_rows == 5
    assert f"7 messages of queue 3 of {topic} on broker-a are not read" in caplog.text
