"""Set-up of tests of a pair in operation."""

import asyncio

from tests.unit.replication.kit import Node, Pair

MASTER = "brokerRole=ASYNC_MASTER\n"
SLAVE = "brokerRole=SLAVE\nbrokerId=1\n"


async def followed(world: Pair, messages: int = 20) -> tuple[Node, Node]:
    """A master with messages, and a slave that follows it."""
    master, slave = world.node(MASTER), world.node(SLAVE)
    await master.start()
    for number in range(messages):
        await world.send(master, b"%d" % number)
    await slave.start()
    await world.copied(master, slave)
    await asyncio.sleep(2)
    return master, slave
