"""Builds the groups package: heartbeats, offsets, locks, resets, assignment, relayed calls to consumers."""

from functools import partial

from turbopump.broker.config import BrokerConfig
from turbopump.broker.consume.part import ConsumePart
from turbopump.broker.groups.assignment import AssignmentHandler, TopicRoutes
from turbopump.broker.groups.clients import ClientHandler
from turbopump.broker.groups.locks import LockHandler
from turbopump.broker.groups.offsets import OffsetHandler, first_offset
from turbopump.broker.groups.relay import ConsumerRelay
from turbopump.broker.groups.resets import ResetHandler
from turbopump.broker.part import Context, Part


async def build(context: Context) -> Part:
    config, tables, clock = context.config(), context.tables, context.clock
    topics, groups, offsets, members = tables.topics, tables.groups, tables.offsets, tables.members
    consume = context.part(ConsumePart)
    clients = ClientHandler(members, topics, groups, clock, config.groups, tables.filters)
    locks = LockHandler(tables.locks, clock)
    resets = ResetHandler(
        offsets,
        topics,
        groups,
        members,
        context.store,
        context.broker_name,
        resets_here=lambda: context.config().offsets.reset_here,
        tell_pulls=consume.pulls.offsets_reset,
    )
    handlers = (
        clients,
        OffsetHandler(
            offsets,
            topics,
            groups,
            partial(first_offset, context.store.queues, context.store.reader),
            consume.reused,
            clock,
        ),
        locks,
        resets,
        ConsumerRelay(members, topics, groups, context.store.log, context.broker_name, context.permit),
        AssignmentHandler(
            TopicRoutes(context.client, config.name_servers.addresses, clock),
            members,
            topics,
            groups,
            tables.request_modes,
            context.table_files.request_modes.settled,
            clock,
        ),
        tables.request_modes,
    )

    def configure(changed: BrokerConfig) -> None:
        clients.configure(changed.groups)
        if not changed.offsets.reset_here:
            offsets.drop_resets()

    if not config.offsets.reset_here:
        offsets.drop_resets()
    return Part(
        routes={code: route for handler in handlers for code, route in handler.routes().items()},
        tasks=[clients.watch, locks.watch],
        configure=configure,
    )
