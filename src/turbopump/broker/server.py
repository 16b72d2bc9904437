"""The root of a broker process: builds the parts, starts them in order, stops them in reverse.

Parts receive the two or three things they use, never the broker. What configuration decides is decided here
once, by the object that is picked. Nothing else in this package knows how many parts there are.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from turbopump.broker import kinds
from turbopump.broker.acknowledgement import choose, promise
from turbopump.broker.address import advertised, primary_local_address
from turbopump.broker.admin.configuration import ConfigurationHandler
from turbopump.broker.admin.connections import ConnectionHandler
from turbopump.broker.admin.groups import GroupHandler
from turbopump.broker.admin.maintenance import MaintenanceHandler
from turbopump.broker.admin.progress import ProgressHandler
from turbopump.broker.admin.queues import QueueHandler
from turbopump.broker.admin.runtime import RuntimeHandler
from turbopump.broker.admin.statistics import StatisticsHandler
from turbopump.broker.admin.topics import TopicHandler
from turbopump.broker.config import BrokerConfig
from turbopump.broker.consume import filter_modules
from turbopump.broker.consume.fence import ReusedOffsets
from turbopump.broker.consume.filter_modules import FilterLimits, FilterModules
from turbopump.broker.consume.pull import PullHandler
from turbopump.broker.consume.query import QueryHandler
from turbopump.broker.consume.send_back import SendBackHandler
from turbopump.broker.delay.level_records import DelaySchedule
from turbopump.broker.delay.levels import DelayedMessages
from turbopump.broker.delay.timer_intake import RecallHandler, TimerIntake
from turbopump.broker.delay.timers import TimedMessages
from turbopump.broker.flow import FlowControl
from turbopump.broker.groups.assignment import AssignmentHandler, TopicRoutes
from turbopump.broker.groups.clients import ClientHandler
from turbopump.broker.groups.locks import LockHandler
from turbopump.broker.groups.offsets import OffsetHandler, first_offset
from turbopump.broker.groups.relay import ConsumerRelay
from turbopump.broker.groups.resets import ResetHandler
from turbopump.broker.metrics.collectors import (
    Collector,
    RemotingFigures,
    WaitingRequests,
)
from turbopump.broker.metrics.exporter import Exporter
from turbopump.broker.metrics.message_kinds import TimerFigures, TopicFigures, TransactionFigures
from turbopump.broker.metrics.selection import collectors
from turbopump.broker.produce.plain_sends import PlainSendHandler
from turbopump.broker.produce.receipt import Receipts
from turbopump.broker.produce.replies import ReplyHandler
from turbopump.broker.produce.send import SendHandler, SendRules
from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.registration import BrokerEndpoint, NameServerRegistration
from turbopump.broker.running import keep_running
from turbopump.broker.tables import TableFiles, Tables
from turbopump.broker.topics import Topic
from turbopump.compiled import twins
from turbopump.protocol.frame import Frame
from turbopump.protocol.ids import UniqueIds, pack_host, unpack_host
from turbopump.protocol.inner import OF_BATCHES, QUEUE_TYPE
from turbopump.protocol.permissions import READ, WRITE
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Connection
from turbopump.remoting.late_requests import LateRequests
from turbopump.remoting.limits import Limits, connections_within
from turbopump.remoting.links import Link
from turbopump.remoting.router import Router, Routes
from turbopump.remoting.server import Server
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk, Workers
from turbopump.runtime.network import Network, descriptor_limit
from turbopump.store.config_files import ConfigFiles
from turbopump.store.flags import Reason
from turbopump.store.store import Store

log = logging.getLogger(__name__)

FAST_PORT_STEP = -2
REGISTERED_WITHIN_S = 3.0


class Broker:
    """One broker. `start` returns when clients are served; `stop` when the store is closed."""

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
        self.config = config
        self.warnings: list[str] = []
        self.before: Sequence[Link] = ()
        """The checks that each request passes before its handler. Read by `start`."""
        self.port = 0
        self.metrics_port = 0
        self.address = ""
        self._network = network
        self._clock = clock
        self._disk = disk
        self._workers = workers
        self._chance = chance
        self._primary_address = primary_address
        self._store: Store | None = None
        self._stack = contextlib.AsyncExitStack()

    @property
    def acknowledgement(self) -> str:
        """What the answer to a send means, in words."""
        return promise(self.config.store)

    @property
    def trouble(self) -> str | None:
        """Why messages are refused at the moment; None when all is well."""
        return "it is not running" if self._store is None else self._store.flags.reason

    async def start(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        self._store = None
        await self._stack.aclose()

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        config, clock = self.config, self._clock
        compiled = twins()
        log.info("Plain sends: %s", "compiled" if compiled is not None else "pure Python")
        store = Store.open(config.store, self._disk, clock, self._workers, log.info, compiled)
        stack.push_async_callback(store.close)
        await store.start()
        self._store = store
        files = ConfigFiles(config.store.config_dir, self._disk)
        tables = Tables(config, clock, store, self._modules())
        tables.load(files)
        servers = await self._listen(stack)
        store.log.store_host = await self._store_host()

        client = Client(self._network, clock)
        stack.push_async_callback(client.close)
        registration = self._registration(client, tables)
        pause_s = config.offsets.flush_interval_ms / 1000
        kept = TableFiles(tables, files, self._workers, stack, pause_s)
        tables.offsets.is_used = lambda topic: (
            not tables.topics.is_light(topic) or store.queues.is_used(topic)
        )
        if config.filters.bit_maps:
            store.queues.bit_map = tables.filters.bit_map
        recovered_end = tables.offsets.mend(store.queues, store.recovered_end, clock.now_ms())
        if store.recovered_end is not None:  # before anything is written where messages were lost
            files.save(tables.offsets.file_name, tables.offsets.dump())

        clients = ClientHandler(
            tables.members, tables.topics, tables.groups, clock, config.groups, tables.filters
        )
        fence = ReusedOffsets(store.queues, recovered_end)
        pulling = self._pulling(store, tables, fence)
        stack.push_async_callback(pulling.abandon)
        schedule = DelaySchedule(store)
        timing = self._timing(store)
        acknowledgement = choose(config.store, config.identity.role, store.flusher)
        writer = MessageWriter(store, acknowledgement, tables.traffic, clock)
        sending, receipts = self._sending(store, tables, schedule, timing, writer)
        retries = self._retries(store, tables, schedule, writer)
        ground = self._ground(store, tables, sending, writer, schedule, timing, files, stack)
        delays = kinds.delays(ground)
        transactions, ending = await kinds.transactions(ground)
        ledger = await kinds.ledger(ground, transactions, client)
        timers = kinds.timers(ground)
        tools = self._tools(
            store,
            tables,
            clients,
            pulling,
            registration,
            kept,
            fence,
            delays,
            timers,
            servers,
        )
        parts: list[_Part] = [
            sending,
            retries,
            delays,
            ending,
            *ledger,
            timers,
            clients,
            QueryHandler(store, tables.topics),
            self._recalls(tables, timing, writer),
            *tools,
        ]
        parts += self._consumer_side(store, tables, pulling, fence, stack)
        parts.append(self._replies(tables, sending, receipts, writer))
        parts.append(self._assignments(client, tables))
        routes = {code: route for part in parts for code, route in part.routes().items()}
        observed = RemotingFigures(tables.traffic) if config.metrics.exporter == "PROM" else None
        observe = observed.observe if observed is not None else None
        main_router = Router({**routes, **pulling.routes()}, observe=observe, before=self.before)
        fast_router = Router(routes, observe=observe, before=self.before)
        # Stopped in reverse: goodbye to name servers, answers to those who wait, no more requests, the rest.
        for router in (main_router, fast_router):
            stack.push_async_callback(router.close)
        flow = FlowControl(lambda: self.config.waits, lambda: store.flags.is_set(Reason.BUSY))
        late_requests = LateRequests(flow.late, flow.shortest_s)
        for server in servers:
            server.late_requests = late_requests
            stack.push_async_callback(server.stop)
        stack.callback(pulling.close)
        fast_paths = [
            self._send_many(store, tables, sending, writer, receipts, router)
            for router in (main_router, fast_router)
        ]

        def topics_changed(topics: list[Topic]) -> None:
            for topic in topics:
                store.queues.set_kind(topic.name, topic.attributes.get(QUEUE_TYPE) == OF_BATCHES)
            names = [topic.name for topic in topics]
            for path in fast_paths:
                path.topics_changed(names)
            kept.topics.changed()
            registration.changed(names)

        tables.topics.on_change = topics_changed
        tables.topics.adopt(store.queues.topics)
        for server, router, path in zip(servers, (main_router, fast_router), fast_paths, strict=True):
            router.serve_in_bulk(path)
            server.router = router
        keep_running(clients.watch(), stack)
        keep_running(delays.run(), stack)
        keep_running(delays.keep(config.delays.flush_interval_ms / 1000), stack)
        if config.timers.enabled:
            keep_running(timers.run(), stack)
            keep_running(timers.keep(config.timers.flush_interval_ms / 1000), stack)
        keep_running(tables.traffic.watch(), stack)
        keep_running(tables.statistics.watch(), stack)
        if observed is not None:

            def waiting() -> WaitingRequests:
                return WaitingRequests(
                    to_begin=sum(server.waiting for server in servers),
                    for_sync=store.flusher.waiting,
                    running=main_router.running + fast_router.running,
                    parked=pulling.parked,
                    connections=sum(len(server.connections) for server in servers),
                )

            created = TopicFigures()
            for tool in tools:
                if isinstance(tool, TopicHandler):
                    tool.on_created = created.created
            more: list[Collector] = [
                observed,
                TransactionFigures(transactions),
                TimerFigures(timers),
                created,
            ]
            figures = collectors(lambda: self.config, store, tables, self._disk.usage, clock, waiting, stack)
            exporter = Exporter(lambda: self.config, [*figures, *more], self._network)
            host = config.metrics.host or config.listening.bind_address
            self.metrics_port = await exporter.start(host, config.metrics.port)
            stack.push_async_callback(exporter.stop)
            log.info("Metrics are served at http://%s:%d/metrics", host, self.metrics_port)
        registration.start()
        stack.push_async_callback(registration.stop)
        await registration.registered(REGISTERED_WITHIN_S)

    def _modules(self) -> FilterModules | None:
        rules = self.config.filters
        if not rules.module_dir:
            return None
        return filter_modules.load(
            rules.module_dir, self._disk, FilterLimits(rules.module_fuel, rules.module_memory)
        )

    async def _listen(self, stack: contextlib.AsyncExitStack) -> tuple[Server, Server]:
        """Both ports are ours from here on; nobody is served yet."""
        listening = self.config.listening
        connections = connections_within(descriptor_limit(), servers=2)
        limits = Limits(idle_s=listening.idle_seconds, max_connections=connections)
        main, fast = (Server(_NotReady(), self._network, self._clock, limits) for _ in range(2))
        self.port = await main.start(listening.bind_address, listening.port)
        stack.push_async_callback(main.stop)
        if self.port + FAST_PORT_STEP > 0:
            await fast.start(listening.bind_address, self.port + FAST_PORT_STEP)
            stack.push_async_callback(fast.stop)
        chosen = advertised(listening.advertised_address, listening.bind_address, self._primary_address)
        if chosen.warning:
            self.warnings.append(chosen.warning)
        self.address = f"{chosen.address}:{self.port}"
        return main, fast

    async def _store_host(self) -> bytes:
        """The address that is stamped on records: of a host name, what it stands for now."""
        host, port = _split(self.address)
        try:
            return pack_host(host, port)
        except ValueError:
            return pack_host(await self._network.resolve(host), port)

    def _registration(self, client: Client, tables: Tables) -> NameServerRegistration:
        listening = self.config.listening
        ha_host = listening.ha_address or _split(self.address)[0]
        ha_address = f"{ha_host}:{listening.ha_port or self.port + 1}"
        endpoint = BrokerEndpoint(self.config.identity, self.address, ha_address)
        return NameServerRegistration(client, tables.topics, endpoint, self.config.name_servers)

    def _pulling(self, store: Store, tables: Tables, fence: ReusedOffsets) -> PullHandler:
        return PullHandler(
            store,
            tables.topics,
            tables.groups,
            tables.members,
            tables.offsets,
            self._clock,
            self.config.polling,
            tables.traffic,
            fence,
            tables.filters,
            broker_readable=lambda: self._may(READ),
            serves_lite=lambda: self.config.polling.lite_pull,
            broker_ip=_split(self.address)[0],
        )

    def _sending(
        self,
        store: Store,
        tables: Tables,
        schedule: DelaySchedule,
        timing: TimerIntake,
        writer: MessageWriter,
    ) -> tuple[SendHandler, Receipts]:
        config = self.config
        ip, _ = unpack_host(store.log.store_host)
        receipts = Receipts(store.log.store_host, config.sending.region_id, config.sending.trace_on)
        rules = SendRules(
            ip,
            config.identity.cluster_name,
            config.sending.region_id,
            config.sending.trace_on,
            config.store.max_message_size,
            config.sending.accept_from_ms,
            config.sending.reject_transactions,
        )
        ids = UniqueIds(ip, os.getpid(), self._clock.now_ms, self._chance.getrandbits(32))
        sending = SendHandler(
            store,
            tables.topics,
            tables.groups,
            receipts,
            rules,
            self._clock,
            self._chance,
            ids.next,
            writer,
            schedule,
            timing,
            writable=lambda: self._may(WRITE),
            in_order=lambda group: tables.locks.holds_any(group, self._clock.monotonic()),
        )
        return sending, receipts

    def _retries(
        self, store: Store, tables: Tables, schedule: DelaySchedule, writer: MessageWriter
    ) -> SendBackHandler:
        return SendBackHandler(
            store,
            tables.topics,
            tables.groups,
            schedule,
            writer,
            self._chance,
            unpack_host(store.log.store_host)[0],
            writable=lambda: self._may(WRITE),
        )

    def _ground(
        self,
        store: Store,
        tables: Tables,
        sending: SendHandler,
        writer: MessageWriter,
        schedule: DelaySchedule,
        timing: TimerIntake,
        files: ConfigFiles,
        stack: contextlib.AsyncExitStack,
    ) -> kinds.Ground:
        return kinds.Ground(
            lambda: self.config,
            store,
            tables,
            sending,
            writer,
            schedule,
            timing,
            files,
            self._clock,
            self._disk,
            self._workers,
            stack,
        )

    def _timing(self, store: Store) -> TimerIntake:
        name, rules = self.config.identity.broker_name, self.config.timers
        return TimerIntake(store, lambda: self.config.timers, name, self._clock, rules.precision_ms)

    def _recalls(self, tables: Tables, timing: TimerIntake, writer: MessageWriter) -> RecallHandler:
        return RecallHandler(
            tables.topics,
            timing,
            writer,
            rules=lambda: self.config.timers,
            writable=lambda: self._may(WRITE),
            clock=self._clock,
            broker=self.config.identity.broker_name,
            region=self.config.sending.region_id,
        )

    def _assignments(self, client: Client, tables: Tables) -> AssignmentHandler:
        routes = TopicRoutes(client, self.config.name_servers.addresses, self._clock)
        return AssignmentHandler(routes, tables.members, tables.topics, tables.groups, self._clock)

    def _replies(
        self, tables: Tables, sending: SendHandler, receipts: Receipts, writer: MessageWriter
    ) -> ReplyHandler:
        return ReplyHandler(
            tables.members,
            sending,
            receipts,
            writer,
            self._clock,
            stores=lambda: self.config.sending.store_replies,
        )

    def _send_many(
        self,
        store: Store,
        tables: Tables,
        sending: SendHandler,
        writer: MessageWriter,
        receipts: Receipts,
        router: Router,
    ) -> PlainSendHandler:
        return PlainSendHandler(
            store,
            tables.topics,
            sending,
            writer,
            receipts,
            router,
            self.config.store.max_message_size,
            writable=lambda: self._may(WRITE),
        )

    def _consumer_side(
        self,
        store: Store,
        tables: Tables,
        pulling: PullHandler,
        fence: ReusedOffsets,
        stack: contextlib.AsyncExitStack,
    ) -> list["_Part"]:
        """What consumers ask beside pulls, and what is asked about them."""
        topics, groups, offsets, members = tables.topics, tables.groups, tables.offsets, tables.members
        name = self.config.identity.broker_name
        locking = LockHandler(tables.locks, self._clock)
        keep_running(locking.watch(), stack)
        if not self.config.offsets.reset_here:
            offsets.drop_resets()
        return [
            OffsetHandler(
                offsets, topics, groups, partial(first_offset, store.queues, store.reader), fence, self._clock
            ),
            locking,
            ResetHandler(
                offsets,
                topics,
                groups,
                members,
                store,
                name,
                resets_here=lambda: self.config.offsets.reset_here,
                tell_pulls=pulling.offsets_reset,
            ),
            ConsumerRelay(members, topics, groups, store.log, name),
        ]

    def _tools(
        self,
        store: Store,
        tables: Tables,
        clients: ClientHandler,
        pulling: PullHandler,
        registration: NameServerRegistration,
        kept: TableFiles,
        fence: ReusedOffsets,
        delays: DelayedMessages,
        timers: TimedMessages,
        servers: tuple[Server, Server],
    ) -> list["_Part"]:
        """What administrators ask: each class answers for one subject."""
        topics, groups, offsets, statistics = tables.topics, tables.groups, tables.offsets, tables.statistics
        name = self.config.identity.broker_name

        async def topics_settled() -> None:
            await kept.topics.settled()
            await registration.settled()

        def apply(config: BrokerConfig) -> None:
            self.config = config
            topics.configure(config.topics)
            groups.configure(config.groups)
            clients.configure(config.groups)
            pulling.configure(config.polling)
            tables.filters.configure(config.filters)
            store.configure(config.store)
            if not config.offsets.reset_here:
                offsets.drop_resets()

        accept_from_ms = self.config.sending.accept_from_ms
        return [
            TopicHandler(topics, offsets, store, statistics, fence, name, topics_settled),
            GroupHandler(groups, topics, offsets, statistics, fence, kept.groups.settled),
            ProgressHandler(
                groups,
                topics,
                offsets,
                tables.members,
                store,
                statistics,
                self._clock,
                name,
                self.address,
            ),
            QueueHandler(store.queues, tables.members, tables.filters),
            ConnectionHandler(tables.members, offsets),
            ConfigurationHandler(self._as_running(), self._clock, apply),
            RuntimeHandler(
                store,
                tables.traffic,
                statistics,
                self._clock,
                self._disk.usage,
                accept_from_ms,
                delays.progress,
                servers,
                timers.progress,
            ),
            StatisticsHandler(statistics),
            MaintenanceHandler(store, topics, offsets, statistics),
        ]

    def _as_running(self) -> BrokerConfig:
        """The configuration with what was left to be found out."""
        listening = self.config.listening
        host, port = _split(self.address)
        known = replace(
            listening,
            port=port,
            advertised_address=host,
            ha_address=listening.ha_address or host,
            ha_port=listening.ha_port or port + 1,
        )
        return replace(self.config, listening=known)

    def _may(self, permission: int) -> bool:
        return self.config.topics.permission & permission != 0


class _Part(Protocol):
    def routes(self) -> Routes: ...


class _NotReady:
    """Closes connections: the port is ours, the broker is not ready. Clients try again."""

    shortcut = None

    def serve(self, connection: Connection, frames: list[Frame]) -> None:
        connection.close()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
