"""Serves `/metrics`, a page with all metric families that are switched on, on a separate port."""

import asyncio
from collections.abc import Callable, Sequence

from turbopump.broker.config import BrokerConfig
from turbopump.broker.metrics.collectors import Collector
from turbopump.broker.metrics.exposition import CONTENT_TYPE, Family, Labels, lines
from turbopump.remoting.http import Content, HttpServer
from turbopump.runtime.network import Network

LINES_PER_TURN = 500
SCOPE = {"otel_scope_name": "broker-meter"}
"""The label that Apache's exporter library adds to every metric; dashboards may group by it."""
TARGET = Family("target_info", "gauge", "Target metadata", [({}, 1)])


class Exporter:
    """HTTP server of the metrics page."""

    def __init__(
        self, config: Callable[[], BrokerConfig], collectors: Sequence[Collector], network: Network
    ) -> None:
        self._config = config
        self._collectors = collectors
        self._http = HttpServer({"/metrics": self.page}, network)

    async def start(self, host: str, port: int) -> int:
        return await self._http.start(host, port)

    async def stop(self) -> None:
        await self._http.stop()

    async def page(self) -> Content:
        """Returns the metrics page; other requests are served while the page is put together."""
        config = self._config()
        common = common_labels(config)
        out: list[str] = []
        for collector in self._collectors:
            if not getattr(config.metrics, collector.subject):
                continue
            for family in await collector.families():
                for line in lines(family, common):
                    out.append(line)
                    if len(out) % LINES_PER_TURN == 0:
                        await asyncio.sleep(0)
        out += lines(TARGET, {})
        return 200, CONTENT_TYPE, "".join(out).encode()


def common_labels(config: BrokerConfig) -> Labels:
    """Returns the labels that every sample has: the operator's own, and the broker's cluster and name."""
    identity = config.identity
    pairs = (item.partition(":") for item in config.metrics.labels)
    return {
        **{name: value for name, _, value in pairs},
        "cluster": identity.cluster_name,
        "node_type": "broker",
        "node_id": identity.broker_name,
        **SCOPE,
    }
