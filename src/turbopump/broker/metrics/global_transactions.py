"""Collects metrics of global transactions: those that are kept, by kind and state, and those that ended."""

from collections import Counter

from turbopump.broker.metrics.exposition import Family, Histogram
from turbopump.broker.transactions.book.requests import GlobalTransactionHandler
from turbopump.protocol.global_transactions import (
    GlobalDecision,
    GlobalKind,
    GlobalState,
    GlobalTransaction,
)
from turbopump.runtime.clock import Clock

DURATION_BOUNDS_S = (0.01, 0.05, 0.25, 1, 5, 30, 60, 300, 3600, 86_400)
OUTCOMES = frozenset(("committed", "aborted", "parked", "heuristic"))
"""The words of clients for the end of a transaction that are values of a label; others would be too many."""


class GlobalTransactionFigures:
    """Collects metrics of the book of global transactions."""

    subject = "requests"

    def __init__(self, handler: GlobalTransactionHandler, clock: Clock) -> None:
        self._transactions = handler.book.transactions
        self._clock = clock
        self._ended: Counter[tuple[GlobalKind, str]] = Counter()
        self._durations: dict[GlobalKind, Histogram] = {}
        handler.on_ended = self.ended

    def ended(self, one: GlobalTransaction) -> None:
        """Counts a transaction that has just ended, and how long it took."""
        self._ended[one.kind, _outcome(one)] += 1
        durations = self._durations.setdefault(one.kind, Histogram(DURATION_BOUNDS_S))
        durations.add(max(0, one.ended_ms - one.opened_ms) / 1000)

    async def families(self) -> list[Family]:
        kept: Counter[tuple[GlobalKind, GlobalState]] = Counter()
        parked: Counter[GlobalKind] = Counter(dict.fromkeys(GlobalKind, 0))
        oldest: dict[GlobalKind, int] = {}
        for one in self._transactions.values():
            if one.state is not GlobalState.ENDED:
                kept[one.kind, one.state] += 1
                parked[one.kind] += one.state is GlobalState.PARKED
                oldest[one.kind] = min(oldest.get(one.kind, one.opened_ms), one.opened_ms)
        now_ms = self._clock.now_ms()
        return [
            Family(
                "turbopump_global_open",
                "gauge",
                "Global transactions that have not ended",
                [({"kind": kind, "state": state}, count) for (kind, state), count in kept.items()],
            ),
            Family(
                "turbopump_global_parked",
                "gauge",
                "Global transactions that wait for an operator",
                [({"kind": kind}, count) for kind, count in parked.items()],
            ),
            Family(
                "turbopump_global_oldest_seconds",
                "gauge",
                "Age of the oldest global transaction that has not ended",
                [({"kind": kind}, (now_ms - opened) // 1000) for kind, opened in oldest.items()],
            ),
            Family(
                "turbopump_global_ended_total",
                "counter",
                "Global transactions that ended since the broker was started",
                [({"kind": kind, "outcome": outcome}, n) for (kind, outcome), n in self._ended.items()],
            ),
            Family(
                "turbopump_global_seconds",
                "histogram",
                "Seconds from the opening of a global transaction to its end",
                [({"kind": kind}, histogram) for kind, histogram in self._durations.items()],
            ),
        ]


def _outcome(ended: GlobalTransaction) -> str:
    if ended.outcome in OUTCOMES:
        return ended.outcome
    return "committed" if ended.decision is GlobalDecision.COMMIT else "aborted"
