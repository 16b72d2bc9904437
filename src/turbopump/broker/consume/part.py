"""Builds the consume part of the broker: handlers of pulls, send-backs, and queries that do not consume."""

from dataclasses import dataclass

from turbopump.broker.config import BrokerConfig
from turbopump.broker.consume.pull import PullHandler
from turbopump.broker.consume.pull_checks import PullChecks
from turbopump.broker.consume.query import QueryHandler
from turbopump.broker.consume.read_servers import ReadServers
from turbopump.broker.consume.reused_offsets import ReusedOffsets
from turbopump.broker.consume.send_back import SendBackHandler
from turbopump.broker.consume.slave_reused_offsets import SlaveReusedOffsets
from turbopump.broker.delay.part import DelayPart
from turbopump.broker.part import Context, Part
from turbopump.protocol.ids import unpack_host
from turbopump.protocol.permissions import READ, WRITE


@dataclass(kw_only=True)
class ConsumePart(Part):
    """Consume part of the broker, with the pull handler and the table of reused offsets for other parts."""

    pulls: PullHandler
    reused: ReusedOffsets


async def build(context: Context) -> ConsumePart:
    store, tables = context.store, context.tables
    if context.is_slave:
        crashes = tables.offsets.crashes
        reused: ReusedOffsets = SlaveReusedOffsets(store.queues, crashes, context.clock.monotonic)
    else:
        reused = ReusedOffsets(store.queues, context.recovered_end)
    servers = ReadServers(tables.groups, context.config().replication, context.is_slave)
    checks = PullChecks(
        store.queues,
        tables.topics,
        tables.groups,
        tables.members,
        tables.filters,
        broker_readable=lambda: context.may(READ),
        serves_lite=lambda: context.config().polling.lite_pull,
        broker_ip=context.host,
    )
    polling = context.config().polling
    pulls = PullHandler(
        store, checks, tables.offsets, reused, context.clock, polling, tables.traffic, servers, context.charge
    )
    send_back = SendBackHandler(
        store,
        tables.topics,
        tables.groups,
        context.part(DelayPart).schedule,
        context.writer,
        context.chance,
        unpack_host(store.log.store_host)[0],
        writable=lambda: context.may(WRITE),
        permit=context.permit,
    )

    def configure(config: BrokerConfig) -> None:
        servers.configure(config.replication)
        pulls.configure(config.polling)

    return ConsumePart(
        routes={**send_back.routes(), **QueryHandler(store, tables.topics, context.permit).routes()},
        main_routes=pulls.routes(),
        configure=configure,
        answer_waiting=pulls.close,
        close=[pulls.cancel_reads],
        pulls=pulls,
        reused=reused,
    )
