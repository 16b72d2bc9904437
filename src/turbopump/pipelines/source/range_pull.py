"""The messages of one range of a queue, from its broker, as they are stored: several pulls under way, results
in order.

In: a range, a filter. Out: parts, each some megabytes of records back to back. Where nothing filters, the
offsets of later pulls are known before earlier ones are answered. A broker that is away is waited for; what
is gone is told to `lose`, which fails or lets it go on. No message is touched here.
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

MAX_PULLS_IN_FLIGHT = 8  # pulls of one range
MAX_ANSWER_BYTES = 512 << 10  # asked for with each; larger ones cost no less
PART_BYTES = 2 << 20  # of records are handed on together
MAX_PARTS_AHEAD = 2  # wait for who decodes them
CALL_TIMEOUT_S = 10.0
RETRY_PAUSE_S = 0.2  # before a pull that failed is made again
TAIL_WAIT_S = (
    10.0  # for a queue that ends before the range does: a slave or a broker that is starting catches up
)
FULL_ANSWERS_TO_GROW = 16  # answers in a row that had all that was asked for
TRANSIENT_CODES = frozenset(  # what a broker says that is starting, stopping or has too much to do
    {
        *(ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE),
        *(ResponseCode.TOPIC_NOT_EXIST, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.GO_AWAY),
    }
)


PulledRange = tuple[int, int, PulledBytes]
"""From which offset on, up to which, and what was found there."""


class BytePuller(Protocol):
    """What is needed of `client.pull.Puller`."""

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
    """Records of [start, end), those that are wanted at the least."""

    start: int
    end: int
    body: bytes
    delta: int = 0
    """What the records' offsets lack to be the queue's."""


@dataclass
class RangePull:
    pulls: BytePuller
    doubt: Callable[[str], None]
    """Told of a topic whose broker did not answer."""
    wanted: Range
    filter: SourceFilter
    count: int
    patience_s: float
    fails_on_loss: bool
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], float] = field(default_factory=lambda: asyncio.get_running_loop().time)

    async def parts(self) -> AsyncGenerator[PulledRecords, None]:
        """The range from its start to its end, answers joined to parts."""
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
        """An answer with records, or the knowledge that there are none: from where to where. Always gets on;
        waits for a broker that is away, at most `patience_s`.
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
                    self._lose(at, min(answer.next_offset, end))  # files that are just being deleted
                return at, min(max(answer.next_offset, at + 1), end), answer
            if at < answer.min_offset:
                at = min(answer.min_offset, end)
            elif at >= answer.max_offset and self.now() >= tail:
                self._lose(start, end, f"it ends at {answer.max_offset}")
                return start, end, _empty(answer)
            elif self.now() >= deadline:
                has = f"though it has {answer.min_offset} to {answer.max_offset - 1}"
                raise TimeoutError(f"{named(self.wanted.queue)} gave nothing at {at} in time, {has}")
            elif answer.status is not PullStatus.OFFSET_ILLEGAL or at >= answer.max_offset:
                await self.sleep(RETRY_PAUSE_S)
            # Else the group's offset was reset: the pull after this one gets what it asks for.
        self._lose(start, end)
        return start, end, _empty(answer)

    async def _pull(self, at: int, end: int, deadline: float) -> PulledBytes:
        queue, told = self.wanted.queue, False
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
                if not told:
                    log.warning("%s does not answer, trying again: %s", named(queue), error)
                told = True
                self.doubt(queue.topic)
                await self.sleep(RETRY_PAUSE_S)

    def _lose(self, start: int, end: int, why: str = "the broker does not keep them any more") -> None:
        told = f"messages {start} to {end - 1} of {named(self.wanted.queue)} are gone: {why}"
        if self.fails_on_loss:
            raise lost([told])
        log.warning("%s; going on behind them, as failOnDataLoss is false", told)


def _passes(answer: PulledBytes, at: int) -> bool:
    """Nothing was found, and a pull can go on further behind."""
    found_none = (PullStatus.NO_MATCHED_MSG, PullStatus.NO_NEW_MSG)
    return answer.status in found_none and at < answer.next_offset <= answer.max_offset


def _empty(answer: PulledBytes) -> PulledBytes:
    return PulledBytes(answer.status, answer.next_offset, answer.min_offset, answer.max_offset, b"", 0)


def _joined(start: int, end: int, held: list[PulledBytes]) -> PulledRecords:
    return PulledRecords(start, end, b"".join([answer.body for answer in held]), held[0].delta)


# --- for a thread ----------------------------------------------------------------------------------------


def parts_of(make: Callable[[], RangePull]) -> Iterator[PulledRecords]:
    """The parts, read ahead on the background loop while the caller is busy with the last one."""
    ahead = background.run(_begun(make))
    try:
        while (one := background.run(ahead.take())) is not None:
            yield one
    finally:
        background.submit(ahead.end())


@dataclass
class _Prefetch:
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
