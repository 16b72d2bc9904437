"""What is logged while a server is away or a topic is missing: seldom, counted, and with what to do."""

import logging

import pytest
from tests.kit import virtual
from tests.unit.client.listening import Reader

from turbopump.client.counted_log import MAX_KEYS, CountedLog
from turbopump.client.message import Message
from turbopump.testing import AsyncCluster, run_virtual

LOG = logging.getLogger("turbopump.client.tests")


def lines(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if words in record.getMessage()]


def test_a_line_is_written_once_for_each_key_and_interval_and_counts_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        import asyncio

        counted = CountedLog(LOG)
        for _ in range(31):
            counted.log("a", "a is away: %s", "refused")
            counted.log("b", "b is away")
            await asyncio.sleep(1)

    with caplog.at_level(logging.WARNING):
        run_virtual(scene())
    assert lines(caplog, "a is away") == [
        "a is away: refused",
        "a is away: refused (and 29 more since the last such line)",
    ]
    assert len(lines(caplog, "b is away")) == 2


@virtual
async def test_what_is_told_apart_is_bounded() -> None:
    counted = CountedLog(LOG, logging.DEBUG)
    for number in range(3 * MAX_KEYS):
        counted.log(number, "%d", number)
    assert len(counted._by_key) <= MAX_KEYS


def test_consumers_of_a_broker_that_is_away_say_so_seldom_and_go_on_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        async with AsyncCluster(clock="virtual") as cluster, cluster.producer() as producer:
            await cluster.create_topic("orders", queues=4)
            reader, clock = Reader(), cluster.world.clock
            pushed = cluster.consumer("pushed")
            pushed.subscribe("orders", reader)
            pulled = cluster.pull_consumer("pulled", topics=["orders"])
            async with pushed, pulled:
                await clock.sleep(5)
                await cluster.kill_broker()
                await clock.sleep(55)
                await cluster.start_broker()
                await producer.send(Message("orders", b"again"))
                await clock.sleep(3)
                assert reader.bodies == [b"again"]
                assert [one.body for one in await pulled.poll(timeout=3)] == [b"again"]

    with caplog.at_level(logging.INFO, "turbopump.client"):
        run_virtual(scene())
    for words in ("Pull from ", "Cannot assign queues of"):
        said = lines(caplog, words)
        assert 2 <= len(said) <= 8, said
        assert any("more since the last such line" in one for one in said)


def test_a_topic_that_does_not_exist_is_told_once_with_what_to_do_and_consumed_when_it_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        settings = {"autoCreateTopicEnable": "false"}
        async with AsyncCluster(clock="virtual", settings=settings) as cluster:
            reader, clock = Reader(), cluster.world.clock
            consumer = cluster.consumer("readers")
            consumer.subscribe("order", reader)
            pulled = cluster.pull_consumer("pulled", topics=["order"])
            async with consumer, pulled, cluster.producer() as producer:
                await clock.sleep(120)
                await cluster.create_topic("order", queues=1)
                await producer.send(Message("order", b"found"))
                await clock.sleep(60)
                assert reader.bodies == [b"found"]

    with caplog.at_level(logging.INFO, "turbopump.client"):
        run_virtual(scene())
    missing = lines(caplog, "Topic order does not exist, so nothing is consumed from it")
    assert len(missing) == 2  # one for each consumer
    assert "updateTopic" in missing[0]
    assert len(lines(caplog, "Topic order exists now")) == 2
