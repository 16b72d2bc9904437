"""What a check of a store found: problems, which are wrong, and notes, which are worth knowing."""

from collections import Counter
from dataclasses import dataclass, field

SAMPLES = 100  # of one kind are kept in words; the rest is counted


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    text: str


@dataclass(slots=True)
class Findings:
    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def blame(self, kind: str, text: str, count: int = 1) -> None:
        self._add(self.problems, kind, text, count)

    def note(self, kind: str, text: str, count: int = 1) -> None:
        self._add(self.notes, kind, text, count)

    def take(self, others: "Findings") -> None:
        room = {kind: SAMPLES - self.counts[kind] for kind in others.counts}
        for problem in others.problems:
            if room[problem.kind] > 0:
                room[problem.kind] -= 1
                self.problems.append(problem)
        self.counts += others.counts

    def _add(self, where: list[Finding], kind: str, text: str, count: int) -> None:
        if self.counts[kind] < SAMPLES:
            where.append(Finding(kind, text))
        self.counts[kind] += count
