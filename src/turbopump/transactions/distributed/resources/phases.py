"""The interface between a resource and the XA of its kind of database."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from turbopump.transactions.distributed.gids import Xid
from turbopump.transactions.distributed.resources.session import Session
from turbopump.transactions.distributed.resources.values import BranchVote, PreparedBranch


class BranchEnd(Enum):
    """What a database answered to the end of a prepared branch."""

    DONE = "done"
    GONE = "gone"
    """It has no such branch: ended before, or never prepared."""
    EMPTY = "empty"
    """It had rolled the branch back by itself: a branch without changes, whose connection was closed."""


@dataclass(frozen=True, slots=True)
class BranchMark:
    """What is noted at the begin of a branch, to be compared at its end."""

    transaction: str = ""
    """Which transaction it is."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """What the connection had done before."""


class XaDialect(Protocol):
    """Interface to XA in one kind of database: statements on a session."""

    async def begin(self, session: Session, xid: Xid, lock_timeout_s: float | None) -> BranchMark: ...

    async def vote(self, session: Session, xid: Xid, mark: BranchMark) -> BranchVote:
        """Returns the vote before anything is prepared. Raises Declined where a statement has failed."""
        ...

    async def prepare(self, session: Session, xid: Xid) -> None:
        """Prepares. Raises Declined if the database has rolled back instead."""
        ...

    async def commit_one_phase(self, session: Session, xid: Xid) -> None:
        """Commits without prepare. Raises Declined if it was certainly rolled back."""
        ...

    async def roll_back_active(self, session: Session, xid: Xid) -> None:
        """Rolls back a branch that is not prepared, on its own connection."""
        ...

    async def end_prepared(self, session: Session, xid: Xid, is_commit: bool) -> BranchEnd:
        """Ends a prepared branch. Raises Later while the database cannot do that yet."""
        ...

    async def prepared(self, session: Session) -> list[PreparedBranch]:
        """Returns the prepared branches that carry our format id."""
        ...
