"""What happened in a simulated group, in order: what the checker judges, and what a transcript shows.

Times are milliseconds of virtual time. Messages are kept only for a transcript: a failing seed is run again.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from turbopump.raft.effects import Role
from turbopump.raft.messages import MemberId, Push, PushedEntry, PushOrder
from turbopump.raft.pending_appends import AppendOutcome


class Stop(StrEnum):
    """How a member stopped."""

    KILL = "process killed"
    POWER_CUT = "power cut"
    DISK_LOST = "disk replaced"


class Started(NamedTuple):
    """A member was started, with what it found on its disk."""

    at: float
    member: MemberId
    term: int
    committed_index: int
    joined: bool
    entries: tuple[PushedEntry, ...] = ()
    """The log, as it was found."""

    def __str__(self) -> str:
        return f"{self.member} starts, term {self.term}, commit {self.committed_index}, joined {self.joined}"


class Stopped(NamedTuple):
    """A member stopped; its log reaches `end_index` still."""

    at: float
    member: MemberId
    how: Stop
    end_index: int

    def __str__(self) -> str:
        return f"{self.member} stops: {self.how}, its log ends at {self.end_index}"


class Wrote(NamedTuple):
    """Entries were written at the end of a member's log."""

    at: float
    member: MemberId
    entries: tuple[PushedEntry, ...]

    def __str__(self) -> str:
        return f"{self.member} appends {_entries(self.entries)}"


class Truncated(NamedTuple):
    """A member removed the entries above `after_index`, or its whole log, which begins with `replacement`."""

    at: float
    member: MemberId
    after_index: int
    replacement: PushedEntry | None

    def __str__(self) -> str:
        if self.replacement is not None:
            return f"{self.member} drops its log, begins with {_entries((self.replacement,))}"
        return f"{self.member} truncates after {self.after_index}"


class Expired(NamedTuple):
    """Old committed entries were deleted: the log begins with `begin_index` now."""

    at: float
    member: MemberId
    begin_index: int

    def __str__(self) -> str:
        return f"{self.member} deletes the entries before {self.begin_index}"


class Flushed(NamedTuple):
    """A member's log is safe from power cuts up to `index`."""

    at: float
    member: MemberId
    index: int

    def __str__(self) -> str:
        return f"{self.member} has flushed up to {self.index}"


class Saved(NamedTuple):
    """Term and vote are on the member's disk."""

    at: float
    member: MemberId
    term: int
    voted_for: MemberId | None
    joined: bool

    def __str__(self) -> str:
        return f"{self.member} saved term {self.term}, vote {self.voted_for}, joined {self.joined}"


class Spoke(NamedTuple):
    """A member sent or answered something in a term; noted once for each term."""

    at: float
    member: MemberId
    term: int

    def __str__(self) -> str:
        return f"{self.member} speaks in term {self.term}"


class Granted(NamedTuple):
    """A member gave a candidate its vote."""

    at: float
    member: MemberId
    term: int
    candidate: MemberId

    def __str__(self) -> str:
        return f"{self.member} votes for {self.candidate} in term {self.term}"


class RoleTaken(NamedTuple):
    """A member has another role, term or leader."""

    at: float
    member: MemberId
    role: Role
    term: int
    leader: MemberId | None

    def __str__(self) -> str:
        return f"{self.member} is {self.role} in term {self.term}, leader {self.leader}"


class Committed(NamedTuple):
    """A member says that everything up to `index` is committed."""

    at: float
    member: MemberId
    term: int
    index: int
    leads: bool

    def __str__(self) -> str:
        return f"{self.member} commits up to {self.index} in term {self.term}{', as leader' * self.leads}"


class Accepted(NamedTuple):
    """A leader took a client's append, to be answered before `deadline`."""

    at: float
    member: MemberId
    name: str
    term: int
    index: int
    deadline: float

    def __str__(self) -> str:
        return f"{self.member} takes append {self.name} as {self.index}@{self.term}"


class Outcome(NamedTuple):
    """The answer to a client's append."""

    at: float
    member: MemberId
    name: str
    outcome: AppendOutcome

    def __str__(self) -> str:
        return f"{self.member} answers append {self.name}: {self.outcome}"


class DeadlinesPassed(NamedTuple):
    """A member has answered all appends whose deadline was not later than `until`."""

    at: float
    member: MemberId
    until: float

    def __str__(self) -> str:
        return f"{self.member} has answered the appends that were due"


class Requested(NamedTuple):
    """A member received a request that it has to answer."""

    at: float
    member: MemberId
    request_id: int
    sender: MemberId
    request: Any

    def __str__(self) -> str:
        return f"{self.member} ← {self.sender} [{self.request_id}] {describe(self.request)}"


class Responded(NamedTuple):
    """A member answered a request."""

    at: float
    member: MemberId
    request_id: int
    answer: Any

    def __str__(self) -> str:
        return f"{self.member} answers [{self.request_id}] {describe(self.answer)}"


class Alone(NamedTuple):
    """A leader has had no answer of a majority for too long, by its own clock, and leads still."""

    at: float
    member: MemberId
    term: int
    silent_ms: int

    def __str__(self) -> str:
        return f"{self.member} leads in term {self.term}, {self.silent_ms} ms without a majority"


class Stuck(NamedTuple):
    """Within the bound after the last fault, something has not come about."""

    at: float
    what: str

    def __str__(self) -> str:
        return self.what


class Ended(NamedTuple):
    """The run ended, a while after the last append and fault: all that was asked before has its answer."""

    at: float

    def __str__(self) -> str:
        return "the end"


class Note(NamedTuple):
    """A fault, or a message on its way: for the transcript alone."""

    at: float
    text: str

    def __str__(self) -> str:
        return self.text


Occurrence = (
    Started
    | Stopped
    | Wrote
    | Truncated
    | Expired
    | Flushed
    | Saved
    | Spoke
    | Granted
    | RoleTaken
    | Committed
    | Accepted
    | Outcome
    | DeadlinesPassed
    | Requested
    | Responded
    | Alone
    | Stuck
    | Ended
    | Note
)


class History(NamedTuple):
    """All that happened in a group."""

    members: tuple[MemberId, ...]
    has_power_cuts: bool
    """Only what was flushed counts as safe; otherwise all that was written does."""
    occurrences: list[Occurrence]


def describe(message: Any) -> str:
    """Returns a message in one short line."""
    name = type(message).__name__
    if isinstance(message, Push):
        return f"{message.kind} {_entries(message.entries)} term {message.term} commit {message.commit_index}"
    if isinstance(message, PushOrder):
        span = f"{message.first_index}..{message.last_index}"
        return f"{message.kind} {span} term {message.term} commit {message.commit_index}"
    fields = " ".join(f"{slot}={_value(getattr(message, slot))}" for slot in message.__slots__)
    return f"{name} {fields}"


def _value(value: Any) -> str:
    return value.name if hasattr(value, "name") else str(value)


def _entries(entries: tuple[PushedEntry, ...]) -> str:
    return " ".join(f"{one.index}@{one.term}:{one.body}" for one in entries) or "nothing"
