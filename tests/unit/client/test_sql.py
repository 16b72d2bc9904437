"""Choosing messages by SQL92: consumers of all kinds on a whole cluster, in virtual time."""

import pytest

from turbopump import Message, MessageExt
from turbopump.client.errors import InvalidArgument
from turbopump.protocol.errors import Refused
from turbopump.testing import Cluster

WANTED = "price > 100 AND region IN ('EU', 'UK')"


def virtual(**settings: str) -> Cluster:
    return Cluster(clock="virtual", settings=settings)


def fill(cluster: Cluster, topic: str) -> None:
    with cluster.producer() as producer:
        for number, (price, region) in enumerate([("99", "EU"), ("101", "EU"), ("500", "US"), ("500", "UK")]):
            pairs = {"price": price, "region": region}
            producer.send(Message(topic, b"%d" % number, properties=pairs))
        producer.send(Message(topic, b"no properties"))


def test_a_push_consumer_gets_what_its_expression_wants() -> None:
    got: list[bytes] = []
    with virtual() as cluster:
        topic = cluster.create_topic(queues=1)
        fill(cluster, topic)
        consumer = cluster.consumer("readers")

        @consumer.on(topic, sql=WANTED)
        def handle(message: MessageExt) -> None:
            got.append(message.body)

        with consumer:
            cluster.wait_until_consumed("readers", topic)
            fill(cluster, topic)
            cluster.advance(seconds=10)
    assert sorted(got) == [b"1", b"1", b"3", b"3"]


def test_pulls_and_polls_get_what_their_expression_wants() -> None:
    with virtual() as cluster:
        topic = cluster.create_topic(queues=1)
        fill(cluster, topic)
        with cluster.pull_consumer("readers") as consumer:
            (queue,) = consumer.queues(topic)
            assert [one.body for one in consumer.pull(queue, 0, sql=WANTED).messages] == [b"1", b"3"]
            consumer.subscribe(topic, sql="price IS NULL")
            assert [one.body for one in consumer.poll(30)] == [b"no properties"]


def test_a_bad_expression_is_refused_before_anybody_is_asked() -> None:
    with virtual() as cluster, cluster.pull_consumer("readers") as consumer:
        with pytest.raises(InvalidArgument, match=r"sql: .* \(line 1, column 8: price >\[here\]\)"):
            consumer.subscribe("orders", sql="price >")
        with pytest.raises(InvalidArgument, match="only one of tags, sql and module"):
            consumer.subscribe("orders", "paid", sql="price > 1")
        with pytest.raises(InvalidArgument, match="must not be empty"):
            consumer.subscribe("orders", sql=" ")


def test_a_broker_that_does_not_serve_expressions_says_so() -> None:
    with virtual(enablePropertyFilter="false") as cluster:
        topic = cluster.create_topic()
        with cluster.pull_consumer("readers") as consumer, pytest.raises(Refused, match="SQL92"):
            consumer.subscribe(topic, sql="price > 1")
