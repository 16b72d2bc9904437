"""What happened in a simulated cluster, as values that the checker reads: operations, faults, and the end.

Times are seconds of virtual time. A broker name is a `pair` here: a master and its slaves, which share one
log. Log offsets are those of the pair; `Cut` says from where on they were given a second time.
"""

from dataclasses import dataclass, field
from enum import Enum

CONSUMERS = "CG"
MAX_LINES = 40  # of a transcript that is printed


class Kind(Enum):
    """What a sender asked for."""

    PLAIN = "plain"
    DELAYED = "delayed"
    HALF = "half"
    TIMED = "timed"
    """With a time of its own, kept by the wheel of timers."""


class Lost(Enum):
    """How a broker lost a part of its log."""

    MACHINE = "its machine crashed"
    DISK = "its disk is gone"
    LEFT = "it was left behind by a promotion, or was cut"


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was answered as stored: its receipt, and what the disks held when it arrived."""

    begin: float
    at: float
    pair: str
    node: str
    name: str
    kind: Kind
    queue_id: int
    queue_offset: int
    offset: int
    end: int
    code: int
    durability: str
    replicas: int
    on_disk: int
    holders: int
    """Brokers whose files had the record when the receipt arrived."""
    delay_s: float = 0.0
    due_ms: int = 0
    """The time that a timed message asked for, by the clock of the broker that delivers it; 0: a delay."""


@dataclass(frozen=True, slots=True)
class Found:
    """One message of a pull, at its queue offset and its log offset."""

    queue_offset: int
    offset: int
    name: str


@dataclass(frozen=True, slots=True)
class Pulled:
    """Messages that a reader got from a master, or from a slave."""

    at: float
    pair: str
    queue_id: int
    found: tuple[Found, ...]
    group: str = CONSUMERS
    is_of_slave: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """A reader that was sent to another offset of a queue."""

    at: float
    pair: str
    queue_id: int
    before: int
    after: int
    group: str = CONSUMERS


@dataclass(frozen=True, slots=True)
class Strayed:
    """A reader that a server led on from `before` to `after` without all messages between them."""

    at: float
    pair: str
    node: str
    queue_id: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class SlaveCommitted:
    """An offset that a slave has acknowledged while its master was away."""

    at: float
    pair: str
    node: str
    queue_id: int
    offset: int
    last: int
    """Log offset of the message before it."""


@dataclass(frozen=True, slots=True)
class Died:
    """A broker that ended without warning: what it had not written yet is lost."""

    at: float
    pair: str
    node: str


@dataclass(frozen=True, slots=True)
class Wrote:
    """Rows that an attempt sends to the ledger. `end`: where the log ended after them; 0: no answer."""

    begin: float
    pair: str
    batch: int
    token: str
    names: tuple[str, ...]
    end: int


@dataclass(frozen=True, slots=True)
class Decided:
    """An answer about the winners of a batch. `end`: where the log ended then, behind the decision."""

    begin: float
    at: float
    pair: str
    batch: int
    tokens: tuple[str, ...]
    end: int


@dataclass(frozen=True, slots=True)
class Committed:
    """An offset that a master has acknowledged."""

    at: float
    pair: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class Made:
    """A topic that a master has acknowledged."""

    at: float
    pair: str
    topic: str
    queues: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a transaction that was asked for; `is_acknowledged`: the broker said yes."""

    begin: float
    pair: str
    name: str
    is_commit: bool
    is_acknowledged: bool


@dataclass(frozen=True, slots=True)
class Loss:
    """A broker whose log has nothing from `end` on any more, of what it had before `until`."""

    at: float
    pair: str
    node: str
    why: Lost
    end: int
    until: float = float("inf")


@dataclass(frozen=True, slots=True)
class Cut:
    """The pair goes on with another log: the same up to `end`; what was behind is not part of it any more.

    `adopted`: where the log of a promoted slave ended. It may have kept what an earlier cut took.
    """

    at: float
    pair: str
    end: int
    adopted: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """A message in the log of a pair: at the end, or in a file when it was deleted."""

    offset: int
    end: int
    topic: str
    queue_id: int
    queue_offset: int
    name: str
    stored_ms: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """A file of a broker's log that retention has deleted, and what was in it."""

    at: float
    pair: str
    node: str
    is_master: bool
    begin: int
    end: int
    log_end: int
    """Where the log ended then: what was rewritten before the deletion is below."""
    idle_ms: int
    """How long ago the file was last written, by the clock of the broker."""
    reserved_ms: int
    """How long the broker has to keep a file after that."""
    master_begin: int
    """Where the log of the pair's master began then."""
    records: tuple[Stored, ...] = ()


@dataclass(frozen=True, slots=True)
class BeganLate:
    """A slave that calls its copy complete, though its log begins behind that of the pair's master."""

    at: float
    pair: str
    node: str
    begin: int
    master_begin: int


@dataclass(frozen=True, slots=True)
class FirstRead:
    """A reader that began at offset 0: what it got first, and where the queue began before and after that."""

    at: float
    pair: str
    node: str
    queue_id: int
    low: int
    found: int
    high: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A request without an answer and with its connection, at a broker that lived all the time."""

    begin: float
    at: float
    pair: str
    what: str


@dataclass(frozen=True, slots=True)
class Muted:
    """Time in which clients and brokers of a pair may not hear each other: requests stay without answer."""

    begin: float
    until: float
    pair: str
    node: str = ""
    """The broker that is concerned; empty: all of them."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Time in which requests to a pair, and copies to its slaves, may be delayed or lost."""

    begin: float
    until: float
    pair: str


@dataclass(frozen=True, slots=True)
class Broken:
    """A guarantee that was seen to be broken on the way."""

    at: float
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The tables of a master when it has started, and where its queues end."""

    at: float
    pair: str
    offsets: dict[int, int]
    ends: dict[int, int]
    began_at: float = float("inf")
    """When its log was opened, if that is known: it answers readers before its start has ended."""


Event = (
    Sent
    | Pulled
    | Moved
    | Strayed
    | Committed
    | SlaveCommitted
    | Made
    | Ended
    | Wrote
    | Decided
    | Died
    | Deleted
    | BeganLate
    | FirstRead
    | Loss
    | Cut
    | Unanswered
    | Muted
    | Fault
    | Broken
    | Opened
)


@dataclass(slots=True)
class History:
    """All events in the order in which they became known, and lines for a reader."""

    events: list[Event] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def add(self, event: Event) -> None:
        self.events.append(event)

    def tell(self, at: float, line: str) -> None:
        self.lines.append(f"{at:9.3f}  {line}")

    @property
    def transcript(self) -> str:
        """The last lines."""
        left_out = len(self.lines) - MAX_LINES
        first = [f"... {left_out} lines before"] if left_out > 0 else []
        return "\n".join(first + self.lines[-MAX_LINES:])


@dataclass(frozen=True, slots=True)
class SlaveEnd:
    """A slave at the end: how much of its log equals the master's."""

    node: str
    state: str
    end: int
    equal: int
    begin: int = 0
    """Where its log begins."""


@dataclass(frozen=True, slots=True)
class PairEnd:
    """A pair at the end, when all faults are over and all delays have passed."""

    pair: str
    log: tuple[Stored, ...]
    log_end: int
    readable: dict[int, tuple[str, ...]]
    """By queue, the messages that the master serves, from the first offset on."""
    offsets: dict[int, int]
    """By queue, what is committed at the master."""
    topics: dict[str, int]
    """Topics of the master, and how many queues they have."""
    slaves: tuple[SlaveEnd, ...]
    slave_group: dict[int, int] = field(default_factory=dict)
    """By queue, what the master has of the group that commits at slaves only."""
    winners: dict[int, tuple[str, ...]] | None = None
    """By batch, the tokens that the ledger has chosen; None: no ledger was used, or nobody answered."""
    clock_jumps_ms: int = 0
    """Sum of all jumps of the clocks of its brokers."""
    log_begin: int = 0
    """Where the log begins: what was before it was deleted by retention."""
    is_group: bool = False
    """Whether a majority of a DLedger group commits: then nothing that was acknowledged is ever lost."""
    rewrites: bool = False
    """Whether messages that wait may have been written again although their file was not deleted after it."""
