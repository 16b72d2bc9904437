"""`Broker`: builds the parts of a broker process, starts them in order, stops them in reverse.

Parts receive the few objects they use, never the broker. A choice made by configuration is made here once, by
the object that is picked. No other module of this package knows how many parts there are.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from turbopump.auth.signature import Credentials
from turbopump.auth.signer import Signer
from turbopump.broker.access import part as access
from turbopump.broker.acknowledgement import Acknowledgement
from turbopump.broker.address import primary_local_address
from turbopump.broker.admin import part as admin
from turbopump.broker.config import BrokerConfig, MasterRole
from turbopump.broker.consume import filter_modules
from turbopump.broker.consume import part as consume
from turbopump.broker.delay import part as delay
from turbopump.broker.dledger import part as dledger
from turbopump.broker.dledger.member import GroupMember
from turbopump.broker.dledger.member_gate import MemberGate
from turbopump.broker.dledger.roles import RoleKeeper
from turbopump.broker.flow import RequestWaits
from turbopump.broker.groups import part as groups
from turbopump.broker.groups.members import Members
from turbopump.broker.metrics import part as metrics
from turbopump.broker.metrics.part import MetricsPart
from turbopump.broker.offset_repair import repair_offsets
from turbopump.broker.part import Context
from turbopump.broker.ports import BrokerPorts, bind, clear_text_warnings
from turbopump.broker.produce import part as produce
from turbopump.broker.produce.targets import SendTargets, send_rules
from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.registration import BrokerEndpoint, NameServerRegistration
from turbopump.broker.replicas import part as replicas
from turbopump.broker.replicas.acknowledgement import acknowledgement_of
from turbopump.broker.replicas.part import CopyStatus, ReplicaPart
from turbopump.broker.replicas.progress_files import RoleChange
from turbopump.broker.role_gate import ROLE_CHANGE_WAIT_S, ROLE_CHANGING, RoleChangeGate, identity_in_role
from turbopump.broker.tables import TableFiles, Tables, load
from turbopump.broker.topics import Topic
from turbopump.broker.transactions import part as transactions
from turbopump.compiled import twins
from turbopump.protocol.errors import ServiceNotAvailable
from turbopump.protocol.ids import unpack_host
from turbopump.protocol.inner import OF_BATCHES, QUEUE_TYPE
from turbopump.protocol.permissions import WRITE
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Connection, Sign
from turbopump.remoting.late_requests import LateRequests
from turbopump.remoting.links import Link
from turbopump.remoting.router import Router, Routes
from turbopump.remoting.tls import ServerNetworks, networks_of
from turbopump.replication.copies import Copies
from turbopump.replication.dledger.server import NodeEnvironment
from turbopump.replication.progress import FILE as REPLICA_FILE
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk, Workers
from turbopump.runtime.network import Network
from turbopump.runtime.tasks import Tasks
from turbopump.store.config_files import ConfigFiles
from turbopump.store.flags import Reason
from turbopump.store.store import Store

log = logging.getLogger(__name__)

REGISTERED_WITHIN_S = 3.0
SLAVE_RATIO_LESS = 10  # percent of the memory: accessMessageInMemoryMaxRatio of a slave

PARTS = (
    access.build,
    delay.build,
    consume.build,
    groups.build,
    transactions.build,
    produce.build,
    replicas.build,
    admin.build,
    metrics.build,
)
"""The parts of a broker, in the order in which they are built: a part uses those before it."""

MEMBER_PARTS = tuple(dledger.build if build is replicas.build else build for build in PARTS)
"""The parts of a broker in a DLedger group: others copy its log."""


class Broker:
    """One broker: builds, starts and stops the store, the ports and all parts.

    `start` returns when clients are served; `stop` when the store is closed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        network: Network,
        clock: Clock,
        disk: Disk,
        workers: Workers,
        chance: Chance,
        primary_address: Callable[[], str | None] = primary_local_address,
    ) -> None:
        self.config = _for_role(config)
        self.warnings: list[str] = []
        self.before: Sequence[Link] = ()
        """The checks that each request passes before its handler. Read by `start`."""
        self.credentials: Credentials | None = config.access.inner_credentials
        """With which requests to name servers, the master and group members are signed. Read by `start`."""
        self.promote: Callable[[MasterRole], None] | None = None
        """Has the process start this slave again as a master; None: it cannot. Read by `start`."""
        self.member: GroupMember | None = None
        """This broker's member of its DLedger group, once it is started; None: it is in none."""
        self.port = 0
        self.metrics_port = 0
        self.address = ""
        self._network = network
        self._networks = ServerNetworks(network, network, network, None)
        self._clock = clock
        self._disk = disk
        self._workers = workers
        self._chance = chance
        self._primary_address = primary_address
        self._store: Store | None = None
        self._replication: ReplicaPart | None = None
        self._acknowledgement: Acknowledgement | None = None
        self._replicas: CopyStatus | None = None
        self._member_gate = MemberGate()
        self._stack = contextlib.AsyncExitStack()

    @property
    def acknowledgement(self) -> str:
        """A sentence that says how safe a message is when its send is answered with success."""
        assert self._acknowledgement is not None, "the broker was not started"
        return self._acknowledgement.promise

    @property
    def replication(self) -> ReplicaPart:
        """The master's or the slave's side of replication."""
        assert self._replication is not None, "the broker was not started"
        return self._replication

    def to_itself(self) -> Network | None:
        """Returns a network on which this process reaches its own ports; None: it has no certificate."""
        return self._networks.to_itself(self._network)

    @property
    def trouble(self) -> str | None:
        """Why this broker does not do its work at the moment; None when it does.

        A master refuses messages then; a slave is no copy of its master, or cannot write.
        """
        if self._store is None:
            return "it is not running"
        return self._store.flags.fault or (None if self._replicas is None else self._replicas.trouble)

    async def start(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            self._networks = self._secure(stack)
            opened = await self._open(stack)
            if opened.member is None:
                registration = await self._serve(stack, opened)
                stack.push_async_callback(registration.stop)
                await registration.registered(REGISTERED_WITHIN_S)
            else:
                await self._join(stack, opened, opened.member)
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        self._store = None
        await self._stack.aclose()

    def _secure(self, stack: contextlib.AsyncExitStack) -> ServerNetworks:
        """Returns the networks with TLS where it is configured, and keeps their certificates current."""
        networks = networks_of(self.config.tls, self._network, self._disk, self.config.listening.proxies)
        for warning in (*networks.warnings, *clear_text_warnings(networks.settings)):
            log.warning(warning)
        tasks = Tasks(log)
        stack.push_async_callback(tasks.close)
        tasks.start(networks.watch(self._clock, self._workers), name="reload TLS certificates")
        return networks

    async def _open(self, stack: contextlib.AsyncExitStack) -> "_Opened":
        """Opens the store and binds the ports; serves no request yet."""
        config, clock = self.config, self._clock
        compiled = twins()
        log.info("Plain sends: %s", "compiled" if compiled is not None else "pure Python")
        store = Store.open(config.store, self._disk, clock, self._workers, log.info, compiled)
        stack.push_async_callback(store.close)
        await store.start()
        self._store = store
        if config.identity.is_slave:
            store.replica.open()
        ports = await bind(config.listening, self._networks.requests, clock, self._primary_address, stack)
        if ports.warning:
            self.warnings.append(ports.warning)
        self.port, self.address = ports.port, ports.address
        store.log.store_host = await ports.store_host(self._network)
        client = Client(self._networks.requests, clock, sign=self._sign())
        stack.push_async_callback(client.close)
        self.member = self._member(store)
        return _Opened(store, ports, client, self.member)

    def _member(self, store: Store) -> GroupMember | None:
        """Returns this broker's member of its DLedger group; None: it is in none."""
        if store.entries is None or store.committed is None:
            return None
        environment = NodeEnvironment(
            self._clock,
            self._networks.copies,
            self._chance,
            self._workers,
            self._sign(),
            before=(self._member_gate,) if self.config.access.is_on else (),
        )
        return GroupMember(self.config.dledger, store.entries, store.committed, store.flusher, environment)

    def _sign(self) -> Sign | None:
        return None if self.credentials is None else Signer(self.credentials)

    # a member of a DLedger group

    async def _join(self, stack: contextlib.AsyncExitStack, opened: "_Opened", member: GroupMember) -> None:
        """Joins the DLedger group, and serves the role that this broker has in it."""

        async def serve(role: contextlib.AsyncExitStack, term: int | None) -> None:
            await self._serve_as(role, opened, member, term)

        roles = RoleKeeper(member, serve, self._clock)
        await roles.start(self.config.listening.bind_address)
        stack.push_async_callback(roles.stop, opened.unregister)

    async def _serve_as(
        self, stack: contextlib.AsyncExitStack, opened: "_Opened", member: GroupMember, term: int | None
    ) -> None:
        """Serves as master in a term, or as slave (None), until the stack is closed; ports stay open."""
        identity = identity_in_role(self.config.identity, term, member.slave_id)
        self.config = replace(self.config, identity=identity)
        guards = opened.store.retention.guards
        guards[:] = [_keep_all]  # in place of those of the role before, until this one has its own
        await self._serve(stack, opened, leads=term is not None)
        guards.remove(_keep_all)
        log.info("Serves as %s, broker id %d", identity.role, identity.broker_id)

    # a role

    async def _serve(
        self, stack: contextlib.AsyncExitStack, opened: "_Opened", leads: bool = False
    ) -> NameServerRegistration:
        """Builds and starts the parts, which serve requests from then on; registers with the name servers.

        `leads`: this broker stores messages for its DLedger group from now on.
        """
        context = await self._context(stack, opened, leads)
        for build in PARTS if opened.member is None else MEMBER_PARTS:
            part = await build(context)
            context.add(part)
            for close in part.close:
                stack.push_async_callback(close)
        parts = context.parts
        self._replicas = context.part(ReplicaPart).requests
        self._make_routers(stack, context, ends_open=opened.member is not None)
        self._announce_topics(context)
        # Stopped in reverse: unregister, answer waiting requests, take no more requests, then the rest.
        flow = RequestWaits(lambda: self.config.waits, lambda: context.store.flags.is_set(Reason.BUSY))
        for server, router in zip(context.servers, context.routers, strict=True):
            server.late_requests = LateRequests(flow.late, flow.shortest_s)
            server.serve_by(router)
            if opened.member is None:
                stack.push_async_callback(server.stop)
            else:
                stack.callback(server.serve_by, Router({}, before=(RoleChangeGate(),)))
        tasks = Tasks(log)
        for part in parts:
            if part.answer_waiting is not None:
                stack.callback(part.answer_waiting)
        stack.push_async_callback(tasks.close)
        for part in parts:
            for work in part.tasks:
                tasks.start(work())
            if part.start is not None:
                await part.start()
        self.metrics_port = context.part(MetricsPart).port
        self._replication = context.part(ReplicaPart)
        opened.registration = context.registration
        context.registration.start()
        if opened.member is not None:  # the name servers learn of the next role instead
            stack.push_async_callback(context.registration.pause)
        return context.registration

    def _make_routers(self, stack: contextlib.AsyncExitStack, context: Context, ends_open: bool) -> None:
        """Makes the routers of main and fast port from the tables of all parts.

        `ends_open`: connections stay open when they end, so what still runs then is answered.
        """
        parts = context.parts
        routes = {code: route for part in parts for code, route in part.routes.items()}
        main_routes = {code: route for part in parts for code, route in part.main_routes.items()}
        observe = next((part.observe for part in parts if part.observe is not None), None)
        before = (*self.before, *(link for part in parts for link in part.before))
        tables: list[Routes] = [routes | main_routes, routes]
        for around in (part.around for part in parts if part.around is not None):
            tables = [around(table) for table in tables]
        for table in tables:
            router = Router(table, observe=observe, before=before)
            if ends_open:
                stack.push_async_callback(router.end, ROLE_CHANGE_WAIT_S, ServiceNotAvailable(ROLE_CHANGING))
            else:
                stack.push_async_callback(router.close)
            context.routers.append(router)
            for part in parts:
                if part.bulk is not None:
                    router.serve_in_bulk(part.bulk(router))

    async def _context(self, stack: contextlib.AsyncExitStack, opened: "_Opened", leads: bool) -> Context:
        """Loads the tables and picks the acknowledgement. Returns the context of the parts."""
        config, clock, store, client = self.config, self._clock, opened.store, opened.client
        files = ConfigFiles(config.store.config_dir, self._disk)
        tables = Tables(
            config, clock, store, filter_modules.load_configured(config.filters, self._disk), opened.members
        )
        tables.load(files)
        role = RoleChange(files, self._disk, config.store.root_dir, clock)
        load(files, REPLICA_FILE, role.progress.load)
        # The members of a group compare their logs themselves.
        crashed = store.recovered_end is not None and opened.member is None
        if config.identity.is_slave:
            role.begin_slave(tables.offsets, store.log.committed, has_crashed=crashed)
        elif role.is_promotion:
            role.begin_promoted(tables.offsets, store.log.end)
        pause_s = config.offsets.flush_interval_ms / 1000
        table_files = TableFiles(tables, files, self._workers, stack, pause_s)
        tables.offsets.is_used = lambda topic: (
            not tables.topics.is_light(topic) or store.queues.is_used(topic)
        )
        if config.filters.bit_maps:
            store.queues.files.bit_map = tables.filters.bit_map
        recovered_end = repair_offsets(
            store,
            tables,
            files,
            role,
            clock,
            is_slave=config.identity.is_slave,
            in_group=opened.member is not None,
        )
        copies = Copies()
        acknowledgement = self._acknowledgement_of(opened, copies, leads)
        self._acknowledgement = acknowledgement
        context = Context(
            config=lambda: self.config,
            store=store,
            tables=tables,
            table_files=table_files,
            files=files,
            writer=MessageWriter(store.log, store.compiled, acknowledgement, tables.traffic, clock),
            copies=copies,
            role=role,
            targets=SendTargets(
                tables.topics,
                send_rules(config, unpack_host(store.log.store_host)[0]),
                clock,
                writable=lambda: self._may(WRITE),
            ),
            client=client,
            credentials=self.credentials,
            registration=self._registration(opened, tables),
            servers=opened.ports.servers,
            port=self.port,
            address=self.address,
            recovered_end=recovered_end,
            clock=clock,
            disk=self._disk,
            workers=self._workers,
            chance=self._chance,
            network=self._networks.copies,
            page_network=self._networks.pages,
            is_encrypted=self._networks.is_enforcing,
            apply=lambda changed: self._apply(changed, store, context),
            member=opened.member,
            member_gate=self._member_gate,
            promote=self.promote,
        )
        return context

    def _acknowledgement_of(self, opened: "_Opened", copies: Copies, leads: bool) -> Acknowledgement:
        member = opened.member
        if member is None:
            return acknowledgement_of(self.config, opened.store, copies, self._clock)
        rule = member.lead if leads else member.acknowledgement
        return rule(lambda: self.config.dledger.quorum_timeout_ms)

    def _registration(self, opened: "_Opened", tables: Tables) -> NameServerRegistration:
        ha_address = opened.ports.ha_address(self.config.listening)
        endpoint = BrokerEndpoint(self.config.identity, self.address, ha_address)
        return NameServerRegistration(opened.client, tables.topics, endpoint, self.config.name_servers)

    def _announce_topics(self, context: Context) -> None:
        """Passes topic changes to store, listeners, topics.json and name servers; adopts unlisted topics."""
        store, topics = context.store, context.tables.topics

        def topics_changed(changed: list[Topic]) -> None:
            for topic in changed:
                store.queues.set_kind(topic.name, topic.attributes.get(QUEUE_TYPE) == OF_BATCHES)
            for listener in context.topic_listeners:
                listener(changed)
            context.table_files.topics.changed()
            context.registration.changed([topic.name for topic in changed])

        topics.on_change = topics_changed
        if context.adopts_topics:
            topics.adopt(store.queues.topics)

    def _apply(self, config: BrokerConfig, store: Store, context: Context) -> None:
        """Applies a changed configuration to the running broker: to tables, store and parts."""
        config = replace(config, identity=self.config.identity)  # that of its role in a group
        self.config = config
        context.tables.configure(config)
        store.configure(config.store)
        for part in context.parts:
            part.configure(config)

    def _may(self, permission: int) -> bool:
        return self.config.topics.permission & permission != 0


def _for_role(config: BrokerConfig) -> BrokerConfig:
    """Returns the configuration as a slave uses it: a smaller share of memory, no transient store pool.

    A slave takes ten percent less of the memory for messages than is configured, as Apache 5.x. The pool is
    of no use there, since it copies into files.
    """
    if not config.identity.is_slave:
        return config
    if config.store.uses_pool:
        log.warning("transientStorePoolEnable has no effect on a slave")
    ratio = max(config.store.access_in_memory_ratio - SLAVE_RATIO_LESS, 0)
    return replace(config, store=replace(config.store, transient_pool=False, access_in_memory_ratio=ratio))


@dataclass
class _Opened:
    """What a broker has whatever role it serves: store, ports, the client, the connected clients."""

    store: Store
    ports: BrokerPorts
    client: Client
    member: GroupMember | None
    """This broker's member of its DLedger group; None: it is in none."""
    members: Members[Connection] = field(default_factory=Members)
    registration: NameServerRegistration | None = None
    """That of the role which is served now."""

    async def unregister(self) -> None:
        if self.registration is not None:
            await self.registration.stop()


async def _keep_all(below: int) -> bool:
    """Lets retention delete nothing: a role is built, whose parts may still need what has expired."""
    return False
