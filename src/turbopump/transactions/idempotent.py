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

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, overload

from turbopump.client.errors import InvalidArgument
from turbopump.client.group.consume_status import RetryLater
from turbopump.client.message import MessageExt
from turbopump.transactions.claims import (
    TABLE,
    Claims,
    Key,
    checked_group,
    definitions,
    delete_old,
    key_function,
)
from turbopump.transactions.connections import AsyncConnectionScope, opened
from turbopump.transactions.database import (
    AsyncConnection,
    BlockingConnection,
    Steps,
    checked_table,
    create_table_steps,
    in_transaction,
    run_steps,
)
from turbopump.transactions.errors import WorkUndone

__all__ = ["Key", "WorkUndone", "create_table", "forget", "idempotent", "once", "once_each"]

log = logging.getLogger(__name__)

KEEP = timedelta(days=7)  # brokers keep messages for 3 days: no repeated delivery comes later
CLEAN_EVERY_S = 3600.0

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
    return Once(Claims([message], group, key, table, commit), connection)


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
    return OnceEach(Claims(messages, group, key, table, commit), connection)


class _OnceBlock:
    """Base of `Once` and `OnceEach`: commits at the end of the block, or rolls back after an error."""

    def __init__(self, claims: "Claims", connection: Any) -> None:
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
    checked_group(group)
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

    def _claims(self, messages: Sequence[MessageExt]) -> Claims:
        """Returns the claims of these messages; they create a missing table unless the last call succeeded.

        So the table is looked for until a message was processed, and after any failure.
        """
        is_created, self._is_created = self._is_created, False
        return Claims(messages, self._group, self._key, self._table, is_created=is_created)

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
    return run_steps(connection, create_table_steps(checked_table(table), definitions(table)))


@overload
def forget(
    connection: AsyncConnection, *, older_than: timedelta = KEEP, table: str = TABLE
) -> Awaitable[int]: ...
@overload
def forget(connection: BlockingConnection, *, older_than: timedelta = KEEP, table: str = TABLE) -> int: ...
def forget(connection: Any, *, older_than: timedelta = KEEP, table: str = TABLE) -> Any:
    """Deletes the keys of messages processed longer than `older_than` ago; returns how many. Commits."""
    before_ms = time.time_ns() // 1_000_000 - int(older_than.total_seconds() * 1000)
    some = in_transaction(delete_old(checked_table(table), before_ms))

    def steps(dialect: str) -> Steps[int]:
        deleted = 0
        while count := (yield from some(dialect)):
            deleted += count
        return deleted

    return run_steps(connection, steps)


def _name(handler: Callable[..., Any]) -> str:
    return getattr(handler, "__qualname__", repr(handler))
