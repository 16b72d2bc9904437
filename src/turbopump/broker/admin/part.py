"""Builds the admin part of the broker: one request handler for each subject."""

from dataclasses import dataclass, replace

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
from turbopump.broker.consume.part import ConsumePart
from turbopump.broker.delay.part import DelayPart
from turbopump.broker.part import Context, Part
from turbopump.broker.replicas.part import ReplicaPart
from turbopump.protocol.addresses import HA_PORT_STEP


@dataclass(kw_only=True)
class AdminPart(Part):
    """Admin part of the broker, with the topic handler, whose requests the metrics observe."""

    topics: TopicHandler


async def build(context: Context) -> AdminPart:
    store, tables, clock, name = context.store, context.tables, context.clock, context.broker_name
    topics, groups, offsets, statistics = tables.topics, tables.groups, tables.offsets, tables.statistics
    reused, delay = context.part(ConsumePart).reused, context.part(DelayPart)

    async def topics_settled() -> None:
        await context.table_files.topics.settled()
        await context.registration.settled()

    topic_handler = TopicHandler(topics, offsets, store, statistics, reused, name, topics_settled)
    handlers = (
        topic_handler,
        GroupHandler(groups, topics, offsets, statistics, reused, context.table_files.groups.settled),
        ProgressHandler(
            groups, topics, offsets, tables.members, store, statistics, clock, name, context.address
        ),
        QueueHandler(store.queues, tables.members, tables.filters),
        ConnectionHandler(tables.members, offsets),
        ConfigurationHandler(_as_running(context), clock, context.apply),
        RuntimeHandler(
            store,
            tables.traffic,
            statistics,
            clock,
            context.disk.usage,
            context.config().sending.accept_from_ms,
            delay.levels.progress,
            context.servers,
            delay.timers.progress,
            context.part(ReplicaPart).requests.figures,
        ),
        StatisticsHandler(statistics),
        MaintenanceHandler(store, topics, offsets, statistics),
    )
    return AdminPart(
        routes={code: route for handler in handlers for code, route in handler.routes().items()},
        tasks=[tables.traffic.watch, statistics.watch],
        topics=topic_handler,
    )


def _as_running(context: Context) -> BrokerConfig:
    """Returns the configuration with the actual port and addresses of this running broker filled in."""
    config = context.config()
    host, _, port = context.address.rpartition(":")
    listening = replace(
        config.listening,
        port=int(port),
        advertised_address=host,
        ha_address=config.listening.ha_address or host,
        ha_port=config.listening.ha_port or int(port) + HA_PORT_STEP,
    )
    return replace(config, listening=listening)
