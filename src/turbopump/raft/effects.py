"""What a node wants done: the result of `Node.step`.

A driver performs all effects of a step, in their order, before the next step. Effects behind a `Save` are
performed only when it is on disk. What a crash prevents has not happened: the node is started again from what
is on disk.
"""

from enum import StrEnum

import msgspec

from turbopump.raft.events import RequestId
from turbopump.raft.messages import MemberId, OutgoingRequest, PeerAnswer, PushedEntry


class Role(StrEnum):
    """What a member does in its group."""

    CANDIDATE = "candidate"
    FOLLOWER = "follower"
    LEADER = "leader"


class Save(msgspec.Struct, frozen=True):
    """Put the term and the vote (None: not voted in it) on disk, replacing what was there."""

    term: int
    voted_for: MemberId | None
    joined: bool = True
    """False: this node's disk was empty and it may not vote yet. Given back as `SavedState.joined`."""


class Truncate(msgspec.Struct, frozen=True):
    """Remove all entries above `after_index`, on disk too: they must not come back after a crash.

    With a `replacement`, whose index is `after_index` + 1, the whole log is dropped and begins with it;
    that entry too is reported by `Synced`.
    """

    after_index: int
    replacement: PushedEntry | None = None


class AppendEntries(msgspec.Struct, frozen=True):
    """Append entries of the leader to the own log, at its end; report them by `Synced` when they are safe."""

    entries: tuple[PushedEntry, ...]


class AppendNoOp(msgspec.Struct, frozen=True):
    """Append one record of no consequence in this term, and report it by `Appended`.

    Entries of earlier terms are committed by an entry of the leader's own term only.
    """

    term: int


class Send(msgspec.Struct, frozen=True):
    """Send a request to a peer. Its answer, if there is one, is an `Answered` with this request."""

    to: MemberId
    request: OutgoingRequest


class Respond(msgspec.Struct, frozen=True):
    """Answer the request with this id."""

    request_id: RequestId
    answer: PeerAnswer


class RoleChanged(msgspec.Struct, frozen=True):
    """The node's role, term or leader is another one.

    A driver whose node does not lead any longer answers its pending appends.
    """

    role: Role
    term: int
    leader: MemberId | None


class Commit(msgspec.Struct, frozen=True):
    """Everything up to `index` is committed: it will never be cut off, and may be read."""

    index: int


Effect = Save | Truncate | AppendEntries | AppendNoOp | Send | Respond | RoleChanged | Commit
