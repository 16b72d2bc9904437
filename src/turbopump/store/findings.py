"""Results of a check of a store: problems, and notes about what is unusual but not wrong."""

from collections import Counter
from dataclasses import dataclass, field

MAX_SAMPLES = 100  # texts kept of each kind; the rest is only counted


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem or note of a check: its kind and a text."""

    kind: str
    text: str


@dataclass(slots=True)
class Findings:
    """Problems and notes, counted by kind."""

    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add_problem(self, kind: str, text: str, count: int = 1) -> None:
        self._add(self.problems, kind, text, count)

    def add_note(self, kind: str, text: str, count: int = 1) -> None:
        self._add(self.notes, kind, text, count)

    def merge(self, others: "Findings") -> None:
        """Adds the problems and the counts of another check, but not the texts of its notes."""
        left = {kind: MAX_SAMPLES - self.counts[kind] for kind in others.counts}
        for problem in others.problems:
            if left[problem.kind] > 0:
                left[problem.kind] -= 1
                self.problems.append(problem)
        self.counts += others.counts

    def _add(self, where: list[Finding], kind: str, text: str, count: int) -> None:
        if self.counts[kind] < MAX_SAMPLES:
            where.append(Finding(kind, text))
        self.counts[kind] += count
