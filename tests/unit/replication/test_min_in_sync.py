"""minInSyncReplicas: while too few brokers are in sync, nothing is stored, on whatever way it is sent."""

import asyncio
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.broker.desk import letters
from tests.unit.broker.sends import frame
from tests.unit.remoting.kit import commands
from tests.unit.replication.kit import TOOL_IP, TOPIC, Node, Pair, pair
from tests.unit.replication.reading_kit import SLAVE, SYNC

from turbopump.protocol import batch
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.frame import pack

NEEDS_TWO = SYNC + "minInSyncReplicas=2\n"
PLAIN, LONG, BATCH = 310, 10, 320
ONEWAY = 2
TEXT = "in-sync replicas not enough"


def send(code: int, opaque: int, flag: int = 0, **changes: Any) -> bytes:
    body = batch.join([(0, b"one", b""), (0, b"two", b"")]) if code == BATCH else b"body"
    return pack(*frame(code, letters(TOPIC, **changes), body, opaque, flag))


WAYS = {
    "a plain send": send(PLAIN, 1),
    "plain sends together": b"".join(send(PLAIN, opaque) for opaque in range(1, 6)),
    "a send with long names": send(LONG, 1),
    "a one-way send": send(PLAIN, 1, ONEWAY),
    "a batch": send(BATCH, 1, m="true"),
    "a batch between plain sends": send(PLAIN, 1) + send(BATCH, 2, m="true") + send(PLAIN, 3),
    "a delayed message": send(PLAIN, 1, pairs={"DELAY": "18"}),
    "a timed message": send(PLAIN, 1, pairs={"TIMER_DELAY_SEC": "100"}),
    "a half message": send(PLAIN, 1, f=4, pairs={"TRAN_MSG": "true", "PGROUP": "PG"}),
}


class Raw(asyncio.Protocol):
    """A connection that writes bytes and keeps what comes back."""

    def __init__(self) -> None:
        self.received = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data


async def answers_to(world: Pair, node: Node, event: bytes) -> list[Command]:
    host, _, port = node.address.rpartition(":")
    raw = await world.network.at(TOOL_IP).connect(Raw, host, int(port))
    assert isinstance(raw, Raw)
    raw.transport.write(event)
    await asyncio.sleep(5)
    raw.transport.close()
    return commands(raw.received)


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_nothing_is_stored_while_too_few_brokers_are_in_sync(way: str) -> None:
    async with pair() as world:
        master, slave = world.node(NEEDS_TWO), world.node(SLAVE)
        await master.start()
        await slave.start()
        await asyncio.sleep(5)
        accepted = await answers_to(world, master, WAYS[way])
        assert {answer.code for answer in accepted} <= {ResponseCode.SUCCESS}
        await world.copied(master, slave)
        end = master.store.log.end
        assert end > 0
        await slave.stop()
        refused = await answers_to(world, master, WAYS[way])
        assert len(refused) == len(accepted)
        assert {answer.code for answer in refused} <= {ResponseCode.SYSTEM_ERROR}
        assert all((answer.remark or "").startswith(TEXT) for answer in refused)
        assert master.store.log.end == end
        await slave.start()
        await asyncio.sleep(5)
        await answers_to(world, master, WAYS[way])
        assert master.store.log.end > end


@virtual
async def test_a_message_that_is_sent_back_is_refused_too() -> None:
    async with pair() as world:
        master, slave = world.node(NEEDS_TWO), world.node(SLAVE)
        await master.start()
        await slave.start()
        await asyncio.sleep(5)
        assert (await world.send(master, b"x")).code == 0
        await slave.stop()
        ext = {"group": "CG", "offset": "0", "delayLevel": "0", "originMsgId": "", "originTopic": TOPIC}
        command = Command(int(RequestCode.CONSUMER_SEND_MSG_BACK), ext=ext)
        answer = await world.tool.call(master.address, command, 5)
        assert (answer.code, (answer.remark or "")[: len(TEXT)]) == (ResponseCode.SYSTEM_ERROR, TEXT)


@virtual
async def test_a_sender_that_waits_for_no_copy_is_served() -> None:
    async with pair() as world:
        master = world.node(NEEDS_TWO)
        await master.start()
        assert (await world.send(master, b"x", properties="WAIT\x01false\x02")).code == 0
        assert (await world.send(master, b"x", properties="XWAIT\x01false\x02")).code == 1


@virtual
async def test_a_slave_that_is_too_far_behind_is_not_in_sync() -> None:
    async with pair() as world:
        master = world.node(NEEDS_TWO + "haSlaveFallbehindMax=2000\nslaveTimeout=100\n")
        slave = world.node(SLAVE)
        await master.start()
        await slave.start()
        await asyncio.sleep(5)
        world.network.cut(master.ip, slave.ip)
        codes = [(await world.send(master, bytes(500))).code for _ in range(6)]
        assert codes == [12, 12, 11, 1, 1, 1]
        world.network.join(master.ip, slave.ip)
        await asyncio.sleep(5)
        assert (await world.send(master, bytes(500))).code == 0


@virtual
async def test_an_async_master_asks_for_no_copy() -> None:
    async with pair() as world:
        master = world.node("brokerRole=ASYNC_MASTER\ninSyncReplicas=2\nminInSyncReplicas=2\n")
        await master.start()
        assert (await world.send(master, b"x")).code == 0


def test_the_refusal_and_its_end_are_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    @virtual
    async def scene() -> None:
        async with pair() as world:
            master, slave = world.node(NEEDS_TWO), world.node(SLAVE)
            await master.start()
            for _ in range(5):
                await world.send(master, b"x")
            await slave.start()
            await asyncio.sleep(5)
            for _ in range(5):
                await world.send(master, b"x")

    scene()
    lines = [text for text in caplog.messages if text.startswith("Sends are ")]
    assert lines == [
        "Sends are refused: 1 brokers are in sync, minInSyncReplicas=2. Start the slaves",
        "Sends are accepted again: 2 brokers are in sync",
    ]
