"""Which figures of a broker's tables and store are exported, each subject by its own class."""

from collections.abc import Callable
from contextlib import AsyncExitStack

from turbopump.broker.config import BrokerConfig
from turbopump.broker.metrics.collectors import (
    BrokerFigures,
    Collector,
    ConnectionFigures,
    RequestFigures,
    StoreFigures,
    WaitingRequests,
)
from turbopump.broker.metrics.lag import LagFigures
from turbopump.broker.running import keep_running
from turbopump.broker.storage import Storage
from turbopump.broker.tables import Tables
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Usage


def collectors(
    config: Callable[[], BrokerConfig],
    store: Storage,
    tables: Tables,
    usage: Callable[[str], Usage],
    clock: Clock,
    waiting: Callable[[], WaitingRequests],
    stack: AsyncExitStack,
) -> list[Collector]:
    topics, statistics = tables.topics, tables.statistics
    requests = RequestFigures(topics, statistics, tables.traffic, clock)
    statistics.on_puts = requests.stored
    statistics.on_topic_gone = requests.topic_deleted
    keep_running(requests.watch(), stack)
    return [
        BrokerFigures(config, topics, tables.groups, waiting),
        requests,
        ConnectionFigures(tables.members),
        LagFigures(tables.members, topics, tables.offsets, statistics, store, clock),
        StoreFigures(store, usage, clock),
    ]
