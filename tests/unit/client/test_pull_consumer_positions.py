"""Pull consumers whose user says which queues are read, and from where."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import cluster
from tests.unit.client.pulling import QUEUES, all_of, committed, consumer, sent, texts_of

from turbopump.broker.groups.offsets import OffsetHandler
from turbopump.client.errors import InvalidArgument
from turbopump.client.message import MessageQueue
from turbopump.client.pull.puller import PullStatus
from turbopump.protocol.errors import GroupNotFound
from turbopump.protocol.names import retry_topic
from turbopump.testing.loop import run_virtual

# Assigning


@virtual
async def test_assigned_queues_are_read_whatever_the_group_does() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        await sent(town, 8)
        async with consumer(town, topics=()) as first, consumer(town, topics=(), seed=2) as second:
            await first.assign(QUEUES[:1])
            await second.assign(QUEUES[:1])
            assert len(await all_of(first)) == len(await all_of(second)) == 2
            assert first.assignment() == QUEUES[:1]
            await first.assign(QUEUES)
            assert len(await all_of(first)) == 6  # the first queue goes on where it was


@virtual
async def test_queues_can_be_assigned_before_the_start() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        texts = await sent(town, 8)
        reader = consumer(town, topics=())
        await reader.assign(QUEUES)
        async with reader:
            assert texts_of(await all_of(reader)) == texts


@virtual
async def test_subscribing_and_assigning_do_not_mix() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        async with consumer(town) as subscriber:
            with pytest.raises(InvalidArgument, match="assign after subscribe"):
                await subscriber.assign(QUEUES)
        async with consumer(town, topics=()) as assigned:
            await assigned.assign(QUEUES)
            with pytest.raises(InvalidArgument, match="subscribe after assign"):
                await assigned.subscribe("orders")
            with pytest.raises(InvalidArgument, match="at least one"):
                await assigned.assign([])


# Seeking and pausing


@virtual
async def test_seeking_to_an_offset_gives_what_is_there() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        texts = await sent(town, 30)
        async with consumer(town) as reader:
            await all_of(reader)
            await reader.seek(QUEUES[0], 25)
            assert reader.position(QUEUES[0]) == 25
            assert texts_of(await all_of(reader)) == texts[25:]
            await reader.seek(QUEUES[0], 30)
            assert await reader.poll(1) == []
            for offset in (-1, 31):
                with pytest.raises(InvalidArgument, match="between 0 and 30"):
                    await reader.seek(QUEUES[0], offset)
            with pytest.raises(InvalidArgument, match="assignment"):
                await reader.seek(MessageQueue("orders", "broker-a", 9), 1)


@virtual
async def test_seeking_to_begin_end_and_a_time() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        early = await sent(town, 8)
        await town.clock.sleep(3600)
        noon_ms = town.clock.now_ms()
        late = await sent(town, 8, 50)
        async with consumer(town) as reader:
            await reader.seek_to_end()
            assert await reader.poll(1) == []
            await reader.seek_to_begin()
            assert texts_of(await all_of(reader)) == early + late
            moment = datetime.fromtimestamp(noon_ms / 1000, UTC)
            for when in (moment, moment.isoformat(), noon_ms, -timedelta(minutes=30)):
                await reader.seek_to_time(when)
                assert texts_of(await all_of(reader)) == late
            assert await reader.offset_at(QUEUES[0], moment) == 2
            assert await reader.offset_at(QUEUES[0], "30m") == 2
            assert await reader.offset_at(QUEUES[0], "2h") == 0
            wrongs: list[Any] = [
                noon_ms // 1000,
                noon_ms / 1000,
                timedelta(hours=2),
                datetime(2026, 11, 1),
            ]
            for wrong in wrongs:
                with pytest.raises(InvalidArgument, match="when"):
                    await reader.seek_to_time(wrong)
            await reader.seek_to_begin(QUEUES[:1])
            assert len(await all_of(reader)) == 4


@virtual
async def test_a_paused_queue_gives_nothing_until_it_is_resumed() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        await sent(town, 8)
        async with consumer(town) as reader:
            await town.clock.sleep(1)
            reader.pause(QUEUES[:3])
            assert {message.queue for message in await all_of(reader)} == {QUEUES[3]}
            reader.resume()
            assert len(await all_of(reader)) == 6


@virtual
async def test_what_is_held_is_bounded() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        texts = await sent(town, 400)
        async with consumer(town, pull_threshold_for_queue=20, pull_threshold_for_all=50) as reader:
            await town.clock.sleep(5)
            assert reader._member.buffers.count <= 50 + 4 * 10  # what was on its way
            for buffer in reader._member.buffers:
                assert len(buffer) <= 20 + 10
            assert texts_of(await all_of(reader)) == texts


# Single pulls


@virtual
async def test_a_single_pull_remembers_and_commits_nothing() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 20, tags="paid")
        async with consumer(town, topics=()) as reader:
            (queue,) = await reader.queues("orders")
            for _ in range(2):
                result = await reader.pull(queue, 5, 3)
                assert result.status is PullStatus.FOUND
                assert [message.text for message in result.messages] == ["005", "006", "007"]
                assert (result.next_offset, result.min_offset, result.max_offset) == (8, 0, 20)
            assert (await reader.pull(queue, 0, 3, "open")).status is PullStatus.NO_MATCHED_MSG
            assert (await reader.pull(queue, 99)).status is PullStatus.OFFSET_ILLEGAL
            assert (await reader.min_offset(queue), await reader.max_offset(queue)) == (0, 20)
            began_s = town.clock.monotonic()
            assert (await reader.pull(queue, 20, wait=3)).status is PullStatus.NO_NEW_MSG
            assert 3 <= town.clock.monotonic() - began_s < 10
            for offset, count in ((-1, 1), (0, 0)):
                with pytest.raises(InvalidArgument):
                    await reader.pull(queue, offset, count)
        assert (await committed(town))[0] in (None, 0)


@virtual
async def test_a_message_sent_back_comes_again_through_the_retry_topic() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 1)
        async with consumer(town, topics=["orders", retry_topic("readers")]) as reader:
            (message,) = await reader.poll(1)
            await reader.send_back(message, delay_level=1)
            (again,) = await reader.poll(20)
            assert (again.text, again.topic, again.reconsume_times) == ("000", "orders", 1)


@pytest.mark.parametrize("creates_group", [True, False])
def test_a_commit_as_the_first_call_is_kept(creates_group: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache's brokers of 5.x refuse one of a group that they do not know: then they hear of it first."""

    def refuse(requests: OffsetHandler, group: str) -> None:
        if requests._groups.find(group) is None:
            raise GroupNotFound(f"Group {group} not exist!")

    async def scene() -> None:
        if not creates_group:
            monkeypatch.setattr(OffsetHandler, "_ensure_group", refuse)
        async with cluster() as town:
            await town.create_topic("orders")
            async with consumer(town, topics=()) as reader:
                await reader.commit({QUEUES[1]: 5})
                assert await reader.committed(QUEUES[1]) == 5

    run_virtual(scene())
