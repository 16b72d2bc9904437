"""Plain sends to a SYNC_MASTER: the compiled way, whose answers wait, gives what the Python loop gives."""

import asyncio
from unittest import mock

import pytest
from tests.kit import virtual
from tests.unit.replication.kit import Pair, pair

from turbopump.broker import server
from turbopump.broker.produce.plain_sends import PlainSendHandler
from turbopump.compiled import twins
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request

SYNC = "brokerRole=SYNC_MASTER\nslaveTimeout=3000\n"
SLAVE = "brokerRole=SLAVE\nbrokerId=1\n"

REMADE = PlainSendHandler._remade

Answers = list[tuple[int, dict[str, str]]]


def plain(number: int, waits: bool = True) -> str:
    return f"UNIQ_KEY\x01K{number:08d}\x02WAIT\x01{'true' if waits else 'false'}\x02TAGS\x01A\x02"


async def send_many(world: Pair, node: object, numbers: range, hurried: range = range(0)) -> Answers:
    """Sends in one read event, and returns the answers in the order of the sends."""
    sends = [
        world.send(node, b"x" * 100, properties=plain(number, number not in hurried))  # type: ignore[arg-type]
        for number in numbers
    ]
    answers: list[Command] = await asyncio.gather(*sends)
    return [(answer.code, answer.ext or {}) for answer in answers]


async def scenario() -> list[Answers]:
    """Sends without a slave, with one, with one that is cut off, and with some that do not wait."""
    async with pair() as world:
        master, slave = world.node(SYNC), world.node(SLAVE)
        await master.start()
        await send_many(world, master, range(1))  # creates the topic
        alone = await send_many(world, master, range(1, 5))
        await slave.start()
        await world.copied(master, slave)
        both = await send_many(world, master, range(5, 20), hurried=range(8, 10))
        world.network.cut(master.ip, slave.ip)
        late = await send_many(world, master, range(20, 25), hurried=range(22, 23))
        return [alone, both, late]


@virtual
async def both_ways() -> None:
    with mock.patch.object(PlainSendHandler, "_remade", autospec=True, side_effect=REMADE) as remade:
        compiled = await scenario()
    assert remade.call_count >= 2, "the compiled way served the sends without a slave and those too late"
    with mock.patch.object(server, "twins", return_value=None):
        pure = await scenario()
    assert compiled == pure
    alone, both, late = compiled
    assert {code for code, _ in alone} == {ResponseCode.SLAVE_NOT_AVAILABLE}
    assert [(code, ext["replicas"]) for code, ext in both] == [
        (0, "1" if number in (8, 9) else "2") for number in range(5, 20)
    ]
    assert [code for code, _ in late] == [
        ResponseCode.SUCCESS if number == 22 else ResponseCode.FLUSH_SLAVE_TIMEOUT for number in range(20, 25)
    ]


@pytest.mark.skipif(twins() is None, reason="the compiled way was not built")
def test_both_ways_of_plain_sends_give_the_same_answers_while_slaves_are_waited_for() -> None:
    both_ways()


@virtual
async def test_a_send_that_does_not_wait_is_not_delayed_by_one_that_does() -> None:
    async with pair() as world:
        master, slave = world.node(SYNC), world.node(SLAVE)
        await master.start()
        await send_many(world, master, range(1))
        await slave.start()
        await world.copied(master, slave)
        world.network.cut(master.ip, slave.ip)
        began = world.clock.monotonic()
        waiting = asyncio.ensure_future(send_many(world, master, range(1, 5)))
        await send_many(world, master, range(5, 8), hurried=range(5, 8))
        assert world.clock.monotonic() - began < 0.1
        assert {code for code, _ in await waiting} == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
        assert 2.9 < world.clock.monotonic() - began < 3.2


@virtual
async def test_answers_count_the_copies_that_are_waited_for_after_a_change_of_the_setting() -> None:
    async with pair() as world:
        master, slave = world.node(SYNC), world.node(SLAVE)
        other = world.node("brokerRole=SLAVE\nbrokerId=2\n")
        await master.start()
        await send_many(world, master, range(1))
        for node in (slave, other):
            await node.start()
            await world.copied(master, node)
        assert {ext["replicas"] for _, ext in await send_many(world, master, range(1, 5))} == {"2"}
        command = request(RequestCode.UPDATE_BROKER_CONFIG, None, b"inSyncReplicas=3\n")
        assert (await world.tool.call(master.address, command, 3.0)).code == ResponseCode.SUCCESS
        answers = await send_many(world, master, range(5, 9))
        assert [(code, ext["replicas"]) for code, ext in answers] == [(0, "3")] * 4
