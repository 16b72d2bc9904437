"""The outbox: messages that are written in a database transaction, and sent afterwards by a relay.

A program that changes its database and then sends a message about it may die in between; one that sends first
may fail to commit. Here the message is written into a table of the same database, in the same transaction,
and a relay sends it afterwards until a broker has stored it:

    with connection:                                      # sqlite3: a transaction
        connection.execute("INSERT INTO orders …")
        outbox.send(connection, Message("OrderTopic", b"…"), by="A-1")

    await outbox.Relay(producer, connect).run()           # elsewhere, or RelayThread(producer, connect)

Each message has its id from the beginning, so that an idempotent consumer has each effect once although a
relay may send twice. Messages with the same `by` reach the broker in the order in which they were written.
"""

import inspect
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, overload

from msgspec.structs import replace

from turbopump.client import discovery
from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message, SendResult
from turbopump.client.produce.unique_ids import ProcessIds
from turbopump.client.rules import SendRules
from turbopump.client.settings import ProducerSettings, made
from turbopump.protocol import properties
from turbopump.protocol.errors import Refused
from turbopump.runtime.chance import Chance
from turbopump.transactions.connections import UserConnections, perform_blocking
from turbopump.transactions.database import (
    AsyncConnection,
    BlockingConnection,
    DialectSteps,
    Steps,
    checked_table,
    run_steps,
)
from turbopump.transactions.outbox_table import OutboxTable, Pending
from turbopump.transactions.relay import TABLE, AsyncSends, BlockingSends, Relay, RelayThread

__all__ = [
    "Kept",
    "Pending",
    "Relay",
    "RelayThread",
    "create_table",
    "discard",
    "keep",
    "pending",
    "retry_now",
    "send",
    "send_or_keep",
    "stamped",
]


@dataclass(frozen=True, slots=True)
class Kept:
    """A message that was not sent yet: it is in the outbox, from which a relay will send it."""

    message_id: str
    failure: Exception | None
    """None: earlier messages of its key are in the outbox, and it must not overtake them."""


@overload
def send(
    connection: AsyncConnection, message: Message, *, by: str | None = None, table: str = TABLE
) -> Awaitable[str]: ...
@overload
def send(
    connection: BlockingConnection, message: Message, *, by: str | None = None, table: str = TABLE
) -> str: ...
def send(connection: Any, message: Message, *, by: str | None = None, table: str = TABLE) -> Any:
    """Writes the message into the outbox, in the transaction that you commit, and returns its id.

    With an async connection: `await outbox.send(…)`. `by` keeps order: of two messages with the same key the
    one written first is sent first, to the same queue. Where transactions compete for a row, lock the row
    before you write its message. Raises InvalidArgument when the message could never be sent, or when the
    connection commits each statement and no transaction was begun.
    """
    row = _NewRow(message, by, table)

    def steps(dialect: str) -> Steps[str]:
        yield from row.table.join(dialect)
        return (yield from row.put(dialect))

    return run_steps(connection, steps)


@overload
def keep(
    connection: AsyncConnection,
    message: Message,
    *,
    by: str | None = None,
    error: BaseException | None = None,
    table: str = TABLE,
) -> Awaitable[str]: ...
@overload
def keep(
    connection: BlockingConnection,
    message: Message,
    *,
    by: str | None = None,
    error: BaseException | None = None,
    table: str = TABLE,
) -> str: ...
def keep(
    connection: Any,
    message: Message,
    *,
    by: str | None = None,
    error: BaseException | None = None,
    table: str = TABLE,
) -> Any:
    """Stores a message whose direct send failed with `error`, for a relay to send. Commits, returns its id.

        message = outbox.stamped(Message(…))
        try:
            producer.send(message)
        except OSError as error:
            outbox.keep(connection, message, error=error)

    A failed send may have reached a broker all the same. Send a `stamped` message, so that both copies have
    the same message id and an idempotent consumer takes one of them; `send_or_keep` does all of this.
    """
    row = _NewRow(message, by, table, error)
    return run_steps(connection, row.table.transaction(row.put))


@overload
def pending(
    connection: AsyncConnection, *, most: int = 100, table: str = TABLE
) -> Awaitable[list[Pending]]: ...
@overload
def pending(connection: BlockingConnection, *, most: int = 100, table: str = TABLE) -> list[Pending]: ...
def pending(connection: Any, *, most: int = 100, table: str = TABLE) -> Any:
    """Returns the oldest messages that are not sent yet, each with its tries and last failure."""
    return run_steps(connection, OutboxTable(checked_table(table)).pending(most))


@overload
def retry_now(connection: AsyncConnection, *, table: str = TABLE) -> Awaitable[int]: ...
@overload
def retry_now(connection: BlockingConnection, *, table: str = TABLE) -> int: ...
def retry_now(connection: Any, *, table: str = TABLE) -> Any:
    """Makes all failed messages due at once, and returns how many. Commits."""
    outbox = OutboxTable(checked_table(table))
    return run_steps(connection, outbox.transaction(outbox.make_due))


@overload
def discard(connection: AsyncConnection, row: int, *, table: str = TABLE) -> Awaitable[bool]: ...
@overload
def discard(connection: BlockingConnection, row: int, *, table: str = TABLE) -> bool: ...
def discard(connection: Any, row: int, *, table: str = TABLE) -> Any:
    """Deletes the pending message with this row id; False: there is none. Commits.

    No message is dropped in any other way.
    """
    outbox = OutboxTable(checked_table(table))
    return run_steps(connection, outbox.transaction(outbox.discard(row)))


@overload
def create_table(connection: AsyncConnection, *, table: str = TABLE) -> Awaitable[None]: ...
@overload
def create_table(connection: BlockingConnection, *, table: str = TABLE) -> None: ...
def create_table(connection: Any, *, table: str = TABLE) -> Any:
    """Creates the outbox table unless it exists: for where programs may not create tables. Commits."""
    return run_steps(connection, OutboxTable(checked_table(table)).create())


def stamped(message: Message) -> Message:
    """Returns the message with a message id, which stays the same in every try to send it.

    One that has an id is unchanged.
    """
    if properties.UNIQUE_KEY in message.properties:
        return message
    return replace(message, properties={**message.properties, properties.UNIQUE_KEY: _ids().next()})


@overload
def send_or_keep(
    producer: AsyncSends,
    connect: Callable[[], Any],
    message: Message,
    *,
    by: str | None = None,
    table: str = TABLE,
) -> Awaitable[SendResult | Kept]: ...
@overload
def send_or_keep(
    producer: BlockingSends,
    connect: Callable[[], Any],
    message: Message,
    *,
    by: str | None = None,
    table: str = TABLE,
) -> SendResult | Kept: ...
def send_or_keep(
    producer: Any,
    connect: Callable[[], Any],
    message: Message,
    *,
    by: str | None = None,
    table: str = TABLE,
) -> Any:
    """Sends directly, and stores the message in the outbox when that fails. Returns SendResult or Kept.

    With an async producer: `await send_or_keep(…)`; `connect` may then make blocking or async connections.
    With `by`, a message waits in the outbox behind earlier ones of its key. A message that can never be sent
    still raises InvalidArgument, a producer that is not running NotRunning.
    """
    _checked(message)
    call = _DirectSend(producer, connect, stamped(message), by, checked_table(table))
    return call.send_async() if inspect.iscoroutinefunction(producer.send) else call.send()


class _DirectSend:
    """One call of `send_or_keep`: sends the message, or stores it in the outbox."""

    def __init__(
        self, producer: Any, connect: Callable[[], Any], message: Message, by: str | None, table: str
    ) -> None:
        self._producer = producer
        self._connect = connect
        self._message = message
        self._by = by
        self._table = table

    def send(self) -> SendResult | Kept:
        must_wait = self._by is not None and perform_blocking(self._connect, self._waits())
        if must_wait:
            return Kept(perform_blocking(self._connect, self._kept(None)), None)
        try:
            sent: SendResult = self._producer.send(self._message, by=self._by)
            return sent
        except (OSError, Refused) as error:
            return Kept(perform_blocking(self._connect, self._kept(error)), error)

    async def send_async(self) -> SendResult | Kept:
        connections = UserConnections(self._connect)
        must_wait = self._by is not None and await connections.perform(self._waits())
        if must_wait:
            return Kept(await connections.perform(self._kept(None)), None)
        try:
            sent: SendResult = await self._producer.send(self._message, by=self._by)
            return sent
        except (OSError, Refused) as error:
            return Kept(await connections.perform(self._kept(error)), error)

    def _waits(self) -> DialectSteps[bool]:
        table = OutboxTable(self._table)
        return table.transaction(table.holds(self._by or ""))

    def _kept(self, error: Exception | None) -> DialectSteps[str]:
        row = _NewRow(self._message, self._by, self._table, error)
        return row.table.transaction(row.put)


class _NewRow:
    """A message to be written into the outbox table, checked and with its message id."""

    def __init__(
        self, message: Message, by: str | None, table: str, error: BaseException | None = None
    ) -> None:
        _checked(message)
        if by is not None and not isinstance(by, str):
            raise InvalidArgument(f"by must be text in the outbox, got {by!r}")
        self._message = stamped(message)
        self._by = by
        self.table = OutboxTable(checked_table(table))
        self._failure = f"{type(error).__name__}: {error}" if error is not None else ""

    def put(self, dialect: str) -> Steps[str]:
        return (yield from self.table.put(dialect, self._message, self._by, _now_ms(), self._failure))


def _checked(message: Message) -> None:
    """Raises InvalidArgument for a message that could never be sent: now, not in every try of a relay."""
    SendRules(made(ProducerSettings, {}, discovery.defaults()).max_message_size).check(message)


@cache
def _ids() -> ProcessIds:
    return ProcessIds(_local_ip(), _now_ms, Chance())


def _local_ip() -> str:
    """Returns the IPv4 address of this machine, for message ids; 127.0.0.1 if it has no network."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only selects the outgoing interface
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
