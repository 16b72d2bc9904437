"""Collects metrics of transactions and timers by the topics of their messages, and of created topics."""

import asyncio
from bisect import bisect_left
from collections import Counter, defaultdict

from turbopump.broker.delay.timers import TimedMessages
from turbopump.broker.metrics.collectors import LOCAL_DISK
from turbopump.broker.metrics.exposition import Family, Histogram, Labels
from turbopump.broker.transactions.halves import HalfDecision
from turbopump.broker.transactions.transactions import OpenTransactions

AGE_BOUNDS_S = (5, 60, 600, 3600, 43_200, 86_400)
SNAPSHOT_BOUNDS_S = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
CREATION_BOUNDS_MS = (10, 100, 1000, 3000, 5000)
SLOTS_PER_TURN = 500
NO_LABELS: Labels = {}


class TransactionFigures:
    """Collects metrics of open, committed and rolled back half messages, by topic."""

    subject = "requests"

    def __init__(self, transactions: OpenTransactions) -> None:
        self._halves = transactions.halves
        self._ended: dict[HalfDecision, Counter[str]] = defaultdict(Counter)
        self._ages: dict[str, Histogram] = {}
        transactions.on_ended = self.ended

    def ended(self, topic: str, decision: HalfDecision, age_ms: int, count: int = 1) -> None:
        """Counts half messages of a topic as committed or rolled back, and the age of committed ones."""
        self._ended[decision][topic] += count
        if decision is HalfDecision.COMMIT:
            self._ages.setdefault(topic, Histogram(AGE_BOUNDS_S)).add(max(0, age_ms) // 1000, count)

    async def families(self) -> list[Family]:
        committed, rolled_back = self._ended[HalfDecision.COMMIT], self._ended[HalfDecision.ROLLBACK]
        ages = [({"topic": topic}, histogram) for topic, histogram in self._ages.items()]
        return [
            _by_topic("rocketmq_half_messages", "Open half messages", self._halves.by_topic, is_gauge=True),
            _by_topic("rocketmq_commit_messages_total", "Transactions committed", committed),
            _by_topic("rocketmq_rollback_messages_total", "Transactions rolled back", rolled_back),
            Family(  # in seconds despite its name, as with Apache
                "rocketmq_finish_message_latency_milliseconds",
                "histogram",
                "Seconds from a half message to its commit",
                [*ages],
            ),
        ]


class TimerFigures:
    """Collects metrics of timers, messages that wait for their delivery time."""

    subject = "requests"

    def __init__(self, timers: TimedMessages) -> None:
        self._timers = timers

    async def families(self) -> list[Family]:
        timers = self._timers
        counts = timers.counts
        waiting = counts.waiting_by_topic()
        return [
            _by_topic("rocketmq_timing_messages", "Messages that wait", waiting, True, LOCAL_DISK),
            _by_topic(
                "rocketmq_timer_enqueue_total",
                "Messages that began to wait",
                counts.entered_by_topic(),
                also=LOCAL_DISK,
            ),
            _by_topic(
                "rocketmq_timer_dequeue_total",
                "Messages whose time came",
                counts.left_by_topic(),
                also=LOCAL_DISK,
            ),
            _one("rocketmq_timer_enqueue_lag", "Messages not in the wheel yet", timers.queue_behind),
            _one("rocketmq_timer_dequeue_lag", "Messages in the wheel", sum(waiting.values())),
            _one("rocketmq_timer_dequeue_latency_milliseconds", "How late the next one is", timers.behind_ms),
            _one(
                "rocketmq_timer_enqueue_latency_milliseconds",
                "How long the next one has waited for its place in the wheel",
                timers.queue_behind_ms,
            ),
            await self._snapshot(),
        ]

    async def _snapshot(self) -> Family:
        """Returns how many timers are due within each bound but not within the one before, as Apache does."""
        counts = dict.fromkeys(SNAPSHOT_BOUNDS_S, 0)
        for number, (after_s, units) in enumerate(self._timers.due_within(SNAPSHOT_BOUNDS_S[-1])):
            counts[SNAPSHOT_BOUNDS_S[bisect_left(SNAPSHOT_BOUNDS_S, after_s)]] += units
            if number % SLOTS_PER_TURN == SLOTS_PER_TURN - 1:
                await asyncio.sleep(0)
        samples = [({**LOCAL_DISK, "timer_bound_s": str(bound)}, count) for bound, count in counts.items()]
        return Family("rocketmq_timer_message_snapshot", "gauge", "Messages by when they are due", [*samples])


class TopicFigures:
    """Collects how long requests to create or change a topic took."""

    subject = "requests"

    def __init__(self) -> None:
        self._took: dict[tuple[bool, bool], Histogram] = {}

    def created(self, is_system: bool, succeeded: bool, milliseconds: int) -> None:
        self._took.setdefault((is_system, succeeded), Histogram(CREATION_BOUNDS_MS)).add(milliseconds)

    async def families(self) -> list[Family]:
        samples = [
            (
                {
                    "invocation_status": "success" if succeeded else "failure",
                    "is_system": str(is_system).lower(),
                },
                histogram,
            )
            for (is_system, succeeded), histogram in self._took.items()
        ]
        name = "rocketmq_topic_create_execution_time_milliseconds"
        return [Family(name, "histogram", "From the request for a topic to its answer", [*samples])]


def _by_topic(
    name: str, words: str, counts: dict[str, int], is_gauge: bool = False, also: Labels = NO_LABELS
) -> Family:
    samples = [({**also, "topic": topic}, count) for topic, count in counts.items() if count or not is_gauge]
    return Family(name, "gauge" if is_gauge else "counter", words, [*samples])


def _one(name: str, words: str, value: int) -> Family:
    return Family(name, "gauge", words, [(LOCAL_DISK, value)])
