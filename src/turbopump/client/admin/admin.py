"""`Admin`: all parts of administration over one client. It connects at its first request."""

from collections.abc import Sequence
from typing import Self, Unpack

from turbopump.client import discovery
from turbopump.client.admin.accounts import AclAccounts
from turbopump.client.admin.brokers import Brokers
from turbopump.client.admin.calls import TIMEOUT_S, AdminCalls
from turbopump.client.admin.clusters import Clusters
from turbopump.client.admin.connections import Connections
from turbopump.client.admin.dead_letters import DeadLetters
from turbopump.client.admin.global_transactions import GlobalTransactions
from turbopump.client.admin.groups import Groups
from turbopump.client.admin.messages import Messages
from turbopump.client.admin.name_servers import NameServerSettings
from turbopump.client.admin.offsets import Offsets
from turbopump.client.admin.queues import Queues
from turbopump.client.admin.timers import Timers
from turbopump.client.admin.topics import Topics
from turbopump.client.admin.transactions import Transactions
from turbopump.client.admin.users import Acls, Users
from turbopump.client.credentials import signer_of
from turbopump.client.encryption import network_for
from turbopump.client.errors import InvalidArgument, NoNameServer
from turbopump.client.name_servers import NameServers
from turbopump.client.namespace import marks
from turbopump.client.options import ClientOptions
from turbopump.client.produce.sender import Sender
from turbopump.client.pull.puller import Puller
from turbopump.client.routes import RoundRobin, RouteCache
from turbopump.client.rules import check_seconds
from turbopump.client.settings import ClientSettings, made
from turbopump.client.world import World
from turbopump.protocol.ids import UniqueIds
from turbopump.remoting.client import Client

SENDERS = "admin_ext_group"
"""The producer group that sends copies of dead letters: that of Apache's tools."""


class Admin:
    """Administers a cluster of Apache's or Turbopump's servers, with one part per subject.

    `clusters`, `brokers`, `name_servers` are about servers; `topics`, `queues`, `messages`, `transactions`,
    `timers` about stored messages; `global_transactions` about transactions over several participants;
    `groups`, `offsets`, `connections` about producers and consumers; `users`, `acls` and, for servers of 4.x,
    `accounts` about access control.

        async with Admin("127.0.0.1:9876") as admin:
            await admin.topics.create("OrderTopic", queues=8)
            print(await admin.topics.names())

    Without `name_servers` they are found as for every client: `turbopump.configure()`, the configuration
    file, NAMESRV_ADDR, else 127.0.0.1:9876. `timeout` is for each request, in seconds; slow requests have
    more. Every call raises `Refused` (or its class for the code) when a server refuses, and `Unreachable`, an
    OSError, when it does not answer. Other keyword arguments are settings of every client, such as `use_tls`.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        world: World | None = None,
        timeout: float = TIMEOUT_S,
        **settings: Unpack[ClientOptions],
    ) -> None:
        self.settings = made(ClientSettings, settings, discovery.defaults())
        addresses = discovery.name_servers(name_servers, domain=self.settings.name_server_domain)
        if not addresses:
            raise NoNameServer(
                "Admin does not discover name servers over HTTP (name_server_domain): give them as "
                'Admin("host:9876"), turbopump.configure(name_servers=…) or NAMESRV_ADDR'
            )
        if check_seconds(timeout) <= 0:
            raise InvalidArgument(f"timeout must be more than 0 seconds, got {timeout}")
        self.world = world or World()
        self.network, self.clock, self.chance = self.world.network, self.world.clock, self.world.chance
        self.client = Client(
            network_for(self.settings, self.network),
            self.clock,
            limits=self.world.limits,
            connect_timeout_s=self.settings.connect_timeout,
            extra=marks(self.settings.namespace_v2),
            sign=signer_of(self.settings),
        )
        self.routes = RouteCache(NameServers(self.client, addresses, self.chance))
        self.asking = asking = AdminCalls(self.client, addresses, self.chance, timeout)
        self.clusters = Clusters(asking)
        self.topics = Topics(asking)
        self.brokers = Brokers(asking)
        self.name_servers = NameServerSettings(asking)
        self.users = Users(asking)
        self.acls = Acls(asking)
        self.accounts = AclAccounts(asking)
        self.connections = Connections(asking, self.topics)
        self.groups = Groups(asking, self.topics, self.connections)
        self.offsets = Offsets(asking, self.topics, self.groups, self.clock)
        puller = Puller(self.client, self.routes)
        self.messages = Messages(asking, self.topics, self.clusters, self.connections, self.groups, puller)
        self.queues = Queues(asking, puller, self.clock)
        self.transactions = Transactions(asking, self.messages, self.routes)
        self.global_transactions = GlobalTransactions(asking)
        self.timers = Timers(self.messages, self.routes, self.clock, self.producer(SENDERS))

    def dead_letters(self, group: str) -> DeadLetters:
        """Returns the object that lists, finds and resends the dead letters of a group; sends no request.

        Example:

            async for letter in admin.dead_letters("billing").within():
                print(letter.message_id, letter.reconsume_times)
        """
        return DeadLetters(self.messages, self.routes, group, self.producer(SENDERS))

    def producer(self, group: str) -> Sender:
        """Returns a `Sender` of a producer group that uses the connections of this Admin.

        Random bits distinguish its message ids, so that many short processes of one machine may have one
        each.
        """
        clock, chance = self.clock, self.chance
        ids = UniqueIds("127.0.0.1", chance.getrandbits(16), clock.now_ms, chance.getrandbits(32))
        return Sender(self.client, self.routes, clock, ids, RoundRobin(chance), group, chance=chance)

    async def close(self) -> None:
        """Closes all connections of this Admin. May be called again."""
        await self.client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
