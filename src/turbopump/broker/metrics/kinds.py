"""Figures of transactions and timers, by the topics to which their messages belong."""

from collections import Counter, defaultdict

from turbopump.broker.halves import Decision
from turbopump.broker.metrics.collectors import LOCAL_DISK
from turbopump.broker.metrics.exposition import Family, Histogram
from turbopump.broker.timers import Timers
from turbopump.broker.transaction import Transactions

AGE_BOUNDS_S = (5, 60, 600, 3600, 43_200, 86_400)


class TransactionFigures:
    subject = "requests"

    def __init__(self, transactions: Transactions) -> None:
        self._halves = transactions.halves
        self._ended: dict[Decision, Counter[str]] = defaultdict(Counter)
        self._ages: dict[str, Histogram] = {}
        transactions.on_ended = self.ended

    def ended(self, topic: str, decision: Decision, age_ms: int, count: int = 1) -> None:
        self._ended[decision][topic] += count
        if decision is Decision.COMMIT:
            self._ages.setdefault(topic, Histogram(AGE_BOUNDS_S)).add(max(0, age_ms) // 1000, count)

    async def families(self) -> list[Family]:
        committed, rolled_back = self._ended[Decision.COMMIT], self._ended[Decision.ROLLBACK]
        ages = [({"topic": topic}, histogram) for topic, histogram in self._ages.items()]
        return [
            _by_topic("rocketmq_half_messages", "Open half messages", self._halves.by_topic, is_gauge=True),
            _by_topic("rocketmq_commit_messages_total", "Transactions committed", committed),
            _by_topic("rocketmq_rollback_messages_total", "Transactions rolled back", rolled_back),
            Family(  # Apache counts seconds under this name
                "rocketmq_finish_message_latency_milliseconds",
                "histogram",
                "Seconds from a half message to its commit",
                [*ages],
            ),
        ]


class TimerFigures:
    subject = "requests"

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    async def families(self) -> list[Family]:
        timers = self._timers
        counts = timers.counts
        waiting = counts.waiting_by_topic()
        return [
            _by_topic("rocketmq_timing_messages", "Messages that wait", waiting, is_gauge=True),
            _by_topic(
                "rocketmq_timer_enqueue_total",
                "Messages that began to wait",
                counts.entered_by_topic(),
            ),
            _by_topic("rocketmq_timer_dequeue_total", "Messages whose time came", counts.left_by_topic()),
            _one("rocketmq_timer_enqueue_lag", "Messages not in the wheel yet", timers.queue_behind),
            _one("rocketmq_timer_dequeue_lag", "Messages in the wheel", sum(waiting.values())),
            _one("rocketmq_timer_dequeue_latency_milliseconds", "How late the next one is", timers.behind_ms),
        ]


def _by_topic(name: str, words: str, counts: dict[str, int], is_gauge: bool = False) -> Family:
    samples = [({"topic": topic}, count) for topic, count in counts.items() if count or not is_gauge]
    return Family(name, "gauge" if is_gauge else "counter", words, [*samples])


def _one(name: str, words: str, value: int) -> Family:
    return Family(name, "gauge", words, [(LOCAL_DISK, value)])
