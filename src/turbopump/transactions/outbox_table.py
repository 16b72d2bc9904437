"""The table behind the outbox: rows in, rows out, as steps for any connection. Nothing is sent here.

A row is waiting (`next_at` is when it may be tried), taken by a relay until `taken_until`, or deleted when
its message is stored. Rows of one lane (the key that keeps order) leave in the order of their ids: while one
of them waits after a failure or is taken, no relay takes another one of its lane.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import CopiedMessage, Message, deliver_at_ms
from turbopump.protocol import properties
from turbopump.transactions.database import (
    MARIADB,
    MARIADB_TABLE,
    POSTGRESQL,
    SQLITE,
    DialectSteps,
    Statement,
    Steps,
    TransactionCommand,
    advisory_lock,
    begin_with_table,
    create_if_missing,
    create_table_steps,
    in_transaction,
    table_exists,
)

MAX_ERROR_LENGTH = 2000  # characters of a failure that are stored
FIRST_PAUSE_MS = 1000
MAX_PAUSE_MS = 300_000
IDS_PER_STATEMENT = 500  # SQLite takes 999 parameters

MAX_LANE_BYTES = 1020  # of a key `by` in MariaDB's index: 255 characters of any kind

T = TypeVar("T")
COLUMNS = "id, message_id, topic, lane, head, attempts, last_error, created_at, next_at, body"


@dataclass(frozen=True, slots=True)
class Pending:
    """A message that no broker has stored yet, as far as the outbox knows."""

    id: int
    message: Message
    message_id: str
    """Identical in every attempt, so that a consumer recognises a repeated message by it."""
    by: str | None
    attempts: int
    """Sends that failed."""
    last_error: str
    created_ms: int
    next_try_ms: int


def pause_ms(attempts: int) -> int:
    """Returns the milliseconds until the next try after this many failures: 1 s, 2 s, 4 s … 5 minutes.

    >>> [pause_ms(attempts) for attempts in (1, 2, 3, 9, 10, 1000)]
    [1000, 2000, 4000, 256000, 300000, 300000]
    """
    return min(MAX_PAUSE_MS, FIRST_PAUSE_MS << min(attempts - 1, 20))


class OutboxTable:
    """The steps that read and write one outbox table."""

    def __init__(self, name: str) -> None:
        self.name = name

    def transaction(self, written: DialectSteps[T]) -> DialectSteps[T]:
        """Returns the steps in a transaction that they begin and commit, in which the table exists."""
        return in_transaction(written, self._begin)

    def join(self, dialect: str) -> Steps[None]:
        """Steps that join the caller's transaction, in which the table then exists."""
        return begin_with_table(dialect, TransactionCommand.JOIN, self.name, self._definitions())

    def _begin(self, dialect: str) -> Steps[None]:
        return begin_with_table(dialect, TransactionCommand.BEGIN, self.name, self._definitions())

    def relay_transaction(self, written: DialectSteps[T]) -> DialectSteps[T]:
        """Returns the steps of a relay in a transaction that they begin and commit.

        It sees what was committed when its statements begin; so it finds what the relay before it has done.
        On MariaDB it then also does not wait for rows that others have not committed yet.
        """

        def begin(dialect: str) -> Steps[None]:
            definitions = self._definitions()
            if dialect == POSTGRESQL:
                yield TransactionCommand.BEGIN
                yield Statement(_READ_COMMITTED)
                yield from create_if_missing(dialect, self.name, definitions)
            elif dialect == MARIADB:
                yield from create_if_missing(dialect, self.name, definitions)
                yield Statement(_READ_COMMITTED)
                yield TransactionCommand.BEGIN
            else:
                yield from self._begin(dialect)

        return in_transaction(written, begin)

    def put(
        self, dialect: str, message: Message, by: str | None, now_ms: int, failure: str = ""
    ) -> Steps[str]:
        """Steps that insert a message and return its unique id; a row with `failure` counts as tried once."""
        key = message.properties[properties.UNIQUE_KEY]
        attempts = 1 if failure else 0
        yield Statement(
            f"INSERT INTO {self.name} (message_id, topic, lane, head, attempts, last_error, created_at, "
            "next_at, taken_by, taken_until, body) VALUES (:message_id, :topic, :lane, :head, :attempts, "
            ":failure, :now, :next_at, '', 0, :body)",
            {
                "message_id": key,
                "topic": message.topic,
                "lane": _lane(dialect, by),
                "head": _head(message),
                "attempts": attempts,
                "failure": failure[:MAX_ERROR_LENGTH],
                "now": now_ms,
                "next_at": now_ms + (pause_ms(attempts) if attempts else 0),
                "body": message.body,
            },
        )
        return key

    def take(self, token: str, most: int, lease_ms: int, now_ms: int) -> DialectSteps[list[Pending]]:
        """Returns steps that take and return up to `most` due rows under a token, which must be new.

        With the token of an earlier take, rows of that one which are not settled would be returned too.
        Other relays leave the rows alone for `lease_ms`. One relay at a time is here: one that looked while
        another takes rows would not see that a lane is taken. Where there is a server its clock counts.
        """

        def steps(dialect: str) -> Steps[list[Pending]]:
            now = yield from self._take_turn(dialect, now_ms)
            ids = yield from self._free(now, most)
            for start in range(0, len(ids), IDS_PER_STATEMENT):
                places, some = _ids(ids[start : start + IDS_PER_STATEMENT])
                yield Statement(
                    f"UPDATE {self.name} SET taken_by = :token, taken_until = :until WHERE id IN ({places})",
                    {"token": token, "until": now + lease_ms, **some},
                )
            select = f"SELECT {COLUMNS} FROM {self.name} WHERE taken_by = :token ORDER BY id"
            return _pending((yield Statement(select, {"token": token})).rows)

        return steps

    def _take_turn(self, dialect: str, now_ms: int) -> Steps[int]:
        """Steps that wait until no other relay is in its transaction; they return the time that counts."""
        if dialect == POSTGRESQL:
            yield advisory_lock(self.name)
        elif dialect == MARIADB:
            yield Statement(f"SELECT id FROM {self.name}_turn FOR UPDATE")
        return (yield from _server_ms(dialect, now_ms))

    def _free(self, now: int, most: int) -> Steps[list[int]]:
        """Steps that return the ids of rows that may be taken now."""
        blocked = f"SELECT lane FROM {self.name} WHERE lane <> '' AND (next_at > :now OR taken_until > :now)"
        select = (
            f"SELECT id FROM {self.name} WHERE next_at <= :now AND taken_until <= :now "
            f"AND lane NOT IN ({blocked}) ORDER BY id LIMIT :most"
        )
        return [row[0] for row in (yield Statement(select, {"now": now, "most": most})).rows]

    def settle(
        self, token: str, sent: Sequence[int], failed: Mapping[int, str], now_ms: int
    ) -> DialectSteps[None]:
        """Returns steps that delete sent rows of this token, delay failed ones and release the others.

        A row that another relay has taken over since is left alone.
        """
        mine = "taken_by = :token"

        def steps(dialect: str) -> Steps[None]:
            now = yield from _server_ms(dialect, now_ms)
            for start in range(0, len(sent), IDS_PER_STATEMENT):
                places, some = _ids(sent[start : start + IDS_PER_STATEMENT])
                delete = f"DELETE FROM {self.name} WHERE {mine} AND id IN ({places})"
                yield Statement(delete, {"token": token, **some})
            for row, error in failed.items():
                yield from self._failed(row, error, token, now)
            release = f"UPDATE {self.name} SET taken_by = '', taken_until = 0 WHERE {mine}"
            yield Statement(release, {"token": token})

        return steps

    def _failed(self, row: int, error: str, token: str, now_ms: int) -> Steps[None]:
        select = f"SELECT attempts FROM {self.name} WHERE id = :id AND taken_by = :token"
        found = (yield Statement(select, {"id": row, "token": token})).rows
        if not found:
            return
        attempts = found[0][0] + 1
        yield Statement(
            f"UPDATE {self.name} SET attempts = :attempts, last_error = :error, next_at = :next_at, "
            "taken_by = '', taken_until = 0 WHERE id = :id",
            {
                "attempts": attempts,
                "error": error[:MAX_ERROR_LENGTH],
                "next_at": now_ms + pause_ms(attempts),
                "id": row,
            },
        )

    def pending(self, most: int) -> DialectSteps[list[Pending]]:
        def steps(dialect: str) -> Steps[list[Pending]]:
            if dialect == SQLITE:
                yield from create_if_missing(dialect, self.name, self._definitions())
            elif not (yield from table_exists(dialect, self.name)):  # a reader may be in no transaction
                return []
            select = f"SELECT {COLUMNS} FROM {self.name} ORDER BY id LIMIT :most"
            return _pending((yield Statement(select, {"most": most})).rows)

        return steps

    def holds(self, lane: str) -> DialectSteps[bool]:
        def steps(dialect: str) -> Steps[bool]:
            select = f"SELECT 1 FROM {self.name} WHERE lane = :lane LIMIT 1"
            return bool((yield Statement(select, {"lane": _lane(dialect, lane)})).rows)

        return steps

    def make_due(self, dialect: str) -> Steps[int]:
        """Steps that make all failed messages due, and return how many.

        Found first and then changed by their ids: so they wait for no message that is not committed yet.
        """
        found = [row[0] for row in (yield Statement(f"SELECT id FROM {self.name} WHERE attempts > 0")).rows]
        for start in range(0, len(found), IDS_PER_STATEMENT):
            places, some = _ids(found[start : start + IDS_PER_STATEMENT])
            yield Statement(f"UPDATE {self.name} SET next_at = 0 WHERE id IN ({places})", some)
        return len(found)

    def discard(self, row: int) -> DialectSteps[bool]:
        def steps(dialect: str) -> Steps[bool]:
            return (yield Statement(f"DELETE FROM {self.name} WHERE id = :id", {"id": row})).count == 1

        return steps

    def create(self) -> DialectSteps[None]:
        return create_table_steps(self.name, self._definitions())

    def _definitions(self) -> dict[str, tuple[str, ...]]:
        """Returns, by dialect, the SQL statements that create the table and its index.

        The body is last: a search for free rows need not read it.
        """
        own_id = {
            SQLITE: "INTEGER PRIMARY KEY AUTOINCREMENT",
            POSTGRESQL: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        }
        binary = {SQLITE: "BLOB", POSTGRESQL: "BYTEA"}
        index = self.name.replace(".", "_") + "_lane"
        both = {
            dialect: (
                f"CREATE TABLE IF NOT EXISTS {self.name} (id {own_id[dialect]}, message_id TEXT NOT NULL, "
                "topic TEXT NOT NULL, lane TEXT NOT NULL, head TEXT NOT NULL, attempts INTEGER NOT NULL, "
                "last_error TEXT NOT NULL, created_at BIGINT NOT NULL, next_at BIGINT NOT NULL, "
                f"taken_by TEXT NOT NULL, taken_until BIGINT NOT NULL, body {binary[dialect]} NOT NULL)",
                f"CREATE INDEX IF NOT EXISTS {index} ON {self.name} (lane, id)",
            )
            for dialect in (SQLITE, POSTGRESQL)
        }
        return {MARIADB: self._mariadb_definitions(index), **both}

    def _mariadb_definitions(self, index: str) -> tuple[str, ...]:
        """Returns MariaDB's statements; the row of `…_turn` is the lock that relays take in turn.

        The table itself is created last: where it exists the other one does. Lanes are bytes, since text is
        compared without the spaces at its end.
        """
        turn = f"{self.name}_turn"
        text = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
        return (
            f"CREATE TABLE IF NOT EXISTS {turn} (id INTEGER PRIMARY KEY) {MARIADB_TABLE}",
            f"INSERT IGNORE INTO {turn} VALUES (1)",
            f"CREATE TABLE IF NOT EXISTS {self.name} (id BIGINT AUTO_INCREMENT PRIMARY KEY, "
            f"message_id VARCHAR(255) {text}, topic VARCHAR(255) {text}, "
            f"lane VARBINARY({MAX_LANE_BYTES}) NOT NULL, head MEDIUMTEXT {text}, attempts INTEGER NOT NULL, "
            f"last_error TEXT {text}, created_at BIGINT NOT NULL, next_at BIGINT NOT NULL, "
            "taken_by VARCHAR(64) NOT NULL, taken_until BIGINT NOT NULL, body LONGBLOB NOT NULL, "
            f"INDEX {index} (lane, id)) {MARIADB_TABLE}",
        )


_READ_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
_CLOCKS = {
    POSTGRESQL: "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
    MARIADB: "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
}


def _server_ms(dialect: str, now_ms: int) -> Steps[int]:
    """Steps that return the time of the server's clock in milliseconds since 1970; `now_ms` on SQLite.

    So relays on several machines need not agree on the time.
    """
    if dialect == SQLITE:
        return now_ms
    return int((yield Statement(_CLOCKS[dialect])).rows[0][0])


def _lane(dialect: str, by: str | None) -> str | bytes:
    if dialect != MARIADB:
        return by or ""
    lane = (by or "").encode()
    if len(lane) > MAX_LANE_BYTES:
        raise InvalidArgument(f"by must be at most {MAX_LANE_BYTES} bytes on MariaDB, got {len(lane)}")
    return lane


def _ids(ids: Sequence[int]) -> tuple[str, dict[str, int]]:
    """Returns the places of a list of ids in a statement, and its parameters."""
    some = {f"id{place}": row for place, row in enumerate(ids)}
    return ", ".join(f":{name}" for name in some), some


def _pending(rows: Sequence[Any]) -> list[Pending]:
    return [
        Pending(
            id=row,
            message=_message(topic, head, body),
            message_id=message_id,
            by=(lane.decode() if isinstance(lane, bytes) else lane) or None,
            attempts=attempts,
            last_error=last_error,
            created_ms=created_at,
            next_try_ms=next_at,
        )
        for row, message_id, topic, lane, head, attempts, last_error, created_at, next_at, body in rows
    ]


class _MessageHead(msgspec.Struct, omit_defaults=True):
    """A message without topic and body, as the column `head` has it in JSON."""

    tags: str = ""
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    delay_level: int = 0
    flag: int = 0
    wait_store_ok: bool = True
    delay: float | None = None
    """Seconds, counted from the send of the relay."""
    deliver_at: int | None = None
    priority: int | None = None


def _head(message: Message) -> str:
    head = _MessageHead(
        message.tags,
        message.keys,
        dict(message.properties),
        message.delay_level,
        message.flag,
        message.wait_store_ok,
        message.delay.total_seconds() if isinstance(message.delay, timedelta) else message.delay,
        None if message.deliver_at is None else deliver_at_ms(message.deliver_at),
        message.priority,
    )
    return msgspec.json.encode(head).decode()


def _message(topic: str, head: str, body: bytes) -> Message:
    known = msgspec.json.decode(head, type=_MessageHead)
    fields = {name: getattr(known, name) for name in known.__struct_fields__}
    return CopiedMessage(topic, bytes(body), **fields)
