"""The relay: takes messages out of the outbox table and sends them until brokers have stored them.

A round: take some rows for a time (the lease), send them, record the outcome. Lanes are sent side by side;
within a lane one message after the other, and after a failure the rest of the lane waits. A relay that dies
between sending and recording leaves rows that are taken until the lease is over and then sent again, with the
same message id: at least once to the broker, and once in effect with an idempotent consumer.
"""

import asyncio
import inspect
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, TypeVar

from turbopump.client.errors import InvalidArgument, NotRunning
from turbopump.client.message import Message, SendResult
from turbopump.runtime.clock import Clock, SystemClock
from turbopump.transactions.connections import UserConnections
from turbopump.transactions.database import checked_table
from turbopump.transactions.outbox_table import OutboxTable, Pending

T = TypeVar("T")
log = logging.getLogger(__name__)

TABLE = "turbopump_outbox"
BATCH = 100
MAX_CONCURRENT_SENDS = 32
INTERVAL_S = 1.0
LEASE_S = 60.0
FAILURE_PAUSE_S = 5.0
CLOSE_TIMEOUT_S = 30.0


class BlockingSends(Protocol):
    """What a relay uses of the blocking producer, `turbopump.Producer`."""

    def send(self, message: Message, *, by: object = None) -> SendResult: ...


class AsyncSends(Protocol):
    """What a relay uses of the async producer, `turbopump.aio.Producer`."""

    async def send(self, message: Message, *, by: object = None) -> SendResult: ...


Sends = BlockingSends | AsyncSends


class Relay:
    """Sends the messages of an outbox table until brokers have stored them, as a task of an event loop.

        async with Producer("orders") as producer:
            await Relay(producer, connect).run()

    `connect` makes a connection or session as for `idempotent`, blocking or async. Several relays may run, in
    several processes: each message is taken by one of them. `lease` is how long the others leave it alone;
    `interval` is the pause after an empty outbox. With a blocking producer use `RelayThread`.
    """

    def __init__(
        self,
        producer: Sends,
        connect: Callable[[], Any],
        *,
        table: str = TABLE,
        batch: int = BATCH,
        at_once: int = MAX_CONCURRENT_SENDS,
        interval: float = INTERVAL_S,
        lease: float = LEASE_S,
        clock: Clock | None = None,
    ) -> None:
        for name, value in (("batch", batch), ("at_once", at_once), ("interval", interval), ("lease", lease)):
            if value <= 0:
                raise InvalidArgument(f"{name} must be more than 0, got {value}")
        self._producer = producer
        self._connections = UserConnections(connect)
        self._table = OutboxTable(checked_table(table))
        self._batch = batch
        self._at_once = at_once
        self._interval = interval
        self._lease = lease
        self._clock = clock or SystemClock()
        self._is_closing = False
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Sends messages of the outbox, round after round, until `close` or until it is cancelled.

        Failures of the database are logged, and the round is repeated; raises NotRunning when the producer is
        closed.
        """
        while not self._is_closing:
            self._woken.clear()
            try:
                taken = await self._round()
            except NotRunning:
                raise
            except Exception:
                log.exception("Cannot relay the outbox; retrying in %s s", FAILURE_PAUSE_S)
                await self._rest(FAILURE_PAUSE_S)
                continue
            if taken < self._batch:
                await self._rest(self._interval)

    async def run_once(self) -> int:
        """Runs one round now; returns how many messages were taken, sent or not.

        A scheduled job can call it, instead of `run`.
        """
        return await self._round()

    def wake(self) -> None:
        """Makes `run` begin its next round at once, because there are new messages.

        Call it from the relay's own event loop.
        """
        self._woken.set()

    def close(self) -> None:
        """Ends `run` after the current round."""
        self._is_closing = True
        self._woken.set()

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _round(self) -> int:
        token = uuid.uuid4().hex
        begun = self._clock.monotonic()
        lease_ms = int(self._lease * 1000)
        take = self._table.take(token, self._batch, lease_ms, self._clock.now_ms())
        rows = await self._connections.perform(self._table.relay_transaction(take))
        if not rows:
            return 0
        outcomes = _Outcomes()
        try:
            await self._send_all(rows, begun + self._lease / 2, outcomes)
        finally:
            await asyncio.shield(self._settle(token, outcomes, begun + self._lease))
        return len(rows)

    async def _send_all(self, rows: Sequence[Pending], last_start: float, outcomes: "_Outcomes") -> None:
        """Sends the rows, lanes side by side, and notes their outcomes; begins no send after `last_start`.

        Such a send might end after the lease.
        """
        free = asyncio.Semaphore(self._at_once)

        async def send_lane(lane: Sequence[Pending]) -> None:
            async with free:
                for row in lane:
                    if self._clock.monotonic() > last_start or not await self._send(row, outcomes):
                        return

        ended = await asyncio.gather(*map(send_lane, _lanes(rows)), return_exceptions=True)
        # Raised only after all lanes have ended, when the outcome of each row is known.
        for failure in ended:
            if failure is not None:
                raise failure

    async def _send(self, row: Pending, outcomes: "_Outcomes") -> bool:
        try:
            async with asyncio.timeout(self._lease / 2):
                await _sent(self._producer, row.message, row.by)
        except NotRunning:
            raise
        except Exception as error:
            log.warning("Cannot send message %s to %s: %s", row.message_id, row.message.topic, error)
            outcomes.failed[row.id] = f"{type(error).__name__}: {error}"
            return False
        outcomes.sent.append(row.id)
        return True

    async def _settle(self, token: str, outcomes: "_Outcomes", lease_end: float) -> None:
        """Writes the outcomes into the table; retries when that fails, until the lease is over.

        Then the messages are sent again anyway.
        """
        while True:
            settle = self._table.settle(token, outcomes.sent, outcomes.failed, self._clock.now_ms())
            try:
                return await self._connections.perform(self._table.relay_transaction(settle))
            except Exception:
                if self._clock.monotonic() > lease_end:
                    log.exception(
                        "Cannot record that %d messages were sent; sending them again", len(outcomes.sent)
                    )
                    return None
                log.warning("Cannot record what was sent; retrying", exc_info=True)
                await asyncio.sleep(min(1.0, self._lease / 10))


class RelayThread:
    """Runs a relay in a thread, for programs with a blocking producer.

        with Producer("orders") as producer, RelayThread(producer, connect) as relay:
            …
            relay.wake()  # after a commit, instead of waiting for the next round

    Takes the arguments of `Relay`. At the end of the block it finishes the current round.
    """

    def __init__(self, producer: BlockingSends, connect: Callable[[], Any], **more: Any) -> None:
        if inspect.iscoroutinefunction(producer.send):
            raise InvalidArgument(
                "a thread needs a blocking producer: `turbopump.Producer`, or use Relay.run()"
            )
        self._relay = Relay(producer, connect, **more)
        self._thread = threading.Thread(target=self._run, name="turbopump-outbox", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running = threading.Event()

    def start(self) -> None:
        self._thread.start()
        self._running.wait()

    def close(self) -> None:
        """Ends the thread after its current round, and waits for that up to CLOSE_TIMEOUT_S.

        May be repeated, and called before `start`. What is not sent by then stays in the outbox.
        """
        self._call(self._relay.close)
        if self._thread.ident is not None:  # it was started
            self._thread.join(CLOSE_TIMEOUT_S)

    def wake(self) -> None:
        """Makes the relay begin its next round at once, because there are new messages.

        Call it from any thread.
        """
        self._call(self._relay.wake)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, what: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception:
            log.exception("The outbox relay ended; pending messages stay in the outbox")
        finally:
            self._running.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running.set()
        await self._relay.run()


class _Outcomes:
    """The ids of the rows that a round has sent, and the errors of those that failed."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.failed: dict[int, str] = {}


async def _sent(producer: Sends, message: Message, by: str | None) -> Any:
    if inspect.iscoroutinefunction(producer.send):
        return await producer.send(message, by=by)
    return await asyncio.to_thread(producer.send, message, by=by)


def _lanes(rows: Sequence[Pending]) -> list[list[Pending]]:
    """Groups rows by their key `by`, in order; a row without a key is a group of its own."""
    lanes: dict[object, list[Pending]] = {}
    for row in rows:
        lanes.setdefault(row.id if row.by is None else row.by, []).append(row)
    return list(lanes.values())
