"""The source against Apache's servers: rows, filters, times, streams, and lag as their mqadmin sees it."""

from __future__ import annotations

import os
import time

import pytest
from tests.interop import artifacts, peers
from tests.interop.console import Console
from tests.spark.stream_kit import Stream, pairs

from turbopump import Admin, Message

from .sending import create, numbered, send

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", params=artifacts.SERVERS)
def apache(request, tmp_path_factory):
    cluster = peers.start(request.param, peers.place(tmp_path_factory.mktemp("apache")))
    yield cluster
    cluster.discard()


def reader(spark, cluster, topic: str, **options: str):
    frame = spark.read.format("rocketmq").option("nameServer", cluster.namesrv).option("subscribe", topic)
    return frame.options(**options).load()


def test_rows_filters_and_times(spark, apache, topic):
    create(apache, topic, 2)
    properties = {"price": "5"}
    for first in range(0, 2000, 500):
        send(apache, numbered(topic, 500, first, tags="BB", properties=properties))
    time.sleep(0.05)
    middle = int(time.time() * 1000)
    time.sleep(0.05)
    send(apache, [Message(topic, b"wanted", tags="Aa", properties={"price": "50"})])  # "BB" has its hash
    send(apache, [Message(topic, b"z" * 100_000, tags="zip")], 1, compress_msg_body_over_howmuch=1000)
    large = os.urandom(4_000_000)
    send(apache, [Message(topic, large)], 1)

    everything = reader(spark, apache, topic).cache()
    assert everything.count() == 2003
    assert everything.selectExpr("max(length(body))").first()[0] == 4_000_000
    assert everything.where("tags = 'zip'").selectExpr("length(body)").first()[0] == 100_000
    offsets = [row[0] for row in everything.where("queueId = 0").select("queueOffset").collect()]
    assert sorted(offsets)[:2001] == list(range(len(offsets)))[:2001]

    assert [bytes(row.body) for row in reader(spark, apache, topic, tags="Aa").collect()] == [b"wanted"]
    assert [bytes(row.body) for row in reader(spark, apache, topic, sql="price > 10").collect()] == [
        b"wanted"
    ]
    after = {"startingTimestamp": str(middle), "startingOffsetsByTimestampStrategy": "latest"}
    assert reader(spark, apache, topic, **after).count() == 3
    assert reader(spark, apache, topic, endingTimestamp=str(middle)).count() == 2000
    future = {**after, "startingTimestamp": str(middle + 600_000)}
    assert reader(spark, apache, topic, **future).count() == 0


def test_streams_and_lag(spark, apache, topic, tmp_path):
    create(apache, topic, 1)
    send(apache, numbered(topic, 50))
    group = f"{topic}-{apache.kind.replace('.', '-')}"
    stream = Stream(spark, apache, topic, tmp_path, maxOffsetsPerTrigger="30", groupId=group)
    assert stream.run() == pairs(0, 0, 50)
    create(apache, topic, 2)
    send(apache, numbered(topic, 7), 1)
    send(apache, numbered(topic, 5))
    assert stream.run() == [*pairs(0, 50, 55), *pairs(1, 0, 7)]
    send(apache, numbered(topic, 4))
    work = tmp_path / "tools"
    work.mkdir()
    tool = artifacts.TOOLS[artifacts.SERVERS.index(apache.kind)]  # a newer one asks what 4.9 does not know
    with Console(tool, apache, work) as console:
        printed = console.mqadmin("consumerProgress", "-n", apache.namesrv, "-g", group)
    rows = [line.split() for line in printed.text.splitlines() if line.startswith(topic)]
    assert {(row[2], row[3], row[4]) for row in rows} == {("0", "59", "55"), ("1", "7", "7")}


def test_a_broker_that_is_killed_and_started_again(spark, apache, topic, tmp_path):
    create(apache, topic, 1)
    send(apache, numbered(topic, 30))
    stream = Stream(spark, apache, topic, tmp_path)
    assert stream.run() == pairs(0, 0, 30)
    apache.kill_broker()
    apache.start_broker()
    send(apache, numbered(topic, 10))
    assert stream.run() == pairs(0, 30, 40)


@pytest.mark.long
def test_a_recreated_topic_and_fewer_queues(spark, apache, topic, tmp_path):
    create(apache, topic, 2)
    for number in range(2):
        send(apache, numbered(topic, 10), number)
    stream = Stream(spark, apache, topic, tmp_path)
    assert stream.run() == [*pairs(0, 0, 10), *pairs(1, 0, 10)]
    for number in range(2):
        send(apache, numbered(topic, 40, 10), number)
    create(apache, topic, 1)  # fewer queues: what is in the other one is read to its end
    assert stream.run() == [*pairs(0, 10, 50), *pairs(1, 10, 50)]
    with Admin(apache.namesrv) as admin:
        admin.topics.delete(topic)
    create(apache, topic, 2)
    for number in range(2):
        send(apache, numbered(topic, 60), number)
    with pytest.raises(Exception, match=f"of {topic} on broker-a is not the one that was read up to 50"):
        stream.run()
    assert stream.run(failOnDataLoss="false") == [*pairs(0, 0, 60), *pairs(1, 0, 60)]


def test_an_expected_broker_that_the_name_server_has_forgotten(spark, apache, topic):
    create(apache, topic, 1)
    send(apache, numbered(topic, 3))
    given = {"expectedBrokers": "broker-a,broker-b", "fetchOffset.numRetries": "0"}
    with pytest.raises(Exception, match="broker broker-b is not registered with the name server"):
        reader(spark, apache, topic, **given).count()
    assert reader(spark, apache, topic, **given, allowMissingBrokers="true").count() == 3
