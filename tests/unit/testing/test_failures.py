"""A test whose handler fails does not pass by waiting until its messages are consumed."""

import asyncio

import pytest
from tests.kit import virtual

import turbopump.aio
from turbopump import Consumer, Message, MessageExt, RetryLater
from turbopump.testing import AsyncCluster, Cluster


def fail(message: MessageExt) -> None:
    raise KeyError("no such order")


def test_the_exception_of_a_handler_ends_the_wait() -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        consumer = cluster.consumer("readers")
        consumer.subscribe(topic, fail)
        with consumer:
            producer.send(Message(topic, b"x"))
            with pytest.raises(KeyError, match="no such order") as raised:
                cluster.wait_until_consumed("readers", topic)
            assert "raised by a handler of group readers" in raised.value.__notes__[0]


@pytest.mark.parametrize("expected", [KeyError, LookupError, Exception, (ValueError, KeyError)])
def test_an_expected_exception_does_not(expected: type[Exception]) -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        consumer = cluster.consumer("readers")
        consumer.subscribe(topic, fail)
        with consumer:
            producer.send(Message(topic, b"x"))
            cluster.wait_until_consumed("readers", topic, expected=expected)
            cluster.advance(minutes=5)
            with pytest.raises(KeyError):
                cluster.wait_until_consumed("readers", topic, expected=ValueError)


def test_a_wish_for_another_delivery_and_other_groups_are_no_failure() -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()

        def later(message: MessageExt) -> None:
            raise RetryLater

        readers, others = cluster.consumer("readers"), cluster.consumer("others")
        readers.subscribe(topic, later)
        others.subscribe(topic, fail)
        with readers, others:
            producer.send(Message(topic, b"x"))
            cluster.wait_until_consumed("readers", topic)


def test_a_timeout_of_the_handler_is_its_own() -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()

        def time_out(message: MessageExt) -> None:
            raise TimeoutError("the database is slow")

        consumer = cluster.consumer("readers")
        consumer.subscribe(topic, time_out)
        with consumer:
            producer.send(Message(topic, b"x"))
            with pytest.raises(TimeoutError, match="the database is slow"):
                cluster.wait_until_consumed("readers", topic)


def test_what_would_end_the_run_is_an_assertion() -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()

        def leave(message: MessageExt) -> None:
            raise SystemExit(3)

        consumer = cluster.consumer("readers")
        consumer.subscribe(topic, leave)
        with consumer:
            producer.send(Message(topic, b"x"))
            with pytest.raises(AssertionError, match="SystemExit was raised by a handler") as raised:
                cluster.wait_until_consumed("readers", topic)
            assert isinstance(raised.value.__cause__, SystemExit)


def test_consumers_that_a_program_makes_for_itself_are_seen_too() -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        with cluster.as_default():
            consumer = Consumer("billing", name_servers="rocketmq.example.com:9876")
        consumer.subscribe(topic, fail)
        with consumer:
            producer.send(Message(topic, b"x"))
            with pytest.raises(KeyError):
                cluster.wait_until_consumed("billing", topic)


@virtual
async def test_async_clusters_fail_in_the_same_way() -> None:
    async with AsyncCluster(clock="virtual") as cluster, cluster.producer() as producer:
        topic = await cluster.create_topic()
        consumer = cluster.consumer("readers")
        with cluster.as_default():
            own = turbopump.aio.Consumer("billing")
        consumer.subscribe(topic, fail)
        own.subscribe(topic, fail)
        async with consumer, own:
            await producer.send(Message(topic, b"x"))
            await asyncio.sleep(1)
            with pytest.raises(KeyError):
                await cluster.wait_until_consumed("readers", topic)
            with pytest.raises(KeyError):
                await cluster.wait_until_consumed("billing", topic)
            await cluster.wait_until_consumed("readers", topic, expected=KeyError)
