"""What a coordinator counts: outcomes, failed calls by participant, prepared branches by resource."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from turbopump.protocol.global_transactions import GlobalKind
from turbopump.transactions.distributed.machine import BranchAnswered, BranchVerdict, GlobalOutcome


@dataclass(frozen=True, slots=True)
class CoordinatorFigures:
    """Figures of a coordinator since it was made."""

    active: int
    """Transactions that this process works on."""
    ended: Mapping[tuple[GlobalKind, GlobalOutcome], int]
    """Outcomes that callers were told, by kind."""
    retries: Mapping[str, int]
    """Calls of participants that failed or are to be repeated, by resource or participant."""
    prepared: Mapping[str, int]
    """Prepared branches of the group that the last sweep found, by resource."""
    oldest_prepared_s: Mapping[str, float]
    """Seconds that the oldest of them has been prepared, where the database says so."""
    unreachable: Mapping[str, int]
    """Resources that could not be swept, with the number of failed tries since the last success."""
    no_worker: int
    """Claimed transactions that no participant in this process can continue."""
    split: int
    """3PC: agents that decided alone and later learned the opposite."""


@dataclass
class TransactionCounts:
    """Counts while a coordinator works."""

    ended: Counter[tuple[GlobalKind, GlobalOutcome]] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    prepared: dict[str, int] = field(default_factory=dict)
    oldest_prepared_s: dict[str, float] = field(default_factory=dict)
    unreachable: Counter[str] = field(default_factory=Counter)
    no_worker: int = 0
    split: int = 0

    def failed(self, branch: str, answer: BranchAnswered) -> None:
        """Counts an answer of a participant that has not done what it was asked."""
        if answer.verdict in (BranchVerdict.FAILED, BranchVerdict.LATER):
            self.retries[branch] += 1

    def now(self, active: int) -> CoordinatorFigures:
        return CoordinatorFigures(
            active,
            dict(self.ended),
            dict(self.retries),
            dict(self.prepared),
            dict(self.oldest_prepared_s),
            {name: count for name, count in self.unreachable.items() if count},
            self.no_worker,
            self.split,
        )
