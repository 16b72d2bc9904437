"""Ordered handlers: one delivery of a queue at a time, in order, under the broker's lock."""

import asyncio
import time
from typing import Any

from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.client.listening import Reader, committed, plain
from tests.unit.client.push.ordered_kit import QUEUES, send_in_order

from turbopump.client.group.consume_status import RetryLater
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.push.consumer import Consumer
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.testing.loop import run_virtual


def ordered(
    town: MemoryCluster, handler: Any, seed: int = 1, batch: int | None = None, **settings: Any
) -> Consumer:
    consumer = plain(town, seed, **settings)
    consumer.subscribe("orders", handler, ordered=True, batch=batch)
    return consumer


def in_order(texts: list[str], queue: int) -> list[str]:
    return [text for text in texts if text.startswith(f"{queue}:")]


def expected(queue: int, count: int, start: int = 0) -> list[str]:
    return [f"{queue}:{number:03d}" for number in range(start, start + count)]


def test_each_queue_is_delivered_in_order_one_at_a_time_while_others_go_on() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            running: set[int] = set()
            together = 0
            texts: list[str] = []
            wrong: list[str] = []

            async def handle(message: MessageExt) -> None:
                nonlocal together
                wrong.extend([message.text] if message.queue.id in running else [])
                running.add(message.queue.id)
                together = max(together, len(running))
                await asyncio.sleep(0.1)
                running.discard(message.queue.id)
                texts.append(message.text)

            for queue in range(4):
                await send_in_order(town, queue, 0, 10)
            async with ordered(town, handle):
                await town.clock.sleep(4)
                for queue in range(4):
                    assert in_order(texts, queue) == expected(queue, 10)
            assert (together, wrong) == (4, [])
            assert await committed(town) == [10, 10, 10, 10]

    run_virtual(scene())


@virtual
async def test_a_plain_function_is_called_in_order_too_and_in_threads() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        texts: list[str] = []
        for queue in range(4):
            await send_in_order(town, queue, 0, 100)
        async with ordered(town, lambda message: texts.append(message.text)):
            await town.clock.sleep(5)
        for queue in range(4):
            assert in_order(texts, queue) == expected(queue, 100)
        assert await committed(town) == [100, 100, 100, 100]


@virtual
async def test_batches_keep_the_order() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        batches: list[list[str]] = []

        async def handle(messages: list[MessageExt]) -> None:
            batches.append([message.text for message in messages])

        await send_in_order(town, 0, 0, 25)
        async with ordered(town, handle, batch=10):
            await town.clock.sleep(2)
        assert [text for batch in batches for text in batch] == expected(0, 25)
        assert max(map(len, batches)) == 10


@virtual
async def test_a_failure_holds_up_its_queue_alone_and_is_tried_again_after_a_second() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        reader = Reader(lambda body: body == b"0:001")
        await send_in_order(town, 0, 0, 3)
        await send_in_order(town, 1, 0, 3)
        async with ordered(town, reader):
            await town.clock.sleep(3.5)
            assert in_order(reader.texts, 1) == expected(1, 3)
            tries = [one.reconsume_times for one in reader.got if one.body == b"0:001"]
            assert tries == list(range(len(tries)))
            assert 3 <= len(tries) <= 4
            assert "0:002" not in reader.texts
            reader.refuses = lambda body: False
            await town.clock.sleep(2)
            assert in_order(reader.texts, 0)[-1] == "0:002"
        assert await committed(town, queues=2) == [3, 3]


@virtual
async def test_the_handler_can_choose_how_long_its_queue_pauses() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        times: list[float] = []

        async def handle(message: MessageExt) -> None:
            times.append(town.clock.monotonic())
            if len(times) < 3:
                raise RetryLater(pause=0.2 if len(times) == 1 else 100)

        await send_in_order(town, 0, 0, 1)
        async with ordered(town, handle):
            await town.clock.sleep(40)
        first, second, third = times
        assert round(second - first, 2) == 0.2
        assert round(third - second, 2) == 30  # the longest pause there is


@virtual
async def test_a_message_that_failed_often_enough_becomes_a_dead_letter_and_the_queue_goes_on() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        reader = Reader(lambda body: body == b"0:001")
        await send_in_order(town, 0, 0, 3)
        async with ordered(town, reader, max_reconsume_times=2):
            await town.clock.sleep(60)
        assert reader.texts[:5] == ["0:000", "0:001", "0:001", "0:001", "0:002"]
        letter = await town.admin.messages.at_offset(MessageQueue("%DLQ%readers", "broker-a", 0), 0)
        assert letter is not None
        assert letter.text == "0:001"
        assert await committed(town, queues=1) == [3]


@virtual
async def test_members_pass_queues_on_and_the_order_of_each_key_holds() -> None:
    """Two and then five members join and leave; repeats dropped, every queue is seen in order."""

    async with cluster() as town:
        await town.create_topic("orders", 8)
        seen: list[str] = []
        wrong: list[str] = []  # delivered while another member was at it
        owners: dict[int, set[int]] = {number: set() for number in range(8)}

        def member(number: int) -> Consumer:
            async def handle(message: MessageExt) -> None:
                queue = message.queue.id
                wrong.extend([message.text] if owners[queue] else [])
                owners[queue].add(number)
                await asyncio.sleep(0.05)
                seen.append(message.text)
                owners[queue].discard(number)

            return ordered(town, handle, number)

        members: list[Consumer] = []
        sent = 0
        for joins in (2, 3, -2, 1, -3):
            for _ in range(abs(joins)):
                if joins > 0:
                    members.append(member(len(members) + 10 * sent + 1))
                    await members[-1].start()
                else:
                    await members.pop(0).close()
            for queue in range(8):
                await send_in_order(town, queue, sent, 5)
            sent += 5
            await town.clock.sleep(4)
        await town.clock.sleep(30)
        for one in members:
            await one.close()
        assert wrong == []
        for queue in range(8):
            once = list(dict.fromkeys(in_order(seen, queue)))
            assert once == expected(queue, sent)
        assert await committed(town, queues=8) == [sent] * 8


def test_a_queue_that_another_has_locked_is_not_touched_until_it_is_free() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            await send_in_order(town, 0, 0, 3)
            first, second = Reader(), Reader()
            one = ordered(town, first, 1)
            await one.start()
            await town.clock.sleep(2)
            town.network.break_connections("127.0.0.1")
            await one._running.queues.stop_pulling()
            dead = one._running
            dead._locks.unlock = nothing  # type: ignore[union-attr,method-assign]
            dead._locks.renew = nothing  # type: ignore[union-attr,method-assign]
            await one.close()  # it leaves without giving back its lock, as one that was killed
            async with ordered(town, second, 2):
                await send_in_order(town, 0, 3, 2)
                await town.clock.sleep(20)
                assert second.texts == []
                await town.clock.sleep(60)
                assert second.texts == expected(0, 2, 3)

    async def nothing(*_: object) -> None: ...

    run_virtual(scene())


@virtual
async def test_a_lock_that_cannot_be_renewed_is_not_used_after_thirty_seconds() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        reader = Reader()
        async with ordered(town, reader) as alone:
            await town.clock.sleep(3)
            client = alone._running._instance.client
            call = client.call

            async def cut(address: str, question: Command, timeout_s: float = 3.0) -> Command:
                if question.code == RequestCode.LOCK_BATCH_MQ:
                    raise ConnectionResetError("cut")
                return await call(address, question, timeout_s)

            client.call = cut  # type: ignore[method-assign]
            await town.clock.sleep(20)
            await send_in_order(town, 0, 0, 1)
            await town.clock.sleep(1)
            assert reader.texts == ["0:000"]
            await town.clock.sleep(20)
            await send_in_order(town, 0, 1, 1)
            await town.clock.sleep(10)
            assert reader.texts == ["0:000"]
            client.call = call  # type: ignore[method-assign]
            await town.clock.sleep(25)
            assert reader.texts == ["0:000", "0:001"]


def test_a_reset_waits_for_the_delivery_that_runs() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            inside = most = 0
            texts: list[str] = []

            async def handle(message: MessageExt) -> None:
                nonlocal inside, most
                inside += 1
                most = max(most, inside)
                texts.append(message.text)
                await asyncio.sleep(3)
                inside -= 1

            await send_in_order(town, 0, 0, 3)
            async with ordered(town, handle) as moved:
                await town.clock.sleep(5.5)
                assert texts == ["0:000", "0:001"]
                await moved._running.reset({QUEUES[0]: 0})
                await town.clock.sleep(15)
            assert texts == ["0:000", "0:001", "0:000", "0:001", "0:002"]
            assert most == 1
            assert await committed(town, queues=1) == [3]

    run_virtual(scene())


@virtual
async def test_closing_lets_the_delivery_that_runs_end_and_commits_it() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        reader = Reader()
        reader.pause_s = 5.0
        await send_in_order(town, 0, 0, 3)
        async with ordered(town, reader):
            await town.clock.sleep(2)
        assert reader.texts == ["0:000"]
        assert await committed(town, queues=1) == [1]


@virtual
async def test_after_a_minute_of_work_other_queues_have_their_turn() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        reader = Reader()
        reader.pause_s = 10.0
        await send_in_order(town, 0, 0, 20)
        await send_in_order(town, 1, 0, 1)
        consumer = ordered(town, reader, consume_thread_min=1, consume_thread_max=1)
        async with consumer:
            await town.clock.sleep(55)
            first = {text[0] for text in reader.texts}
            assert len(first) == 1
            await town.clock.sleep(30)
            assert {text[0] for text in reader.texts} == {"0", "1"}


@virtual
async def test_a_message_in_work_for_ever_does_not_expire_when_it_is_ordered() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        reader = Reader()
        reader.pause_s = 1e6
        await send_in_order(town, 0, 0, 2)
        async with ordered(town, reader, consume_timeout=10, await_termination_when_shutdown=1):
            await town.clock.sleep(120)
            assert reader.texts == ["0:000"]
        assert await committed(town, queues=1) == [0]


@virtual
async def test_a_blocking_function_occupies_a_thread_and_not_the_others() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 4)
        texts: list[str] = []

        def handle(message: MessageExt) -> None:
            time.sleep(0.005)
            texts.append(message.text)

        for queue in range(4):
            await send_in_order(town, queue, 0, 5)
        async with ordered(town, handle):
            await town.clock.sleep(3)
        for queue in range(4):
            assert in_order(texts, queue) == expected(queue, 5)
