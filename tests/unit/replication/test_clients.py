"""Our own producers and consumers through the death and return of a master, with whole brokers."""

import asyncio
from typing import Any
from unittest.mock import patch

import pytest
from tests.kit import virtual
from tests.unit.replication.clients_kit import (
    OTHER,
    Clients,
    PullTimes,
    Reader,
    clients,
    message,
)
from tests.unit.replication.kit import NAME_SERVER_IP
from tests.unit.replication.reading_kit import kill, memory_of, until

from turbopump.client.errors import SendFailed, TopicUnknown
from turbopump.client.message import SendStatus
from turbopump.protocol.codes import ResponseCode
from turbopump.store.reading import GetResult

RETRY, NOT_FOUND = ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_NOT_FOUND

SLOWLY = {"pull_batch_size": 2, "pull_threshold_for_queue": 2, "consume_thread_min": 4}
"""Settings of a consumer that fetches little ahead: most messages are pulled after the death."""


# Push


@virtual
async def test_a_consumer_reads_from_the_slave_within_two_seconds_of_the_masters_death() -> None:
    async with clients() as town:
        reader = Reader(town.pair, pause_s=0.5)
        async with town.consumer(reader, **SLOWLY):
            await town.send(4, 100)
            await town.copied()
            await reader.has(20)
            times = PullTimes(town.slave, town.pair)
            died = town.pair.clock.monotonic()
            await kill(town.pair, town.master)
            await reader.has(104)
        first = times.found_at[0] - died
        assert first < 2, first
        assert sorted(reader.got) == list(range(104))


@virtual
async def test_nothing_is_lost_or_read_twice_through_a_masters_death_and_return() -> None:
    async with clients() as town:
        reader = Reader(town.pair, pause_s=0.5)
        async with town.consumer(reader, **SLOWLY):
            await town.send(4, 100)
            await town.copied()
            await reader.has(50)
            await kill(town.pair, town.master)
            await reader.has(80)
            await town.master.start()
            await town.send(104, 100)
            await reader.has(204)
            await asyncio.sleep(40)
            assert await town.positions(town.master) == [51] * 4
            times = PullTimes(town.slave, town.pair)
            await town.send(204, 100)
            await reader.has(304)
            assert times.pulls == 0  # all are back at the master
        assert sorted(reader.got) == list(range(304))


@virtual
async def test_a_consumer_goes_back_to_the_master_within_ten_seconds() -> None:
    async with clients() as town:
        reader = Reader(town.pair)
        async with town.consumer(reader):
            await reader.has(4)
            await kill(town.pair, town.master)
            await asyncio.sleep(63)
            await town.master.start()
            returned = town.pair.clock.monotonic()
            times = PullTimes(town.master, town.pair)
            await until(lambda: times.pulls >= 4, within_s=35)
            assert town.pair.clock.monotonic() - returned < 10


@virtual
async def test_a_consumer_that_starts_while_the_master_is_away_goes_on_where_the_group_was() -> None:
    async with clients() as town:
        await town.send(4, 40)
        first = Reader(town.pair)
        async with town.consumer(first):
            await first.has(44)
        await town.send(44, 40)
        await town.copied()
        await asyncio.sleep(6)  # offsets are saved, and so copied, every five seconds
        await kill(town.pair, town.master)
        second = Reader(town.pair)
        async with town.consumer(second):
            await second.has(40)
            await asyncio.sleep(10)
            assert sorted(second.got) == list(range(44, 84))
        # What was committed at the slave alone holds at the master too.
        await town.master.start()
        await asyncio.sleep(10)
        assert await town.positions(town.master) == [21] * 4
        third = Reader(town.pair)
        async with town.consumer(third):
            await asyncio.sleep(30)
            assert third.got == []


@virtual
async def test_a_consumer_ahead_of_the_slave_waits_and_skips_nothing() -> None:
    async with clients() as town:
        network = town.pair.network
        reader = Reader(town.pair)
        async with town.consumer(reader):
            await reader.has(4)
            network.cut(town.master.ip, town.slave.ip)
            await town.send(4, 40)
            await reader.has(44)
            await kill(town.pair, town.master)
            network.join(town.master.ip, town.slave.ip)
            times = PullTimes(town.slave, town.pair)
            await asyncio.sleep(60)
            assert times.pulls <= 4 * 2 * 5  # of four queues and the retry topic, two reads for each wait
            await town.master.start()
            await town.send(44, 40)
            await reader.has(84)
            await asyncio.sleep(40)
        assert sorted(reader.got) == list(range(84))


def as_apaches_slave(result: GetResult, asked: int) -> int:
    """The code for a consumer outside of the queue, which Apache's slave answers at once."""
    return RETRY if not result.count and result.max_offset < asked else NOT_FOUND if not result.count else 0


@virtual
async def test_a_consumer_ahead_of_a_slave_of_apaches_asks_it_once_a_second() -> None:
    with patch("turbopump.broker.consume.pull._code_on_slave", as_apaches_slave):
        async with clients() as town:
            network = town.pair.network
            reader = Reader(town.pair)
            async with town.consumer(reader):
                await reader.has(4)
                network.cut(town.master.ip, town.slave.ip)
                await town.send(4, 40)
                await reader.has(44)
                times = PullTimes(town.slave, town.pair)
                await kill(town.pair, town.master)
                network.join(town.master.ip, town.slave.ip)
                await asyncio.sleep(60)
                assert 100 < times.pulls < 4 * 60 + 20


def test_a_master_that_falls_silent_is_given_up_when_its_pulls_time_out() -> None:
    @virtual
    async def scene() -> None:
        async with clients() as town:
            town.pair.network.silent_cuts = True
            reader = Reader(town.pair, pause_s=0.5)
            async with town.consumer(reader, **SLOWLY):
                await town.send(4, 100)
                await town.copied()
                await reader.has(20)
                times = PullTimes(town.slave, town.pair)
                for ip in ("10.0.1.1", town.slave.ip, NAME_SERVER_IP):
                    town.pair.network.cut(town.master.ip, ip)
                cut = town.pair.clock.monotonic()
                await reader.has(104)
                assert times.found_at[0] - cut < 35
            for ip in ("10.0.1.1", town.slave.ip, NAME_SERVER_IP):
                town.pair.network.join(town.master.ip, ip)
            assert sorted(reader.got) == list(range(104))

    scene()


@virtual
async def test_a_consumer_that_is_far_behind_reads_from_the_slave_and_comes_back() -> None:
    with memory_of(20_000):
        async with clients("slaveReadEnable=true\n", "slaveReadEnable=true\n") as town:
            await town.send(4, 400)
            await town.copied()
            at_master, at_slave = PullTimes(town.master, town.pair), PullTimes(town.slave, town.pair)
            reader = Reader(town.pair)
            async with town.consumer(reader):
                await reader.has(404)
                assert len(at_slave.found_at) > len(at_master.found_at)
                await town.send(404, 40)
                await reader.has(444)
                await asyncio.sleep(5)
                pulls = at_slave.pulls
                await town.send(444, 40)
                await reader.has(484)
                assert at_slave.pulls == pulls
            assert sorted(reader.got) == list(range(484))


@virtual
async def test_two_consumers_share_the_queues_through_a_masters_death_and_return() -> None:
    async with clients() as town:
        one, two = Reader(town.pair, pause_s=0.5), Reader(town.pair, pause_s=0.5)
        async with town.consumer(one, **SLOWLY), town.consumer(two, **SLOWLY):
            await asyncio.sleep(70)
            assert len(one.got) + len(two.got) >= 4
            del one.got[:], two.got[:]
            await town.send(4, 300)
            await town.copied()
            await until(lambda: len(one.got) + len(two.got) >= 60)
            await kill(town.pair, town.master)
            await until(lambda: len(one.got) + len(two.got) >= 120)
            await town.master.start()
            await until(lambda: len(one.got) + len(two.got) >= 300)
            await asyncio.sleep(30)
            assert sorted(one.got + two.got) == list(range(4, 304))
            assert min(len(one.got), len(two.got)) > 100


@virtual
async def test_a_master_that_came_back_and_does_not_know_all_members_is_not_asked_for_them() -> None:
    async with clients() as town:
        readers = Reader(town.pair), Reader(town.pair)
        async with town.consumer(readers[0]) as first, town.consumer(readers[1]) as second:
            await asyncio.sleep(70)
            await kill(town.pair, town.master)
            await asyncio.sleep(40)
            town.pair.network.cut(town.master.ip, "10.0.1.2")
            await town.master.start()
            await asyncio.sleep(50)
            assert (len(first.queues()), len(second.queues())) == (2, 2)
            town.pair.network.join(town.master.ip, "10.0.1.2")


# Ordered


def in_order(got: list[int]) -> bool:
    queues = [[number for number in got if number % 4 == queue] for queue in range(4)]
    return all(queue == sorted(queue) for queue in queues)


def test_an_ordered_consumer_waits_for_the_master_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "turbopump.client")

    @virtual
    async def scene() -> None:
        async with clients() as town:
            reader = Reader(town.pair, pause_s=1.0)
            async with town.consumer(reader, ordered=True, **SLOWLY):
                await town.send(4, 40)
                await reader.has(44)
                await town.send(44, 200)
                await town.copied()
                await reader.has(60)
                await kill(town.pair, town.master)
                await asyncio.sleep(60)  # longer than a lock is used
                waiting = len(reader.got)
                await asyncio.sleep(120)
                assert len(reader.got) == waiting < 244
                await town.master.start()
                await reader.has(244)
                await asyncio.sleep(10)
            assert in_order(reader.got)
            assert sorted(reader.got) == list(range(244))

    scene()
    lines = [text for text in caplog.messages if "ordered" in text]
    assert len(lines) == 2, lines
    assert "wait" in lines[0]
    assert "broker-a" in lines[0]
    assert not [text for text in caplog.messages if "still locked" in text]


def test_an_ordered_consumer_that_starts_without_a_master_waits_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "turbopump.client")

    @virtual
    async def scene() -> None:
        async with clients() as town:
            await kill(town.pair, town.master)
            await asyncio.sleep(5)
            reader = Reader(town.pair)
            async with town.consumer(reader, ordered=True):
                await asyncio.sleep(120)
                assert reader.got == []
                await town.master.start()
                await reader.has(4, within_s=35)

    scene()
    lines = [text for text in caplog.messages if "ordered" in text]
    assert len(lines) == 2, lines
    assert not [text for text in caplog.messages if "still locked" in text]
    assert len([one for one in caplog.records if one.name.startswith("turbopump.client")]) < 15


# Pull


async def polled(consumer: Any, count: int, into: list[int], within_s: float = 120.0) -> None:
    async with asyncio.timeout(within_s):
        while len(set(into)) < count:
            into += [int(one.body) for one in await consumer.poll(1.0)]


@virtual
async def test_a_pull_consumer_goes_on_at_the_slave_and_comes_back() -> None:
    async with clients() as town:
        got: list[int] = []
        async with town.pull_consumer(pull_batch_size=2, pull_threshold_for_queue=2) as consumer:
            await town.send(4, 100)
            await town.copied()
            await polled(consumer, 20, got)
            times = PullTimes(town.slave, town.pair)
            died = town.pair.clock.monotonic()
            await kill(town.pair, town.master)
            await polled(consumer, 104, got)
            assert times.found_at[0] - died < 3, times.found_at[0] - died
            await asyncio.sleep(10)
            await consumer.poll(1.0)
            await asyncio.sleep(10)
            assert await town.positions(town.slave) == [26] * 4
            await town.master.start()
            await asyncio.sleep(40)
            times = PullTimes(town.slave, town.pair)
            await town.send(104, 100)
            await polled(consumer, 204, got)
            assert times.pulls == 0
        assert sorted(got) == list(range(204))
        assert await town.positions(town.master) == [51] * 4


# Producers


@virtual
async def test_a_producer_goes_on_at_the_other_master_and_comes_back() -> None:
    async with clients() as town:
        other = town.pair.node(OTHER)
        await other.start()
        await create_everywhere(town)
        async with town.producer() as producer:
            brokers = [(await producer.send(message(number))).queue.broker for number in range(8)]
            assert set(brokers) == {"broker-a", "broker-b"}
            await kill(town.pair, town.master)
            died = town.pair.clock.monotonic()
            result = await producer.send(message(8))
            assert town.pair.clock.monotonic() - died < 0.5
            assert result.queue.broker == "broker-b"
            for number in range(9, 40):
                result = await producer.send(message(number))
                assert (result.status, result.queue.broker) == (SendStatus.SEND_OK, "broker-b")
            await town.master.start()
            await asyncio.sleep(31)
            brokers = [(await producer.send(message(number))).queue.broker for number in range(8)]
            assert set(brokers) == {"broker-a", "broker-b"}


async def create_everywhere(town: Clients) -> None:
    """Creates the topic on the second master too."""
    other = town.pair.nodes[-1]
    assert (await town.pair.send(other, b"0000")).code == 0
    await asyncio.sleep(1)


@virtual
async def test_a_producer_of_a_lone_master_says_that_it_is_gone_and_sends_again_when_it_is_back() -> None:
    async with clients() as town, town.producer() as producer:
        await producer.send(message(4))
        await kill(town.pair, town.master)
        for _ in range(3):
            with pytest.raises(SendFailed, match=r"broker-a has no master|no listener") as failure:
                await producer.send(message(5))
            assert not isinstance(failure.value, TopicUnknown)
            await asyncio.sleep(20)
        await town.master.start()
        await producer.send(message(5))


@virtual
async def test_a_send_that_begins_before_the_master_is_back_can_still_succeed() -> None:
    async with clients() as town, town.producer() as producer:
        await producer.send(message(4))
        await kill(town.pair, town.master)
        await asyncio.sleep(40)
        sending = asyncio.create_task(producer.send(message(5), timeout=20))
        await asyncio.sleep(5)
        assert not sending.done()
        await town.master.start()
        assert (await sending).status is SendStatus.SEND_OK
