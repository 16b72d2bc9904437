"""Pulls the messages of one range of a queue, as they are stored: several pulls in flight, results in order.

In: a range, a filter. Out: parts, each some megabytes of records back to back. Where nothing filters, the
offsets of later pulls are known before earlier ones are answered. An unavailable broker is waited for; lost
messages raise DataLost or are logged. Single messages are not looked at here.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from turbopump.client import background
from turbopump.client.message import MessageQueue
from turbopump.client.pull.puller import PulledBytes, PullStatus
from turbopump.pipelines.source.offsets import Range, lost, named
from turbopump.pipelines.source.settings import SourceFilter
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.errors import Refused
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

MAX_PULLS_IN_FLIGHT = 8  # per range
MAX_ANSWER_BYTES = 512 << 10  # per pull; larger ones are no cheaper per byte
PART_BYTES = 2 << 20  # of records before a part is handed on
MAX_PARTS_AHEAD = 2  # that wait to be decoded
CALL_TIMEOUT_S = 10.0
RETRY_PAUSE_S = 0.2  # before a failed pull is repeated
# For a queue that ends before the range does: a slave, or a broker that is starting, catches up.
TAIL_WAIT_S = 10.0
FULL_ANSWERS_TO_GROW = 16  # complete responses in a row after which more messages are asked for
TRANSIENT_CODES = frozenset(
    {
        *(ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE),
        *(ResponseCode.TOPIC_NOT_EXIST, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.GO_AWAY),
    }
)
"""Responses of a broker that is starting, stopping or overloaded."""


PulledRange = tuple[int, int, PulledBytes]
"""First offset, end offset, and the response for that range."""


class BytePuller(Protocol):
    """The part of `client.pull.Puller` that a `RangePull` uses."""

    async def pull_bytes(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str = "*",
        max_count: int = ...,
        *,
        kind: str = ...,
        max_bytes: int = ...,
        timeout_s: float = ...,
    ) -> PulledBytes: ...


@dataclass(frozen=True, slots=True)
class PulledRecords:
    """Undecoded records: all that match in queue offsets [start, end), and perhaps others to be dropped."""

    start: int
    end: int
    body: bytes
    delta: int = 0
    """What must be added to the records' offsets to get those of the queue."""


@dataclass
class RangePull:
    """Pulls the messages in one range of queue offsets, several pulls at a time."""

    pulls: BytePuller
    doubt: Callable[[str], None]
    """Called with the topic when its broker did not answer, so that its route is refreshed."""
    wanted: Range
    filter: SourceFilter
    count: int
    patience_s: float
    fails_on_loss: bool
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], float] = field(default_factory=lambda: asyncio.get_running_loop().time)

    async def parts(self) -> AsyncGenerator[PulledRecords, None]:
        """Yields the range's records in order, in parts. Raises DataLost for lost ones, or omits them.

        A part joins several responses. `fails_on_loss` decides about lost messages.
        """
        held: list[PulledBytes] = []
        begin = at = self.wanted.start
        size = 0
        async with contextlib.aclosing(self._answers()) as answers:
            async for start, end, answer in answers:
                is_gap = start != at or (self.filter.is_all and not answer.body)
                if held and (size >= PART_BYTES or answer.delta != held[0].delta or is_gap):
                    yield _joined(begin, at, held)
                    held, size = [], 0
                if not held:
                    begin = start
                if answer.body:
                    held.append(answer)
                    size += len(answer.body)
                at = end
        if held:
            yield _joined(begin, at, held)

    async def _answers(self) -> AsyncGenerator[PulledRange, None]:
        if not self.filter.is_all:
            async for one in self._in_turn(self.wanted.start, self.wanted.end):
                yield one
            return
        tasks = Tasks(log)
        under_way: deque[tuple[int, asyncio.Task[PulledRange]]] = deque()
        at, step, full = self.wanted.start, self.count, 0
        try:
            while at < self.wanted.end or under_way:
                # The first response shows how many messages this broker gives per pull.
                limit = 1 if at == self.wanted.start else MAX_PULLS_IN_FLIGHT
                while at < self.wanted.end and len(under_way) < limit:
                    end = min(at + step, self.wanted.end)
                    # Awaited below, which raises a failure of the pull.
                    under_way.append((end, tasks.start(self._next(at, end), log_failure=False)))
                    at = end
                end, task = under_way.popleft()
                start, after, answer = await task
                yield start, after, answer
                if after < end:
                    step, full = max(1, after - start), 0
                elif full >= FULL_ANSWERS_TO_GROW:
                    step, full = min(step * 2, self.count), 0
                else:
                    full += 1
                if after < end and not under_way:
                    at = after
                    continue
                async for one in self._in_turn(after, end):
                    yield one
        finally:
            await tasks.close()

    async def _in_turn(self, at: int, end: int) -> AsyncGenerator[PulledRange, None]:
        while at < end:
            answer = await self._next(at, end)
            yield answer
            at = answer[1]

    async def _next(self, at: int, end: int) -> PulledRange:
        """Returns the next range (start, end) with its response, perhaps without records. Always advances.

        Waits for an unavailable broker, at most `patience_s`.
        """
        deadline = self.now() + self.patience_s
        tail = self.now() + min(TAIL_WAIT_S, self.patience_s)
        start = at
        while at < end:
            answer = await self._pull(at, end, deadline)
            if answer.status is PullStatus.FOUND or _passes(answer, at):
                if start < at:
                    self._lose(start, at)
                if answer.status is not PullStatus.FOUND and self.filter.is_all:
                    # The files are just being deleted.
                    self._lose(at, min(answer.next_offset, end))
                return at, min(max(answer.next_offset, at + 1), end), answer
            if at < answer.min_offset:
                at = min(answer.min_offset, end)
            elif at >= answer.max_offset and self.now() >= tail:
                self._lose(start, end, f"it ends at {answer.max_offset}")
                return start, end, _empty(answer)
            elif self.now() >= deadline:
                has = f"although it has {answer.min_offset} to {answer.max_offset - 1}"
                raise TimeoutError(
                    f"{named(self.wanted.queue)} returned nothing at {at} for {self.patience_s} s, {has}"
                )
            elif answer.status is not PullStatus.OFFSET_ILLEGAL or at >= answer.max_offset:
                await self.sleep(RETRY_PAUSE_S)
            # Otherwise the group's offset was reset: the next pull gets what it asks for.
        self._lose(start, end)
        return start, end, _empty(answer)

    async def _pull(self, at: int, end: int, deadline: float) -> PulledBytes:
        queue, is_logged = self.wanted.queue, False
        while True:
            try:
                return await self.pulls.pull_bytes(
                    queue,
                    at,
                    self.filter.expression,
                    min(self.count, end - at) if self.filter.is_all else self.count,
                    kind=self.filter.kind,
                    max_bytes=MAX_ANSWER_BYTES,
                    timeout_s=min(CALL_TIMEOUT_S, self.patience_s),
                )
            except (OSError, Refused) as error:
                if isinstance(error, Refused) and error.code not in TRANSIENT_CODES:
                    raise
                if self.now() >= deadline:
                    why = f"{named(queue)} could not be read for {self.patience_s} s (pullTimeoutMs)"
                    raise TimeoutError(f"{why}: {error}") from error
                if not is_logged:
                    log.warning(
                        "Cannot pull from %s; retrying for %s s: %s", named(queue), self.patience_s, error
                    )
                is_logged = True
                self.doubt(queue.topic)
                await self.sleep(RETRY_PAUSE_S)

    def _lose(self, start: int, end: int, why: str = "the broker does not keep them any more") -> None:
        problem = f"messages {start} to {end - 1} of {named(self.wanted.queue)} are gone: {why}"
        if self.fails_on_loss:
            raise lost([problem])
        log.warning("%s; continuing after them, as failOnDataLoss is false", problem)


def _passes(answer: PulledBytes, at: int) -> bool:
    """Tells whether a response found nothing at offset `at`, and says that a later offset is next."""
    found_none = (PullStatus.NO_MATCHED_MSG, PullStatus.NO_NEW_MSG)
    return answer.status in found_none and at < answer.next_offset <= answer.max_offset


def _empty(answer: PulledBytes) -> PulledBytes:
    return PulledBytes(answer.status, answer.next_offset, answer.min_offset, answer.max_offset, b"", 0)


def _joined(start: int, end: int, held: list[PulledBytes]) -> PulledRecords:
    return PulledRecords(start, end, b"".join([answer.body for answer in held]), held[0].delta)


# --- for a thread ----------------------------------------------------------------------------------------


def parts_of(make: Callable[[], RangePull]) -> Iterator[PulledRecords]:
    """Yields the parts of a RangePull, pulled ahead on the background loop while the caller works."""
    ahead = background.run(_begun(make))
    try:
        while (one := background.run(ahead.take())) is not None:
            yield one
    finally:
        background.submit(ahead.end())


@dataclass
class _Prefetch:
    """Pulls a range ahead of its reader: at most MAX_PARTS_AHEAD parts ready, and one more under way."""

    ready: "asyncio.Queue[PulledRecords | BaseException | None]"
    tasks: Tasks

    async def fill(self, reading: RangePull) -> None:
        try:
            async with contextlib.aclosing(reading.parts()) as parts:
                async for part in parts:
                    await self.ready.put(part)
            await self.ready.put(None)
        except Exception as error:
            await self.ready.put(error)

    async def take(self) -> PulledRecords | None:
        one = await self.ready.get()
        if isinstance(one, BaseException):
            raise one
        return one

    async def end(self) -> None:
        await self.tasks.close()


async def _begun(make: Callable[[], RangePull]) -> _Prefetch:
    ahead = _Prefetch(asyncio.Queue(MAX_PARTS_AHEAD), Tasks(log))
    ahead.tasks.start(ahead.fill(make()), name="prefetch pulled records")
    return ahead
