"""What a node wants done: the result of `Node.step`.

A driver performs all effects of a step, in their order, before the next step. Effects behind a `Save` are
performed only when it is on disk. What a crash prevents has not happened: the node is started again from what
is on disk.
"""

from dataclasses import dataclass
from enum import StrEnum

from turbopump.raft.events import RequestId
from turbopump.raft.messages import MemberId, OutgoingRequest, PeerAnswer, PushedEntry


class Role(StrEnum):
    """What a member does in its group."""

    CANDIDATE = "candidate"
    FOLLOWER = "follower"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class Save:
    """Put the term and the vote (None: not voted in it) on disk, replacing what was there."""

    term: int
    voted_for: MemberId | None
    joined: bool = True
    """False: this node's disk was empty and it may not vote yet. Given back as `SavedState.joined`."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Remove all entries above `after_index`, on disk too: they must not come back after a crash.

    With a `replacement`, whose index is `after_index` + 1, the whole log is dropped and begins with it;
    that entry too is reported by `Synced`.
    """

    after_index: int
    replacement: PushedEntry | None = None


@dataclass(frozen=True, slots=True)
class AppendEntries:
    """Append entries of the leader to the own log, at its end; report them by `Synced` when they are safe."""

    entries: tuple[PushedEntry, ...]


@dataclass(frozen=True, slots=True)
class AppendNoOp:
    """Append one record of no consequence in this term, and report it by `Appended`.

    Entries of earlier terms are committed by an entry of the leader's own term only.
    """

    term: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request to a peer. Its answer, if there is one, is an `Answered` with this request."""

    to: MemberId
    request: OutgoingRequest


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer the request with this id."""

    request_id: RequestId
    answer: PeerAnswer


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """The node's role, term or leader is another one.

    A driver whose node does not lead any longer answers its pending appends.
    """

    role: Role
    term: int
    leader: MemberId | None


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything up to `index` is committed: it will never be cut off, and may be read."""

    index: int


Effect = Save | Truncate | AppendEntries | AppendNoOp | Send | Respond | RoleChanged | Commit
