"""Latency fault avoidance: a broker that was slow or failed gets no messages for a while.

Pure: the caller gives the time. The duration of a send determines how long its broker is avoided, by two
tables of settings or by those of Apache's 4.x (`latency_table`). A broker that failed counts as one that took
ten seconds, or thirty with the tables of 4.x.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import MessageQueue
from turbopump.client.routes import RoundRobin
from turbopump.client.settings import LatencyTable, ProducerSettings

FAILED_AS_SLOW_AS_S = 10.0
LATENCY_MAX_4_X = (0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0)
NOT_AVAILABLE_DURATION_4_X = (0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0)
FAILED_AS_SLOW_AS_4_X_S = 30.0


@dataclass
class BrokerHealth:
    """Remembers by broker name until when a slow or failed broker is avoided, and which are unreachable."""

    latency_max: Sequence[float]
    not_available_duration: Sequence[float]
    is_probed: bool = False
    """Whether unreachable brokers are probed (`broker_probe.py`)."""
    failed_as_slow_as_s: float = FAILED_AS_SLOW_AS_S
    _until: dict[str, float] = field(default_factory=dict)
    _unreachable: set[str] = field(default_factory=set)

    def record(
        self, broker: str, latency_s: float, now: float, *, failed: bool = False, reachable: bool = True
    ) -> None:
        """Records the latency or failure of a try; never shortens how long the broker is avoided."""
        pause_s = self.pause_for(self.failed_as_slow_as_s if failed else latency_s)
        if pause_s > 0 and now + pause_s > self._until.get(broker, 0.0):
            self._until[broker] = now + pause_s
        if reachable:
            self._unreachable.discard(broker)
        else:
            self._unreachable.add(broker)

    def pause_for(self, latency_s: float) -> float:
        """Returns the seconds to avoid a broker after this latency, by the table; 0: it is not avoided."""
        steps = zip(self.latency_max, self.not_available_duration, strict=False)
        return next((pause for step, pause in reversed([*steps]) if latency_s >= step), 0.0)

    def is_available(self, broker: str, now: float) -> bool:
        return now >= self._until.get(broker, 0.0)

    def is_reachable(self, broker: str) -> bool:
        return broker not in self._unreachable

    def unreachable(self) -> list[str]:
        return sorted(self._unreachable)

    def reached(self, broker: str) -> None:
        """Marks a broker as reachable again; a pause in which it is avoided still runs to its end."""
        self._unreachable.discard(broker)

    def forget(self, broker: str) -> None:
        self._unreachable.discard(broker)
        self._until.pop(broker, None)


def broker_health(settings: ProducerSettings) -> BrokerHealth:
    """Returns a BrokerHealth with the latency table of the settings; InvalidArgument if they set two."""
    is_probed = settings.start_detector_enable
    if settings.latency_table is LatencyTable.V5:
        return BrokerHealth(settings.latency_max, settings.not_available_duration, is_probed)
    plain = ProducerSettings()
    own = settings.latency_max, settings.not_available_duration
    if own != (plain.latency_max, plain.not_available_duration):
        raise InvalidArgument(
            "latency_table must not be set together with latency_max or not_available_duration"
        )
    return BrokerHealth(LATENCY_MAX_4_X, NOT_AVAILABLE_DURATION_4_X, is_probed, FAILED_AS_SLOW_AS_4_X_S)


@dataclass
class HealthyQueueSelector:
    """Round robin over the queues of available brokers; if there is none, of reachable ones; else over all.

    A retry avoids the broker that has just failed while there is another.
    """

    health: BrokerHealth
    plain: RoundRobin
    now: Callable[[], float]

    def choose(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        health, now = self.health, self.now()
        others = [queue for queue in queues if queue.broker != avoid]
        candidates = (
            [queue for queue in others if health.is_available(queue.broker, now)],
            [queue for queue in others if health.is_reachable(queue.broker)],
        )
        return self.plain.choose(next(filter(None, candidates), queues), avoid)
