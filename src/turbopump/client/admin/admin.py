"""`Admin`: the parts, over one client. Open it with `async with`; it dials when it is first asked."""

from collections.abc import Sequence
from typing import Self

from turbopump.client.admin.asking import TIMEOUT_S, Asking
from turbopump.client.admin.brokers import Brokers
from turbopump.client.admin.clusters import Clusters
from turbopump.client.admin.connections import Connections
from turbopump.client.admin.groups import Groups
from turbopump.client.admin.messages import Messages
from turbopump.client.admin.name_servers import NameServerSettings
from turbopump.client.admin.offsets import Offsets
from turbopump.client.admin.queues import Queues
from turbopump.client.admin.topics import Topics
from turbopump.client.name_servers import NameServers
from turbopump.client.pull import Puller
from turbopump.client.routes import QueueChoice, Routes
from turbopump.client.sender import Sender
from turbopump.protocol.ids import UniqueIds
from turbopump.remoting.client import Client
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock, SystemClock
from turbopump.runtime.network import Network, SystemNetwork


class Admin:
    def __init__(
        self,
        name_servers: Sequence[str],
        network: Network | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.clock = clock or SystemClock()
        self.chance = chance or Chance()
        self.network = network or SystemNetwork()
        self.client = Client(self.network, self.clock)
        self.routes = Routes(NameServers(self.client, name_servers, self.chance))
        self.asking = asking = Asking(self.client, name_servers, self.chance, timeout_s)
        self.clusters = Clusters(asking)
        self.topics = Topics(asking)
        self.brokers = Brokers(asking)
        self.name_servers = NameServerSettings(asking)
        self.connections = Connections(asking, self.topics)
        self.groups = Groups(asking, self.topics, self.connections)
        self.offsets = Offsets(asking, self.topics, self.groups)
        puller = Puller(self.client, self.routes)
        self.messages = Messages(asking, self.topics, self.clusters, self.connections, self.groups, puller)
        self.queues = Queues(asking)

    def producer(self, group: str) -> Sender:
        """To send with, over the same connections. Its ids are told apart by random bits, so that many short
        processes of one machine may have one each.
        """
        chance = self.chance
        ids = UniqueIds("127.0.0.1", chance.getrandbits(16), self.clock.now_ms, chance.getrandbits(32))
        return Sender(self.client, self.routes, self.clock, ids, QueueChoice(chance), group)

    async def close(self) -> None:
        await self.client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
