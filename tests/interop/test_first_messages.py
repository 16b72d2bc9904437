"""A new group on a new topic: the messages sent right after its start are all read, by every client.

A broker that says nothing about an empty queue lets the client ask for its end, and a message that arrives in
between is skipped for ever: Java clients on Apache 5.5.0 miss the first message of a queue in one of six
rounds of this test. Our own client must not, on 5.5.0 either. Also here: an offset that is stored before
anything else has made its group known, and consumers that let the broker divide the queues.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from turbopump.aio import Consumer, Message, MessageExt, MessageQueue, Producer, PullConsumer

from . import artifacts, clients, peers, topics
from .conftest import StartOnce

ROUNDS, QUEUES, MESSAGES = 50, 8, 20
AT_ONCE = 10
LOST_AFTER_S = 45.0
BROKER = "broker-a"
RACERS = (*(f"java-{version}" for version in artifacts.JAVA_CLIENTS), clients.GO)


@pytest.mark.parametrize("client", RACERS)
def test_a_new_group_reads_the_first_messages_of_a_new_topic(
    client: str, start_once: StartOnce, tmp_path: Path
) -> None:
    assert _lost(client, start_once(peers.OURS), tmp_path) == []


def test_a_consumer_that_leaves_the_division_to_the_broker_reads_everything(
    start_once: StartOnce, tmp_path: Path
) -> None:
    """5.x with setClientRebalance(false): it asks the broker for its queues (400)."""
    assert _lost("java-5.5.0", start_once(peers.OURS), tmp_path, rounds=2, client_rebalance=False) == []


def _lost(
    client: str, cluster: peers.Cluster, work: Path, rounds: int = ROUNDS, client_rebalance: bool = True
) -> list[str]:
    sizes = [str(number) for number in (rounds, QUEUES, MESSAGES)]
    where = [cluster.namesrv, cluster.broker_addr, clients.prefix()]
    options = [str(client_rebalance).lower()]
    printed = clients.run_java(client, clients.FIRST_MESSAGES, [*where, *sizes, *options], work).splitlines()
    assert f"rounds {rounds}" in printed
    return [line for line in printed if line.startswith("lost")]


@pytest.mark.parametrize("server", [peers.OURS, "5.5.0"])
def test_our_client_reads_the_first_messages_of_a_new_topic(server: str, start_once: StartOnce) -> None:
    """They are sent while it starts: at the moment that start() returns it is beyond the race."""
    assert asyncio.run(_rounds(start_once(server))) == []


async def _rounds(cluster: peers.Cluster) -> list[str]:
    prefix, places = clients.prefix(), asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> list[str]:
        async with places:
            return await _round(cluster, producer, f"{prefix}first{number}", number)

    for number in range(ROUNDS):
        topics.create(cluster, f"{prefix}first{number}", QUEUES)
    async with Producer(f"{prefix}p", name_servers=cluster.namesrv) as producer:
        return [line for lines in await asyncio.gather(*map(one, range(ROUNDS))) for line in lines]


async def _round(cluster: peers.Cluster, producer: Producer, topic: str, number: int) -> list[str]:
    missing = {f"k{index}" for index in range(MESSAGES)}
    all_read = asyncio.Event()

    async def read(message: MessageExt) -> None:
        missing.discard(message.text)
        if not missing:
            all_read.set()

    async def send() -> None:
        await asyncio.sleep(number % AT_ONCE / 1000)  # at ten moments of a start
        for index in range(MESSAGES):
            queue = MessageQueue(topic, BROKER, index % QUEUES)
            await producer.send(Message(topic, f"k{index}".encode()), queue=queue)

    consumer = Consumer(topic, name_servers=cluster.namesrv, instance_name=topic)
    consumer.subscribe(topic, read)
    try:
        async with asyncio.timeout(LOST_AFTER_S):
            await asyncio.gather(consumer.start(), send())
            await all_read.wait()
    except TimeoutError:
        return [f"lost {number}: {sorted(missing)}"]
    finally:
        await consumer.close()
    return []


def test_an_offset_that_a_pull_consumer_of_4_5_stores_right_after_its_start_is_kept(
    start_once: StartOnce, tmp_path: Path
) -> None:
    cluster = start_once(peers.OURS)
    arguments = [cluster.namesrv, cluster.broker_addr, clients.prefix()]
    printed = clients.run_java("java-4.5.1", clients.EARLY_COMMIT, arguments, tmp_path)
    assert "stored 5" in printed.splitlines()


@pytest.mark.parametrize("server", [peers.OURS, "5.5.0"])
def test_a_commit_is_kept_as_the_first_call_of_our_pull_consumer(server: str, start_once: StartOnce) -> None:
    cluster = start_once(server)
    topic = topics.create(cluster, f"{clients.prefix()}early", 1)

    async def commit() -> int | None:
        async with PullConsumer(topic, name_servers=cluster.namesrv) as consumer:
            queue = MessageQueue(topic, BROKER, 0)
            await consumer.commit({queue: 5})
            return await consumer.committed(queue)

    assert asyncio.run(commit()) == 5
