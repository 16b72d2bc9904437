"""What becomes of a message whose handler fails, blocks, dies or says later, and how many are held."""

import asyncio
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.client.listening import Reader, committed, consumer, plain

from turbopump.client.group.consume_status import ConsumeStatus, RetryLater
from turbopump.client.message import Message, MessageExt, MessageQueue
from turbopump.client.observe.hooks import ConsumeContext
from turbopump.testing.loop import run_virtual

LETTERS = MessageQueue("%DLQ%readers", "broker-a", 0)


@dataclass
class Order:
    id: int


async def sent(
    town: MemoryCluster, count: int, topic: str = "orders", start: int = 0, **message: Any
) -> list[str]:
    texts = [f"{number:03d}" for number in range(start, start + count)]
    for text in texts:
        await town.send(topic, text.encode(), **message)
    return texts


def failing(with_what: Callable[[], BaseException]) -> Any:
    async def handle(message: MessageExt) -> None:
        if message.text == "001" and not message.reconsume_times:
            raise with_what()

    return handle


def failing_in_thread(with_what: Callable[[], BaseException]) -> Any:
    def handle(message: MessageExt) -> None:
        if message.text == "001" and not message.reconsume_times:
            raise with_what()

    return handle


@pytest.mark.parametrize("kind", [failing, failing_in_thread])
@pytest.mark.parametrize(
    "error", [ValueError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, BaseException]
)
@virtual
async def test_whatever_a_handler_raises_its_message_comes_again_and_the_others_go_on(
    kind: Any, error: type[BaseException]
) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        texts: list[str] = []
        handle = kind(error)

        if kind is failing:

            async def listen(message: MessageExt) -> None:
                texts.append(message.text)
                await handle(message)
        else:

            def listen(message: MessageExt) -> None:  # type: ignore[misc]
                texts.append(message.text)
                handle(message)

        await sent(town, 3)
        listening = plain(town)
        listening.subscribe("orders", listen)
        async with listening:
            await town.clock.sleep(20)
            await sent(town, 2, start=3)
            await town.clock.sleep(2)
        assert sorted(texts) == ["000", "001", "001", "002", "003", "004"]
        assert await committed(town, queues=1) == [5]


@virtual
async def test_a_pull_beside_an_unfinished_message_commits_nothing() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        release = asyncio.Event()
        began: list[str] = []

        async def handle(message: MessageExt) -> None:
            began.append(message.text)
            if message.text == "001":
                await release.wait()

        listening = plain(town, persist_consumer_offset_interval=30)
        listening.subscribe("orders", handle)
        async with listening:
            await town.clock.sleep(2)
            await sent(town, 1)
            await town.clock.sleep(1)
            await sent(town, 1, start=1)
            await town.clock.sleep(20)  # the pull that waits ends empty, and another one follows
            assert began == ["000", "001"]
            assert await committed(town, queues=1) == [0]
            release.set()
            await town.clock.sleep(20)
            assert await committed(town, queues=1) == [2]


@virtual
async def test_retry_later_chooses_the_delay_or_the_dead_letters() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        times: dict[str, list[int]] = {}

        async def handle(message: MessageExt) -> None:
            times.setdefault(message.text, []).append(town.clock.now_ms() // 1000)
            if message.text == "000" and not message.reconsume_times:
                raise RetryLater(2)
            if message.text == "001":
                raise RetryLater(-1)

        listening = plain(town)
        listening.subscribe("orders", handle)
        async with listening:
            await town.clock.sleep(2)
            await sent(town, 3)
            await town.clock.sleep(60)
        first, again = times["000"]
        assert again - first == 5  # level 2
        assert len(times["001"]) == len(times["002"]) == 1
        letter = await town.admin.messages.at_offset(LETTERS, 0)
        assert letter is not None
        assert letter.text == "001"


@virtual
async def test_javas_word_for_later_is_understood() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        counts: list[int] = []

        async def handle(message: MessageExt) -> ConsumeStatus:
            counts.append(message.reconsume_times)
            return ConsumeStatus.CONSUME_SUCCESS if message.reconsume_times else ConsumeStatus.RECONSUME_LATER

        listening = plain(town)
        listening.subscribe("orders", handle)
        await sent(town, 1)
        async with listening:
            await town.clock.sleep(30)
        assert counts == [0, 1]


@virtual
async def test_of_a_batch_the_first_ones_can_be_done() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        batches: list[list[str]] = []

        async def handle(messages: list[MessageExt]) -> None:
            batches.append([message.text for message in messages])
            if not messages[0].reconsume_times:
                raise RetryLater(1, consumed=2)

        listening = plain(town)
        listening.subscribe("orders", handle, batch=4)
        await sent(town, 4)
        async with listening:
            await town.clock.sleep(30)
        assert batches[0] == ["000", "001", "002", "003"]
        assert sorted(text for batch in batches[1:] for text in batch) == ["002", "003"]


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("ordered", [True, False])
@virtual
async def test_a_batch_is_as_full_as_what_waits_allows(is_async: bool, ordered: bool) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        batches: list[list[str]] = []
        texts = await sent(town, 500)

        def handle(messages: list[MessageExt]) -> None:
            batches.append([message.text for message in messages])

        async def handle_slowly(messages: list[MessageExt]) -> None:
            await asyncio.sleep(1)
            handle(messages)

        crew = {"consume_thread_min": 1, "consume_thread_max": 1}
        listening = plain(town, **crew)
        listening.subscribe("orders", handle_slowly if is_async else handle, batch=200, ordered=ordered)
        async with listening:
            await town.clock.sleep(20)
        assert [text for batch in batches for text in batch] == texts
        assert max(map(len, batches)) <= 200
        if is_async:
            assert max(map(len, batches)) >= 192  # whole pulls of 32
        assert await committed(town, queues=1) == [500]


def test_a_body_that_does_not_fit_is_a_failed_delivery_that_names_the_field(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            got: list[Order] = []

            async def handle(order: Order) -> None:
                got.append(order)

            await town.send("orders", b'{"id": 1}')
            await town.send("orders", b'{"id": "one"}')
            await town.send("orders", b'{"id": 2}')
            listening = plain(town, max_reconsume_times=0)
            listening.subscribe("orders", handle)
            async with listening:
                await town.clock.sleep(10)
            assert got == [Order(1), Order(2)]
            letter = await town.admin.messages.at_offset(LETTERS, 0)
            assert letter is not None
            assert letter.body == b'{"id": "one"}'

    run_virtual(scene())
    assert "the body must be Order: Expected `int`, got `str` - at `$.id`" in caplog.text


@virtual
async def test_one_consumer_has_other_handlers_for_other_topics_also_for_retries() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await town.create_topic("bills", 1)
        orders, bills = Reader(lambda body: body == b"001"), Reader()
        listening = plain(town, max_reconsume_times=1)
        listening.subscribe("orders", orders)
        listening.subscribe("bills", bills)
        await sent(town, 2)
        await sent(town, 2, "bills")
        async with listening:
            await town.clock.sleep(30)
        assert orders.bodies == [b"000", b"001", b"001"]
        assert {one.topic for one in orders.got} == {"orders"}
        assert bills.bodies == [b"000", b"001"]


@virtual
async def test_a_retry_topic_can_be_consumed_like_any_other() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        failing, watching = Reader(lambda body: True), Reader()
        await sent(town, 1)
        async with consumer(town, failing, max_reconsume_times=1):
            await town.clock.sleep(5)
            others = plain(town, 2, "others")
            others.subscribe("%RETRY%readers", watching)
            async with others:
                await town.clock.sleep(30)
        assert watching.texts == ["000"]


@virtual
async def test_a_message_in_work_for_too_long_is_sent_back_and_its_queue_goes_on() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        reader = Reader()
        stuck = asyncio.Event()

        async def handle(message: MessageExt) -> None:
            await reader(message)
            if message.text == "001" and not message.reconsume_times:
                await stuck.wait()

        listening = plain(town, consume_timeout=60, consume_thread_min=1, consume_thread_max=1)
        listening.subscribe("orders", handle)
        await sent(town, 3)
        async with listening:
            await town.clock.sleep(50)
            assert reader.texts == ["000", "001"]  # the only worker is at it
            await town.clock.sleep(90)
            assert reader.texts[:3] == ["000", "001", "002"]
            assert reader.texts[3:] == ["001"]  # again, by the retry topic
            stuck.set()
        assert await committed(town, queues=1) == [3]


@virtual
async def test_a_thread_that_blocks_for_ever_stops_nothing() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        texts: list[str] = []
        stuck = threading.Event()

        def handle(message: MessageExt) -> None:
            texts.append(message.text)
            if message.text == "001" and not message.reconsume_times:
                stuck.wait(20)

        listening = plain(town, consume_timeout=60, consume_thread_min=1, consume_thread_max=1)
        listening.subscribe("orders", handle)
        await sent(town, 3)
        async with listening:
            for _ in range(300):
                await town.clock.sleep(1)
                if texts.count("001") == 2:
                    break
            assert sorted(texts) == ["000", "001", "001", "002"]
            stuck.set()
        assert await committed(town, queues=1) == [3]


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({"pull_threshold_for_queue": 64}, 96),
        ({"pull_threshold_size_for_queue": 64 * 3}, 96),
        ({"consume_concurrently_max_span": 64}, 97),
        ({"pull_threshold_for_topic": 128}, 2 * 96),
    ],
)
@virtual
async def test_no_more_is_pulled_than_may_be_held(settings: dict[str, int], most: int) -> None:
    async with cluster() as town:
        queues = 1 if most < 100 else 2
        await town.create_topic("orders", queues)
        texts = await sent(town, 400)
        door = asyncio.Event()
        got: list[str] = []

        async def handle(message: MessageExt) -> None:
            await door.wait()
            got.append(message.text)

        listening = plain(town, **settings)  # type: ignore[arg-type]
        listening.subscribe("orders", handle)
        async with listening:
            await town.clock.sleep(5)
            held = [one.count for one in listening._running.queues.ours.values()]
            assert sum(held) <= most
            assert sum(held) >= most // 2
            door.set()
            await town.clock.sleep(5)
            assert sorted(got) == texts


class Watching:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def before(self, context: ConsumeContext) -> None:
        context.notes["text"] = context.messages[0].text
        self.seen.append(f"before {context.messages[0].text}")

    def after(self, context: ConsumeContext) -> None:
        told = f"{context.notes['text']} {context.success} {context.status} {context.failure!r}"
        self.seen.append(f"after {told}")


class Broken:
    def before(self, context: ConsumeContext) -> None:
        raise ValueError("before")

    def after(self, context: ConsumeContext) -> None:
        raise ValueError("after")


@pytest.mark.parametrize("is_async", [True, False])
@virtual
async def test_hooks_are_around_each_delivery_and_cannot_harm_it(is_async: bool) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        watching = Watching()

        async def handle(message: MessageExt) -> None:
            watching.seen.append(f"handle {message.text}")
            if message.text == "001":
                raise ValueError("no")

        def handle_in_thread(message: MessageExt) -> None:
            watching.seen.append(f"handle {message.text}")
            if message.text == "001":
                raise ValueError("no")

        listening = plain(
            town,
            hooks=[Broken(), watching],
            max_reconsume_times=0,
            consume_thread_min=1,
            consume_thread_max=1,
        )
        listening.subscribe("orders", handle if is_async else handle_in_thread)
        await sent(town, 2)
        async with listening:
            await town.clock.sleep(3)
        assert watching.seen == [
            "before 000",
            "handle 000",
            "after 000 True CONSUME_SUCCESS None",
            "before 001",
            "handle 001",
            "after 001 False RECONSUME_LATER ValueError('no')",
        ]


@virtual
async def test_a_message_knows_how_far_behind_it_is() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 5)
        reader = Reader()
        async with consumer(town, reader):
            await town.clock.sleep(2)
        assert [message.behind for message in reader.got] == [4, 3, 2, 1, 0]


@virtual
async def test_a_compressed_message_is_given_out_as_it_was() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        reader, raw = Reader(), Reader()
        await town.producer.send(Message("orders", b"x" * 10_000))
        async with consumer(town, reader):
            await town.clock.sleep(2)
        assert reader.bodies == [b"x" * 10_000]
        async with consumer(town, raw, group="others", decode_decompress_body=False):
            await town.clock.sleep(2)
        assert zlib.decompress(raw.bodies[0]) == b"x" * 10_000
