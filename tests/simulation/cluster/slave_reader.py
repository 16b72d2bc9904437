"""A reader of a pair that goes to a slave when the master is away or suggests it, and commits there too."""

import asyncio

from tests.simulation.cluster.clients import PairClient, Surroundings, commit_of, found_in, pull_of
from tests.simulation.cluster.history import Moved, Pulled, SlaveCommitted, Strayed
from tests.simulation.cluster.node import Node

from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client

GROUP = "SG"
MARKS = "SM"  # a group that reads and commits at slaves only, so that the master has it from them alone
MAX_PULLS = 4  # of a queue in one round
NAPS = 0.1  # of the rounds are followed by a longer pause, after which the reader is far behind


class SlaveReader(PairClient):
    """Reads all queues of a pair from the broker that the last answer suggested, or that is there."""

    def __init__(self, world: Surroundings, pair: str, client: Client, queues: int) -> None:
        super().__init__(world, pair, client)
        self._position = dict.fromkeys(range(queues), 0)
        self._suggested = dict.fromkeys(range(queues), 0)
        self._marks = dict.fromkeys(range(queues), 0)
        self.is_calm = False
        """Whether it rests only for a moment, so that it has everything at the end."""

    async def run(self) -> None:
        chance = self.world.chance
        while True:
            for queue_id in self._position:
                for _ in range(MAX_PULLS):
                    if not await self._read(queue_id):
                        break
            is_nap = chance.random() < NAPS and not self.is_calm
            await asyncio.sleep(chance.uniform(6, 12) if is_nap else chance.choice([0.2, 1, 3]))

    async def _read(self, queue_id: int) -> bool:
        """Pulls once; returns whether there were messages."""
        position, what = self._position[queue_id], f"pull of queue {queue_id}"
        command, suggested = pull_of(GROUP, queue_id, position), self._suggested[queue_id]
        found = await self.call_master(command, what) if suggested == 0 else None
        if found is not None:
            return await self._take(*found, queue_id, position)
        self._suggested[queue_id] = 0
        node = await self._slave(suggested)
        answer = None if node is None else await self.call(node, command, what)
        if node is None or answer is None:
            return False
        return await self._take(node, answer, queue_id, position)

    async def _slave(self, suggested: int) -> Node | None:
        """Returns the slave with this broker id, or any for 0; None: it is not known."""
        route = await self.route()
        slaves = [address for number, address in sorted(route.items()) if number]
        any_slave = self.world.chance.choice(slaves) if slaves and not suggested else None
        address = route.get(suggested) if suggested else any_slave
        return None if address is None else self.node_at(address)

    async def _take(self, node: Node, answer: Command, queue_id: int, position: int) -> bool:
        """Notes what a server gave, and goes on where it says; returns whether there were messages."""
        history, now, fields = self.world.history, self.world.clock.monotonic(), answer.ext or {}
        if "nextBeginOffset" not in fields:
            return False
        after, is_moved = int(fields["nextBeginOffset"]), answer.code == ResponseCode.PULL_OFFSET_MOVED
        self._position[queue_id], self._suggested[queue_id] = after, int(fields["suggestWhichBrokerId"])
        found = found_in(answer) if answer.code == ResponseCode.SUCCESS else ()
        if found:
            history.add(Pulled(now, self.pair, queue_id, found, GROUP, not node.is_master))
        offsets = tuple(one.queue_offset for one in found)
        if offsets != tuple(range(position, after)) and not is_moved:
            history.add(Strayed(now, self.pair, node.name, queue_id, position, after))
        if is_moved:
            where = f"queue {queue_id} from {position} to {after}"
            history.tell(now, f"{node.name} sends the second reader of {where}")
            history.add(Moved(now, self.pair, queue_id, position, after, GROUP))
        if found and not node.is_master:
            history.tell(now, f"{node.name}, a slave, gives {position} to {after} of queue {queue_id}")
        if found:
            await self._commit(node, queue_id, after)
        return bool(found)

    async def _commit(self, node: Node, queue_id: int, offset: int) -> None:
        """Commits at the master, or where the messages came from if there is none."""
        command, what = commit_of(GROUP, queue_id, offset), f"commit of queue {queue_id}"
        if await self.call_master(command, what) is not None or node.is_master:
            return
        await self.call(node, command, what)
        await self._mark(node, queue_id)

    async def _mark(self, node: Node, queue_id: int) -> None:
        """Reads and commits at a slave for the group that does so nowhere else."""
        pull = pull_of(MARKS, queue_id, self._marks[queue_id])
        answer = await self.call(node, pull, f"pull of queue {queue_id}")
        if answer is None or "nextBeginOffset" not in (answer.ext or {}):
            return
        offset = self._marks[queue_id] = int((answer.ext or {})["nextBeginOffset"])
        if answer.code != ResponseCode.SUCCESS:
            return
        last, command = found_in(answer)[-1], commit_of(MARKS, queue_id, offset)
        answer = await self.call(node, command, f"commit of queue {queue_id}")
        if answer is not None and answer.code == ResponseCode.SUCCESS and not node.is_master:
            now = self.world.clock.monotonic()
            one = SlaveCommitted(now, self.pair, node.name, queue_id, offset, last.offset)
            self.world.history.add(one)
            self.world.history.tell(now, f"{node.name}, a slave, has offset {offset} of queue {queue_id}")
