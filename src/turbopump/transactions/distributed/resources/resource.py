"""A database that takes part in XA (RM), and the branch of one transaction in it.

In: the function by which a program connects. Out: branches, which vote and end. A vote of Yes means that the
branch outlives this process and the database's; every way to lose it afterwards is shut here, which is why a
connection with a branch in it is closed at the driver and never goes back to a pool.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from enum import Enum, auto
from typing import Any, TypeVar

from turbopump.client.errors import InvalidArgument
from turbopump.transactions import fence
from turbopump.transactions.database import (
    MARIADB,
    POSTGRESQL,
    Statement,
    Steps,
    create_table_steps,
    insert_if_absent,
)
from turbopump.transactions.distributed.gids import Xid
from turbopump.transactions.distributed.resources.mariadb import MariaXa
from turbopump.transactions.distributed.resources.phases import BranchEnd, BranchMark, XaDialect
from turbopump.transactions.distributed.resources.postgresql import PostgresXa
from turbopump.transactions.distributed.resources.session import ConnectionOpener, Session
from turbopump.transactions.distributed.resources.values import BranchVote, PreparedBranch, checked_xid
from turbopump.transactions.errors import Declined, Later, Parked

T = TypeVar("T")
log = logging.getLogger(__name__)

MAX_SPARE_CONNECTIONS = 4
"""Connections for phase 2 that are kept for the next one."""
PROOF = "xa"
"""The phase of the fence's row that proves a commit."""

_DIALECTS: dict[str, XaDialect] = {POSTGRESQL: PostgresXa(), MARIADB: MariaXa()}


class XaResource:
    """One database that takes part in XA: PostgreSQL, MariaDB or MySQL.

    `connect` gives a new connection each time, or a context manager around one, such as `pool.connection`;
    blocking or async, of psycopg, asyncpg, PyMySQL, asyncmy, aiomysql or SQLAlchemy. `proof`: each branch
    writes a row into the fence table, so that a branch which somebody else has rolled back is told from one
    that was committed, and is parked. `lock_timeout_s` is how long a statement of a branch waits for a lock;
    None leaves it as the database has it. `threads` are for blocking drivers.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Any],
        *,
        proof: bool = False,
        lock_timeout_s: float | None = None,
        table: str = fence.TABLE,
        threads: Executor | None = None,
    ) -> None:
        self.name = checked_xid(Xid("gid", name)).branch
        self.proof = proof
        self.lock_timeout_s = lock_timeout_s
        self._fence = fence.Fence(table)
        self._opener = ConnectionOpener(connect, threads)
        self._is_table_there = False
        self._spare: list[Session] = []
        self._is_closed = False

    async def begin(self, xid: Xid) -> "XaBranch":
        """Opens a connection and begins a branch on it. Registering it is the coordinator's."""
        checked_xid(xid)
        session = await self._open()
        try:
            if self.proof:
                await self._create_table(session)
            mark = await self._dialect(session).begin(session, xid, self.lock_timeout_s)
            if self.proof:
                await session.run(self._proof_of(xid))
            session.guard(xid.gid)
        except BaseException:
            await session.discard()
            raise
        return XaBranch(self, xid, session, mark)

    async def commit(self, xid: Xid) -> None:
        """Commits a prepared branch (DoCommit), on a connection of its own; returns when it is committed.

        May be repeated. Raises Later while another connection holds the branch, and Parked when the branch
        was ended by somebody else without a commit.
        """
        await self._end(xid, is_commit=True)

    async def roll_back(self, xid: Xid) -> None:
        """Rolls back a prepared branch (DoAbort), on a connection of its own; returns when it is.

        May be repeated. Raises Later while another connection holds it, and Parked when it was committed.
        """
        await self._end(xid, is_commit=False)

    async def prepared(self) -> list[PreparedBranch]:
        """Returns the prepared branches that coordinators of Turbopump have left in this database."""

        async def ask(session: Session) -> list[PreparedBranch]:
            return await self._dialect(session).prepared(session)

        return await self._on_spare(ask)

    async def close(self) -> None:
        """Closes the connections of phase 2. Branches that are prepared stay."""
        self._is_closed = True
        spare, self._spare = self._spare, []
        for session in spare:
            await session.give_back()

    # for branches

    async def end_on(self, session: Session, xid: Xid, is_commit: bool) -> None:
        """Ends a prepared branch on this session. See `commit` and `roll_back`."""
        end = await self._dialect(session).end_prepared(session, xid, is_commit)
        if end is BranchEnd.DONE:
            return
        if end is BranchEnd.EMPTY and not is_commit:
            return
        if end is BranchEnd.EMPTY:
            raise Parked(
                xid.gid,
                xid.branch,
                "it was decided to commit, but the database had rolled this branch back by itself (1402)",
            )
        if self.proof:
            await self._check_proof(session, xid, is_commit)

    def dialect(self, session: Session) -> XaDialect:
        return self._dialect(session)

    # inside

    async def _end(self, xid: Xid, is_commit: bool) -> None:
        checked_xid(xid)

        async def end(session: Session) -> None:
            await self.end_on(session, xid, is_commit)

        await self._on_spare(end)

    async def _on_spare(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Works on a connection in autocommit, kept from before or new.

        One that was kept may have been closed by the server meanwhile: then it is done again on a new one.
        """
        is_kept = bool(self._spare)
        session = self._spare.pop() if is_kept else await self._opened_for_ends()
        try:
            result = await work(session)
        except (Later, Parked):
            await self._keep(session)
            raise
        except BaseException as error:
            await session.discard()
            if not is_kept or not isinstance(error, Exception):
                raise
            log.debug("A connection of %s failed; trying a new one", self.name, exc_info=True)
        else:
            await self._keep(session)
            return result
        session = await self._opened_for_ends()
        try:
            result = await work(session)
        except (Later, Parked):
            await self._keep(session)
            raise
        except BaseException:
            await session.discard()
            raise
        await self._keep(session)
        return result

    async def _opened_for_ends(self) -> Session:
        session = await self._open()
        try:
            await session.set_autocommit()
        except BaseException:
            await session.discard()
            raise
        return session

    async def _keep(self, session: Session) -> None:
        if self._is_closed or len(self._spare) >= MAX_SPARE_CONNECTIONS:
            await session.give_back()
        else:
            self._spare.append(session)

    async def _open(self) -> Session:
        session = await self._opener.open()
        if session.dialect not in _DIALECTS:
            await session.give_back()
            raise InvalidArgument(
                f"resource {self.name} must be PostgreSQL, MariaDB or MySQL, got {session.dialect}, which "
                "cannot prepare: use SqliteLastResource for one SQLite database, TCC or a saga for more"
            )
        return session

    def _dialect(self, session: Session) -> XaDialect:
        return _DIALECTS[session.dialect]

    # the proof

    async def _create_table(self, session: Session) -> None:
        """Creates the fence table before the first branch: inside of one it cannot be created."""
        if not self._is_table_there:
            table = self._fence.table
            await session.run(create_table_steps(table, fence.definitions(table)))
            self._is_table_there = True

    def _proof_of(self, xid: Xid) -> Callable[[str], Steps[None]]:
        def steps(dialect: str) -> Steps[None]:
            insert = insert_if_absent(dialect, self._fence.table, fence.COLUMNS)
            yield Statement(insert, fence.row_of(xid.gid, xid.branch, PROOF, PROOF))

        return steps

    async def _check_proof(self, session: Session, xid: Xid, is_commit: bool) -> None:
        """Raises Parked if a branch that is gone was ended otherwise than decided, by somebody else."""
        select = f"SELECT 1 FROM {self._fence.table} WHERE gid = :gid AND branch = :branch AND phase = :phase"
        names = {"gid": xid.gid, "branch": xid.branch, "phase": PROOF}

        def steps(dialect: str) -> Steps[bool]:
            return bool((yield Statement(select, names)).rows)

        was_committed = await session.run(steps)
        if was_committed != is_commit:
            decided, done = ("commit", "rolled back") if is_commit else ("abort", "committed")
            raise Parked(
                xid.gid,
                xid.branch,
                f"heuristic: it was decided to {decided}, but somebody has {done} the branch",
            )


class _BranchState(Enum):
    ACTIVE = auto()
    PREPARING = auto()
    """PREPARE was sent, and its answer is not known."""
    PREPARED = auto()
    ENDED = auto()


class XaBranch:
    """The work of one global transaction in one database, on one connection.

    `connection` is the user's own kind of connection; its commit and rollback are refused.
    One call at a time.
    """

    def __init__(self, resource: XaResource, xid: Xid, session: Session, mark: BranchMark) -> None:
        self.xid = xid
        self.connection = session.connection
        self._resource = resource
        self._session = session
        self._mark = mark
        self._state = _BranchState.ACTIVE
        self._xa = resource.dialect(session)

    async def prepare(self) -> BranchVote:
        """CanCommit: prepares and votes. A No is raised: Declined, or the error of the database."""
        self._must_be(_BranchState.ACTIVE)
        await self._session.flush()
        vote = await self._xa.vote(self._session, self.xid, self._mark)
        if vote is BranchVote.READ_ONLY:
            await self._xa.roll_back_active(self._session, self.xid)
            await self._ended()
            return vote
        self._state = _BranchState.PREPARING
        await self._xa.prepare(self._session, self.xid)
        self._state = _BranchState.PREPARED
        return vote

    async def commit_one_phase(self) -> None:
        """Commits at once, for a branch that is alone. Raises Declined if it was certainly rolled back."""
        self._must_be(_BranchState.ACTIVE)
        await self._session.flush()
        await self._xa.vote(self._session, self.xid, self._mark)
        self._state = _BranchState.PREPARING
        try:
            await self._xa.commit_one_phase(self._session, self.xid)
        except Declined:
            await self.abandon()
            raise
        await self._ended()

    async def commit(self) -> None:
        """DoCommit of the prepared branch: here, or by another connection if this one is gone."""
        await self._end(is_commit=True)

    async def roll_back(self) -> None:
        """DoAbort, of a prepared branch or of one that is not."""
        if self._state is _BranchState.ACTIVE:
            await self._roll_back_active()
        else:
            await self._end(is_commit=False)

    async def abandon(self) -> None:
        """Closes the connection at the driver, and leaves a prepared branch as it is. May be repeated."""
        await self._session.discard()

    async def _roll_back_active(self) -> None:
        """Rolls back what was never prepared; if that fails, closing the connection does."""
        try:
            if self._session.is_broken:
                raise ConnectionError("the connection is out of step with its server")
            await self._xa.roll_back_active(self._session, self.xid)
        except Exception:
            log.debug("Cannot roll back %s of %s; closing it", self.xid.branch, self.xid.gid, exc_info=True)
            self._state = _BranchState.ENDED
            await self.abandon()
        else:
            await self._ended()

    async def _end(self, is_commit: bool) -> None:
        """Ends the branch on its own connection, which MariaDB asks for, else on one of the resource's."""
        if self._state is _BranchState.ENDED:
            return None
        if self._state is _BranchState.PREPARED and not self._session.is_broken:
            try:
                await self._resource.end_on(self._session, self.xid, is_commit)
            except (Later, Parked):
                raise
            except Exception:
                log.debug("The connection of %s failed in phase 2", self.xid.branch, exc_info=True)
            else:
                return await self._ended()
        await self.abandon()
        await (self._resource.commit if is_commit else self._resource.roll_back)(self.xid)
        self._state = _BranchState.ENDED
        return None

    async def _ended(self) -> None:
        self._state = _BranchState.ENDED
        await asyncio.shield(self._session.give_back())

    def _must_be(self, state: _BranchState) -> None:
        if self._state is not state or self._session.is_broken:
            raise Declined(f"branch {self.xid.branch} of {self.xid.gid} cannot vote: its connection failed")
