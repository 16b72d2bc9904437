"""A reader that asks any member of a group, mostly followers: they serve what is committed, and only that."""

import asyncio

from tests.simulation.cluster.clients import PairClient, Surroundings, found_in, pull_of
from tests.simulation.cluster.history import Pulled, Strayed

from turbopump.protocol.codes import ResponseCode
from turbopump.remoting.client import Client

FOLLOWERS = "FG"


class FollowerReader(PairClient):
    """Reads all queues, each time from a member that chance picks. Commits nothing."""

    def __init__(self, world: Surroundings, pair: str, client: Client, queues: int) -> None:
        super().__init__(world, pair, client)
        self._position = dict.fromkeys(range(queues), 0)

    async def run(self) -> None:
        chance = self.world.chance
        while True:
            node = chance.choice(self.world.nodes_of(self.pair))
            for queue_id in self._position if node.is_up else ():
                while await self._read(node.address, queue_id):
                    pass
            await asyncio.sleep(chance.choice([0.2, 1, 3]))

    async def _read(self, address: str, queue_id: int) -> bool:
        """Pulls once; returns whether there may be more."""
        node, position = self.node_at(address), self._position[queue_id]
        assert node is not None, "a member of the group"
        answer = await self.call(node, pull_of(FOLLOWERS, queue_id, position), f"pull of queue {queue_id}")
        if answer is None:
            return False
        now, history = self.world.clock.monotonic(), self.world.history
        after = int((answer.ext or {}).get("nextBeginOffset", position))
        if answer.code == ResponseCode.SUCCESS:
            found = found_in(answer)
            if found[0].queue_offset != position:
                history.add(Strayed(now, self.pair, node.name, queue_id, position, found[0].queue_offset))
            history.add(Pulled(now, self.pair, queue_id, found, FOLLOWERS, is_of_slave=True))
            self._position[queue_id] = found[-1].queue_offset + 1
            return True
        if after > position:
            history.add(Strayed(now, self.pair, node.name, queue_id, position, after))
        return False  # a follower may be behind
