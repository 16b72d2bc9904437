"""The producer against a broker of ours: its life, what it refuses, and what becomes of what it sends."""

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import cluster
from tests.unit.broker.desk import CONFIG
from tests.unit.client.producing import producer, producing, stored

from turbopump.client.errors import (
    InvalidArgument,
    NoNameServer,
    NotRunning,
    SendFailed,
    SendTimedOut,
    TopicNotFound,
)
from turbopump.client.message import Message, MessageQueue, SendStatus
from turbopump.client.produce.packer import COMPRESS_IN_THREAD_BYTES
from turbopump.client.produce.producer import Producer
from turbopump.client.produce.selectors import at_random, hash_of
from turbopump.client.world import World
from turbopump.protocol import properties, sysflag
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.testing.network import MemoryNetwork

ORDER = Message("orders", b"paid", tags="paid", keys=("A-1", "A-2"), properties={"shop": "7"}, flag=5)


@virtual
async def test_a_message_arrives_as_it_was_sent_and_its_receipt_says_where() -> None:
    async with cluster() as town, producing(town) as one:
        await town.create_topic("orders")
        receipt = await one.send(ORDER)
        (found,) = await stored(town, "orders")
        assert receipt.status is SendStatus.SEND_OK
        assert receipt.message_id == found.message_id
        assert receipt.offset_message_id == found.offset_message_id
        assert (receipt.queue, receipt.offset) == (found.queue, found.offset)
        assert receipt.durability is not None
        assert (found.body, found.tags, found.keys, found.flag) == (b"paid", "paid", ("A-1", "A-2"), 5)
        assert found.properties["shop"] == "7"
        assert found.properties["WAIT"] == "true"


@virtual
async def test_who_does_not_want_to_wait_for_the_disk_says_so() -> None:
    async with cluster() as town, producing(town) as one:
        await one.send(replace_message(ORDER, wait_store_ok=False))
        await town.registered()
        (found,) = await stored(town, "orders")
        assert found.properties["WAIT"] == "false"


def replace_message(message: Message, **changes: Any) -> Message:
    names = ("topic", "body", "tags", "keys", "properties", "delay_level", "flag", "wait_store_ok")
    return Message(**({name: getattr(message, name) for name in names} | changes))


@virtual
async def test_without_a_wish_the_queues_take_turns_topic_by_topic() -> None:
    async with cluster() as town, producing(town) as one:
        for topic in ("orders", "bills"):
            await town.create_topic(topic)
        used: dict[str, list[int]] = {"orders": [], "bills": []}
        for _ in range(4):
            for topic in used:
                used[topic].append((await one.send(Message(topic, b"x"))).queue.id)
        assert sorted(used["orders"]) == sorted(used["bills"]) == [0, 1, 2, 3]


@virtual
async def test_a_key_has_its_queue_and_so_has_a_wish() -> None:
    async with cluster() as town, producing(town) as one:
        await town.create_topic("orders")
        for key in ("A-1", "B-2", 17, -3):
            sent = {(await one.send(Message("orders", b"x"), by=key)).queue.id for _ in range(3)}
            assert sent == {abs(hash_of(key)) % 4}
        queues = await one.queues("orders")
        assert [queue.id for queue in queues] == [0, 1, 2, 3]
        assert (await one.send(Message("orders", b"x"), queue=queues[2])).queue == queues[2]
        last = await one.send(Message("orders", b"x"), select=lambda queues, message: queues[-1])
        assert last.queue == queues[3]
        chance = Chance(1)
        some = {(await one.send(Message("orders", b"x"), select=at_random(chance))).queue for _ in range(20)}
        assert some == set(queues)


@virtual
async def test_a_topic_that_nobody_has_is_created_with_as_many_queues_as_asked() -> None:
    async with cluster() as town, producing(town, default_topic_queue_nums=2) as one:
        used = {(await one.send(Message("new", b"x"))).queue.id for _ in range(2)}
        await town.registered()
        assert len(await one.queues("new")) == 2
        assert used == {0, 1}


@virtual
async def test_a_topic_that_nobody_has_or_may_create_is_an_error_that_says_so() -> None:
    config = replace(CONFIG, topics=replace(CONFIG.topics, auto_create=False))
    async with cluster(config=config) as town, producing(town) as one:
        with pytest.raises(TopicNotFound, match="create it"):
            await one.send(Message("new", b"x"))
        with pytest.raises(SendFailed) as raised:
            await one.send(Message("new", b"x"))
        assert raised.value.code == 10005


@virtual
async def test_an_explicit_queue_of_a_broker_that_nobody_knows_fails_at_once() -> None:
    async with cluster() as town, producing(town) as one:
        await town.create_topic("orders")
        with pytest.raises(SendFailed, match="broker-z") as raised:
            await one.send(Message("orders", b"x"), queue=MessageQueue("orders", "broker-z", 0))
        assert raised.value.code == 10003
        assert len(raised.value.tries) == 1


@virtual
async def test_the_longest_bodies_are_compressed_beside_the_event_loop() -> None:
    async with cluster() as town, producing(town) as one:
        await town.create_topic("orders", 1)
        threads: list[threading.Thread] = []
        assert one._sender is not None
        compressed = one._sender.packer._compressed

        def note(body: bytes) -> bytes:
            threads.append(threading.current_thread())
            return compressed(body)

        one._sender.packer._compressed = note  # type: ignore[method-assign]
        bodies = [b"y" * (COMPRESS_IN_THREAD_BYTES - 1), b"x" * COMPRESS_IN_THREAD_BYTES]
        for body in bodies:
            await one.send(Message("orders", body))
        await one.send_oneway(Message("orders", bodies[1]))
        await one.send_async(Message("orders", bodies[1]))
        here = threading.current_thread()
        assert [thread is here for thread in threads] == [True, False, False, False]
        found = await stored(town, "orders")
        assert [message.body for message in found] == [*bodies, bodies[1], bodies[1]]
        assert all(len(message.record.body) < 1000 for message in found)


@virtual
async def test_long_bodies_travel_compressed_and_arrive_whole() -> None:
    body = b"0123456789" * 500
    async with cluster() as town:
        await town.create_topic("orders", queues=1)
        for kind, flag in (("ZLIB", sysflag.ZLIB), ("LZ4", sysflag.LZ4), ("ZSTD", sysflag.ZSTD)):
            async with producing(town, compress_type=kind) as one:
                await one.send(Message("orders", body))
            found = (await stored(town, "orders"))[-1]
            assert found.record.sys_flag & (sysflag.COMPRESSED | sysflag.COMPRESSION_MASK) == flag | 1
            assert len(found.record.body) < len(body) == len(found.body)
            assert found.body == body
        async with producing(town) as one:
            await one.send(Message("orders", body[:4095]))
            assert (await stored(town, "orders"))[-1].record.sys_flag & 1 == 0


@virtual
async def test_a_oneway_message_arrives_and_nobody_says_so() -> None:
    async with cluster() as town, producing(town) as one:
        await town.create_topic("orders")
        assert await one.send_oneway(ORDER) is None  # type: ignore[func-returns-value]
        await town.clock.sleep(0.1)
        assert [message.body for message in await stored(town, "orders")] == [b"paid"]


@virtual
async def test_close_waits_for_sends_that_nobody_awaited() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        async with producing(town) as one:
            tasks = [one.send_async(Message("orders", b"%d" % number)) for number in range(10)]
        assert all(task.done() for task in tasks)
        assert len(await stored(town, "orders")) == 10


@virtual
async def test_brokers_hear_of_a_producer_that_sends_and_of_its_end() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        address = town.brokers[0].address
        async with producing(town) as one:
            await one.send(Message("orders", b"x"))
            await town.clock.sleep(5)
            assert len((await town.admin.connections.all_producers(address))["makers"]) == 1
        assert "makers" not in await town.admin.connections.all_producers(address)


# --- its life --------------------------------------------------------------------------------------------


@virtual
async def test_before_the_start_and_after_the_end_nothing_is_sent() -> None:
    async with cluster() as town:
        one = producer(town)
        for use in uses(one):
            with pytest.raises(NotRunning, match="async with"):
                await use()
        await one.start()
        await one.start()
        await one.send(ORDER)
        await one.close()
        await one.close()
        for use in uses(one):
            with pytest.raises(NotRunning, match="closed"):
                await use()
        with pytest.raises(NotRunning, match="new one"):
            await one.start()


def uses(one: Producer) -> list[Callable[[], Any]]:
    async def later() -> Any:
        return await one.send_async(ORDER)

    return [
        lambda: one.send(ORDER),
        lambda: one.send_oneway(ORDER),
        lambda: one.send_batch([ORDER]),
        lambda: one.request(ORDER),
        lambda: one.queues("orders"),
        later,
    ]


@virtual
async def test_a_producer_that_was_never_started_can_be_closed() -> None:
    async with cluster() as town:
        await producer(town).close()


@virtual
async def test_a_forked_child_is_told_to_make_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as town, producing(town) as one:
        with monkeypatch.context() as patched:
            patched.setattr("turbopump.client.produce.unique_ids._this", -1)
            with pytest.raises(NotRunning, match="forked"):
                await one.send(ORDER)


@virtual
async def test_without_any_name_server_the_start_fails_and_may_be_tried_again() -> None:
    world = World(MemoryNetwork(), VirtualClock(), Chance(1))
    one = Producer("makers", name_servers="127.0.0.1:9876", world=world)
    for _ in range(2):
        with pytest.raises(NoNameServer, match=r"127\.0\.0\.1:9876"):
            await one.start()
    await one.close()


@virtual
async def test_two_producers_of_one_group_need_two_instances() -> None:
    async with cluster() as town, producing(town, instance_name="shared"):
        with pytest.raises(InvalidArgument, match="instance_name"):
            await producer(town, instance_name="shared").start()
        async with producing(town, group="others", instance_name="shared") as other:
            await other.send(ORDER)


# --- what is refused -------------------------------------------------------------------------------------

BAD_MESSAGES: list[tuple[Callable[[], Any], str]] = [
    (lambda: Message("", b"x"), "the topic must not be empty"),
    (lambda: Message("  ", b"x"), "the topic must not be empty"),
    (lambda: Message("a" * 128, b"x"), "at most 127 characters, got 128"),
    (lambda: Message("a b", b"x"), "letters a-z"),
    (lambda: Message("größe", b"x"), "letters a-z"),
    (lambda: Message("SCHEDULE_TOPIC_XXXX", b"x"), "brokers' own"),
    (lambda: Message("RMQ_SYS_TRANS_HALF_TOPIC", b"x"), "brokers' own"),
    (lambda: Message("OFFSET_MOVED_EVENT", b"x"), "brokers' own"),
    (lambda: Message("orders", b""), "the body must not be empty"),
    (lambda: Message("orders", b"x" * 1001), "at most 1000 bytes"),
    (lambda: Message("orders", b"x", keys="A 1"), "as a list"),
    (lambda: Message("orders", b"x", keys=["A", "B\t"]), "as a list"),
    (lambda: Message("orders", b"x", keys=[""]), "must not be empty"),
    (lambda: Message("orders", b"x", tags="a\x02b"), "x02"),
    (lambda: Message(7, b"x"), "topic must be text"),  # type: ignore[arg-type]
    (lambda: Message(["orders"], b"x"), "topic must be text"),  # type: ignore[arg-type]
    (lambda: Message("orders", b"x", keys=[7]), r"str\(key\)"),  # type: ignore[list-item]
    (lambda: Message("orders", b"x", delay_level="3"), "whole numbers"),  # type: ignore[arg-type]
    (lambda: Message("orders", b"x", tags="\ud800"), "UTF-8"),
    (lambda: Message("orders", b"x", tags=7), "tags must be text"),  # type: ignore[arg-type]
    (lambda: Message("orders", b"x", properties={"TAGS": "a"}), "tags="),
    (lambda: Message("orders", b"x", properties={"WAIT": "false"}), "wait_store_ok="),
    (lambda: Message("orders", b"x", properties={"CORRELATION_ID": "1"}), "reserved for the protocol"),
    (lambda: Message("orders", b"x", properties={"a": ""}), "a name and a value"),
    (lambda: Message("orders", b"x", properties={"": "a"}), "a name and a value"),
    (lambda: Message("orders", b"x", properties={"a": 1}), "properties must be text"),  # type: ignore[dict-item]
    (lambda: Message("orders", b"x", properties={"a": "\x02"}), "x02"),
    (lambda: Message("orders", b"x", properties={"a": "ü" * 16400}), "put them into the body"),
    (lambda: Message("orders", b"x", properties={"INNER_MULTI_DISPATCH": "a/b"}), "INNER_MULTI_DISPATCH"),
    (lambda: Message("orders", b"x", delay_level=-1), "must be 0"),
    (lambda: Message("orders", b"x", flag=1 << 31), "32 bits"),
    (lambda: "text", "Message"),
]


@virtual
async def test_a_bad_message_is_refused_with_advice_and_never_reaches_the_wire() -> None:
    async with cluster() as town, producing(town, max_message_size=1000) as one:
        await town.create_topic("orders")
        for make, advice in BAD_MESSAGES:
            calls: list[Callable[[], Any]] = [
                lambda make=make: one.send(make()),
                lambda make=make: one.send_oneway(make()),
                lambda make=make: one.send_batch([Message("orders", b"good"), make()]),
                lambda make=make: one.request(make()),
            ]
            for call in calls:
                with pytest.raises(InvalidArgument, match=advice):
                    await call()
        assert await stored(town, "orders") == []


def test_what_is_no_message_cannot_even_be_made() -> None:
    with pytest.raises(InvalidArgument, match=r"text\.encode"):
        Message("orders", "text")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="str"):
        Message("orders", b"x", keys=7)  # type: ignore[arg-type]
    assert Message("orders", bytearray(b"x"), keys=["A", "B"]).keys == ("A", "B")
    assert Message("orders", b"x", properties=None).properties == {}


@virtual
async def test_the_queues_of_a_topic_that_does_not_exist_are_an_error() -> None:
    async with cluster() as town, producing(town) as one:
        with pytest.raises(TopicNotFound):
            await one.queues("new")


def test_oneway_sends_leave_others_their_turn() -> None:
    async def scene() -> None:
        async with cluster() as town, producing(town) as one:
            await town.create_topic("orders")
            await one.send(ORDER)
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            watching = asyncio.create_task(other())
            for _ in range(1000):
                await one.send_oneway(ORDER)
            watching.cancel()
            assert turns >= 10
            await town.clock.sleep(1)
            assert len(await stored(town, "orders")) == 1001

    run_virtual(scene())


@virtual
async def test_a_wish_for_a_queue_must_be_one_and_fit() -> None:
    async with cluster() as town, producing(town) as one:
        await town.create_topic("orders")
        (queue, *_) = await one.queues("orders")
        with pytest.raises(InvalidArgument, match=r"producer\.queues"):
            await one.send(Message("bills", b"x"), queue=queue)
        with pytest.raises(InvalidArgument, match="only one of by="):
            await one.send(Message("orders", b"x"), queue=queue, by="A")
        with pytest.raises(InvalidArgument, match="str"):
            await one.send(Message("orders", b"x"), by=object())
        with pytest.raises(InvalidArgument, match="must return one"):
            await one.send(Message("orders", b"x"), select=lambda queues, message: None)  # type: ignore[arg-type,return-value]
        with pytest.raises(ZeroDivisionError):
            await one.send(Message("orders", b"x"), select=lambda queues, message: queues[1 // 0])
        with pytest.raises(InvalidArgument, match="must be seconds"):
            await one.send(Message("orders", b"x"), timeout=3000)
        await one.send(Message("orders", b"x"))


@pytest.mark.parametrize(
    ("group", "advice"),
    [
        ("", "the group must not be empty"),
        ("a" * 121, "at most 120"),
        ("my group", "letters a-z"),
        ("DEFAULT_PRODUCER", "of your own"),
        (7, "group must be text"),
    ],
)
def test_a_bad_group_is_refused(group: Any, advice: str) -> None:
    with pytest.raises(InvalidArgument, match=advice):
        Producer(group)


def test_a_bad_setting_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="milliseconds"):
        Producer("makers", send_msg_timeout=3000)
    with pytest.raises(InvalidArgument, match="ZLIB, LZ4, ZSTD"):
        Producer("makers", compress_type="gzip")
    with pytest.raises(InvalidArgument, match="did you mean"):
        Producer("makers", send_msg_timeot=3)  # type: ignore[call-arg]


# --- too much at once ------------------------------------------------------------------------------------


@virtual
async def test_who_sends_too_much_waits_in_line_and_gives_up_in_time() -> None:
    async with cluster() as town, producing(town, max_in_flight=2) as one:
        await town.create_topic("orders")
        await one.send(Message("orders", b"warm"))
        tasks = [one.send_async(Message("orders", b"%d" % number)) for number in range(10)]
        assert {(await task).status for task in tasks} == {SendStatus.SEND_OK}


@virtual
async def test_a_line_that_does_not_move_ends_in_a_timeout_that_says_why() -> None:
    async with cluster() as town, producing(town, max_in_flight=1) as one:
        assert one._limits.try_acquire(1)
        began = town.clock.monotonic()
        with pytest.raises(SendTimedOut, match="max_in_flight"):
            await one.send(ORDER, timeout=1.5)
        assert town.clock.monotonic() - began == pytest.approx(1.5)
        one._limits.release(1)
        assert (await one.send(ORDER)).status is SendStatus.SEND_OK


def test_ids_are_those_of_the_process_that_makes_them() -> None:
    from turbopump.client.produce.unique_ids import ProcessIds

    pids = [7, 7, 8]
    ids = ProcessIds("10.0.0.1", lambda: 1_700_000_000_000, Chance(1), lambda: pids.pop(0))
    first, child = ids.next(), ids.next()
    assert first[8:12] == "0007"
    assert child[8:12] == "0008"
    assert first[12:20] != child[12:20]


def test_a_real_fork_makes_ids_of_its_own() -> None:
    from turbopump.client.produce.unique_ids import ProcessIds, process_id

    ids = ProcessIds("10.0.0.1", lambda: 1_700_000_000_000, Chance(1))
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, f"{process_id()} {ids.next()}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    pid, made = os.read(reading, 100).decode().split()
    os.close(reading)
    os.close(writing)
    assert int(pid) == child
    assert int(made[8:12], 16) == child & 0xFFFF
    assert made[:20] != ids.next()[:20]


def test_ids_made_in_many_threads_are_all_different() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from turbopump.client.produce.unique_ids import ProcessIds

    ids = ProcessIds("10.0.0.1", lambda: 1_700_000_000_000, Chance(1))
    with ThreadPoolExecutor(8) as pool:
        made = [
            one for many in pool.map(lambda _: [ids.next() for _ in range(2000)], range(8)) for one in many
        ]
    assert len(set(made)) == 16_000


@virtual
async def test_a_cancelled_send_gives_its_place_to_the_next() -> None:
    async with cluster() as town, producing(town, max_in_flight=1) as one:
        assert one._limits.try_acquire(1)
        waiting = [one.send_async(ORDER) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        one._limits.release(1)
        await asyncio.gather(*waiting, return_exceptions=True)
        assert waiting[0].cancelled()
        assert [task.result().status for task in waiting[1:]] == [SendStatus.SEND_OK] * 2
        assert (one._limits.count, one._limits.bytes) == (0, 0)


@virtual
async def test_user_properties_that_java_has_setters_for_are_free() -> None:
    async with cluster() as town, producing(town) as one:
        key = "7F0000010001000000000000000000FF"
        receipt = await one.send(Message("orders", b"x", properties={properties.UNIQUE_KEY: key}))
        assert receipt.message_id == key
