"""Counts of global transactions for metrics: those that are kept, and those that ended since the start."""

from collections import Counter
from dataclasses import dataclass, field

from turbopump.broker.transactions.book.book import GlobalBook
from turbopump.protocol.global_transactions import GlobalKind, GlobalState, GlobalTransaction

BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0)
"""Upper bounds of the histogram of durations."""


@dataclass
class Durations:
    """A histogram of how long transactions took."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        place = next((place for place, bound in enumerate(BOUNDS_S) if seconds <= bound), len(BOUNDS_S))
        self.counts[place] += 1
        self.total_s += seconds


class GlobalFigures:
    """What metrics show of the book of global transactions."""

    def __init__(self, book: GlobalBook) -> None:
        self._book = book
        self.ended_total: Counter[tuple[GlobalKind, str]] = Counter()
        """By kind and outcome, since the broker was started."""
        self.durations: dict[GlobalKind, Durations] = {}

    def ended(self, transaction: GlobalTransaction) -> None:
        """Counts a transaction that has just ended."""
        outcome = transaction.outcome or f"{transaction.decision}ed"
        self.ended_total[transaction.kind, outcome] += 1
        seconds = (transaction.ended_ms - transaction.opened_ms) / 1000
        self.durations.setdefault(transaction.kind, Durations()).add(seconds)

    def kept(self) -> Counter[tuple[GlobalKind, GlobalState]]:
        """Returns the number of transactions that are kept, by kind and state."""
        return Counter((one.kind, one.state) for one in self._book.transactions.values())

    def oldest(self) -> dict[GlobalKind, int]:
        """Returns when the oldest transaction that has not ended was opened, by kind, in milliseconds."""
        found: dict[GlobalKind, int] = {}
        for one in self._book.transactions.values():
            if one.state is not GlobalState.ENDED:
                found[one.kind] = min(found.get(one.kind, one.opened_ms), one.opened_ms)
        return found
