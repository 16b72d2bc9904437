"""The exceptions of transactions, and what participants raise to answer a coordinator.

What a participant raises: `Declined` (a no of the business, final), `Later` (ask again), anything else (a
fault, tried again). What a caller gets: `Aborted` (nothing was done), `InDoubt` (not known yet), `Parked`
(an operator is needed).
"""

from turbopump.client.errors import ClientError

__all__ = [
    "Aborted",
    "Contradicted",
    "Declined",
    "FenceRefused",
    "InDoubt",
    "Later",
    "NotTried",
    "Parked",
    "WorkUndone",
]


class WorkUndone(ClientError, RuntimeError):
    """Raised when the transaction was rolled back inside a block that ended without an error."""


class Declined(ClientError):
    """A participant declines for a reason of the business, such as too little money: no retry helps.

    Raise it in the work of a Try or of a step; the global transaction is then aborted. In a Confirm, a Cancel
    or a compensation it is a fault: those must be possible once the Try is done.
    """


class FenceRefused(Declined):
    """The fence refuses a Try, a step or local work that comes after the branch was cancelled.

    Nothing was done, and never will be.
    """

    def __init__(self, gid: str, branch: str) -> None:
        super().__init__(
            f"branch {branch} of transaction {gid} was cancelled before this came: it is too late"
        )
        self.gid = gid
        self.branch = branch

    def __reduce__(self) -> tuple[type["FenceRefused"], tuple[str, str]]:
        return FenceRefused, (self.gid, self.branch)


class Later(ClientError):
    """A participant has no answer yet: ask again after `seconds`, without counting it as a failure."""

    def __init__(self, reason: str = "", seconds: float | None = None) -> None:
        super().__init__(reason or "there is no answer yet: ask again later")
        self.seconds = seconds
        """None: when the retry policy says."""


class NotTried(ClientError, RuntimeError):
    """A Confirm came to a branch whose Try was not done, or was cancelled: a fault of the coordinator."""

    def __init__(self, gid: str, branch: str, reason: str) -> None:
        super().__init__(f"branch {branch} of transaction {gid} cannot be confirmed: {reason}")
        self.gid = gid
        self.branch = branch
        self.reason = reason

    def __reduce__(self) -> tuple[type["NotTried"], tuple[str, str, str]]:
        return NotTried, (self.gid, self.branch, self.reason)


class Contradicted(ClientError, RuntimeError):
    """A Cancel came to a confirmed branch, a Confirm to a cancelled one, or calls of different kinds mix.

    The second one did nothing. Somebody has decided twice: an operator must look.
    """

    def __init__(self, gid: str, branch: str, asked: str, done: str) -> None:
        super().__init__(f"branch {branch} of transaction {gid}: {asked} came after {done}, and did nothing")
        self.gid = gid
        self.branch = branch
        self.asked = asked
        self.done = done

    def __reduce__(self) -> tuple[type["Contradicted"], tuple[str, str, str, str]]:
        return Contradicted, (self.gid, self.branch, self.asked, self.done)


class Aborted(ClientError):
    """A global transaction was aborted: nothing of it remains, or what was done is being undone."""

    def __init__(self, reason: str, gid: str = "") -> None:
        super().__init__(f"transaction {gid} was aborted: {reason}" if gid else f"aborted: {reason}")
        self.reason = reason
        self.gid = gid

    def __reduce__(self) -> tuple[type["Aborted"], tuple[str, str]]:
        return Aborted, (self.reason, self.gid)


class InDoubt(ClientError):
    """The outcome of a global transaction is not known here: it may be committed, or will be.

    Ask later by `gid`. Do not report a failure, and do not begin the same work again.
    """

    def __init__(self, gid: str) -> None:
        super().__init__(
            f"the outcome of transaction {gid} is not known yet: ask again later, and do not repeat its work"
        )
        self.gid = gid

    def __reduce__(self) -> tuple[type["InDoubt"], tuple[str]]:
        return InDoubt, (self.gid,)


class Parked(ClientError):
    """A global transaction cannot go on by itself: an operator must repair and retry it, or resolve it."""

    def __init__(self, gid: str, branch: str, reason: str) -> None:
        super().__init__(f"branch {branch} of transaction {gid} waits for an operator: {reason}")
        self.gid = gid
        self.branch = branch
        self.reason = reason

    def __reduce__(self) -> tuple[type["Parked"], tuple[str, str, str]]:
        return Parked, (self.gid, self.branch, self.reason)
