"""Table of brokers that were registered before and are not now, with the topics they had. No I/O.

A broker that is stopped or killed leaves the routes of all its topics at once. A program that reads a whole
topic has to know that a part of it is missing, so the names stay here until the broker comes back or is
forgotten.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from turbopump.protocol.names import ANY_TOPIC


@dataclass
class AbsentBrokers:
    """Table of the topics that brokers had when they left, by broker name."""

    max_topics: int
    """Greatest number of pairs of broker and topic; beyond it the broker that left first is dropped."""
    _topics: dict[str, set[str]] = field(default_factory=dict, init=False)
    _count: int = field(default=0, init=False)

    def add(self, broker: str, topics: Iterable[str]) -> None:
        self.forget(broker)
        self._topics[broker] = set(topics)
        self._count += len(self._topics[broker])
        while self._count > self.max_topics:
            self.forget(next(iter(self._topics)))

    def forget(self, broker: str) -> None:
        self._count -= len(self._topics.pop(broker, ()))

    def drop_topic(self, topic: str) -> None:
        for topics in self._topics.values():
            if topic in topics:
                topics.remove(topic)
                self._count -= 1

    def names(self) -> set[str]:
        return set(self._topics)

    def having(self, topic: str) -> set[str]:
        """Returns the names of absent brokers that had the topic; for `*`, of all absent brokers."""
        return {name for name, topics in self._topics.items() if topic == ANY_TOPIC or topic in topics}
