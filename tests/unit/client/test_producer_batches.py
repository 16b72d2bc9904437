"""Batches: one request for many messages, cut to size, and a receipt for each."""

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import cluster
from tests.unit.client.kit import NAMESRV, Cluster
from tests.unit.client.producing import producing, stored

from turbopump.client.errors import InvalidArgument, SendFailed
from turbopump.client.message import Message, MessageQueue, SendResult, SendStatus
from turbopump.client.name_servers import NameServers
from turbopump.client.produce.batches import prepared_chunks, split_result
from turbopump.client.produce.sender import Sender
from turbopump.client.routes import RoundRobin, RouteCache
from turbopump.protocol import batch
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.ids import UniqueIds
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import VirtualClock


def some(count: int, size: int = 10) -> list[Message]:
    return [
        Message("orders", b"%05d" % number + b"x" * (size - 5), keys=f"k{number}") for number in range(count)
    ]


@virtual
async def test_every_message_of_a_batch_has_its_own_receipt_in_order() -> None:
    async with cluster() as town, producing(town) as one:
        await town.create_topic("orders")
        sent = some(20)
        results = await one.send_batch(iter(sent))
        found = {message.message_id: message for message in await stored(town, "orders")}
        assert len(results) == len(found) == 20
        assert len({result.queue for result in results}) == 1
        for message, result in zip(sent, results, strict=True):
            there = found[result.message_id]
            assert (there.body, there.keys) == (message.body, message.keys)
            assert (there.queue, there.offset) == (result.queue, result.offset)
            assert there.offset_message_id == result.offset_message_id


@virtual
async def test_what_is_too_much_for_one_request_goes_in_several_and_stays_in_order() -> None:
    async with cluster() as town, producing(town, max_message_size=2000) as one:
        await town.create_topic("orders")
        results = await one.send_batch([*some(100, 200), Message("orders", b"y" * 2000)], by="A-1")
        assert len(results) == 101
        assert len({result.queue for result in results}) == 1
        assert [result.offset for result in results] == list(range(101))
        found = await stored(town, "orders")
        assert [message.message_id for message in found] == [result.message_id for result in results]
        assert found[-1].body == b"y" * 2000


@virtual
async def test_chunks_are_as_large_as_allowed_and_no_larger() -> None:
    clock = VirtualClock()
    silent = Cluster()
    sender = Sender(
        silent,
        RouteCache(NameServers(silent, [NAMESRV], Chance(1))),
        clock,
        UniqueIds("10.0.0.1", 1, clock.now_ms),
        RoundRobin(Chance(1)),
    )
    whole = list(prepared_chunks(sender.packer, some(50), 1 << 20))
    assert len(whole) == 1
    size = len(whole[0][0].body)
    assert len(list(prepared_chunks(sender.packer, some(50), size))) == 1
    parts = list(prepared_chunks(sender.packer, some(50), size - 1))
    assert [len(keys) for _, keys in parts] == [49, 1]
    assert [len(batch.split(parts[0][0].body)), parts[1][0].body] == [49, some(50)[-1].body]
    assert [prepared.template.code for prepared, _ in parts] == [
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
    ]
    for largest in (100, 333, 1000, 4096):
        cut = list(prepared_chunks(sender.packer, some(50), largest))
        assert all(len(prepared.body) <= largest for prepared, _ in cut)
        assert sum(len(keys) for _, keys in cut) == 50


def test_a_broker_that_keeps_batches_whole_has_one_id_for_all() -> None:
    result = SendResult(SendStatus.SEND_OK, "batch", "PLACE", MessageQueue("t", "a", 0), 7)
    dealt = split_result(result, ["k0", "k1"])
    assert [(one.message_id, one.offset_message_id, one.offset) for one in dealt] == [
        ("k0", "PLACE", 7),
        ("k1", "PLACE", 8),
    ]


@virtual
async def test_an_empty_batch_is_sent_at_once() -> None:
    async with cluster() as town, producing(town) as one:
        assert await one.send_batch([]) == []


BAD = [
    ([Message("a", b"x"), Message("b", b"x")], "one topic"),
    ([Message("a", b"x"), Message("a", b"x", wait_store_ok=False)], "same wait_store_ok"),
    ([Message("a", b"x", delay_level=1)], "one by one"),
    ([Message("a", b"x", properties={"TIMER_DELAY_SEC": "5"})], "one by one"),
    ([Message("%RETRY%a", b"x")], "one by one"),
]


@virtual
async def test_what_does_not_belong_together_is_refused() -> None:
    async with cluster() as town, producing(town) as one:
        for messages, advice in BAD:
            with pytest.raises(InvalidArgument, match=advice):
                await one.send_batch(messages)


@virtual
async def test_when_a_later_part_fails_the_error_says_how_much_is_stored() -> None:
    async with cluster() as town, producing(town, max_message_size=1000) as one:
        await town.create_topic("orders")
        sender = one._sender
        assert sender is not None
        deliver, calls = sender.deliver, []

        async def once(*args: object) -> SendResult:
            calls.append(args)
            if len(calls) == 1:
                return await deliver(*args)  # type: ignore[arg-type]
            raise SendFailed("orders", (), 10001, "gone")

        sender.deliver = once  # type: ignore[assignment,method-assign]
        with pytest.raises(SendFailed) as raised:
            await one.send_batch(some(20, 100))
        first = len(await stored(town, "orders"))
        assert raised.value.__notes__ == [f"of the batch, the first {first} messages are stored"]
        assert 0 < first < 20


@virtual
async def test_a_batch_as_a_whole_has_no_id_that_a_broker_could_give_to_its_messages() -> None:
    clock, calls, chance = VirtualClock(), Cluster(), Chance(1)
    routes = RouteCache(NameServers(calls, [NAMESRV], chance))
    sender = Sender(
        calls, routes, clock, UniqueIds("10.0.0.1", 1, clock.now_ms), RoundRobin(chance), "makers"
    )
    ((prepared, keys),) = prepared_chunks(sender.packer, some(2), 4000)
    assert "UNIQ_KEY" not in prepared.properties
    assert "WAIT" in prepared.properties
    assert prepared.message_ids == keys
    assert len(set(keys)) == 2
