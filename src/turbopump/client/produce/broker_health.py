"""Latency fault avoidance: a broker that was slow or failed gets no messages for a while.

Pure: times are given by the caller. How long to stay away follows from how long a send took, by two tables
of settings, or by those of Apache's 4.x (`latency_table`). A broker that failed counts as one that took ten
seconds, or thirty with the latter.
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
    """What is known of brokers, by name."""

    latency_max: Sequence[float]
    not_available_duration: Sequence[float]
    is_probed: bool = False
    """Somebody looks after brokers that cannot be reached (`detector.py`)."""
    failed_as_slow_as_s: float = FAILED_AS_SLOW_AS_S
    _until: dict[str, float] = field(default_factory=dict)
    _unreachable: set[str] = field(default_factory=set)

    def record(
        self, broker: str, latency_s: float, now: float, *, failed: bool = False, reachable: bool = True
    ) -> None:
        """A try of a send ended. A new pause never shortens the one that runs."""
        pause_s = self.pause_for(self.failed_as_slow_as_s if failed else latency_s)
        if pause_s > 0 and now + pause_s > self._until.get(broker, 0.0):
            self._until[broker] = now + pause_s
        if reachable:
            self._unreachable.discard(broker)
        else:
            self._unreachable.add(broker)

    def pause_for(self, latency_s: float) -> float:
        """How long to stay away after a send that took so long: the entry of the highest step it reached."""
        steps = zip(self.latency_max, self.not_available_duration, strict=False)
        return next((pause for step, pause in reversed([*steps]) if latency_s >= step), 0.0)

    def is_available(self, broker: str, now: float) -> bool:
        return now >= self._until.get(broker, 0.0)

    def is_reachable(self, broker: str) -> bool:
        return broker not in self._unreachable

    def unreachable(self) -> list[str]:
        return sorted(self._unreachable)

    def reached(self, broker: str) -> None:
        """It answers again. Its pause, if one runs, goes on."""
        self._unreachable.discard(broker)

    def forget(self, broker: str) -> None:
        self._unreachable.discard(broker)
        self._until.pop(broker, None)


def broker_health(settings: ProducerSettings) -> BrokerHealth:
    """By the table that a producer has chosen. Raises InvalidArgument when it has chosen two."""
    is_probed = settings.start_detector_enable
    if settings.latency_table is LatencyTable.V5:
        return BrokerHealth(settings.latency_max, settings.not_available_duration, is_probed)
    plain = ProducerSettings()
    own = settings.latency_max, settings.not_available_duration
    if own != (plain.latency_max, plain.not_available_duration):
        raise InvalidArgument("set latency_table or latency_max and not_available_duration, not both")
    return BrokerHealth(LATENCY_MAX_4_X, NOT_AVAILABLE_DURATION_4_X, is_probed, FAILED_AS_SLOW_AS_4_X_S)


@dataclass
class HealthyQueueSelector:
    """Round robin over the queues of brokers that are well; when none is, over those that can be reached at
    least; else over all. A retry stays away from the broker that has just failed while there is another.
    """

    faults: BrokerHealth
    plain: RoundRobin
    now: Callable[[], float]

    def choose(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        faults, now = self.faults, self.now()
        others = [queue for queue in queues if queue.broker != avoid]
        wishes = (
            [queue for queue in others if faults.is_available(queue.broker, now)],
            [queue for queue in others if faults.is_reachable(queue.broker)],
        )
        return self.plain.choose(next(filter(None, wishes), queues), avoid)
