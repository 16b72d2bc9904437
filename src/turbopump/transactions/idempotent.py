"""Gives each message its effect once, however often it is delivered.

RocketMQ delivers at least once: a repeated send, a repeated delivery and a queue that changes its owner each
deliver a message twice. Here the message's key is written into a table of the user's database in the
transaction of the work itself. Either both are stored or neither; a repeated message finds the key and does
nothing. Of two consumers that have the same message at the same time one waits for the other in the database:
it does nothing when the other one commits, and does the work when the other one fails.

    @consumer.on("OrderTopic")
    @idempotent(connect=lambda: sqlite3.connect("billing.db"), group="billing")
    def bill(message, connection):
        connection.execute("INSERT INTO bills VALUES (?, ?)", (message.keys[0], message.text))

Effects outside of that database (a mail, a call of another service) do not belong here: they cannot be part
of its transaction.
"""

import hashlib
import inspect
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, overload

from turbopump.client.errors import InvalidArgument
from turbopump.client.group.consume_status import RetryLater
from turbopump.client.message import MessageExt
from turbopump.protocol import properties
from turbopump.transactions.connections import AsyncConnectionScope, opened
from turbopump.transactions.database import (
    POSTGRESQL,
    SQLITE,
    AsyncConnection,
    BlockingConnection,
    DialectSteps,
    Statement,
    Steps,
    TransactionCommand,
    checked_table,
    create_if_missing,
    in_transaction,
    rollback,
    run_steps,
)
from turbopump.transactions.errors import WorkUndone

__all__ = ["Key", "WorkUndone", "create_table", "forget", "idempotent", "once", "once_each"]

log = logging.getLogger(__name__)

TABLE = "turbopump_processed"
KEEP = timedelta(days=7)  # brokers keep messages for 3 days: no repeated delivery comes later
CLEAN_EVERY_S = 3600.0
DELETES_PER_TURN = 1000  # rows per transaction: a long one would block consumers on SQLite
# In characters; longer keys are recorded by their hash. PostgreSQL's index takes 2,700 bytes.
MAX_KEY_LENGTH = 512

Key = str | Callable[[MessageExt], str]
"""`"message_id"`, `"keys"`, or a function of the message."""

NOT_CONSUMED = frozenset({"RECONSUME_LATER", "SUSPEND_CURRENT_QUEUE_A_MOMENT", "ROLLBACK"})
"""Results by which a handler reports a failure, instead of raising."""


# --- a block of code --------------------------------------------------------------------------------------


def once(
    connection: object,
    message: MessageExt,
    *,
    group: str,
    key: Key = "message_id",
    table: str = TABLE,
    commit: bool = True,
) -> "Once":
    """Returns a context manager that gives True if `message` is new, and commits its record with the work.

        with once(connection, message, group="billing") as first:
            if first:
                connection.execute("UPDATE …")

    With an async connection: `async with once(…) as first`. At the end the transaction is committed; when the
    block raises, work and record are rolled back. Do not commit inside: a process that dies after that and
    before the end leaves half of the work done for ever. With `commit=False` the block is part of the
    transaction that you have begun and end yourself.

    `group` distinguishes consumers that share a database: each group does its own work once. `key` is what
    makes two deliveries the same message: `"message_id"` (the sender's id, the same in all tries of one send
    and all deliveries), `"keys"` (the message's KEYS within its topic, which then must name the event, not
    only the thing it is about), or a function of the message.
    """
    return Once(_Claims([message], group, key, table, commit), connection)


def once_each(
    connection: object,
    messages: Sequence[MessageExt],
    *,
    group: str,
    key: Key = "message_id",
    table: str = TABLE,
    commit: bool = True,
) -> "OnceEach":
    """Returns a context manager that gives the messages that are new, in one transaction. See `once`.

    with once_each(connection, messages, group="billing") as new:
        for message in new: …
    """
    return OnceEach(_Claims(messages, group, key, table, commit), connection)


class _OnceBlock:
    """Base of `Once` and `OnceEach`: commits at the end of the block, or rolls back after an error."""

    def __init__(self, claims: "_Claims", connection: Any) -> None:
        self._claims = claims
        self._connection = connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        _repeat_all(error)
        run_steps(self._connection, self._claims.leave(error is None))

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        _repeat_all(error)
        await run_steps(self._connection, self._claims.leave(error is None))


def _repeat_all(error: BaseException | None) -> None:
    """Sets `consumed` of a RetryLater to 0, so that the whole batch is delivered again.

    A handler may say that the first messages of a batch are done. Here they are not: all is rolled back.
    """
    if isinstance(error, RetryLater):
        error.consumed = 0


class Once(_OnceBlock):
    """The context manager of `once`: gives True when the message is new, False when it was processed."""

    def __enter__(self) -> bool:
        return bool(run_steps(self._connection, self._claims.enter))

    async def __aenter__(self) -> bool:
        return bool(await run_steps(self._connection, self._claims.enter))


class OnceEach(_OnceBlock):
    """The context manager of `once_each`: gives those of the messages that are new."""

    def __enter__(self) -> list[MessageExt]:
        new: list[MessageExt] = run_steps(self._connection, self._claims.enter)
        return new

    async def __aenter__(self) -> list[MessageExt]:
        new: list[MessageExt] = await run_steps(self._connection, self._claims.enter)
        return new


class _Claims:
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
        self._group = _checked_group(group)
        self._key = key_function(key)
        self._table = checked_table(table)
        self._commit = commit
        self._is_created = is_created
        self._marks: list[dict[str, object]] = []
        self._claim_id = uuid.uuid4().hex

    def enter(self, dialect: str) -> Steps[list[MessageExt]]:
        try:
            yield TransactionCommand.BEGIN if self._commit else TransactionCommand.JOIN
            if not self._is_created:
                yield from create_if_missing(dialect, self._table, _definitions(self._table))
            return (yield from self._claim())
        except BaseException:
            if self._commit:
                yield from rollback()
            raise

    def _claim(self) -> Steps[list[MessageExt]]:
        """Inserts the records and returns the new messages; the order of keys avoids deadlocks."""
        marks = [self._mark(message) for message in self._messages]
        now_ms = time.time_ns() // 1_000_000
        new = set()
        for index in sorted(range(len(marks)), key=lambda index: (*marks[index].values(), index)):
            insert = (
                f"INSERT INTO {self._table} (consumer_group, topic, message_key, claim, done_at) "
                "VALUES (:consumer_group, :topic, :message_key, :claim, :now) ON CONFLICT DO NOTHING"
            )
            if (yield Statement(insert, {**marks[index], "now": now_ms})).count == 1:
                new.add(index)
        self._marks = [marks[index] for index in sorted(new)]
        return [self._messages[index] for index in sorted(new)]

    def _mark(self, message: MessageExt) -> dict[str, object]:
        key = self._key(message)
        if len(key) > MAX_KEY_LENGTH:
            key = "sha256:" + hashlib.sha256(key.encode()).hexdigest()
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


# --- a decorator of handlers ------------------------------------------------------------------------------


def idempotent(
    connect: Callable[[], Any],
    *,
    group: str,
    key: Key = "message_id",
    table: str = TABLE,
    keep: timedelta | None = KEEP,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator: the handler works once per message, in a transaction on a connection it receives.

        @consumer.on("OrderTopic")
        @idempotent(connect=pool.connection, group="billing")
        def bill(message, connection): ...

    `connect` is called for each delivery and gives a connection or session, which is closed afterwards, or a
    context manager around one: `lambda: sqlite3.connect(path)`, `pool.connection` of psycopg_pool, a
    `sessionmaker`, `engine.connect`. The handler's last parameter receives it; the parameters before are
    those of any handler: the message, the decoded body, both, or a list of messages, of which only new ones
    are given. An `async def` handler needs async connections.

    When the handler raises, its work and the record are rolled back and the message is delivered again.
    `group` and `key` are as for `once`. Keys older than `keep` are deleted from time to time; None keeps them
    for ever.
    """
    checked_table(table)
    _checked_group(group)
    key_function(key)

    def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
        return _IdempotentHandler(handler, connect, group, key, table, keep).face()

    return decorate


class _IdempotentHandler:
    """The wrapper that `idempotent` puts around one handler."""

    def __init__(
        self,
        handler: Callable[..., Any],
        connect: Callable[[], Any],
        group: str,
        key: Key,
        table: str,
        keep: timedelta | None,
    ) -> None:
        self._handler = handler
        self._connect = connect
        self._group = group
        self._key = key
        self._table = table
        self._keep = keep
        self._shape = _HandlerSignature(handler)
        self._is_created = False
        self._clean_at = 0.0  # monotonic

    def face(self) -> Callable[..., Any]:
        """Returns the function that the consumer calls: the handler without its last parameter."""

        async def awaited(*given: Any) -> Any:
            return await self._call_async(*given)

        def called(*given: Any) -> Any:
            return self._call(*given)

        return self._shape.put_on(awaited if inspect.iscoroutinefunction(self._handler) else called)

    def _call(self, *given: Any) -> Any:
        with opened(self._connect) as connection:
            result = self._work(connection, given)
            if self._is_time_to_clean():
                self._clean(connection)
        return result

    def _work(self, connection: Any, given: Sequence[Any]) -> Any:
        messages, is_batch = self._shape.messages(given)
        claims = self._claims(messages)
        new = run_steps(connection, claims.enter)
        try:
            result = None
            if new:
                result = self._handler(*self._shape.arguments(given, new, is_batch), connection)
        except BaseException as error:
            _repeat_all(error)
            run_steps(connection, claims.leave(False))
            raise
        is_consumed = _is_consumed(result)
        run_steps(connection, claims.leave(is_consumed))
        self._is_created = is_consumed
        return result

    async def _call_async(self, *given: Any) -> Any:
        async with AsyncConnectionScope(self._connect) as connection:
            result = await self._work_async(connection, given)
            if self._is_time_to_clean():
                await self._clean_async(connection)
        return result

    async def _work_async(self, connection: Any, given: Sequence[Any]) -> Any:
        messages, is_batch = self._shape.messages(given)
        claims = self._claims(messages)
        new = await run_steps(connection, claims.enter)
        try:
            result = None
            if new:
                arguments = self._shape.arguments(given, new, is_batch)
                result = await self._handler(*arguments, connection)
        except BaseException as error:
            _repeat_all(error)
            await run_steps(connection, claims.leave(False))
            raise
        is_consumed = _is_consumed(result)
        await run_steps(connection, claims.leave(is_consumed))
        self._is_created = is_consumed
        return result

    def _claims(self, messages: Sequence[MessageExt]) -> _Claims:
        """Returns the claims of these messages; they create a missing table unless the last call succeeded.

        So the table is looked for until a message was processed, and after any failure.
        """
        is_created, self._is_created = self._is_created, False
        return _Claims(messages, self._group, self._key, self._table, is_created=is_created)

    def _is_time_to_clean(self) -> bool:
        now = time.monotonic()
        if self._keep is None or now < self._clean_at or not self._is_created:
            return False
        self._clean_at = now + CLEAN_EVERY_S
        return True

    def _clean(self, connection: Any) -> None:
        assert self._keep is not None
        try:
            forget(connection, older_than=self._keep, table=self._table)
        except Exception:  # the message is done; the next cleaning deletes them
            log.warning("Cannot delete old keys from %s; retrying later", self._table, exc_info=True)

    async def _clean_async(self, connection: Any) -> None:
        assert self._keep is not None
        try:
            await forget(connection, older_than=self._keep, table=self._table)
        except Exception:
            log.warning("Cannot delete old keys from %s; retrying later", self._table, exc_info=True)


class _HandlerSignature:
    """The parameters of a handler, and those that its wrapper shows to a consumer, which decodes by them."""

    def __init__(self, handler: Callable[..., Any]) -> None:
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        positional = [one for one in _signature(handler).parameters.values() if one.kind in kinds]
        if len(positional) < 2:
            raise InvalidArgument(
                f"{_name(handler)} needs a last parameter for the connection: def handle(message, connection)"
            )
        self._handler = handler
        self._wanted = positional[:-1]
        places = [place for place, one in enumerate(self._wanted) if _is_message(one.annotation)]
        self._shown = self._wanted if places else [*self._wanted, _MESSAGE]
        self._message_at = places[0] if places else len(self._wanted)

    def messages(self, given: Sequence[Any]) -> tuple[Sequence[MessageExt], bool]:
        """Returns the messages among the arguments of the wrapper, and whether they are a batch."""
        found = given[self._message_at]
        return ([found], False) if isinstance(found, MessageExt) else (found, True)

    def arguments(self, given: Sequence[Any], new: Sequence[MessageExt], is_batch: bool) -> Sequence[Any]:
        """Returns the handler's arguments but the connection; of a batch, those of new messages."""
        wanted = given[: len(self._wanted)]
        if not is_batch:
            return wanted
        known = {id(message) for message in new}
        places = [place for place, one in enumerate(given[self._message_at]) if id(one) in known]
        return [[items[place] for place in places] for items in wanted]

    def put_on(self, face: Callable[..., Any]) -> Callable[..., Any]:
        """Gives `face` the handler's name, docstring and parameters but the connection; returns `face`."""
        shown = self._shown
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(face, name, getattr(self._handler, name, None))
        face.__annotations__ = {one.name: one.annotation for one in shown if one.annotation is not one.empty}
        face.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        return face


def _signature(handler: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(handler, eval_str=True)
    except NameError:  # an annotation that only type checkers import
        return inspect.signature(handler)


_MESSAGE = inspect.Parameter("_message", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=MessageExt)


def _is_message(annotation: Any) -> bool:
    """Returns whether the annotation stands for a message or messages, which need no decoding."""
    if annotation in (inspect.Parameter.empty, Any, MessageExt, list, tuple, Sequence):
        return True
    return MessageExt in getattr(annotation, "__args__", ())


def _is_consumed(result: object) -> bool:
    return getattr(result, "name", None) not in NOT_CONSUMED


# --- the table --------------------------------------------------------------------------------------------


@overload
def create_table(connection: AsyncConnection, *, table: str = TABLE) -> Awaitable[None]: ...
@overload
def create_table(connection: BlockingConnection, *, table: str = TABLE) -> None: ...
def create_table(connection: Any, *, table: str = TABLE) -> Any:
    """Creates the table of processed keys unless it exists, for handlers without that right. Commits."""
    definitions = _definitions(checked_table(table))
    return run_steps(
        connection, in_transaction(lambda dialect: create_if_missing(dialect, table, definitions))
    )


@overload
def forget(
    connection: AsyncConnection, *, older_than: timedelta = KEEP, table: str = TABLE
) -> Awaitable[int]: ...
@overload
def forget(connection: BlockingConnection, *, older_than: timedelta = KEEP, table: str = TABLE) -> int: ...
def forget(connection: Any, *, older_than: timedelta = KEEP, table: str = TABLE) -> Any:
    """Deletes the keys of messages processed longer than `older_than` ago; returns how many. Commits."""
    before_ms = time.time_ns() // 1_000_000 - int(older_than.total_seconds() * 1000)
    columns = "consumer_group, topic, message_key"
    delete = Statement(
        f"DELETE FROM {checked_table(table)} WHERE ({columns}) IN "
        f"(SELECT {columns} FROM {table} WHERE done_at < :before LIMIT {DELETES_PER_TURN})",
        {"before": before_ms},
    )

    def some(dialect: str) -> Steps[int]:
        return (yield delete).count

    def steps(dialect: str) -> Steps[int]:
        deleted = 0
        while count := (yield from in_transaction(some)(dialect)):
            deleted += count
        return deleted

    return run_steps(connection, steps)


def _definitions(table: str) -> dict[str, tuple[str, ...]]:
    index = table.replace(".", "_") + "_done_at"
    both = (
        f"CREATE TABLE IF NOT EXISTS {table} ("
        "consumer_group TEXT NOT NULL, topic TEXT NOT NULL, message_key TEXT NOT NULL, "
        "claim TEXT NOT NULL, done_at BIGINT NOT NULL, PRIMARY KEY (consumer_group, topic, message_key))",
        f"CREATE INDEX IF NOT EXISTS {index} ON {table} (done_at)",
    )
    return {SQLITE: both, POSTGRESQL: both}


# --- keys -------------------------------------------------------------------------------------------------


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


def _checked_group(group: str) -> str:
    if not group:
        raise InvalidArgument(
            f"group must be the name of the consumer group, which distinguishes consumers that share the "
            f"table, got {group!r}"
        )
    return group


def _name(handler: Callable[..., Any]) -> str:
    return getattr(handler, "__qualname__", repr(handler))
