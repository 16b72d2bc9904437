"""The state of the brokers at one moment, as `plan.py` needs it. A value: nothing is requested here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from turbopump.client.message import MessageQueue
from turbopump.pipelines.source.offsets import Ends


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Queues and brokers of a query's topics at one moment."""

    topics: tuple[str, ...]
    ends: Mapping[MessageQueue, Ends]
    brokers: frozenset[str]
    """Brokers that are registered and answered."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Brokers that hold a part of what is read and are not available, each with the reason."""
    clusters: Mapping[str, str] = field(default_factory=dict)
    """Broker → name of its cluster."""

    def away(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Returns those of the queues whose broker is not available, so that their state is unknown."""
        return [queue for queue in queues if queue.broker not in self.brokers]
