"""Builds the part of a broker in a DLedger group: a leader writes its tables, a follower takes them."""

import asyncio
from functools import partial

from turbopump.broker.access.part import USERS_FILE, AccessPart
from turbopump.broker.consume.filters import FILE as FILTER_FILE
from turbopump.broker.consume.part import ConsumePart
from turbopump.broker.consume.slave_reused_offsets import SlaveReusedOffsets
from turbopump.broker.delay.levels import FILE as DELAY_FILE
from turbopump.broker.dledger.follower import FollowerBroker, LeaderTables, take_into
from turbopump.broker.dledger.follower_retention import FollowerRetention
from turbopump.broker.dledger.member import GroupMember
from turbopump.broker.dledger.requests import RaftHandler
from turbopump.broker.dledger.table_copies import TableCopies, has_tables
from turbopump.broker.dledger.table_log import TableLog
from turbopump.broker.dledger.table_records import Table
from turbopump.broker.dledger.topic_changes import TopicChanges
from turbopump.broker.groups.request_modes import FILE as REQUEST_MODES_FILE
from turbopump.broker.part import Context
from turbopump.broker.replicas import slave_commits
from turbopump.broker.replicas.given_offsets import GivenOffsetHandler
from turbopump.broker.replicas.part import ReplicaPart
from turbopump.broker.replicas.progress_files import TRANSACTION_FILE, transaction_progress
from turbopump.broker.replicas.slave_rules import SlaveRules
from turbopump.broker.tables import GROUPS_FILE, TOPICS_FILE
from turbopump.broker.topics import TopicTable
from turbopump.protocol.names import LIGHT_PREFIX
from turbopump.replication.comparison import LogComparison
from turbopump.replication.held_tables import HeldTables
from turbopump.replication.metadata import MetadataPuller
from turbopump.store.flags import Reason
from turbopump.store.queues import ConsumeQueues

TELL_BEGIN_S = 5.0  # between two looks at whether retention has deleted files of the leader's log


async def build(context: Context) -> ReplicaPart:
    assert context.member is not None, "the broker is no member of a DLedger group"
    build_role = _follower if context.is_slave else _leader
    return await build_role(context, context.member)


async def _leader(context: Context, member: GroupMember) -> ReplicaPart:
    store, tables, files = context.store, context.tables, context.files
    users = context.part(AccessPart).users
    slave_commits.forget(files)

    def all_tables() -> list[Table]:
        live = [
            Table(TOPICS_FILE, tables.topics.dump()),
            Table(GROUPS_FILE, tables.groups.dump()),
            Table(tables.offsets.file_name, b"".join(tables.offsets.slices(is_saved=False))),
            Table(FILTER_FILE, tables.filters.dump()),
            Table(REQUEST_MODES_FILE, tables.request_modes.dump()),
        ]
        if users is not None:
            live.append(Table(USERS_FILE, users.contents()))
        progress = ((DELAY_FILE, files.load(DELAY_FILE)), (TRANSACTION_FILE, transactions()))
        return [*live, *(Table(name, data) for name, data in progress if data is not None)]

    def transactions() -> bytes | None:
        return transaction_progress(tables.offsets, store.log.end)

    written = TableLog(
        store.log,
        context.writer,
        store.queues,
        store.log.store_host,
        context.clock,
        member.term,
        context.address,
        store.config.commit_log_file_size,
        all_tables,
    )

    # A topic is in the log before its messages: one that has messages only was deleted.
    context.adopts_topics = not has_tables(store.queues, files)

    async def publish(name: str, contents: bytes) -> None:
        if name == TOPICS_FILE:  # those that were created or deleted while the file was written count
            contents = tables.topics.dump()
        if name == tables.offsets.file_name and (reached := transactions()) is not None:
            written.try_append(Table(TRANSACTION_FILE, reached))
        await written.publish(name, contents)

    loop = asyncio.get_running_loop()

    def saved(name: str, contents: bytes) -> None:  # in the thread of a worker
        if name == DELAY_FILE and not loop.is_closed():
            loop.call_soon_threadsafe(written.try_append, Table(name, contents))

    # Before any request is served: a topic must be in the log before its first message.
    files.on_saved = saved
    context.table_files.publish = publish
    if users is not None:
        users.publish = partial(written.publish, USERS_FILE)
    deleted = set() if context.adopts_topics else _without_entry(tables.topics, store.queues)
    changes = TopicChanges(written, tables.topics, deleted, store.queues.delete_topic)
    context.topic_listeners.append(changes)
    written.append_all()

    async def tell_begin() -> None:
        while True:
            await context.clock.sleep(TELL_BEGIN_S)
            written.tell_begin(Table(REQUEST_MODES_FILE, tables.request_modes.dump()))

    async def close() -> None:
        files.on_saved = context.table_files.publish = None
        if users is not None:
            users.publish = None

    requests = RaftHandler(member, store, tables.offsets, context.config().identity, lambda: context.address)
    given = GivenOffsetHandler(context.part(ConsumePart).reused)
    return ReplicaPart(
        routes={**requests.routes(), **given.routes()}, tasks=[tell_begin], close=[close], requests=requests
    )


def _without_entry(topics: TopicTable, queues: ConsumeQueues) -> set[str]:
    """Returns the names that have queues here but are no topics."""
    return {
        name
        for name in queues.topics()
        if topics.find(name) is None and not topics.is_system(name) and not name.startswith(LIGHT_PREFIX)
    }


async def _follower(context: Context, member: GroupMember) -> ReplicaPart:
    store, tables, clock = context.store, context.tables, context.clock
    consume = context.part(ConsumePart)
    assert isinstance(consume.reused, SlaveReusedOffsets)
    broker = FollowerBroker(
        context.config,
        tables,
        context.files,
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
    copies = TableCopies(store.log, store.queues, context.files, take_into(tables, broker))
    held = HeldTables(broker.table)
    puller = MetadataPuller(
        context.client, LogComparison(context.client, store.replica), broker.table, held.put
    )

    def dispatched() -> None:
        copies.catch_up()
        held.copied(store.log.dispatched)

    leader = LeaderTables(member, copies, broker, puller, context.workers, clock)
    retention = FollowerRetention(
        copies, lambda: leader.is_apache, lambda: store.flags.is_set(Reason.DISK_FULL)
    )
    store.retention.guards.append(retention.may_delete)
    requests = RaftHandler(
        member, store, tables.offsets, context.config().identity, lambda: broker.leader_address
    )

    async def start() -> None:
        dispatched()
        member.on_dispatched = dispatched

    async def close() -> None:
        member.on_dispatched = lambda: None
        copies.catch_up()
        await broker.close()

    return ReplicaPart(
        routes=requests.routes(),
        before=(SlaveRules(),),
        tasks=[leader.run],
        start=start,
        close=[close],
        requests=requests,
    )
