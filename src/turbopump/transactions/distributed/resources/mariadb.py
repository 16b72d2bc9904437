"""What XA is in MariaDB and MySQL: XA START, END, PREPARE, COMMIT, ROLLBACK and RECOVER.

While the connection that prepared a branch is open, MariaDB tells every other one that it does not know the
branch (1397), as it does of an ended one: only XA RECOVER tells them apart. A failed statement undoes itself
alone, and the rest of the branch could still be committed: the counters of the session tell.
"""

from turbopump.transactions.database.faults import number_of
from turbopump.transactions.distributed.gids import Xid
from turbopump.transactions.distributed.resources.phases import BranchEnd, BranchMark
from turbopump.transactions.distributed.resources.session import Session
from turbopump.transactions.distributed.resources.values import (
    BranchVote,
    PreparedBranch,
    mariadb_literal,
    read_mariadb,
)
from turbopump.transactions.errors import Declined, Later

XAER_NOTA = 1397
XAER_RMFAIL = 1399
XA_RBROLLBACK = 1402
_OF_THE_CLIENT = 2000
"""Numbers from here on are of the client: the server did not answer."""

_COUNTERS = "('Handler_write', 'Handler_update', 'Handler_delete', 'Handler_rollback')"
FAILED = "a statement failed in this branch: what it had done before must not be committed alone"


class MariaXa:
    """The statements of a branch in MariaDB or MySQL."""

    async def begin(self, session: Session, xid: Xid, lock_timeout_s: float | None) -> BranchMark:
        if lock_timeout_s is not None:
            await session.set_lock_timeout(max(1, int(lock_timeout_s)))
        await session.execute(f"XA START {mariadb_literal(xid)}")
        return BranchMark(counters=await _counters(session))

    async def vote(self, session: Session, xid: Xid, mark: BranchMark) -> BranchVote:
        now = await _counters(session)
        done = {name: count - mark.counters.get(name, 0) for name, count in now.items()}
        if done.pop("handler_rollback", 0):
            raise Declined(FAILED)
        await session.execute(f"XA END {mariadb_literal(xid)}")
        return BranchVote.YES if any(done.values()) else BranchVote.READ_ONLY

    async def prepare(self, session: Session, xid: Xid) -> None:
        await session.execute(f"XA PREPARE {mariadb_literal(xid)}")

    async def commit_one_phase(self, session: Session, xid: Xid) -> None:
        try:
            await session.execute(f"XA COMMIT {mariadb_literal(xid)} ONE PHASE")
        except Exception as error:
            if 0 < number_of(error) < _OF_THE_CLIENT:
                raise Declined(f"MariaDB refused to commit: {error}") from error
            raise

    async def roll_back_active(self, session: Session, xid: Xid) -> None:
        try:
            await session.execute(f"XA END {mariadb_literal(xid)}")
        except Exception as error:
            if number_of(error) != XAER_RMFAIL and not number_of(error) >= XA_RBROLLBACK:
                raise
        await session.execute(f"XA ROLLBACK {mariadb_literal(xid)}")

    async def end_prepared(self, session: Session, xid: Xid, is_commit: bool) -> BranchEnd:
        verb = "COMMIT" if is_commit else "ROLLBACK"
        try:
            await session.execute(f"XA {verb} {mariadb_literal(xid)}")
        except Exception as error:
            if number_of(error) == XA_RBROLLBACK:
                return BranchEnd.EMPTY
            if number_of(error) != XAER_NOTA:
                raise
            if xid in [one.xid for one in await self.prepared(session)]:
                raise Later(
                    f"branch {xid.branch} of {xid.gid} is held by a live connection: MariaDB ends it only "
                    "when the connection that prepared it is closed"
                ) from error
            return BranchEnd.GONE
        return BranchEnd.DONE

    async def prepared(self, session: Session) -> list[PreparedBranch]:
        answer = await session.execute("XA RECOVER")
        found = [read_mariadb(*row) for row in answer.rows]
        return [PreparedBranch(xid, None) for xid in found if xid is not None]


async def _counters(session: Session) -> dict[str, int]:
    answer = await session.execute(f"SHOW SESSION STATUS WHERE Variable_name IN {_COUNTERS}")
    return {name.lower(): int(value) for name, value in answer.rows}
