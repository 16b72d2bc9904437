"""Set-up of tests in which a slave is promoted."""

from __future__ import annotations

import asyncio

from tests.unit.replication.kit import BrokerDesk, Node, Pair

from turbopump.protocol.record import Record
from turbopump.testing.simulated_files import Survival

MASTER, SYNC = "brokerRole=ASYNC_MASTER\n", "brokerRole=SYNC_MASTER\n"


async def promoted(
    world: Pair, master: Node, slave: Node, end: str = "killed", conf: str = MASTER
) -> BrokerDesk:
    """Ends the master for good, then the slave, and starts the slave as the master."""
    await master.kill()
    if end == "stopped":
        await slave.stop()
    elif end == "killed":
        await slave.kill()
    else:
        await asyncio.sleep(0.1)  # its last bytes are synced
        await slave.kill(Survival.LOST)
    await slave.start(conf)
    return BrokerDesk(world, slave)


def stored(node: Node, topic: str) -> list[Record]:
    """Every message of a topic, in the order of the log, from all queues."""
    found = []
    for queue in node.store.queues.of(topic):
        for offset in range(queue.min_offset, queue.max_offset):
            entry = queue.entry(offset)
            assert entry is not None
            one = node.store.log.look_up(entry[0])
            assert one is not None
            found.append(one)
    return sorted(found, key=lambda one: one.physical_offset)


def bodies(node: Node, topic: str = "T") -> list[bytes]:
    return [one.body for one in stored(node, topic)]
