"""What XA is in PostgreSQL: PREPARE TRANSACTION, COMMIT PREPARED and ROLLBACK PREPARED.

PREPARE TRANSACTION in a failed transaction rolls back and raises nothing: only the command tag tells. A
prepared branch belongs to no connection any more; its end is asked for outside of a transaction. A branch
that was ended and one that never was are answered alike, by 42704.
"""

from turbopump.transactions.database.faults import state_of
from turbopump.transactions.distributed.gids import Xid
from turbopump.transactions.distributed.resources.phases import BranchEnd, BranchMark
from turbopump.transactions.distributed.resources.session import Session
from turbopump.transactions.distributed.resources.values import (
    BranchVote,
    PreparedBranch,
    postgresql_literal,
    read_postgresql,
)
from turbopump.transactions.errors import Declined, Later

UNDEFINED_OBJECT = "42704"
IN_FAILED_TRANSACTION = "25P02"
IS_BUSY = "55000"
"""Another connection is ending the same branch."""
_UNKNOWN_CLASSES = ("08", "57", "58", "XX", "40003")
"""Errors after which it is not known what became of a commit."""

FAILED = "a statement failed in this branch, so PostgreSQL keeps nothing of it"


class PostgresXa:
    """The statements of a branch in PostgreSQL."""

    async def begin(self, session: Session, xid: Xid, lock_timeout_s: float | None) -> BranchMark:
        """Begins the transaction, and notes by its time which one it is."""
        timeout = (
            "" if lock_timeout_s is None else f"set_config('lock_timeout', '{_ms(lock_timeout_s)}', true), "
        )
        answer = await session.begin(f"SELECT {timeout}CAST(now() AS text)")
        return BranchMark(transaction=answer.rows[0][-1])

    async def vote(self, session: Session, xid: Xid, mark: BranchMark) -> BranchVote:
        """Returns whether the branch has written something. Raises Declined if it cannot be committed."""
        try:
            answer = await session.execute("SELECT CAST(now() AS text), txid_current_if_assigned() IS NULL")
        except Exception as error:
            if state_of(error) == IN_FAILED_TRANSACTION:
                raise Declined(FAILED) from error
            raise
        ((transaction, is_read_only),) = answer.rows
        if transaction != mark.transaction:
            raise Declined("the transaction of this branch was ended inside of the block, by SQL")
        return BranchVote.READ_ONLY if is_read_only else BranchVote.YES

    async def prepare(self, session: Session, xid: Xid) -> None:
        answer = await session.execute(f"PREPARE TRANSACTION {postgresql_literal(xid)}")
        if answer.tag != "PREPARE TRANSACTION":
            raise Declined(FAILED)
        await session.set_autocommit()  # the end is asked for outside of a transaction

    async def commit_one_phase(self, session: Session, xid: Xid) -> None:
        try:
            answer = await session.execute("COMMIT")
        except Exception as error:
            if (state := state_of(error)) and not state.startswith(_UNKNOWN_CLASSES):
                raise Declined(f"PostgreSQL refused to commit: {error}") from error
            raise
        if answer.tag != "COMMIT":
            raise Declined(FAILED)

    async def roll_back_active(self, session: Session, xid: Xid) -> None:
        await session.execute("ROLLBACK")

    async def end_prepared(self, session: Session, xid: Xid, is_commit: bool) -> BranchEnd:
        verb = "COMMIT" if is_commit else "ROLLBACK"
        try:
            await session.execute(f"{verb} PREPARED {postgresql_literal(xid)}")
        except Exception as error:
            state = state_of(error)
            if state == UNDEFINED_OBJECT:
                return BranchEnd.GONE
            if state == IS_BUSY:
                raise Later(f"another connection ends branch {xid.branch} of {xid.gid}") from error
            raise
        return BranchEnd.DONE

    async def prepared(self, session: Session) -> list[PreparedBranch]:
        answer = await session.execute(
            "SELECT gid, CAST(extract(epoch FROM prepared) * 1000 AS BIGINT) FROM pg_prepared_xacts "
            "WHERE database = current_database()"
        )
        found = [(read_postgresql(gid), since) for gid, since in answer.rows]
        return [PreparedBranch(xid, since) for xid, since in found if xid is not None]


def _ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))
