"""The records of messages as processed: inserted before the work, in its transaction, and checked after it.

What makes two deliveries the same message is decided here too: the functions that make the key of one. Rows
are claimed by whoever inserts them first; another consumer waits for it in the database.
"""

import hashlib
import logging
import time
import uuid
from collections.abc import Callable, Sequence

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import MessageExt
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
    begin_with_table,
    checked_table,
    checked_word,
    in_transaction,
    insert_if_absent,
    is_plain,
    rollback,
)
from turbopump.transactions.errors import WorkUndone

log = logging.getLogger("turbopump.transactions.idempotent")

TABLE = "turbopump_processed"
# In characters; longer keys are recorded by their hash: PostgreSQL's index takes 2,700 bytes.
# So are, on MariaDB, keys that its column of ASCII would not keep apart from others.
MAX_KEY_LENGTH = 512
MAX_NAME_LENGTH = 255  # of a group or a topic, on MariaDB
DELETES_PER_TURN = 1000  # rows per transaction: a long one would block consumers on SQLite
COLUMNS = ("consumer_group", "topic", "message_key", "claim", "done_at")

Key = str | Callable[[MessageExt], str]
"""`"message_id"`, `"keys"`, or a function of the message."""


class Claims:
    """The records of messages as processed: inserted before the work and checked after it."""

    def __init__(
        self,
        messages: Sequence[MessageExt],
        group: str,
        key: Key,
        table: str,
        commit: bool = True,
        is_created: bool = False,
    ) -> None:
        self._messages = messages
        self._group = checked_group(group)
        self._key = key_function(key)
        self._table = checked_table(table)
        self._commit = commit
        self._is_created = is_created
        self._marks: list[dict[str, object]] = []
        self._claim_id = uuid.uuid4().hex

    def enter(self, dialect: str) -> Steps[list[MessageExt]]:
        try:
            command = TransactionCommand.BEGIN if self._commit else TransactionCommand.JOIN
            if self._is_created:
                yield command
            else:
                yield from begin_with_table(dialect, command, self._table, definitions(self._table))
            return (yield from self._claim(dialect))
        except BaseException:
            if self._commit:
                yield from rollback()
            raise

    def _claim(self, dialect: str) -> Steps[list[MessageExt]]:
        """Inserts the records and returns the new messages; the order of keys avoids deadlocks."""
        insert = insert_if_absent(dialect, self._table, COLUMNS)
        marks = [self._mark(dialect, message) for message in self._messages]
        now_ms = time.time_ns() // 1_000_000
        new = set()
        for index in sorted(range(len(marks)), key=lambda index: (*marks[index].values(), index)):
            if (yield Statement(insert, {**marks[index], "done_at": now_ms})).count == 1:
                new.add(index)
        self._marks = [marks[index] for index in sorted(new)]
        return [self._messages[index] for index in sorted(new)]

    def _mark(self, dialect: str, message: MessageExt) -> dict[str, object]:
        key = self._key(message)
        if len(key) > MAX_KEY_LENGTH or (dialect == MARIADB and not is_plain(key)):
            key = "sha256:" + hashlib.sha256(key.encode()).hexdigest()
        if dialect == MARIADB:
            checked_word("the group", self._group, MAX_NAME_LENGTH)
            checked_word("the topic", message.topic, MAX_NAME_LENGTH)
        return {
            "consumer_group": self._group,
            "topic": message.topic,
            "message_key": key,
            "claim": self._claim_id,
        }

    def leave(self, is_done: bool) -> DialectSteps[None]:
        def steps(dialect: str) -> Steps[None]:
            if not is_done:
                if self._commit:
                    yield from rollback()
                    yield from self._withdraw(dialect)
                return
            try:
                if self._marks:
                    yield from self._check()
                if self._commit:
                    yield TransactionCommand.COMMIT
            except BaseException:
                if self._commit:
                    yield from rollback()
                raise

        return steps

    def _check(self) -> Steps[None]:
        """Raises WorkUndone if the record is gone, because the transaction was rolled back in the block.

        PostgreSQL answers COMMIT in a failed transaction with a rollback and no error: a handler that
        swallows an error of its statements would lose the message. So would one that rolls back by itself.
        """
        select = f"SELECT 1 FROM {self._table} WHERE {_OURS}"
        if not (yield Statement(select, self._marks[0])).rows:
            raise WorkUndone(
                "the transaction was rolled back inside the block, and the record of the message with it: "
                "raise an exception instead, so that the message is delivered again"
            )

    def _withdraw(self, dialect: str) -> Steps[None]:
        """Deletes the records after a failure, if they are still there.

        They are when the work committed by itself before it failed: `with connection:` does that with
        sqlite3. The message must be delivered again all the same.
        """

        def delete(_: str) -> Steps[int]:
            count = 0
            for mark in self._marks:
                count += (yield Statement(f"DELETE FROM {self._table} WHERE {_OURS}", mark)).count
            return count

        try:
            if self._marks and (yield from in_transaction(delete)(dialect)):
                log.error(
                    "A handler of group %s committed by itself and then failed: %s", self._group, ADVICE
                )
        except Exception:  # no connection, or no table: then there is no record either
            log.debug("Cannot withdraw the records", exc_info=True)


_OURS = (
    "consumer_group = :consumer_group AND topic = :topic AND message_key = :message_key AND claim = :claim"
)
ADVICE = (
    "its message is delivered again, and what it had committed is done twice. Leave the commit to the wrapper"
)


def definitions(table: str) -> dict[str, tuple[str, ...]]:
    """Returns the SQL statements that create the table of processed keys, by dialect."""
    index = table.replace(".", "_") + "_done_at"
    key = "PRIMARY KEY (consumer_group, topic, message_key)"
    both = (
        f"CREATE TABLE IF NOT EXISTS {table} ("
        "consumer_group TEXT NOT NULL, topic TEXT NOT NULL, message_key TEXT NOT NULL, "
        f"claim TEXT NOT NULL, done_at BIGINT NOT NULL, {key})",
        f"CREATE INDEX IF NOT EXISTS {index} ON {table} (done_at)",
    )
    name = f"VARCHAR({MAX_NAME_LENGTH}) NOT NULL"
    mariadb = (
        f"CREATE TABLE IF NOT EXISTS {table} (consumer_group {name}, topic {name}, "
        f"message_key VARCHAR({MAX_KEY_LENGTH}) NOT NULL, claim VARCHAR(32) NOT NULL, "
        f"done_at BIGINT NOT NULL, {key}, INDEX {index} (done_at)) {MARIADB_TABLE}",
    )
    return {SQLITE: both, POSTGRESQL: both, MARIADB: mariadb}


def delete_old(table: str, before_ms: int) -> DialectSteps[int]:
    """Returns steps that delete some of the keys recorded before that time, and return how many."""

    def steps(dialect: str) -> Steps[int]:
        key = "consumer_group, topic, message_key"
        old = f"done_at < :before LIMIT {DELETES_PER_TURN}"
        if dialect == MARIADB:
            delete = f"DELETE FROM {table} WHERE {old}"
        else:
            delete = f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {old})"
        return (yield Statement(delete, {"before": before_ms})).count

    return steps


def message_id(message: MessageExt) -> str:
    """Returns the message id that the sender gave; without one, the offset message id of the first copy."""
    found = message.properties
    return (
        found.get(properties.UNIQUE_KEY)
        or found.get(properties.ORIGIN_MESSAGE_ID)
        or message.offset_message_id
    )


def keys(message: MessageExt) -> str:
    """Returns the message's KEYS, joined by spaces. Raises InvalidArgument for a message without any."""
    if not message.keys:
        raise InvalidArgument(
            f"message {message.message_id} of {message.topic} has no KEYS to identify it: its sender must "
            "give some, or use key='message_id'"
        )
    return " ".join(message.keys)


KEYS: dict[str, Callable[[MessageExt], str]] = {"message_id": message_id, "keys": keys}


def key_function(key: Key) -> Callable[[MessageExt], str]:
    """Returns the function that makes the key of a message. Raises InvalidArgument for an unknown name."""
    if callable(key):
        return _checked(key)
    if key not in KEYS:
        raise InvalidArgument(
            f"key must be one of {', '.join(KEYS)}, or a function of the message, got {key!r}"
        )
    return KEYS[key]


def _checked(key: Callable[[MessageExt], str]) -> Callable[[MessageExt], str]:
    def checked(message: MessageExt) -> str:
        found = key(message)
        if not isinstance(found, str) or not found:
            raise InvalidArgument(f"the key of message {message.message_id} must be text, got {found!r}")
        return found

    return checked


def checked_group(group: str) -> str:
    if not group:
        raise InvalidArgument(
            f"group must be the name of the consumer group, which distinguishes consumers that share the "
            f"table, got {group!r}"
        )
    return group
