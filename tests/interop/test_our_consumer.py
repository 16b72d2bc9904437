"""Our push consumer and `client.admin` on Apache's servers and on ours: the same story, the same end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from turbopump.client.admin import Admin, NotFound
from turbopump.client.admin.dead_letters import DeadLetters, Target, Window
from turbopump.client.group.consume_status import RetryLater
from turbopump.client.message import Message, MessageExt
from turbopump.client.push.consumer import Consumer
from turbopump.client.settings import ConsumeFromWhere
from turbopump.protocol.bodies import TopicConfig
from turbopump.protocol.errors import TopicNotFound

from . import artifacts, peers

TOPIC, GROUP = "orders", "readers"
PATIENCE_S = 90.0
SHORT_LEVELS = {"messageDelayLevel": "1s 1s 1s 1s 1s 1s"}


class Reader:
    def __init__(self) -> None:
        self.texts: Counter[str] = Counter()
        self.retries: list[int] = []
        self.refused = ""

    async def __call__(self, message: MessageExt) -> None:
        assert message.topic == TOPIC
        self.texts[message.text] += 1
        if message.text == self.refused:
            self.retries.append(message.reconsume_times)
            raise RetryLater


@pytest.mark.parametrize("kind", [*artifacts.SERVERS, peers.OURS])
def test_a_consumer_of_ours_lives_through_its_day(kind: str, tmp_path: Path) -> None:
    with peers.start(kind, peers.place(tmp_path), SHORT_LEVELS) as cluster:
        asyncio.run(asyncio.wait_for(story(cluster), 6 * PATIENCE_S))


async def story(cluster: peers.Cluster) -> None:
    async with Admin([cluster.namesrv]) as admin:
        texts = await filled(admin, cluster)
        first = Reader()
        first.refused = "07"
        async with consumer(cluster, first) as one:
            await retried_and_dead(admin, first, texts)
            await asked_about_itself(admin, one, first)
            await moved_back(admin, first, texts)
            await shared(admin, cluster, first)
        await sent_again(admin, cluster)


async def filled(admin: Admin, cluster: peers.Cluster) -> list[str]:
    config = TopicConfig(topicName=TOPIC, readQueueNums=4, writeQueueNums=4)
    await admin.topics.create(cluster.broker_addr, config)
    await eventually(lambda: known(admin))
    texts = [f"{number:02d}" for number in range(20)]
    producer = admin.producer("senders")
    for text in texts:
        await producer.send(Message(TOPIC, text.encode(), tags="t", keys=(text,)))
    return texts


async def known(admin: Admin) -> bool:
    try:
        return len((await admin.routes.refresh(TOPIC)).publish) == 4
    except TopicNotFound:
        return False


async def retried_and_dead(admin: Admin, reader: Reader, texts: list[str]) -> None:
    """The message that is refused comes three times; every other one once."""
    letters = DeadLetters(admin.messages, admin.routes, GROUP)
    await eventually(lambda: reader.texts["07"] == 3 and set(reader.texts) == set(texts))
    assert reader.retries == [0, 1, 2]
    assert {count for text, count in reader.texts.items() if text != "07"} == {1}

    async def is_dead() -> bool:
        try:
            return [one.body async for one in letters.within(Window())] == [b"07"]
        except NotFound:
            return False

    await eventually(is_dead)


async def asked_about_itself(admin: Admin, consumer: Consumer, reader: Reader) -> None:
    info = await admin.groups.running_info(GROUP, consumer.client_id)
    assert {queue.queueId for queue in info.mqTable if queue.topic == TOPIC} == {0, 1, 2, 3}
    (message,) = await admin.messages.by_key(TOPIC, "03")
    result = await admin.messages.consume_directly(message, GROUP, consumer.client_id)
    assert (result.consumeResult, reader.texts["03"]) == ("CR_SUCCESS", 2)


async def moved_back(admin: Admin, reader: Reader, texts: list[str]) -> None:
    """A 4.9 broker moves only queues in which the group has committed something."""
    await eventually(lambda: is_done(admin))
    reader.refused = ""
    reader.texts.clear()
    offsets = await admin.offsets.reset(GROUP, TOPIC, 0)
    assert set(offsets.values()) == {0}
    await eventually(lambda: set(reader.texts) == set(texts))
    await eventually(lambda: is_done(admin))


async def is_done(admin: Admin) -> bool:
    offsets = (await admin.groups.progress(GROUP, TOPIC)).offsetTable.values()
    return len(offsets) == 4 and all(one.brokerOffset == one.consumerOffset for one in offsets)


async def shared(admin: Admin, cluster: peers.Cluster, first: Reader) -> None:
    """A second member takes half of the queues and gives them back."""
    second = Reader()
    producer = admin.producer("senders")
    async with consumer(cluster, second) as other:
        await eventually(lambda: len(other.queues()) == 2)
        for number in range(100, 120):
            await producer.send(Message(TOPIC, b"%d" % number))
        await eventually(lambda: len([text for text in first.texts + second.texts if len(text) == 3]) == 20)
    for number in range(200, 220):
        await producer.send(Message(TOPIC, b"%d" % number))
    await eventually(lambda: len([text for text in first.texts if text.startswith("2")]) == 20)


async def sent_again(admin: Admin, cluster: peers.Cluster) -> None:
    letters = DeadLetters(admin.messages, admin.routes, GROUP)
    producer = admin.producer("senders")
    (letter,) = [one async for one in letters.within(Window())]
    await letters.resend(letter, Target.GROUP, producer)
    await eventually(lambda: has_copy(letters, letter))
    reader = Reader()
    async with consumer(cluster, reader):
        await eventually(lambda: reader.texts == Counter(["07"]))


async def has_copy(letters: DeadLetters, letter: MessageExt) -> bool:
    return len(await letters.copies(letter, Target.GROUP)) == 1


def consumer(cluster: peers.Cluster, reader: Reader) -> Consumer:
    made = Consumer(
        GROUP,
        name_servers=cluster.namesrv,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        max_reconsume_times=2,
    )
    made.subscribe(TOPIC, reader)
    return made


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0.1)
