"""The values that the state machines of XA, 3PC, TCC and SAGA share: actions out, events in.

A machine decides what is done next in one global transaction. It has no clock, no network and no chance:
it returns actions, which `driver.py` carries out, and takes what came of them as events.

    coordinator ──BlockLeft──▶ machine ──CallBranch──▶ participant (RM)
                                  │  ▲                      │
                         Keep, Decide └─BranchAnswered──────┘
                                  ▼
                             journal (TC)

The order of a list of actions is binding: what stands behind a `Keep` or a `Decide` is carried out when
that is stored. So a machine persists before it acts by writing one before the other.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NoReturn, Protocol

from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind, GlobalRecord, GlobalState

DEADLINE = "deadline"
"""What a machine waits `of` when it waits for the end of the time to decide."""


class Phase(StrEnum):
    """What a participant is asked to do with its branch."""

    PREPARE = "prepare"
    """XA, CanCommit: vote Yes (DONE), READ_ONLY or No (REFUSED)."""
    COMMIT = "commit"
    """XA, DoCommit of a prepared branch."""
    ROLL_BACK = "roll back"
    """XA, DoAbort of a branch, prepared or not. A last resource that has committed answers REFUSED."""
    COMMIT_ONE_PHASE = "commit one phase"
    """XA: commit without prepare, of a branch that is alone, or of the last resource."""
    TRY = "try"
    CONFIRM = "confirm"
    CANCEL = "cancel"
    DO = "do"
    """SAGA: the work of a step."""
    UNDO = "undo"
    """SAGA: the compensation of a step."""
    CAN_COMMIT = "CanCommit"
    PRE_COMMIT = "PreCommit"
    DO_COMMIT = "DoCommit"
    DO_ABORT = "DoAbort"


class BranchVerdict(Enum):
    """What came of a call of a participant."""

    DONE = "done"
    """It is done, now or before: Yes, HaveCommitted."""
    READ_ONLY = "read-only"
    """A vote: the branch has written nothing, and its outcome does not matter."""
    REFUSED = "refused"
    """No: for a reason of the business, finally. Nothing was done."""
    LATER = "later"
    """Ask again; it does not count as a failure."""
    FAILED = "failed"
    """Anything else: it may have been done or not."""
    PARK = "park"
    """No retry can help: an operator must look."""


class GlobalOutcome(StrEnum):
    """How a global transaction has ended, as far as a machine can say."""

    COMMITTED = "committed"
    """XA and 3PC: committed; TCC: confirmed; SAGA: all steps done."""
    ABORTED = "aborted"
    """XA and 3PC: rolled back; TCC: cancelled; SAGA: compensated."""
    PARKED = "parked"
    """An operator is needed."""
    IN_DOUBT = "in doubt"
    """The decision could not be asked for: recovery finds it later."""


class RecordEvent(StrEnum):
    """What machines write as `GlobalRecord.event`, and read when they are resumed."""

    REGISTERED = "registered"
    """TCC: a branch was added, before its Try; `data` is that of the Try."""
    CONFIRMED = "confirmed"
    CANCELLED = "cancelled"
    DONE = "done"
    """SAGA: a step, with its result as `data`."""
    REFUSED = "refused"
    """SAGA: a step to which its participant has said No, with the reason."""
    FAILED = "failed"
    """SAGA: a step that was given up; it may be done or not."""
    BEGUN = "begun"
    """SAGA: the pivot, before it is called."""
    UNDONE = "undone"
    """SAGA: a step was compensated."""
    PRE_COMMIT = "precommit"
    """3PC: all voted Yes."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    PARKED = "parked"
    """A branch needs an operator, with the reason."""
    SPLIT = "split"
    """3PC: a participant had decided otherwise by itself."""
    RESOLVED_DONE = "resolved-done"
    """Written by the broker: an operator has done by hand what this branch needed."""


# actions


@dataclass(frozen=True, slots=True)
class Keep:
    """Action: store records, and with them the state, in the journal. It has no event: see the module."""

    records: tuple[GlobalRecord, ...] = ()
    state: GlobalState | None = None
    """PARKED or ENDED; None: as it is."""
    outcome: str = ""
    error: str = ""
    next_try_s: float = 0.0
    """How long from now no other client should claim the transaction."""


@dataclass(frozen=True, slots=True)
class Decide:
    """Action: have the journal decide. Answered by Decided, with what counts, or DecisionUnknown."""

    decision: GlobalDecision
    branches: tuple[str, ...] = ()
    """The participants that must carry it out."""


@dataclass(frozen=True, slots=True)
class CallBranch:
    """Action: call a participant. Answered by BranchAnswered, always. A branch has one call at a time."""

    branch: str
    phase: Phase
    data: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Action: start a timer. Answered by Due."""

    seconds: float
    of: str
    """The branch that waits, or DEADLINE."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Action: the last one. The machine has nothing more to do in this process."""

    outcome: GlobalOutcome
    error: str = ""
    """Why it was aborted, is parked, or is in doubt."""


MachineAction = Keep | Decide | CallBranch | Wait | Finish


# events


@dataclass(frozen=True, slots=True)
class Decided:
    """Event: the decision that counts, which any client may have made."""

    decision: GlobalDecision
    by: str = ""


@dataclass(frozen=True, slots=True)
class DecisionUnknown:
    """Event: the journal could not be asked; it may have decided."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class BranchAnswered:
    """Event: what came of a CallBranch."""

    branch: str
    phase: Phase
    verdict: BranchVerdict
    data: str = ""
    """The result of a step or a Try."""
    reason: str = ""
    after_s: float | None = None
    """LATER: when to ask again; None: when the retry policy says."""


@dataclass(frozen=True, slots=True)
class Due:
    """Event: a timer has ended."""

    of: str


@dataclass(frozen=True, slots=True)
class BranchRegistered:
    """Event: the user adds a branch to a transaction that is open, with the data of its Try."""

    branch: str
    data: str = ""


@dataclass(frozen=True, slots=True)
class BlockLeft:
    """Event: the user's block has ended; well (`commit`), or by an exception."""

    commit: bool
    reason: str = ""


MachineEvent = Decided | DecisionUnknown | BranchAnswered | Due | BranchRegistered | BlockLeft


class Machine(Protocol):
    """Interface of the state machine of one global transaction, as its driver sees it."""

    kind: GlobalKind

    def begin(self) -> list[MachineAction]:
        """Returns the first actions: of a new transaction, or of one resumed from the journal."""
        ...

    def step(self, event: MachineEvent) -> list[MachineAction]:
        """Returns what is to be done next. Raises AssertionError for an event that cannot come now."""
        ...


def impossible(state: object, event: object) -> NoReturn:
    """Raises AssertionError: this event cannot come in this state."""
    raise AssertionError(f"{event} cannot come in state {state}")
