"""`auto_batch`: single sends travel together, and each has its own receipt."""

import asyncio
from typing import Any

import pytest
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.client.producing import producing, stored

from turbopump.client.errors import InvalidArgument, NotRunning, SendFailed
from turbopump.client.message import Message, MessageQueue
from turbopump.client.observe.hooks import SendContext
from turbopump.client.produce.producer import Producer
from turbopump.testing.loop import run_virtual


class Requests:
    """A hook that remembers how many messages each request had, and where it went."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.queues: list[MessageQueue] = []

    def before(self, context: SendContext) -> None:
        self.sizes.append(len(context.messages) or 1)
        self.queues.append(context.queue)

    def after(self, context: SendContext) -> None:
        pass


def order(number: int, **more: Any) -> Message:
    return Message("orders", f"{number:03}".encode(), **more)


def scene(play: Any, **settings: Any) -> None:
    async def run() -> None:
        requests = Requests()
        async with cluster() as town:
            await town.create_topic("orders", 2)
            async with producing(town, hooks=[requests], auto_batch=True, **settings) as one:
                await play(town, one, requests)

    run_virtual(run())


def test_sends_of_one_moment_are_one_request_with_a_receipt_for_each() -> None:
    async def play(town: MemoryCluster, one: Producer, requests: Requests) -> None:
        receipts = await asyncio.gather(*(one.send(order(number)) for number in range(5)))
        assert requests.sizes == [5]
        found = {message.message_id: message for message in await stored(town, "orders")}
        assert [found[receipt.message_id].text for receipt in receipts] == ["000", "001", "002", "003", "004"]
        assert [found[one.message_id].offset for one in receipts] == [one.offset for one in receipts]

    scene(play)


def test_a_batch_leaves_when_its_first_message_has_waited_long_enough() -> None:
    async def play(town: MemoryCluster, one: Producer, requests: Requests) -> None:
        began_s = town.clock.monotonic()
        first = one.send_async(order(1))
        await town.clock.sleep(0.03)
        second = one.send_async(order(2))
        await asyncio.gather(first, second)
        assert requests.sizes == [2]
        assert town.clock.monotonic() - began_s < 0.06

    scene(play, batch_max_delay=0.05)


def test_a_batch_with_enough_bytes_leaves_at_once() -> None:
    async def play(town: MemoryCluster, one: Producer, requests: Requests) -> None:
        sends = [one.send_async(order(number)) for number in range(7)]
        await asyncio.gather(*sends[:4])
        assert requests.sizes == [4]  # 9 bytes are not more than 9

    scene(play, batch_max_bytes=9, batch_max_delay=30.0)


def test_only_messages_of_one_kind_travel_together() -> None:
    async def play(town: MemoryCluster, one: Producer, requests: Requests) -> None:
        await asyncio.gather(
            one.send(order(1)),
            one.send(order(2, tags="a")),
            one.send(order(3, wait_store_ok=False)),
            one.send(order(4), queue=MessageQueue("orders", "broker-a", 1)),
            one.send(order(5, tags="a")),
        )
        assert sorted(requests.sizes) == [1, 1, 1, 2]

    scene(play)


def test_a_key_still_chooses_the_queue() -> None:
    async def play(town: MemoryCluster, one: Producer, requests: Requests) -> None:
        receipts = await asyncio.gather(*(one.send(order(number), by="A-1") for number in range(3)))
        assert requests.sizes == [3]
        alone = await one.send(order(9), by="A-1", timeout=3)
        assert {receipt.queue for receipt in receipts} == {alone.queue}

    scene(play)


def test_what_a_batch_cannot_hold_is_sent_alone_and_at_once() -> None:
    async def play(town: MemoryCluster, one: Producer, requests: Requests) -> None:
        await one.send(order(1, delay_level=1))
        await one.send(order(2), timeout=3)
        await one.send(Message("orders", b"x" * 100))
        await one.send(order(3, properties={"long": "x" * 5000}))
        await one.send_oneway(order(4))
        assert requests.sizes == [1, 1, 1, 1, 1]

    scene(play, batch_max_bytes=99, batch_max_delay=30.0)


def test_with_too_many_bytes_waiting_a_message_is_sent_alone() -> None:
    async def play(town: MemoryCluster, one: Producer, requests: Requests) -> None:
        waiting = [one.send_async(order(number)) for number in range(3)]
        await asyncio.sleep(0)
        await one.send(order(3))
        assert requests.sizes == [1]
        await one.close()
        assert [task.exception() for task in waiting] == [None, None, None]
        assert requests.sizes == [1, 3]

    scene(play, total_batch_max_bytes=9, batch_max_delay=30.0)


def test_what_is_wrong_with_a_message_is_told_to_its_sender_alone() -> None:
    async def play(town: MemoryCluster, one: Producer, requests: Requests) -> None:
        good = one.send_async(order(1))
        with pytest.raises(InvalidArgument):
            one.send_async(Message("orders", b""))
        with pytest.raises(InvalidArgument, match="got 4"):
            await one.send(order(2, properties={"long": "x" * 40_000}))
        await good
        assert requests.sizes == [1]

    scene(play)


def test_a_batch_that_fails_fails_for_each_of_its_senders() -> None:
    async def play(town: MemoryCluster, one: Producer, requests: Requests) -> None:
        await one.send(order(0))
        await town.brokers[0].stop()
        ends = await asyncio.gather(*(one.send(order(n)) for n in range(3)), return_exceptions=True)
        assert [type(end) for end in ends] == [SendFailed] * 3
        assert one._auto_batcher is not None
        assert one._auto_batcher.held == 0

    scene(play, send_msg_timeout=1.0)


def test_a_sender_that_gave_up_sends_nothing() -> None:
    async def play(town: MemoryCluster, one: Producer, requests: Requests) -> None:
        lost, kept = one.send_async(order(1)), one.send_async(order(2))
        await asyncio.sleep(0)
        lost.cancel()
        await kept
        assert [message.text for message in await stored(town, "orders")] == ["002"]

    scene(play)


def test_closing_sends_what_waits_and_takes_no_more() -> None:
    async def play(town: MemoryCluster, one: Producer, requests: Requests) -> None:
        waiting = one.send_async(order(1))
        await asyncio.sleep(0)
        await one.close()
        assert (await waiting).offset == 0
        with pytest.raises(NotRunning):
            await one.send(order(2))

    scene(play, batch_max_delay=30.0)
