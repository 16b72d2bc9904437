"""Requests about global transactions (9731 to 9736), Turbopump's own."""

from turbopump.protocol.headers.base import I32, I64, Header


class GlobalOpenRequest(Header):
    """Request 9731: open a global transaction, with its plan in the body; the answer has its state.

    The same gid with the same kind and plan is opened once: the answer then has the state that it is in.
    """

    gid: str
    group: str
    kind: str
    owner: str
    leaseMs: I64
    deadlineMs: I64 = 0


class GlobalAppendRequest(Header):
    """Request 9732: add the records in the body to a transaction, and renew the lease. No answer body.

    Refused unless `lease` is the current one and `length` the number of records there are. The same request
    again is answered as before.
    """

    gid: str
    group: str
    lease: I64
    length: I32
    leaseMs: I64
    state: str = ""
    """parked, ended, or empty: open or decided, as it is."""
    outcome: str = ""
    nextTryMs: I64 = 0
    error: str = ""


class GlobalDecideRequest(Header):
    """Request 9733: decide a transaction, which need not be open here; the answer has its state.

    The first decision counts. Past the deadline of the transaction, or of this request, only an abort does.
    `branches` and `brokers` are lists with commas.
    """

    gid: str
    group: str
    kind: str
    decision: str
    owner: str
    leaseMs: I64
    deadlineMs: I64 = 0
    branches: str = ""
    brokers: str = ""


class GlobalClaimRequest(Header):
    """Request 9734: take over transactions of a group that have no owner now; the answer lists them.

    Each gets a new lease, with which its former owner is refused.
    """

    group: str
    owner: str
    leaseMs: I64
    count: I32 = 16


class GlobalReadRequest(Header):
    """Request 9735: read one transaction, or a page of those after `after` by gid, without plans and records.

    Empty fields select all; `beforeMs`: opened before this time.
    """

    gid: str = ""
    group: str = ""
    kind: str = ""
    state: str = ""
    beforeMs: I64 = 0
    after: str = ""
    count: I32 = 1000


class GlobalResolveRequest(Header):
    """Request 9736: an operator has a parked transaction tried again, decides one, or ends a branch by hand.

    `action`: retry, commit, abort or done; done names the branch. What contradicts the decision is refused
    unless `heuristic`.
    """

    gid: str
    group: str
    action: str
    who: str
    because: str
    branch: str = ""
    heuristic: bool = False
