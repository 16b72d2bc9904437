"""What the members of a group say to one another: votes, heartbeats, pushes, transfers, and the answers.

The values are DLedger's, its JSON is written and read elsewhere. A node that sends a push knows only indexes
(`PushOrder`); the driver reads the entries from the log. A node that receives one sees the entries' heads and
hands their bodies on (`Push`).
"""

from enum import IntEnum, StrEnum

import msgspec

MemberId = str
"""A member's id in its group, such as `n0`."""

NO_INDEX = -1
"""The end of an empty log, and the commit index before the first commit."""
NO_TERM = -1
"""The last term of an empty log, and the term of a vote request that only asks for a term."""


class RaftCode(IntEnum):
    """The result of a heartbeat, a push or a transfer: DLedger's numbers."""

    SUCCESS = 200
    UNKNOWN_MEMBER = 401
    UNEXPECTED_MEMBER = 402
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    NOT_FOLLOWER = 405
    INCONSISTENT_STATE = 406
    INCONSISTENT_TERM = 407
    INCONSISTENT_LEADER = 409
    UNEXPECTED_ARGUMENT = 411
    REPEATED_PUSH = 413
    TERM_NOT_READY = 416
    FALL_BEHIND_TOO_MUCH = 417
    TAKE_LEADERSHIP_FAILED = 418
    LEADER_TRANSFERRING = 506


class VoteResult(StrEnum):
    """What a member answers to a candidate: DLedger's words."""

    ACCEPT = "ACCEPT"
    REJECT_UNKNOWN_LEADER = "REJECT_UNKNOWN_LEADER"
    REJECT_UNEXPECTED_LEADER = "REJECT_UNEXPECTED_LEADER"
    REJECT_EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"
    REJECT_ALREADY_VOTED = "REJECT_ALREADY_VOTED"
    REJECT_ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"
    REJECT_TERM_NOT_READY = "REJECT_TERM_NOT_READY"
    REJECT_TERM_SMALL_THAN_LEDGER = "REJECT_TERM_SMALL_THAN_LEDGER"
    REJECT_EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"
    REJECT_SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"
    REJECT_TAKING_LEADERSHIP = "REJECT_TAKING_LEADERSHIP"
    UNKNOWN = "UNKNOWN"


class PushKind(StrEnum):
    """What a push asks of a follower."""

    COMPARE = "COMPARE"
    TRUNCATE = "TRUNCATE"
    APPEND = "APPEND"
    COMMIT = "COMMIT"


class PushedEntry(msgspec.Struct, frozen=True):
    """An entry of the log as it is pushed: fields of its header, and a body that no node looks at."""

    index: int
    term: int
    pos: int
    """Absolute byte offset of the entry in the data files."""
    size: int
    """Bytes of header and body."""
    channel: int = 0
    body: object = None


class VoteRequest(msgspec.Struct, frozen=True):
    """A candidate asks for a vote; with term -1 (`NO_TERM`) it asks for the term, and is never granted."""

    term: int
    end_index: int
    end_term: int
    round: int = 0
    """Which round of the sender this is; not on the wire."""


class VoteAnswer(msgspec.Struct, frozen=True):
    """The answer of a member to a candidate, with its own term."""

    term: int
    result: VoteResult


class Heartbeat(msgspec.Struct, frozen=True):
    """The leader of `term` is alive."""

    term: int


class HeartbeatAnswer(msgspec.Struct, frozen=True):
    """The answer to a heartbeat; the term is -1 unless the code says that the leader's has expired."""

    code: RaftCode
    term: int = NO_TERM


class PushOrder(msgspec.Struct, frozen=True):
    """A push that a leader sends: which entries of its log, to be read by the driver.

    A COMMIT has no entries (`first_index` and `last_index` are -1), COMPARE and TRUNCATE have one.
    """

    kind: PushKind
    term: int
    first_index: int
    last_index: int
    commit_index: int
    attempt: int = 0
    """Which comparison of logs it belongs to; not on the wire."""


class Push(msgspec.Struct, frozen=True):
    """A push that a member receives."""

    kind: PushKind
    term: int
    entries: tuple[PushedEntry, ...]
    commit_index: int


class PushAnswer(msgspec.Struct, frozen=True):
    """The answer to a push, with the bounds of the follower's log (-1 and -1 when it is empty)."""

    code: RaftCode
    term: int
    index: int
    """The first index of the push that it answers; -1 for a COMMIT."""
    count: int
    begin_index: int
    end_index: int


class TransferRequest(msgspec.Struct, frozen=True):
    """Asks `to_member` to take the leadership from `from_member`, when it has the log up to `take_index`.

    Sent by the leader to the member that shall lead. A tool may send it to the leader, whose answer is then
    that of the member.
    """

    term: int
    from_member: MemberId
    to_member: MemberId
    take_index: int


class TransferAnswer(msgspec.Struct, frozen=True):
    """The answer to a transfer: SUCCESS with the new term when the member leads."""

    code: RaftCode
    term: int


IncomingRequest = VoteRequest | Heartbeat | Push | TransferRequest
OutgoingRequest = VoteRequest | Heartbeat | PushOrder | TransferRequest
PeerAnswer = VoteAnswer | HeartbeatAnswer | PushAnswer | TransferAnswer
