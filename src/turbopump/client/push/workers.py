"""Who calls the handlers: coroutines for `async def`, threads for `def`, as many as the user allows.

Work is taken one piece at a time by whoever is free, so a slow message holds up nobody else; and nobody is
made or woken for each message: one who finds more work than his own calls a second, and so on, while the
handlers of a busy queue are called in a row. What threads have done comes back to the loop together.
"""

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from turbopump.client.instance import complain
from turbopump.runtime.clock import Clock

SLICE_S = 0.005  # handlers that never wait let the loop turn that often
_numbers = itertools.count(1)


@dataclass(slots=True)
class Crew:
    """How many workers there may be: `least` stay when there is nothing to do, `most` work at a time."""

    least: int
    most: int


class Piece(Protocol):
    """A piece of work. None of these raises; `done` is always called on the loop."""

    def run(self) -> None:
        """The work, in a thread."""

    def deliver(self) -> Coroutine[Any, Any, None]:
        """The work, on the loop."""

    def done(self) -> None: ...


class Coroutines:
    def __init__(self, crew: Crew, clock: Clock) -> None:
        self._crew = crew
        self._clock = clock
        self._work: deque[Piece] = deque()
        self._resting: list[asyncio.Future[None]] = []
        self._in_hand: dict[asyncio.Task[None], Piece | None] = {}
        self._called = False  # someone is on the way: that is enough until it has come
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._stopped = False

    def submit(self, pieces: Sequence[Piece]) -> None:
        self._work.extend(pieces)
        self._quiet.clear()
        self._call_one()

    def in_hand(self) -> Iterable[Piece]:
        return [piece for piece in self._in_hand.values() if piece is not None]

    def abandon(self, piece: Piece) -> None:
        """It takes too long: whoever has it is counted no more, and another may come in its place."""
        for task, own in list(self._in_hand.items()):
            if own is piece:
                del self._in_hand[task]
                self._settle()
                self._call_one()

    def forget_waiting(self) -> None:
        self._work.clear()
        self._settle()

    async def quiet(self) -> None:
        """Returns when everything is done."""
        await self._quiet.wait()

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
        tasks = list(self._in_hand)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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
            task = asyncio.get_running_loop().create_task(self._serve())
            self._in_hand[task] = None
            task.add_done_callback(self._left)

    async def _serve(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        work, in_hand, monotonic = self._work, self._in_hand, self._clock.monotonic
        self._called = False
        turn_s = monotonic()
        while me in in_hand:
            if len(in_hand) > self._crew.most or (
                not work and self._resting and len(in_hand) > self._crew.least
            ):
                del in_hand[me]
                return
            if not work:
                rest: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._resting.append(rest)
                in_hand[me] = None
                self._settle()
                await rest
                self._called = False
                turn_s = monotonic()
                continue
            piece = in_hand[me] = work.popleft()
            if work:
                self._call_one()
            await piece.deliver()
            if self._stopped:
                return
            if me not in in_hand:  # given up meanwhile; what it says does not count any more
                return
            if me.cancelling():  # by its own handler: that is a failure like others
                me.uncancel()
            piece.done()
            if monotonic() - turn_s > SLICE_S:
                in_hand[me] = None
                await asyncio.sleep(0)
                turn_s = monotonic()

    def _left(self, task: asyncio.Task[None]) -> None:
        self._in_hand.pop(task, None)
        complain(task)
        self._called = False
        if not self._stopped:
            self._settle()
            self._call_one()

    def _settle(self) -> None:
        if not self._work and not any(piece is not None for piece in self._in_hand.values()):
            self._quiet.set()


class Threads:
    """Daemon threads: one that never comes back keeps neither the consumer nor the process from ending."""

    def __init__(self, name: str, crew: Crew) -> None:
        self._name = f"turbopump-{name}"
        self._crew = crew
        self._loop = asyncio.get_running_loop()
        self._work: deque[Piece] = deque()
        self._done: deque[Piece] = deque()
        self._resting: list[_Thread] = []
        self._here: dict[_Thread, None] = {}
        self._told = False  # the loop will look at what is done
        self._called = False
        self._hiring = threading.Lock()
        self._open = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    def submit(self, pieces: Sequence[Piece]) -> None:
        self._open += len(pieces)
        self._quiet.clear()
        self._work.extend(pieces)
        self._call_one()

    def in_hand(self) -> Iterable[Piece]:
        return [thread.piece for thread in list(self._here) if thread.piece is not None]

    def abandon(self, piece: Piece) -> None:
        """As of coroutines."""
        for thread in list(self._here):
            if thread.piece is piece:
                thread.is_lost = True
                self._here.pop(thread, None)
                self._finished(1)
                self._call_one()

    def forget_waiting(self) -> None:
        forgotten = 0
        while self._work:
            try:
                self._work.popleft()
            except IndexError:  # a thread was faster
                break
            forgotten += 1
        self._finished(forgotten)

    async def quiet(self) -> None:
        await self._quiet.wait()

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

    def take(self, thread: "_Thread") -> Piece | None:
        """The next piece, waiting for it; None: go home."""
        if thread.is_new:
            thread.is_new = self._called = False
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
            if self._work:
                self._call_one()
            return piece
        return None

    def give_back(self, thread: "_Thread", piece: Piece) -> None:
        thread.piece = None
        if thread.is_lost:  # nobody waits for it any more
            return
        self._done.append(piece)
        self.tell()

    def tell(self) -> None:
        if not self._told:
            self._told = True
            try:
                self._loop.call_soon_threadsafe(self._collect)
            except RuntimeError:  # the loop is closed: there is nobody left to tell
                return

    def left(self, thread: "_Thread") -> None:
        self._here.pop(thread, None)
        self._called = False
        self.tell()

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
                thread = _Thread(self, f"{self._name}-{next(_numbers)}")
                self._here[thread] = None
                thread.start()
            else:
                self._called = False

    # On the loop

    def _collect(self) -> None:
        self._told = False
        done = self._done
        count = 0
        while done:
            done.popleft().done()
            count += 1
        self._finished(count)
        self._call_one()

    def _finished(self, count: int) -> None:
        self._open -= count
        if self._open <= 0:
            self._quiet.set()


class _Thread(threading.Thread):
    def __init__(self, pool: Threads, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._pool = pool
        self.wake = threading.Lock()
        self.wake.acquire()
        self.is_new = True
        self.is_lost = False
        self.piece: Piece | None = None

    def run(self) -> None:
        pool = self._pool
        try:
            while (piece := pool.take(self)) is not None:
                piece.run()
                pool.give_back(self, piece)
        finally:
            pool.left(self)


class Slots:
    """So many at a time; the number may change while some are taken."""

    def __init__(self, crew: Crew) -> None:
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
