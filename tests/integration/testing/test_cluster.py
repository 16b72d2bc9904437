"""The embedded cluster with the real clock, over sockets of this machine."""

import asyncio
import time

import pytest

from turbopump import Consumer, Message, MessageExt, Producer, aio
from turbopump.testing import Cluster


def test_a_cluster_is_there_in_less_than_a_third_of_a_second_and_gone_as_fast() -> None:
    starts, ends = [], []
    for _ in range(5):  # the machine may be busy otherwise
        began = time.monotonic()
        with Cluster(brokers=2):
            started = time.monotonic()
        starts.append(started - began)
        ends.append(time.monotonic() - started)
    assert min(starts) < 0.3
    assert min(ends) < 0.3


def test_what_is_sent_is_consumed_and_committed_within_a_moment() -> None:
    with Cluster() as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        got: list[str] = []
        consumer = cluster.consumer("readers")
        consumer.subscribe(topic, lambda message: got.append(message.text))
        with consumer:
            began = time.monotonic()
            for number in range(20):
                producer.send(Message(topic, b"%d" % number))
            cluster.wait_until_consumed("readers", topic)
            assert time.monotonic() - began < 3
        assert sorted(got, key=int) == [str(number) for number in range(20)]


def test_any_client_can_connect_by_the_address() -> None:
    with Cluster() as cluster, Producer("strangers", name_servers=cluster.name_servers) as producer:
        producer.send(Message("orders", b"hello"))
        assert [message.body for message in cluster.messages("orders")] == [b"hello"]


def test_two_clusters_know_nothing_of_each_other() -> None:
    with Cluster() as one, Cluster() as other, one.producer() as producer:
        producer.send(Message("orders", b"hello"))
        assert len(one.messages("orders")) == 1
        assert other.messages("orders") == []


def test_a_consumer_goes_on_when_the_broker_is_killed_and_comes_back() -> None:
    with Cluster() as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        got: list[str] = []
        consumer = cluster.consumer("readers", pull_time_delay_when_exception=0.05)
        consumer.subscribe(topic, lambda message: got.append(message.text))
        with consumer:
            producer.send(Message(topic, b"before"))
            cluster.wait_until(lambda: "before" in got)
            cluster.kill_broker()
            cluster.start_broker()
            producer.send(Message(topic, b"after"))
            cluster.wait_until(lambda: "after" in got)


def test_brokers_take_settings_by_apaches_names() -> None:
    with Cluster(settings={"autoCreateTopicEnable": "false"}) as cluster, cluster.producer() as producer:
        with pytest.raises(Exception, match="orders"):
            producer.send(Message("orders", b"x"))
        cluster.create_topic("orders")
        producer.send(Message("orders", b"x"))


def test_broadcasting_consumers_leave_nothing_in_the_home_directory() -> None:
    with Cluster() as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        got: list[tuple[str, str]] = []

        def listener(name: str) -> Consumer:
            consumer = cluster.consumer("screens", instance_name=name)

            def show(message: MessageExt) -> None:
                got.append((name, message.text))

            consumer.subscribe(topic, show, broadcast=True)
            return consumer

        with listener("left"), listener("right"):
            producer.send(Message(topic, b"goal"))
            cluster.wait_until(lambda: len(got) == 2)
        assert sorted(got) == [("left", "goal"), ("right", "goal")]


def test_in_async_code_the_cluster_lives_in_the_running_loop() -> None:
    async def scene() -> list[bytes]:
        async with Cluster() as cluster, cluster.producer() as producer:
            topic = await cluster.create_topic()
            await producer.send(Message(topic, b"hello"))
            async with cluster.pull_consumer("audit", [topic]) as consumer:
                return [message.body for message in await consumer.poll()]

    assert asyncio.run(scene()) == [b"hello"]


def test_clients_of_a_program_become_clients_of_the_cluster() -> None:
    with Cluster() as cluster:
        with cluster.as_default(), Producer("orders", name_servers="10.0.0.1:9876") as producer:
            producer.send(Message("orders", b"hello"))
        assert [message.body for message in cluster.messages("orders")] == [b"hello"]

    async def scene() -> list[MessageExt]:
        async with Cluster() as cluster:
            with cluster.as_default():
                async with aio.Producer("orders") as producer:
                    await producer.send(Message("orders", b"hello"))
            return await cluster.messages("orders")

    assert [message.body for message in asyncio.run(scene())] == [b"hello"]


def test_real_time_cannot_be_advanced() -> None:
    with Cluster() as cluster, pytest.raises(RuntimeError, match='clock="virtual"'):
        cluster.advance(1)
