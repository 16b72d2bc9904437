"""Who calls the handlers: coroutines for `async def`, threads for `def`, as many as the user allows.

Work is taken one piece at a time by whoever is free, so a slow message holds up nobody else; and nobody is
made or woken for each message: one who finds more work than his own calls a second, and so on, while the
handlers of a busy queue are called in a row. What threads have done comes back to the loop together.
"""

import asyncio
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from turbopump.client.instance import complain
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

SLICE_S = 0.005  # handlers that never wait let the loop turn that often
CANCEL_S = 1.0
_numbers = itertools.count(1)


@dataclass(slots=True)
class WorkerPoolSize:
    """How many workers there may be: `least` stay when there is nothing to do, `most` work at a time."""

    least: int
    most: int


async def cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels them, and waits a moment for those that take notice."""
    these = [task for task in tasks if task is not asyncio.current_task()]
    for task in these:
        task.cancel()
    if these:
        await asyncio.wait(these, timeout=CANCEL_S)


class WorkItem(Protocol):
    """A piece of work. Nothing here raises."""

    lacks: int
    """So much more of the same could be done with it; 0 for most."""

    def absorb(self, other: Any) -> bool:
        """Takes over another piece; False: it does not belong to this one, or is too much."""

    def run(self) -> None:
        """The work, in a thread."""

    def deliver(self) -> Coroutine[Any, Any, bool]:
        """The work, on the loop. False: it failed, perhaps because its task was cancelled."""


P = TypeVar("P", bound=WorkItem)


class WorkerPool(Generic[P]):
    """`collect` gets what was done, several pieces at a time, always on the loop."""

    def __init__(self, crew: WorkerPoolSize, collect: Callable[[list[P]], None]) -> None:
        self._crew = crew
        self._collect = collect
        self._loop = asyncio.get_running_loop()
        self._work: deque[P] = deque()
        self._done: deque[P] = deque()
        self._told = False  # the loop will look at what is done
        self._called = False  # someone is on the way: that is enough until it has come
        self._open = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    def submit(self, pieces: Sequence[P]) -> None:
        self._open += len(pieces)
        self._quiet.clear()
        self._work.extend(pieces)
        self._call_one()

    def forget_waiting(self) -> None:
        """What nobody has begun."""
        forgotten = 0
        while self._work:
            try:
                self._work.popleft()
            except IndexError:  # a thread was faster
                break
            forgotten += 1
        self._finished(forgotten)

    async def quiet(self) -> None:
        """Returns when everything is done."""
        await self._quiet.wait()

    def _fill(self, piece: P) -> None:
        """With what waits next, as far as it belongs together: a batch is best full."""
        work = self._work
        while piece.lacks and work:
            try:
                following = work.popleft()
            except IndexError:  # a thread was faster
                return
            if not piece.absorb(following):
                work.appendleft(following)
                return
            self._done.append(following)

    def _look(self) -> None:
        self._told = False
        done = self._done
        pieces = [done.popleft() for _ in range(len(done))]
        self._collect(pieces)
        self._finished(len(pieces))
        self._call_one()

    def _finished(self, count: int) -> None:
        self._open -= count
        if self._open <= 0:
            self._quiet.set()

    def _call_one(self) -> None:
        raise NotImplementedError


class CoroutinePool(WorkerPool[P]):
    def __init__(self, crew: WorkerPoolSize, collect: Callable[[list[P]], None], clock: Clock) -> None:
        super().__init__(crew, collect)
        self._clock = clock
        self._resting: list[asyncio.Future[None]] = []
        self._in_hand: dict[asyncio.Task[None], P | None] = {}
        self._stopped = False

    def in_hand(self) -> Iterable[P]:
        return [piece for piece in self._in_hand.values() if piece is not None]

    def abandon(self, piece: P) -> None:
        """It takes too long: whoever has it is counted no more, and another may come in its place."""
        for task, own in list(self._in_hand.items()):
            if own is piece:
                del self._in_hand[task]
                self._finished(1)
                self._call_one()

    def resize(self) -> None:
        if len(self._in_hand) > self._crew.most:  # who rests looks again whether it is needed
            for rest in self._resting:
                if not rest.done():
                    rest.set_result(None)
            self._resting.clear()
        self._call_one()

    async def end(self) -> None:
        """What still runs is cancelled; it is not done then."""
        self._stopped = True
        await cancelled(self._in_hand)

    def _call_one(self) -> None:
        if self._called or not self._work:
            return
        while self._resting:
            rest = self._resting.pop()
            if not rest.done():
                self._called = True
                rest.set_result(None)
                return
        if len(self._in_hand) < self._crew.most:
            self._called = True
            task = self._loop.create_task(self._serve())
            self._in_hand[task] = None
            task.add_done_callback(self._left)

    async def _serve(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        work, done, in_hand = self._work, self._done, self._in_hand
        monotonic = self._clock.monotonic
        self._called = False
        turn_s = monotonic()
        while me in in_hand:
            if len(in_hand) > self._crew.most:
                del in_hand[me]
                return
            if not work:
                in_hand[me] = None
                if not await self._rest(me):
                    return
                turn_s = monotonic()
                continue
            piece = in_hand[me] = work.popleft()
            if piece.lacks and work:
                self._fill(piece)
            if work and not self._called:
                self._call_one()
            is_well = await piece.deliver()
            if me not in in_hand or not (is_well or self._goes_on(me)):  # it was given up meanwhile
                return
            done.append(piece)
            if not self._told:
                self._told = True
                self._loop.call_soon(self._look)
            if monotonic() - turn_s > SLICE_S:
                in_hand[me] = None
                await asyncio.sleep(0)
                turn_s = monotonic()

    async def _rest(self, me: asyncio.Task[None]) -> bool:
        """Waits for work. False: there are enough others."""
        if self._resting and len(self._in_hand) > self._crew.least:
            del self._in_hand[me]
            return False
        rest = self._loop.create_future()
        self._resting.append(rest)
        await rest
        self._called = False
        return True

    def _goes_on(self, me: asyncio.Task[None]) -> bool:
        """After a failure: a handler may have cancelled its own task, which is a failure like others."""
        while me.cancelling() and not self._stopped:
            me.uncancel()
        return not self._stopped

    def _left(self, task: asyncio.Task[None]) -> None:
        had = self._in_hand.pop(task, None)
        complain(task)
        self._called = False
        if not self._stopped:
            if had is not None:  # it was killed: others take it up
                self._work.appendleft(had)
            self._call_one()


class ThreadPool(WorkerPool[P]):
    """Daemon threads: one that never comes back keeps neither the consumer nor the process from ending."""

    def __init__(self, crew: WorkerPoolSize, collect: Callable[[list[P]], None], name: str) -> None:
        super().__init__(crew, collect)
        self._name = f"turbopump-{name}"
        self._resting: list[_WorkerThread[P]] = []
        self._here: dict[_WorkerThread[P], None] = {}
        self._hiring = threading.Lock()

    def in_hand(self) -> Iterable[P]:
        return [thread.piece for thread in list(self._here) if thread.piece is not None]

    def abandon(self, piece: P) -> None:
        """As of coroutines."""
        for thread in list(self._here):
            if thread.piece is piece:
                thread.is_lost = True
                self._here.pop(thread, None)
                self._finished(1)
                self._call_one()

    def resize(self) -> None:
        for _ in range(len(self._here) - self._crew.most):
            self._wake_one()  # finds that there are too many, and leaves; who is busy sees it afterwards
        self._call_one()

    def end(self) -> None:
        """Threads go home when they have nothing in hand."""
        for thread in list(self._here):
            thread.is_lost = True
        while self._wake_one():
            pass

    # In a thread

    def take(self, thread: "_WorkerThread[P]") -> P | None:
        """The next piece, waiting for it; None: go home."""
        while not thread.is_lost and len(self._here) <= self._crew.most:
            try:
                piece = thread.piece = self._work.popleft()
            except IndexError:
                if len(self._here) > self._crew.least and self._resting:
                    return None
                self._resting.append(thread)
                if self._work or thread.is_lost:  # it came between the two looks
                    self._wake_one()
                thread.wake.acquire()
                self._called = False
                continue
            if piece.lacks and self._work:
                self._fill(piece)
            if self._work and not self._called:
                self._call_one()
            return piece
        return None

    def give_back(self, thread: "_WorkerThread[P]", piece: P) -> None:
        thread.piece = None
        if thread.is_lost:  # nobody waits for it any more
            return
        self._done.append(piece)
        self._tell()

    def begin(self) -> None:
        self._called = False

    def left(self, thread: "_WorkerThread[P]") -> None:
        self._here.pop(thread, None)
        if thread.piece is not None and not thread.is_lost:  # it was killed: others take it up
            self._work.appendleft(thread.piece)
        self._called = False
        self._tell()

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            try:
                self._loop.call_soon_threadsafe(self._look)
            except RuntimeError:  # the loop is closed: there is nobody left to tell
                return

    # Anywhere

    def _wake_one(self) -> bool:
        try:
            thread = self._resting.pop()
        except IndexError:
            return False
        thread.wake.release()
        return True

    def _call_one(self) -> None:
        if self._called or not self._work:
            return
        self._called = True  # until it has come
        if self._wake_one():
            return
        with self._hiring:
            if len(self._here) < self._crew.most:
                self._hire()
            else:
                self._called = False

    def _hire(self) -> None:
        thread = _WorkerThread(self, f"{self._name}-{next(_numbers)}")
        self._here[thread] = None
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more: those who are here do the work
            log.warning("No thread for a handler: %s", error)
            del self._here[thread]
            self._called = False


class _WorkerThread(threading.Thread, Generic[P]):
    def __init__(self, pool: ThreadPool[P], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._pool = pool
        self.wake = threading.Lock()
        self.wake.acquire()
        self.is_lost = False
        self.piece: P | None = None

    def run(self) -> None:
        pool = self._pool
        pool.begin()
        try:
            while (piece := pool.take(self)) is not None:
                piece.run()
                pool.give_back(self, piece)
        finally:
            pool.left(self)


class ConcurrencySlots:
    """So many at a time; the number may change while some are taken."""

    def __init__(self, crew: WorkerPoolSize) -> None:
        self._crew = crew
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        while self._taken >= self._crew.most:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except BaseException:
                if turn.done() and not turn.cancelled():  # our turn had come: it is another's now
                    self._next()
                raise
        self._taken += 1

    def give(self) -> None:
        self._taken -= 1
        self._next()

    def resize(self) -> None:
        for _ in range(self._crew.most - self._taken):
            self._next()

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
