"""What happens to a node: the argument of `Node.step`."""

import msgspec

from turbopump.raft.messages import IncomingRequest, MemberId, OutgoingRequest, PeerAnswer

RequestId = int
"""The driver's name for a request that waits for its answer."""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed: due at `Node.deadline_ms`, harmless at any other time."""


class Received(msgspec.Struct, frozen=True):
    """A request of another member (or of a tool, for a transfer), to be answered by a `Respond` with its id.

    A request that was on its way when a node stopped never reaches the node that is started again: its
    connection ended with the process. A request may be delayed, repeated and overtaken otherwise.
    """

    request_id: RequestId
    sender: MemberId
    request: IncomingRequest


class Answered(msgspec.Struct, frozen=True):
    """An answer to a request that this node sent since it was started, together with that request."""

    sender: MemberId
    request: OutgoingRequest
    answer: PeerAnswer


class PeerUnreachable(msgspec.Struct, frozen=True):
    """A connection was lost or refused: requests to this peer that are not answered may never be."""

    peer: MemberId


class PeerTakesBatches(msgspec.Struct, frozen=True):
    """The peer is known to take several entries in one push, or no longer (it was replaced)."""

    peer: MemberId
    takes: bool = True


class Appended(msgspec.Struct, frozen=True):
    """The leader's own log reaches `end_index` now, with entries of the present term.

    Only a leader appends, and only in the step between its own effects and the next event, so that an entry
    never has a term in which this node does not lead.
    """

    end_index: int


class Synced(msgspec.Struct, frozen=True):
    """The own log is safe up to `index`: reported after every append, at once or after the flush."""

    index: int


class Transfer(msgspec.Struct, frozen=True):
    """An operator wants another member to lead. Without a request id no request waits for the outcome."""

    to_member: MemberId
    request_id: RequestId | None = None


class Eligible(msgspec.Struct, frozen=True):
    """Whether this node may lead: one that cannot serve follows and votes, but neither stands nor takes over.

    A leader is not ended by it; its driver gives the leadership away.
    """

    is_eligible: bool


Event = (
    Tick | Received | Answered | PeerUnreachable | PeerTakesBatches | Appended | Synced | Transfer | Eligible
)
