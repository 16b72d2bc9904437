"""Probes unreachable brokers (`start_detector_enable`) with a cheap request, to find when they answer again.

A broker that answers a probe counts as reachable again; without probes it does so when a message was sent to
it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from turbopump.client.name_servers import Caller, successful
from turbopump.client.produce.broker_health import BrokerHealth
from turbopump.client.routes import RouteCache
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import request
from turbopump.protocol.errors import NoPermission, Refused
from turbopump.protocol.headers.offsets import GetMaxOffsetRequest
from turbopump.runtime.clock import Clock
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

PROBE_ROUND_S = 3.0  # between two checks which brokers are due


@dataclass
class BrokerProbe:
    """Sends probes regularly to brokers that are unreachable, and marks those that answer as reachable."""

    health: BrokerHealth
    calls: Caller
    routes: RouteCache
    clock: Clock
    topics: Callable[[], Iterable[str]]
    """The topics that the producer sends to, with namespace."""
    timeout_s: float
    interval_s: float
    _next: dict[str, float] = field(default_factory=dict)
    _tasks: Tasks = field(default_factory=lambda: Tasks(log))

    def start(self) -> None:
        self._tasks.start(self._run(), name="probe brokers")

    async def close(self) -> None:
        await self._tasks.close()

    async def _run(self) -> None:
        while True:
            await self.clock.sleep(PROBE_ROUND_S)
            await self.probe_due()

    async def probe_due(self) -> None:
        """Probes each unreachable broker whose interval is over, and marks those that answer as reachable."""
        now = self.clock.monotonic()
        due = [broker for broker in self.health.unreachable() if self._next.get(broker, 0.0) <= now]
        self._next = {broker: at for broker, at in self._next.items() if at > now}
        for broker in due:
            self._next[broker] = now + self.interval_s
        await asyncio.gather(*map(self._probe, due))

    async def _probe(self, broker: str) -> None:
        for topic in self.topics():
            route = self.routes.known(topic)
            address = route.master(broker) if route is not None else None
            if address is not None:
                break
        else:  # none of our topics is on that broker any more
            self.health.forget(broker)
            return
        question = request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest(topic, 0, bname=broker))
        try:
            successful(await self.calls.call(address, question, self.timeout_s))
        except NoPermission:
            pass  # it answers: whether this client may send is told by its next send
        except (OSError, Refused):
            return
        self.health.reached(broker)
