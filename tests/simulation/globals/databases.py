"""The participants (RM) of the world: databases in memory with a prepared state, a fence, and money.

What is committed or prepared survives a crash, what is active does not. A branch that is prepared over a
connection that still lives can be ended by others only where the database detaches it, as PostgreSQL does and
MariaDB does not. The fence is the rule of `transactions/fence.py` over a dictionary, in the transaction of
its work. Each effect is noted, in order, for the judge.
"""

from collections import Counter
from dataclasses import dataclass, field

from turbopump.transactions.errors import Contradicted, Declined, FenceRefused, Later, NotTried

DECIDED = "committed"
GAVE_UP = "aborted"


@dataclass(slots=True)
class Branch:
    """The work of one transaction in a database, before it is committed."""

    cents: int
    owner: str
    since_ms: int = 0
    is_connected: bool = True


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that was committed in a database, and its number in the order of all."""

    number: int
    gid: str
    branch: str
    what: str
    cents: int


class Journalled:
    """Numbers the effects of all databases of a world."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def note(self, gid: str, branch: str, what: str, cents: int) -> None:
        self.effects.append(Effect(len(self.effects), gid, branch, what, cents))


@dataclass
class Database:
    """One database that takes part by XA, and behind a fence by TCC and SAGA."""

    name: str
    noted: Journalled
    detaches: bool
    cents: int = 100_000
    frozen: dict[tuple[str, str], int] = field(default_factory=dict)
    active: dict[str, Branch] = field(default_factory=dict)
    prepared: dict[str, Branch] = field(default_factory=dict)
    fence: dict[tuple[str, str, str], str] = field(default_factory=dict)
    decisions: dict[str, str] = field(default_factory=dict)
    """Of a last resource: gid -> committed or aborted."""
    is_up: bool = True
    is_last: bool = False
    """It cannot prepare."""
    counts: Counter[str] = field(default_factory=Counter)

    # faults

    def crash(self) -> None:
        self.is_up = False
        self.active.clear()
        for branch in self.prepared.values():
            branch.is_connected = False

    def disconnect(self, owner: str) -> None:
        """A client has died: what it had not prepared is rolled back."""
        self.active = {gid: one for gid, one in self.active.items() if one.owner != owner}
        for branch in self.prepared.values():
            branch.is_connected = branch.is_connected and branch.owner != owner

    # XA

    def begin(self, gid: str, owner: str, cents: int) -> None:
        self.active[gid] = Branch(cents, owner)

    @property
    def free(self) -> int:
        """What can still be taken, beside what others have prepared to take."""
        return self.cents + sum(min(0, one.cents) for one in self.prepared.values())

    def prepare(self, gid: str, now_ms: int) -> bool:
        """Prepares a branch; returns whether it has written something."""
        if gid in self.prepared:
            return True
        branch = self.active.pop(gid, None)
        if branch is None:
            raise OSError("the connection was lost")
        if branch.cents == 0:
            return False
        if self.free + branch.cents < 0:
            raise Declined("too little money")
        branch.since_ms = now_ms
        self.prepared[gid] = branch
        return True

    def commit(self, gid: str, by: str) -> None:
        """Commits a prepared branch; one that is unknown was committed before."""
        if (branch := self._prepared_for(gid, by)) is not None:
            del self.prepared[gid]
            self._apply(gid, branch)

    def roll_back(self, gid: str, by: str) -> None:
        if self.active.get(gid) is not None and self.active[gid].owner == by:
            del self.active[gid]
        if self._prepared_for(gid, by) is not None:
            del self.prepared[gid]
            self.counts["rolled back"] += 1

    def _prepared_for(self, gid: str, by: str) -> Branch | None:
        branch = self.prepared.get(gid)
        if branch is not None and branch.is_connected and branch.owner != by and not self.detaches:
            self.counts["held by a live connection"] += 1
            raise Later("held by a live connection", 1.0)
        return branch

    def abandon(self, gid: str, owner: str) -> None:
        """The client closes its connection."""
        if gid in self.active and self.active[gid].owner == owner:
            del self.active[gid]
        if gid in self.prepared and self.prepared[gid].owner == owner:
            self.prepared[gid].is_connected = False

    def commit_one_phase(self, gid: str) -> None:
        branch = self.active.pop(gid, None)
        if branch is None:
            raise Declined("the connection was lost before the commit")
        if self.free + branch.cents < 0:
            raise Declined("too little money")
        self._apply(gid, branch)

    def _apply(self, gid: str, branch: Branch) -> None:
        self.cents += branch.cents
        self.noted.note(gid, self.name, "commit", branch.cents)

    # last resource

    def commit_as_last(self, gid: str) -> None:
        if self.decisions.get(gid) == GAVE_UP:
            self.active.pop(gid, None)
            raise Declined("it was aborted before")
        self.commit_one_phase(gid)
        self.decisions[gid] = DECIDED

    def roll_back_as_last(self, gid: str, by: str) -> None:
        if self.decisions.get(gid) == DECIDED:
            raise Declined("it has committed")
        self.roll_back(gid, by)
        self.decisions[gid] = GAVE_UP

    # the fence

    def _insert(self, gid: str, branch: str, phase: str, by: str) -> bool:
        key = gid, branch, phase
        if key in self.fence:
            return False
        self.fence[key] = by
        return True

    def _first(self, gid: str, branch: str, phase: str, others: tuple[str, ...]) -> bool:
        """Tells whether the work of a Try or a step is to be done. Raises FenceRefused after its Cancel."""
        if self._insert(gid, branch, phase, phase):
            return True
        if self.fence[gid, branch, phase] in others:
            raise FenceRefused(gid, branch)
        self.counts["repeated"] += 1
        return False

    def _last(self, gid: str, branch: str, phase: str, cancel: str) -> bool:
        """Tells whether the work of a Cancel or a compensation is to be done."""
        if (gid, branch, "confirm") in self.fence:
            raise Contradicted(gid, branch, cancel, "confirm")
        is_empty = self._insert(gid, branch, phase, cancel)
        is_first = self._insert(gid, branch, cancel, cancel)
        self.counts["empty"] += is_empty
        return is_first and not is_empty

    def try_(self, gid: str, branch: str, cents: int) -> None:
        if (gid, branch, "try") not in self.fence and self.free + min(0, cents) < 0:
            raise Declined("too little money")
        if self._first(gid, branch, "try", ("cancel",)):
            taken = min(0, cents)
            self.cents += taken
            self.frozen[gid, branch] = cents
            self.noted.note(gid, branch, "try", taken)

    def confirm(self, gid: str, branch: str) -> None:
        by = self.fence.get((gid, branch, "try"))
        if by != "try":
            raise NotTried(gid, branch, "it was cancelled" if by else "its Try was not done")
        if self._insert(gid, branch, "confirm", "confirm"):
            cents = max(0, self.frozen.pop((gid, branch), 0))
            self.cents += cents
            self.noted.note(gid, branch, "confirm", cents)
        else:
            self.counts["repeated"] += 1

    def cancel(self, gid: str, branch: str) -> None:
        if self._last(gid, branch, "try", "cancel"):
            cents = -min(0, self.frozen.pop((gid, branch)))
            self.cents += cents
            self.noted.note(gid, branch, "cancel", cents)

    def do(self, gid: str, branch: str, cents: int) -> None:
        if (gid, branch, "do") not in self.fence and self.free + min(0, cents) < 0:
            raise Declined("too little money")
        if self._first(gid, branch, "do", ("undo",)):
            self.cents += cents
            self.noted.note(gid, branch, "do", cents)

    def undo(self, gid: str, branch: str, cents: int) -> None:
        if self._last(gid, branch, "do", "undo"):
            self.cents -= cents
            self.noted.note(gid, branch, "undo", -cents)
