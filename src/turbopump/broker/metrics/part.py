"""Builds the metrics part of the broker, which serves Prometheus only with metricsExporterType=PROM."""

import logging
from dataclasses import dataclass, field

from turbopump.broker.admin.part import AdminPart
from turbopump.broker.consume.part import ConsumePart
from turbopump.broker.delay.part import DelayPart
from turbopump.broker.dledger.requests import RaftHandler
from turbopump.broker.metrics.collectors import (
    BrokerFigures,
    Collector,
    ConnectionFigures,
    RemotingFigures,
    RequestFigures,
    StoreFigures,
    WaitingRequests,
)
from turbopump.broker.metrics.exporter import Exporter
from turbopump.broker.metrics.global_transactions import GlobalTransactionFigures
from turbopump.broker.metrics.lag import LagFigures
from turbopump.broker.metrics.message_kinds import TimerFigures, TopicFigures, TransactionFigures
from turbopump.broker.metrics.raft import RaftFigures
from turbopump.broker.metrics.replicas import ReplicaFigures
from turbopump.broker.part import Context, Part
from turbopump.broker.replicas.part import ReplicaPart
from turbopump.broker.transactions.part import TransactionPart

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class MetricsPart(Part):
    """Metrics part of the broker; `port` is that of the Prometheus page, 0 when it is switched off."""

    port: int = field(default=0)
    """Port of the page; 0 when it is not served."""


async def build(context: Context) -> MetricsPart:
    config = context.config()
    if config.metrics.exporter != "PROM":
        return MetricsPart()
    store, tables, clock = context.store, context.tables, context.clock
    topics, statistics = tables.topics, tables.statistics
    answers = RemotingFigures(tables.traffic)
    requests = RequestFigures(topics, statistics, tables.traffic, clock)
    statistics.on_puts = requests.stored
    statistics.on_topic_gone = requests.topic_deleted
    created = TopicFigures()
    context.part(AdminPart).topics.on_created = created.created
    collectors: list[Collector] = [
        BrokerFigures(context.config, topics, tables.groups, lambda: _waiting(context)),
        requests,
        ConnectionFigures(tables.members),
        LagFigures(tables.members, topics, tables.offsets, statistics, store, clock),
        StoreFigures(store, context.disk.usage, clock),
        ReplicaFigures(context.part(ReplicaPart).requests),
        answers,
        TransactionFigures(context.part(TransactionPart).open),
        GlobalTransactionFigures(context.part(TransactionPart).globals, clock),
        TimerFigures(context.part(DelayPart).timers),
        created,
    ]
    replicas = context.part(ReplicaPart).requests
    if isinstance(replicas, RaftHandler):
        collectors.append(RaftFigures(replicas.raft_status))
    exporter = Exporter(context.config, collectors, context.page_network)

    async def start() -> None:
        host = config.metrics.host or config.listening.bind_address
        part.port = await exporter.start(host, config.metrics.port)
        log.info("Metrics are served at http://%s:%d/metrics", host, part.port)

    part = MetricsPart(observe=answers.observe, tasks=[requests.watch], start=start, close=[exporter.stop])
    return part


def _waiting(context: Context) -> WaitingRequests:
    servers = context.servers
    return WaitingRequests(
        to_begin=sum(server.waiting for server in servers),
        for_sync=context.store.flusher.waiting,
        running=sum(router.running for router in context.routers),
        parked=context.part(ConsumePart).pulls.parked,
        connections=sum(len(server.connections) for server in servers),
    )
