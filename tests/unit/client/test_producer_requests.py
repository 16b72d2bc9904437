"""Request and reply, through a broker of ours."""

import asyncio

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.client.producing import producer, producing, stored

from turbopump.client.errors import InvalidArgument, NotRunning, RequestTimedOut
from turbopump.client.message import Message, MessageExt
from turbopump.client.produce.producer import Producer
from turbopump.protocol import names, properties

QUESTION = Message("questions", b"what time is it?")


async def next_question(town: MemoryCluster, known: int = 0) -> MessageExt:
    while True:
        await town.clock.sleep(0.1)
        if "questions" in await topics(town) and len(found := await stored(town, "questions")) > known:
            return found[-1]


async def topics(town: MemoryCluster) -> list[str]:
    return list(await town.admin.topics.names())


@virtual
async def test_a_reply_reaches_the_one_who_asked() -> None:
    async with cluster() as town, producing(town) as asker, producing(town, group="knowing") as knowing:
        await town.create_topic("questions", queues=1)
        for number in range(3):
            asked = asyncio.create_task(asker.request(QUESTION, timeout=2))
            question = await next_question(town, number)
            assert question.properties[properties.TTL] == "2000"
            await knowing.reply(question, b"noon" * 2000)
            answer = await asked
            assert answer.body == b"noon" * 2000
            assert properties.ARRIVE_TIME in answer.properties
            assert answer.properties["CORRELATION_ID"] == question.properties["CORRELATION_ID"]
        assert not asker._replies


@virtual
async def test_a_request_to_a_topic_that_it_creates_is_answered_too() -> None:
    async with cluster() as town, producing(town) as asker, producing(town, group="knowing") as knowing:
        asked = asyncio.create_task(asker.request(QUESTION))
        await knowing.reply(await next_question(town), b"noon")
        assert (await asked).body == b"noon"


@virtual
async def test_a_reply_with_a_namespace_goes_to_the_reply_topic_that_each_broker_has() -> None:
    async with (
        cluster() as town,
        producing(town, namespace="team") as asker,
        producing(town, group="knowing", namespace="team") as knowing,
    ):
        await town.create_topic("team%questions", queues=1)
        asked = asyncio.create_task(asker.request(QUESTION))
        await town.clock.sleep(0.5)
        (question,) = await stored(town, "team%questions")
        await knowing.reply(question, b"noon")
        assert (await asked).body == b"noon"
        found = [topic for topic in await topics(town) if topic.endswith(names.REPLY_POSTFIX)]
        assert found == ["DefaultCluster_REPLY_TOPIC"]


@virtual
async def test_nobody_answers_in_time() -> None:
    async with cluster() as town, producing(town) as asker, producing(town, group="knowing") as knowing:
        await town.create_topic("questions", queues=1)
        began = town.clock.monotonic()
        with pytest.raises(RequestTimedOut, match=r"producer\.reply"):
            await asker.request(QUESTION, timeout=1.5)
        assert town.clock.monotonic() - began == pytest.approx(1.5)
        (late,) = await stored(town, "questions")
        await knowing.reply(late, b"too late")  # nobody waits: taken and dropped


@virtual
async def test_replies_find_their_requests_when_many_are_open() -> None:
    async with cluster() as town, producing(town) as asker, producing(town, group="knowing") as knowing:
        await town.create_topic("questions", queues=1)
        asked = [asyncio.create_task(asker.request(Message("questions", b"%d" % n))) for n in range(10)]
        await town.clock.sleep(1)
        for question in reversed(await stored(town, "questions")):
            await knowing.reply(question, b"answer to " + question.body)
        assert [(await task).body for task in asked] == [b"answer to %d" % n for n in range(10)]


@virtual
async def test_closing_ends_open_requests() -> None:
    async with cluster() as town:
        await town.create_topic("questions", queues=1)
        asker: Producer = producer(town)
        await asker.start()
        asked = asyncio.create_task(asker.request(QUESTION, timeout=60))
        await next_question(town)
        await asker.close()
        with pytest.raises(NotRunning):
            await asked


@virtual
async def test_only_requests_can_be_replied_to() -> None:
    async with cluster() as town, producing(town) as one:
        await town.create_topic("questions", queues=1)
        await one.send(QUESTION)
        (message,) = await stored(town, "questions")
        with pytest.raises(InvalidArgument, match=r"request\(\)"):
            await one.reply(message, b"noon")
