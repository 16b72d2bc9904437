"""Measures the lag of consumer groups: the number of unread messages, and the age of the first of them.

Only connected groups are measured, as with Apache. A group that has committed no offset has no lag. The age
of a message is in its record, which may have to be read from the disk, so all of them are read together in a
thread.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter

from turbopump.broker.groups.members import Members
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.metrics.collectors import text_of
from turbopump.broker.metrics.exposition import Family, Labels
from turbopump.broker.metrics.statistics import Statistics
from turbopump.broker.storage import Storage
from turbopump.broker.topics import TopicTable
from turbopump.protocol.names import is_retry_or_dlq, is_system_group
from turbopump.remoting.connection import Connection
from turbopump.runtime.clock import Clock
from turbopump.store.consume_queue import ConsumeQueue

GROUPS_PER_TURN = 16
NOT_RETRY = {"is_retry": "false"}  # only POP has separate retry topics
NO_MESSAGE = -1


@dataclass(slots=True)
class Lag:
    """Lag of one group on one topic: unread and in-flight messages, and the ages of the first ones."""

    group: str
    topic: str
    behind: int = 0
    in_flight: int = 0
    first_unconsumed: int = NO_MESSAGE  # log offset
    first_unpulled: int = NO_MESSAGE
    unconsumed_ms: int = 0  # age of the first unconsumed message
    unpulled_ms: int = 0

    @property
    def ready(self) -> int:
        return self.behind - self.in_flight


GAUGES: tuple[tuple[str, str, Callable[[Lag], int]], ...] = (
    ("rocketmq_consumer_lag_messages", "Messages not consumed", attrgetter("behind")),
    (
        "rocketmq_consumer_lag_latency_milliseconds",
        "Age of the first message not consumed",
        attrgetter("unconsumed_ms"),
    ),
    ("rocketmq_consumer_inflight_messages", "Messages pulled, not consumed", attrgetter("in_flight")),
    (
        "rocketmq_consumer_queueing_latency_milliseconds",
        "Age of the first message not pulled",
        attrgetter("unpulled_ms"),
    ),
    ("rocketmq_consumer_ready_messages", "Messages not pulled", attrgetter("ready")),
)


class LagFigures:
    """Collects the lag of connected groups on each topic they subscribe to, and counts of dead letters."""

    subject = "lag"

    def __init__(
        self,
        members: Members[Connection],
        topics: TopicTable,
        offsets: CommittedOffsets,
        statistics: Statistics,
        store: Storage,
        clock: Clock,
    ) -> None:
        self._members = members
        self._topics = topics
        self._offsets = offsets
        self._statistics = statistics
        self._store = store
        self._clock = clock

    async def families(self) -> list[Family]:
        lags: list[Lag] = []
        for count, group in enumerate(self._members.consumer_groups()):
            found = self._members.consumer_group(group)
            topics = list(found.subscriptions) if found is not None else []
            lags += [self._measure(group, topic) for topic in topics if self._is_shown(topic)]
            if count % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
        await self._read_ages(lags)
        behind = [
            Family(
                name,
                "gauge",
                words,
                [({**self._labels(lag.group, lag.topic), **NOT_RETRY}, value(lag)) for lag in lags],
            )
            for name, words, value in GAUGES
        ]
        dead = Family(
            "rocketmq_send_to_dlq_messages_total",
            "counter",
            "Messages that became dead letters",
            [
                (self._labels(group, topic), count)
                for (group, topic), count in self._statistics.dead_letters.items()
            ],
        )
        return [*behind, dead]

    def _is_shown(self, topic: str) -> bool:
        return not is_retry_or_dlq(topic) and self._topics.find(topic) is not None

    def _measure(self, group: str, topic: str) -> Lag:
        lag = Lag(group, topic)
        found = self._topics.find(topic)
        for queue_id in range(found.write_queues if found is not None else 0):
            queue = self._store.queues.find(topic, queue_id)
            if queue is None:
                continue
            end = queue.max_offset
            consumed = self._offsets.query(group, topic, queue_id)
            if consumed < 0:
                consumed = end
            pulled = min(max(self._offsets.query_pulled(group, topic, queue_id), consumed), end)
            lag.behind += max(end - consumed, 0)
            lag.in_flight += max(pulled - consumed, 0)
            lag.first_unconsumed = _earlier(lag.first_unconsumed, queue, consumed)
            lag.first_unpulled = _earlier(lag.first_unpulled, queue, pulled)
        return lag

    async def _read_ages(self, lags: list[Lag]) -> None:
        times = await self._store.times.read(_positions(lags))
        now_ms = self._clock.now_ms()

        def age(position: int) -> int:
            stored_ms = times.get(position, -1)
            return max(now_ms - stored_ms, 0) if stored_ms > 0 else 0

        for lag in lags:
            lag.unconsumed_ms, lag.unpulled_ms = age(lag.first_unconsumed), age(lag.first_unpulled)

    def _labels(self, group: str, topic: str) -> Labels:
        is_system = self._topics.is_system(topic) or is_system_group(group)
        return {"consumer_group": group, "topic": topic, "is_system": text_of(is_system)}


def _positions(lags: Iterable[Lag]) -> list[int]:
    found = {position for lag in lags for position in (lag.first_unconsumed, lag.first_unpulled)}
    return sorted(found - {NO_MESSAGE})


def _earlier(position: int, queue: ConsumeQueue, offset: int) -> int:
    """Returns the lower of `position` (-1: none) and the log offset of the message at `offset`, if any."""
    entry = queue.entry(max(offset, queue.min_offset))
    if entry is None:
        return position
    return entry[0] if position == NO_MESSAGE else min(position, entry[0])
