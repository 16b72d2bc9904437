"""The fence: lets each call of a branch work once, in the right order, however often and late it comes.

A coordinator calls Try, Confirm and Cancel at least once, and its calls may be lost, doubled and overtake one
another. The table `turbopump_fence` of the participant's own database is written in the transaction of the
work, by inserts that fail where the row is there already:

    Try       (gid, branch, "try")                              inserted: work; else done before, or cancelled
    Confirm   (gid, branch, "confirm"), and Try must be done    inserted: work; else done before
    Cancel    (gid, branch, "try") by "cancel"                  inserted: empty rollback, a later Try finds it
              (gid, branch, "cancel")                           inserted: work; else done before

So a Cancel without a Try does nothing and keeps a later Try out, and a repeated call gives the result of the
first one. A step of a saga and its compensation are `do` and `undo`, by the same rows as Try and Cancel.
`msg` is the local work of a transaction message, which `checked` keeps out when it says ROLLBACK.

    with fenced(connection, gid, "debit", "try") as call:
        if call.is_first:
            connection.execute("UPDATE accounts SET frozen = …")
"""

import time
from collections.abc import Awaitable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, overload

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message, MessageExt
from turbopump.client.produce.transaction import Decision
from turbopump.protocol import properties
from turbopump.transactions.database import (
    MARIADB,
    MARIADB_TABLE,
    POSTGRESQL,
    SQLITE,
    AsyncConnection,
    BlockingConnection,
    DialectSteps,
    Statement,
    Steps,
    TransactionCommand,
    begin_with_table,
    checked_table,
    checked_word,
    create_table_steps,
    in_transaction,
    insert_if_absent,
    rollback,
    run_steps,
)
from turbopump.transactions.database.faults import is_retriable
from turbopump.transactions.errors import Contradicted, FenceRefused, NotTried, WorkUndone

__all__ = [
    "Fence",
    "FencedBlock",
    "FencedCall",
    "checked",
    "create_table",
    "fenced",
    "forget",
    "is_retriable",
    "message_done",
]

TABLE = "turbopump_fence"
KEEP = timedelta(days=7)
"""Longer than brokers keep messages: a Try that comes when its rows are gone would work again."""
DELETES_PER_TURN = 1000  # rows per transaction
MAX_GID_LENGTH, MAX_BRANCH_LENGTH = 128, 64
COLUMNS = ("gid", "branch", "phase", "by_phase", "at")

TRY, CONFIRM, CANCEL, DO, UNDO, MSG = "try", "confirm", "cancel", "do", "undo", "msg"
ROLLED_BACK: Final = "rollback"
"""By whom the row `msg` is when `checked` has said ROLLBACK."""
_FORWARD = frozenset({TRY, DO, MSG})
_UNDOES = {CANCEL: TRY, UNDO: DO}
PHASES = (TRY, CONFIRM, CANCEL, DO, UNDO, MSG)
_KINDS = {CONFIRM: TRY, CANCEL: TRY, UNDO: DO}
_MESSAGE_BRANCH = "message"


@dataclass
class FencedCall:
    """What a call of a branch finds: whether it is the first one, and the result of the first one."""

    is_first: bool
    """Do the work. Otherwise it was done before, or there is nothing to undo."""
    result: str = ""
    """Set it in the first call; repeated calls find it here."""
    is_empty: bool = False
    """A Cancel or `undo` of work that was never done, and now never will be."""


class Fence:
    """The fence table of a participant: the steps of its calls, for any connection.

    Keep one for each database: it remembers that the table exists.
    """

    def __init__(self, table: str = TABLE) -> None:
        self.table = checked_table(table)
        self._is_created = False

    def begin(self, command: TransactionCommand) -> DialectSteps[None]:
        """Returns steps that begin or join a transaction, in which the table exists."""

        def steps(dialect: str) -> Steps[None]:
            if self._is_created:
                yield command
            else:
                yield from begin_with_table(dialect, command, self.table, definitions(self.table))

        return steps

    def created(self, is_created: bool) -> None:
        """Notes whether the table certainly exists: after a commit, and not after a failure."""
        self._is_created = is_created

    def enter(self, gid: str, branch: str, phase: str) -> DialectSteps[FencedCall]:
        """Returns the steps of a call, in the transaction of its work.

        Raises FenceRefused, NotTried or Contradicted: then roll back.
        """
        call = _BranchCall(self.table, gid, branch, phase)
        return call.undo if phase in _UNDOES else call.confirm if phase == CONFIRM else call.forward

    def leave(self, gid: str, branch: str, phase: str, result: str) -> DialectSteps[None]:
        """Returns steps that store the result of a first call. Raises WorkUndone if its row is gone."""
        row = {"gid": gid, "branch": branch, "phase": _phase_of_row(phase), "result": result}

        def steps(dialect: str) -> Steps[None]:
            update = f"UPDATE {self.table} SET result = :result WHERE {_ROW} AND result IS NULL"
            if (yield Statement(update, row)).count != 1:
                raise WorkUndone(
                    "the transaction was rolled back inside the block, and the row of the fence with it: "
                    "raise an exception instead, so that the call is repeated"
                )

        return steps


class _BranchCall:
    """The steps of one call of one branch."""

    def __init__(self, table: str, gid: str, branch: str, phase: str) -> None:
        if phase not in PHASES:
            raise InvalidArgument(f"phase must be one of {', '.join(PHASES)}, got {phase!r}")
        self._table = table
        self._gid = checked_word("gid", gid, MAX_GID_LENGTH)
        self._branch = checked_word("branch", branch, MAX_BRANCH_LENGTH)
        self._phase = phase

    def forward(self, dialect: str) -> Steps[FencedCall]:
        """Try, `do`, `msg`: works once, and not after its Cancel."""
        if (yield from self._insert(dialect, _phase_of_row(self._phase), self._phase)):
            return FencedCall(True)
        rows = yield from self._rows(dialect)
        by, result = rows[_phase_of_row(self._phase)]
        if CANCEL in rows or by in (*_UNDOES, ROLLED_BACK):
            raise FenceRefused(self._gid, self._branch)
        if by != self._phase:
            raise self._contradicts(by)
        return FencedCall(False, result)

    def confirm(self, dialect: str) -> Steps[FencedCall]:
        yield from self._lock(dialect)
        is_first = yield from self._insert(dialect, CONFIRM, CONFIRM)
        rows = yield from self._rows(dialect)
        by, _ = rows.get(TRY, ("", ""))
        if CANCEL in rows or by in _UNDOES:
            raise self._contradicts(CANCEL)
        if not by:
            raise NotTried(self._gid, self._branch, "its Try was not done")
        if by != TRY:
            raise self._contradicts(by)
        return FencedCall(is_first, "" if is_first else rows[CONFIRM][1])

    def undo(self, dialect: str) -> Steps[FencedCall]:
        """Cancel, `undo`: of work that was done; otherwise it keeps that work out."""
        is_empty = yield from self._insert(dialect, TRY, self._phase)
        yield from self._lock(dialect)
        is_first = yield from self._insert(dialect, CANCEL, self._phase)
        rows = yield from self._rows(dialect)
        if CONFIRM in rows:
            raise self._contradicts(CONFIRM)
        by, _ = rows[TRY]
        if by not in (self._phase, _UNDOES[self._phase]):
            raise self._contradicts(by)
        if by == self._phase:
            if is_first:
                yield from self._no_result()
            return FencedCall(False, is_empty=True)
        return FencedCall(is_first and not is_empty, "" if is_first else rows[CANCEL][1])

    def _insert(self, dialect: str, phase: str, by: str) -> Steps[bool]:
        insert = insert_if_absent(dialect, self._table, COLUMNS)
        return (yield Statement(insert, row_of(self._gid, self._branch, phase, by))).count == 1

    def _no_result(self) -> Steps[None]:
        update = f"UPDATE {self._table} SET result = '' WHERE gid = :gid AND branch = :branch"
        yield Statement(update, self._names)

    def _lock(self, dialect: str) -> Steps[None]:
        """On PostgreSQL, waits for a Confirm or Cancel of this branch at the same time, to see its row."""
        if dialect == POSTGRESQL:
            select = f"SELECT 1 FROM {self._table} WHERE {_ROW} FOR UPDATE"
            yield Statement(select, {**self._names, "phase": TRY})

    def _rows(self, dialect: str) -> Steps[dict[str, tuple[str, str]]]:
        """Steps that return who wrote the rows of the branch, and their results, by phase.

        Under MariaDB's REPEATABLE READ only a locking read sees the row for which an insert was refused.
        """
        select = (
            f"SELECT phase, by_phase, result FROM {self._table} WHERE gid = :gid AND branch = :branch"
            f"{' FOR UPDATE' if dialect == MARIADB else ''}"
        )
        rows = (yield Statement(select, self._names)).rows
        return {phase: (by, result or "") for phase, by, result in rows}

    @property
    def _names(self) -> dict[str, object]:
        return {"gid": self._gid, "branch": self._branch}

    def _contradicts(self, done: str) -> Contradicted:
        return Contradicted(self._gid, self._branch, self._phase, done)


_ROW = "gid = :gid AND branch = :branch AND phase = :phase"


def row_of(gid: str, branch: str, phase: str, by: str) -> dict[str, object]:
    """Returns the values of a new row, by the names of `COLUMNS`."""
    return {"gid": gid, "branch": branch, "phase": phase, "by_phase": by, "at": _now_ms()}


def _phase_of_row(phase: str) -> str:
    """Returns the phase under which a row is stored: `do` is as Try, `undo` as Cancel."""
    return {DO: TRY, UNDO: CANCEL}.get(phase, phase)


# --- a block of code ----------------------------------------------------------------------------------------


def fenced(
    connection: object,
    gid: str,
    branch: str,
    phase: str,
    *,
    table: str = TABLE,
    fence: Fence | None = None,
    commit: bool = True,
) -> "FencedBlock":
    """Returns a context manager around the work of one call; gives a FencedCall.

        with fenced(connection, gid, "debit", "confirm") as call:
            if call.is_first:
                connection.execute("UPDATE …")
                call.result = "…"

    With an async connection: `async with`. `phase` is try, confirm, cancel, do, undo or msg. At the end the
    row and the work are committed; when the block raises, both are rolled back. With `commit=False` they are
    part of the transaction that you have begun and end yourself. Raises FenceRefused for a Try after its
    Cancel, NotTried and Contradicted for calls that must never come. An error for which `is_retriable` is
    true came from another transaction at the same time: do the whole block again.
    """
    return FencedBlock(fence or Fence(table), connection, gid, branch, phase, commit)


class FencedBlock:
    """The context manager of `fenced`."""

    def __init__(
        self, fence: Fence, connection: Any, gid: str, branch: str, phase: str, commit: bool
    ) -> None:
        self._fence = fence
        self._connection = connection
        self._words = (gid, branch, phase)
        self._enter = fence.enter(*self._words)
        self._commit = commit
        self._call = FencedCall(False)

    def __enter__(self) -> FencedCall:
        self._call = run_steps(self._connection, self._begin)
        return self._call

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        run_steps(self._connection, self._end(error is None))

    async def __aenter__(self) -> FencedCall:
        self._call = await run_steps(self._connection, self._begin)
        return self._call

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await run_steps(self._connection, self._end(error is None))

    def _begin(self, dialect: str) -> Steps[FencedCall]:
        command = TransactionCommand.BEGIN if self._commit else TransactionCommand.JOIN
        try:
            yield from self._fence.begin(command)(dialect)
            return (yield from self._enter(dialect))
        except BaseException:
            yield from self._undo()
            raise

    def _end(self, is_done: bool) -> DialectSteps[None]:
        def steps(dialect: str) -> Steps[None]:
            if not is_done:
                yield from self._undo()
                return
            try:
                if self._call.is_first:
                    yield from self._fence.leave(*self._words, self._call.result)(dialect)
                if self._commit:
                    yield TransactionCommand.COMMIT
                    self._fence.created(True)
            except BaseException:
                yield from self._undo()
                raise

        return steps

    def _undo(self) -> Steps[None]:
        self._fence.created(False)
        if self._commit:
            yield from rollback()


# --- transaction messages -----------------------------------------------------------------------------------


@overload
def message_done(
    connection: AsyncConnection, message: Message | MessageExt | str, *, table: str = TABLE
) -> Awaitable[None]: ...
@overload
def message_done(
    connection: BlockingConnection, message: Message | MessageExt | str, *, table: str = TABLE
) -> None: ...
def message_done(connection: Any, message: Message | MessageExt | str, *, table: str = TABLE) -> Any:
    """Writes into your transaction that the local work of a transaction message is done with it.

        with producer.transaction(message) as half:
            connection.execute("INSERT INTO orders …")
            message_done(connection, half.receipt.message_id)
            connection.commit()

    `message` is the message with its id (`outbox.stamped`), or the id. Raises FenceRefused when `checked` has
    said ROLLBACK before: then roll back, since no consumer will see the message.
    """
    id_of_message = _message_id(message)
    fence = Fence(table)
    call = fence.enter(id_of_message, _MESSAGE_BRANCH, MSG)

    def steps(dialect: str) -> Steps[None]:
        yield from fence.begin(TransactionCommand.JOIN)(dialect)
        yield from call(dialect)

    return run_steps(connection, steps)


@overload
def checked(
    connection: AsyncConnection, message: MessageExt | str, *, table: str = TABLE
) -> Awaitable[Decision]: ...
@overload
def checked(connection: BlockingConnection, message: MessageExt | str, *, table: str = TABLE) -> Decision: ...
def checked(connection: Any, message: MessageExt | str, *, table: str = TABLE) -> Any:
    """Returns how a transaction message ends, and makes that true: the answer of a `check`. Commits.

        def check(message):
            with closing(connect()) as connection:
                return checked(connection, message)

    COMMIT if the local work wrote `message_done`; else ROLLBACK, and from now on `message_done` is refused:
    a slow local transaction cannot commit any more. One that is just committing is waited for. Looking alone
    would not be enough: the work might be committed a moment after an answer of ROLLBACK.
    """
    fence = Fence(table)
    row = {"gid": _message_id(message), "branch": _MESSAGE_BRANCH, "phase": MSG}

    def steps(dialect: str) -> Steps[Decision]:
        insert = insert_if_absent(dialect, fence.table, COLUMNS)
        if (yield Statement(insert, {**row, "by_phase": ROLLED_BACK, "at": _now_ms()})).count == 1:
            return Decision.ROLLBACK
        lock = " FOR UPDATE" if dialect == MARIADB else ""
        rows = (yield Statement(f"SELECT by_phase FROM {fence.table} WHERE {_ROW}{lock}", row)).rows
        return Decision.ROLLBACK if rows[0][0] == ROLLED_BACK else Decision.COMMIT

    return run_steps(connection, in_transaction(steps, fence.begin(TransactionCommand.BEGIN)))


def _message_id(message: Message | MessageExt | str) -> str:
    if isinstance(message, str):
        return message
    found = message.properties.get(properties.UNIQUE_KEY)
    if found is None:
        raise InvalidArgument(
            "the message has no id yet: use `outbox.stamped(message)`, or give the id of the receipt"
        )
    return str(found)


# --- the table ----------------------------------------------------------------------------------------------


@overload
def create_table(connection: AsyncConnection, *, table: str = TABLE) -> Awaitable[None]: ...
@overload
def create_table(connection: BlockingConnection, *, table: str = TABLE) -> None: ...
def create_table(connection: Any, *, table: str = TABLE) -> Any:
    """Creates the fence table unless it exists: for where programs may not create tables. Commits."""
    return run_steps(connection, create_table_steps(checked_table(table), definitions(table)))


@overload
def forget(
    connection: AsyncConnection,
    *,
    older_than: timedelta = KEEP,
    still_open: Collection[str] = (),
    table: str = TABLE,
) -> Awaitable[int]: ...
@overload
def forget(
    connection: BlockingConnection,
    *,
    older_than: timedelta = KEEP,
    still_open: Collection[str] = (),
    table: str = TABLE,
) -> int: ...
def forget(
    connection: Any,
    *,
    older_than: timedelta = KEEP,
    still_open: Collection[str] = (),
    table: str = TABLE,
) -> Any:
    """Deletes rows of transactions that did nothing here for `older_than`; returns how many. Commits.

    `still_open` are the gids of transactions that have not ended, such as sagas that wait for an operator:
    their rows stay, since their calls may be repeated. The newest row of a transaction counts for all of it.
    """
    before_ms = _now_ms() - int(older_than.total_seconds() * 1000)
    keep = frozenset(still_open)

    def steps(dialect: str) -> Steps[int]:
        deleted, after = 0, ""
        while True:
            gids = yield from in_transaction(_old(checked_table(table), before_ms, after))(dialect)
            if not gids:
                return deleted
            for gid in gids:
                if gid not in keep:
                    deleted += yield from in_transaction(_delete(table, gid))(dialect)
            after = gids[-1]

    return run_steps(connection, steps)


def _old(table: str, before_ms: int, after: str) -> DialectSteps[list[str]]:
    def steps(dialect: str) -> Steps[list[str]]:
        select = (
            f"SELECT gid FROM {table} WHERE gid > :after GROUP BY gid HAVING MAX(at) < :before "
            f"ORDER BY gid LIMIT {DELETES_PER_TURN}"
        )
        return [row[0] for row in (yield Statement(select, {"after": after, "before": before_ms})).rows]

    return steps


def _delete(table: str, gid: str) -> DialectSteps[int]:
    def steps(dialect: str) -> Steps[int]:
        return (yield Statement(f"DELETE FROM {table} WHERE gid = :gid", {"gid": gid})).count

    return steps


def definitions(table: str) -> dict[str, tuple[str, ...]]:
    """Returns the SQL statements that create the fence table, by dialect."""
    index = table.replace(".", "_") + "_at"
    key = "PRIMARY KEY (gid, branch, phase)"
    both = (
        f"CREATE TABLE IF NOT EXISTS {table} (gid TEXT NOT NULL, branch TEXT NOT NULL, phase TEXT NOT NULL, "
        f"by_phase TEXT NOT NULL, result TEXT, at BIGINT NOT NULL, {key})",
        f"CREATE INDEX IF NOT EXISTS {index} ON {table} (at)",
    )
    mariadb = (
        f"CREATE TABLE IF NOT EXISTS {table} (gid VARCHAR({MAX_GID_LENGTH}) NOT NULL, "
        f"branch VARCHAR({MAX_BRANCH_LENGTH}) NOT NULL, phase VARCHAR(8) NOT NULL, "
        "by_phase VARCHAR(8) NOT NULL, result MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, "
        f"at BIGINT NOT NULL, {key}, INDEX {index} (at)) {MARIADB_TABLE}",
    )
    return {SQLITE: both, POSTGRESQL: both, MARIADB: mariadb}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
