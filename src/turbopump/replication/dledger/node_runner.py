"""Runs a node: events in their order, one step at a time, and a new start from disk when a step fails.

A step's effects are performed in their order before the next event is taken, and those behind a vote only
when it is on disk. What cannot be performed (a full disk, an entry that does not continue the log) ends the
node as a crash would: what waits is answered, and it is started again from disk.
"""

import asyncio
import logging
from collections.abc import Callable

from turbopump.protocol.errors import BrokenRecord
from turbopump.raft import Event, Node, RoleChanged, SavedState, Tick
from turbopump.replication.dledger.alarm import Alarm
from turbopump.replication.dledger.effects import EffectPerformer
from turbopump.replication.dledger.event_queue import EventQueue
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Workers
from turbopump.store.dledger.placement import MisplacedEntry
from turbopump.store.errors import UnusableStore

log_line = logging.getLogger(__name__)

EVENTS_PER_TURN = 64  # before the loop serves others
RESTART_WAIT_S = 1.0  # before a node that could not use its disk tries again
EXPECTED_FAILURES = (OSError, MisplacedEntry, UnusableStore, BrokenRecord)


class NodeRunner:
    """Gives the node of a member its events, and starts it again from disk when a step fails."""

    def __init__(
        self,
        member: str,
        load: Callable[[], SavedState],
        make: Callable[[SavedState], Node],
        events: EventQueue,
        effects: EffectPerformer,
        workers: Workers,
        clock: Clock,
    ) -> None:
        """`load` reads from disk what `make` starts a node with."""
        self.node: Node | None = None
        """None before the start, and while a node that failed is started again."""
        self._member = member
        self._load = load
        self._make = make
        self._events = events
        self._effects = effects
        self._workers = workers
        self._clock = clock
        self._alarm = Alarm(lambda: events.post(Tick()))

    async def start(self) -> None:
        """Makes the node from what is on disk. Raises OSError, or UnusableStore."""
        saved = await self._workers.run(self._load)
        node = self.node = self._make(saved)
        self._effects.known = RoleChanged(node.role, node.term, None)

    async def run(self) -> None:
        """Has the node take events until cancelled; a node that fails is started again after a second."""
        try:
            while True:
                await self._run_once()
        finally:
            self._alarm.cancel()

    def end(self) -> None:
        """Ends the node as a crash would: it leads no longer, and all who wait for it are answered."""
        self.node = None
        self._effects.lose_role()

    async def _run_once(self) -> None:
        try:
            await self._step_all()
        except EXPECTED_FAILURES as error:
            log_line.error("DLedger member %s starts again from disk: %s", self._member, error)
        except Exception:
            log_line.exception("DLedger member %s failed and starts again from disk", self._member)
        await self._start_again()

    async def _step_all(self) -> None:
        count = 0
        while True:
            while self._events:
                await self._step(self._events.take())
                count += 1
                if count % EVENTS_PER_TURN == 0:
                    await asyncio.sleep(0)
            assert self.node is not None
            self._alarm.set(self.node.deadline_ms - self._now_ms())
            await self._events.wait()

    async def _step(self, event: Event) -> None:
        assert self.node is not None
        for effect in self.node.step(self._now_ms(), event):
            await self._effects.perform(effect)

    async def _start_again(self) -> None:
        while True:
            self.end()
            await self._clock.sleep(RESTART_WAIT_S)
            self._effects.drop_all()
            try:
                await self.start()
            except EXPECTED_FAILURES as error:
                log_line.error("DLedger member %s cannot start: %s", self._member, error)
                continue
            self._effects.tell_all()
            return

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)
