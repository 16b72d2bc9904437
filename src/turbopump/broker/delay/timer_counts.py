"""Counts timers by topic: how many wait, were put into the wheel, left it; and the rates per second.

Units of the timer log hold the hash of their topic, so no message has to be read to be counted. Nothing is
decided about a message here.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from turbopump.broker.topics import TopicTable
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.names import TIMER_TOPIC
from turbopump.store.timer_log import Unit


@dataclass(frozen=True, slots=True)
class TimerProgress:
    """Numbers of waiting timers and of messages not in the wheel yet, lateness in ms, rates per second."""

    waiting: int = 0
    behind_ms: int = 0
    queue_behind: int = 0
    taken_in_tps: float = 0.0
    given_out_tps: float = 0.0


class TimerCounts:
    """Counts timers as they enter and leave the wheel, by the hash of their topic."""

    def __init__(self, topics: TopicTable) -> None:
        self.waiting: Counter[int] = Counter()  # this and the next two by the hash of the topic
        self._entered: Counter[int] = Counter()  # since the start, including those put into the queue again
        self._left: Counter[int] = Counter()
        self.taken_in = self.given_out = 0
        self._topics = topics
        self._asked_at, self._counts, self._rates = 0.0, (0, 0), (0.0, 0.0)

    def enters(self, unit: Unit) -> None:
        self.waiting[unit.topic_hash] += 0 if unit.recalls else 1
        self._entered[unit.topic_hash] += 1

    def leaves(self, unit: Unit) -> None:
        self._left[unit.topic_hash] += 1

    def waits_no_more(self, units: Iterable[Unit]) -> None:
        self.waiting.subtract(unit.topic_hash for unit in units if not unit.recalls)

    def waiting_by_topic(self) -> dict[str, int]:
        return self._by_topic(self.waiting)

    def entered_by_topic(self) -> dict[str, int]:
        return self._by_topic(self._entered)

    def left_by_topic(self) -> dict[str, int]:
        return self._by_topic(self._left)

    def rates(self, now: float) -> tuple[float, float]:
        """Returns messages per second into and out of the wheel, between calls at least a second apart.

        That call is at least one second ago; within a second the last rates are returned. `now` is of the
        monotonic clock.
        """
        seconds = now - self._asked_at
        if seconds >= 1.0:
            counts = self.taken_in, self.given_out
            taken, given = (
                round((new - old) / seconds, 1) for new, old in zip(counts, self._counts, strict=True)
            )
            self._asked_at, self._counts, self._rates = now, counts, (taken, given)
        return self._rates

    def _by_topic(self, counts: Counter[int]) -> dict[str, int]:
        names = (topic.name for topic in self._topics.all() if topic.name != TIMER_TOPIC)
        return {name: count for name in names if (count := counts[java_hash(name)]) > 0}
