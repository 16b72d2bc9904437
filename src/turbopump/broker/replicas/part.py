"""Builds replication: on a master the port for slaves, on a slave the copying of its master."""

from dataclasses import dataclass
from typing import Protocol

from turbopump.broker.access.part import AccessPart
from turbopump.broker.config import BrokerConfig
from turbopump.broker.consume.part import ConsumePart
from turbopump.broker.consume.slave_reused_offsets import SlaveReusedOffsets
from turbopump.broker.part import Context, Part
from turbopump.broker.replicas import slave_commits
from turbopump.broker.replicas.acknowledgement import ReplicaAcknowledgement
from turbopump.broker.replicas.admission import SlaveAdmission
from turbopump.broker.replicas.given_offsets import GivenOffsetHandler
from turbopump.broker.replicas.in_sync_rule import InSyncRule
from turbopump.broker.replicas.moved_offsets import MovedOffsets
from turbopump.broker.replicas.pushed_tables import PushedTables
from turbopump.broker.replicas.requests import ReplicaHandler, SlaveSide
from turbopump.broker.replicas.slave_broker import SlaveBroker
from turbopump.broker.replicas.slave_retention import SlaveRetention
from turbopump.broker.replicas.slave_rules import SlaveRules
from turbopump.protocol.addresses import HA_PORT_STEP
from turbopump.protocol.bodies import SlaveStatus
from turbopump.remoting.links import Link
from turbopump.replication.comparison import LogComparison
from turbopump.replication.master import Master, MasterRules
from turbopump.replication.metadata import INTERVAL_S, MetadataPuller
from turbopump.replication.sent_log import StoreLog
from turbopump.replication.slave import Slave, SlaveState, SlaveTimings
from turbopump.store.flags import Reason


class CopyStatus(Protocol):
    """Interface to what this broker knows of the copies of its log: for tools, metrics and its health."""

    @property
    def trouble(self) -> str | None:
        """Why this broker does not do its work; None while an operator need not act."""

    @property
    def state(self) -> SlaveState | None:
        """What a slave is doing; None on a master."""

    def slaves(self) -> list[SlaveStatus]: ...
    def figures(self) -> dict[str, str]: ...


@dataclass(kw_only=True)
class ReplicaPart(Part):
    """The broker's part for replication: its request handler, and a `Master` or a `Slave`."""

    requests: CopyStatus
    master: Master | None = None
    slave: Slave | None = None


async def build(context: Context) -> ReplicaPart:
    run = context.chance.getrandbits(62)
    return await _slave(context, run) if context.is_slave else await _master(context, run)


async def _master(context: Context, run: int) -> ReplicaPart:
    config, store, tables = context.config(), context.store, context.tables
    rules, files = config.replication, context.files
    slave_commits.forget(files)
    users, peers = context.part(AccessPart).users, context.part(AccessPart).peers
    pushed = PushedTables(tables, files, store.log, users)
    admission = SlaveAdmission(
        context.config, context.client, context.network, context.clock, store.replica, store.reader
    )
    master = Master(
        StoreLog(store.log, store.reader, config.store.commit_log_file_size),
        context.copies,
        context.network,
        context.clock,
        MasterRules(rules.heartbeat_ms / 1000, rules.housekeeping_ms / 1000, rules.transfer_bytes),
        run,
        admission.admit,
        pushed.all,
        peers,
    )
    moved = MovedOffsets(tables.offsets, master.push_table, master.may_push)
    requests = ReplicaHandler(
        store,
        tables.offsets,
        config.identity,
        run,
        lambda: context.config().replication.max_gap_bytes,
        master,
    )

    async def start() -> None:
        listening = context.config().listening
        port = listening.ha_port or context.port + HA_PORT_STEP
        await master.start(listening.bind_address, port)
        pushed.start(master, moved.table_pushed)

    def slaves_changed() -> None:
        """Has appends and commits announced to the master's side only while a slave is connected."""
        store.log.on_growth = master.grown if master.connections else None
        moved.follow(bool(master.connections))

    master.on_change = slaves_changed

    async def close() -> None:
        store.log.on_growth = None
        pushed.stop()
        moved.close()
        await master.stop()

    acknowledgement = context.writer.acknowledgement
    before: tuple[Link, ...] = ()
    if isinstance(acknowledgement, ReplicaAcknowledgement):
        before = (InSyncRule(acknowledgement),)

    def configure(changed: BrokerConfig) -> None:
        if isinstance(acknowledgement, ReplicaAcknowledgement):
            acknowledgement.configure(changed.replication)

    given = GivenOffsetHandler(context.part(ConsumePart).reused)
    return ReplicaPart(
        routes={**requests.routes(), **given.routes()},
        before=before,
        start=start,
        close=[close],
        configure=configure,
        requests=requests,
        master=master,
    )


async def _slave(context: Context, run: int) -> ReplicaPart:
    config, store, tables, clock = context.config(), context.store, context.tables, context.clock
    rules, files = config.replication, context.files
    consume = context.part(ConsumePart)
    assert isinstance(consume.reused, SlaveReusedOffsets)
    broker = SlaveBroker(
        context.config,
        tables,
        files,
        context.registration,
        context.client,
        store,
        context.workers,
        clock,
        context.role,
        consume.reused,
        consume.pulls.master_seen,
        context.part(AccessPart).takes(),
    )
    progress = context.role.progress
    comparison = LogComparison(context.client, store.replica)
    slave = Slave(
        store.replica,
        comparison,
        progress,
        broker,
        context.network,
        clock,
        SlaveTimings(config.identity.broker_id, rules.heartbeat_ms / 1000, rules.housekeeping_ms / 1000),
        context.credentials,
    )
    context.registration.on_master = slave.dial_now
    retention = SlaveRetention(
        slave, comparison, store.replica, progress, lambda: store.flags.is_set(Reason.DISK_FULL)
    )
    store.retention.guards.append(retention.may_delete)
    puller = MetadataPuller(context.client, comparison, slave.take_table, slave.hold_table)

    async def copy_tables() -> None:
        """Asks an Apache master for its tables at intervals; a master of ours pushes them."""
        while True:
            follows = slave.state in (SlaveState.COPYING, SlaveState.FOLLOWING)
            if follows and slave.master is not None and not slave.is_ours:
                await puller.pull(slave.master.broker)
                await clock.sleep(INTERVAL_S)
            else:
                await clock.sleep(1.0)

    side = SlaveSide(slave, progress, context.promote)
    requests = ReplicaHandler(store, tables.offsets, config.identity, run, lambda: 0, side)
    return ReplicaPart(
        routes=requests.routes(),
        before=(SlaveRules(),),
        tasks=[slave.run, copy_tables],
        close=[broker.close],
        requests=requests,
        slave=slave,
    )
