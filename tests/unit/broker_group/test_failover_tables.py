"""Committed offsets of consumers in a group whose leaders follow each other."""

import asyncio

from tests.kit import virtual
from tests.unit.broker_group.kit import Group, group
from tests.unit.broker_group.table_kit import SAVED_S, commit, committed
from tests.unit.replication.kit import Node

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.properties import PRODUCER_GROUP, TRANSACTION_PREPARED, UNIQUE_KEY, pack


async def send_half(world: Group, node: Node) -> None:
    pairs = {UNIQUE_KEY: "half", TRANSACTION_PREPARED: "true", PRODUCER_GROUP: "PG"}
    ext = {
        "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "4",
        "g": str(world.clock.now_ms()), "h": "0", "i": pack(pairs), "j": "0", "k": "false",
    }  # fmt: skip
    answer = await world.tool.call(
        node.address, Command(int(RequestCode.SEND_MESSAGE_V2), ext=ext, body=b"h")
    )
    assert answer.code == ResponseCode.SUCCESS, answer


@virtual
async def test_offsets_that_are_committed_after_a_failover_survive_the_next_one() -> None:
    """The table was changed before anybody listened, and no later commit was written or published."""
    async with group("flushConsumerOffsetInterval=1000\ntransactionCheckInterval=1000\n") as world:
        leader = await world.leader()
        await send_half(world, leader)
        for number in range(3):
            assert (await world.send(leader, b"%d" % number)).code == ResponseCode.SUCCESS
            await commit(world, leader, number + 1)
            await asyncio.sleep(SAVED_S)
            await leader.kill()
            await leader.start()
            leader = await world.leader()
            assert await committed(world, leader) == str(number + 1)
