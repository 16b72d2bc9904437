"""What the tests of flush share with others."""

import asyncio

from tests.unit.store.lab import draft, new_disk, small

from turbopump.store.flush import Durability
from turbopump.store.store import Store
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock

LOG = "commitlog"


class Bench:
    """A store with SYNC_FLUSH whose syncs run in the simulated disk thread, and a count of them."""

    def __init__(self, **settings: object) -> None:
        self.clock = VirtualClock()
        self.disk = new_disk()
        self.disk.clock = self.clock
        self.workers = SimulatedWorkers(self.disk)
        config = small(**{"flush_disk_type": "SYNC_FLUSH", **settings})
        self.store = Store.open(config, self.disk, self.clock, self.workers)
        self.outcomes: list[Durability] = []
        self.syncs = 0
        self._count(self.disk)

    def _count(self, disk: SimulatedDisk) -> None:
        plain = disk.sync

        def counted(path: str, node: object) -> None:
            self.syncs += LOG in path
            plain(path, node)  # type: ignore[arg-type]

        disk.sync = counted  # type: ignore[method-assign,assignment]

    def send(self, count: int = 1) -> None:
        queue = self.store.queues.queue("T", 0)
        for _ in range(count):
            number = queue.next_offset
            [(offset, _, size)] = self.store.log.append([draft(queue, b"%06d" % number, key=f"T-{number}")])
            self.store.flusher.durable(offset + size, self.outcomes.append)

    async def told(self, count: int) -> list[Durability]:
        while len(self.outcomes) < count:  # noqa: ASYNC110 - virtual time: this costs nothing
            await asyncio.sleep(0.001)
        return self.outcomes
