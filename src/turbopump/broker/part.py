"""`Part`, which each package of the broker builds, and `Context`, the objects that parts are built from.

Each package of the broker has a `part.py` with one function `build(context) -> Part`; `server.py` lists them
in the order in which they are built. A part is a value: request handlers, kinds of message, background work,
and what to do at the end. It gives its handlers the few things they use, never the context or the broker.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from turbopump.auth.signature import Credentials
from turbopump.broker.config import BrokerConfig, MasterRole
from turbopump.broker.dledger.member import GroupMember
from turbopump.broker.dledger.member_gate import MemberGate
from turbopump.broker.produce.kinds import WaitingKind, WaitingKinds
from turbopump.broker.produce.targets import SendTargets
from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.registration import NameServerRegistration
from turbopump.broker.replicas.progress_files import RoleChange
from turbopump.broker.storage import Storage
from turbopump.broker.tables import TableFiles, Tables
from turbopump.broker.topics import Topic
from turbopump.guard.link import (
    Charge,
    MayDecide,
    MayReceive,
    Permit,
    any_may_decide,
    any_may_receive,
    permit_all,
)
from turbopump.remoting.client import Client
from turbopump.remoting.links import BulkHandler, Link
from turbopump.remoting.router import Observe, Router, Routes
from turbopump.remoting.server import Server
from turbopump.replication.copies import Copies
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk, Workers
from turbopump.runtime.network import Network
from turbopump.store.config_files import ConfigFiles

P = TypeVar("P", bound="Part")

Work = Coroutine[Any, Any, None]


def _nothing(config: BrokerConfig) -> None:
    """Does nothing: the default of `Part.configure`, for parts without settings that can change."""


@dataclass(kw_only=True)
class Part:
    """What one package gives to the broker: request handlers, message kinds, background tasks, closers.

    A subclass has fields for the objects that other parts use.
    """

    routes: Routes = field(default_factory=dict)
    main_routes: Routes = field(default_factory=dict)
    """Requests that the main port serves and the fast port does not."""
    kinds: Sequence[WaitingKind] = ()
    """Kinds of message, which claim before those of the parts built earlier."""
    before: Sequence[Link] = ()
    """Checks that every request passes before its handler."""
    around: Callable[[Routes], Routes] | None = None
    """Puts something around the handlers of all parts, such as audit lines."""
    bulk: Callable[[Router], BulkHandler] | None = None
    """Makes the bulk handler of plain sends, one for each port."""
    observe: Observe | None = None
    """Called with every answer."""
    tasks: Sequence[Callable[[], Work]] = ()
    """Work that runs in the background from when requests are served until the broker stops."""
    configure: Callable[[BrokerConfig], None] = _nothing
    """Called when the configuration was changed by a request."""
    start: Callable[[], Awaitable[None]] | None = None
    """Called when requests are served."""
    answer_waiting: Callable[[], None] | None = None
    """Called at stop while connections are open: answers the requests that wait."""
    close: Sequence[Callable[[], Awaitable[None]]] = ()
    """Called at stop when no request is served any more, the last one first."""


@dataclass(kw_only=True)
class Context:
    """The objects that parts are built from, and the parts that were built so far."""

    config: Callable[[], BrokerConfig]
    """The configuration as it is now."""
    store: Storage
    tables: Tables
    table_files: TableFiles
    files: ConfigFiles
    writer: MessageWriter
    copies: Copies
    """How far the slaves of this broker have copied its log."""
    role: RoleChange
    """The files that depend on whether this broker is a master or a slave."""
    targets: SendTargets
    client: Client
    registration: NameServerRegistration
    servers: tuple[Server, Server]
    port: int
    """Main port; the fast port is two below."""
    address: str
    """Address under which clients reach this broker."""
    recovered_end: int | None
    """End of the log when the broker started after a crash that may have cost later messages."""
    clock: Clock
    disk: Disk
    workers: Workers
    chance: Chance
    network: Network
    """The network for replication; encrypts where TLS is configured, as `page_network` does for HTTP."""
    page_network: Network
    apply: Callable[[BrokerConfig], None]
    """Changes the configuration while the broker runs."""
    member: GroupMember | None = None
    """This broker's member of its DLedger group; None: it is in none."""
    credentials: Credentials | None = None
    """With which this broker signs what it asks of others; None: it does not sign."""
    promote: Callable[[MasterRole], None] | None = None
    """Has the process start this slave again as a master; None: it cannot do that."""
    is_encrypted: bool = False
    """Whether clients can only connect with TLS."""
    member_gate: MemberGate = field(default_factory=MemberGate)
    """The gate of the DLedger port; used with access control."""
    permit: Permit = permit_all
    """Asked by handlers about a resource that only they know; permits all without access control."""
    charge: Charge | None = None
    """Counts what a request has read against the quota of its sender; None: there are no quotas."""
    may_decide: MayDecide = any_may_decide
    """Asked by transaction checks about the producers of a group."""
    may_receive: MayReceive = any_may_receive
    """Asked by replies to requests about the connections of the client that asked."""
    adopts_topics: bool = True
    """Whether a topic that has messages, but is not in the table, is restored."""
    kinds: WaitingKinds = field(default_factory=WaitingKinds)
    """The kinds of message of all parts built so far."""
    parts: list[Part] = field(default_factory=list)
    routers: list[Router] = field(default_factory=list)
    """Routers of the main and the fast port, once requests are served."""
    topic_listeners: list[Callable[[list[Topic]], None]] = field(default_factory=list)
    """Called with new or changed topics; with an empty list when one was deleted."""

    def add(self, part: Part) -> None:
        """Registers a built part and its message kinds, for the parts that are built after it."""
        self.parts.append(part)
        self.kinds = self.kinds.before(part.kinds)

    def part(self, kind: type[P]) -> P:
        """Returns the part of type `kind`, which must have been built before."""
        return next(part for part in self.parts if isinstance(part, kind))

    def may(self, permission: int) -> bool:
        """Returns whether brokerPermission allows `permission` (READ or WRITE) for the broker as a whole."""
        return self.config().topics.permission & permission != 0

    @property
    def is_slave(self) -> bool:
        """Whether this broker only copies its master: then no part stores messages or saves progress."""
        return self.config().identity.is_slave

    @property
    def broker_name(self) -> str:
        return self.config().identity.broker_name

    @property
    def host(self) -> str:
        """The host in `address`, under which clients reach this broker."""
        return self.address.rpartition(":")[0]
