"""Shared by the simulations of delays, timers and transactions: a store with several runs on a faulty disk.

What is stored, recorded and checked is defined by each simulation.
"""

import asyncio
import contextlib
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from turbopump.protocol.errors import Refused
from turbopump.store.append import Appended, Draft
from turbopump.store.config import StoreConfig
from turbopump.store.store import Store
from turbopump.testing.disk import PowerCut, SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock
from turbopump.testing.simulated_files import Survival

ACTION_S = 60.0
CALM_S = 8.0  # before a stop: delays by a failed sync or a stalled disk are over then
LOOK_S = 1.0

log = logging.getLogger(__name__)

Action = Callable[[], Coroutine[Any, Any, None]]


class CrashingStore(ABC):
    config: StoreConfig
    clock: VirtualClock
    disk: SimulatedDisk
    workers: SimulatedWorkers
    store: Store
    tasks: list[asyncio.Task[None]]

    waits_s: Sequence[float] = (0, 0.01, 0.3, 1, 3)
    synced_parts: Sequence[str] = ("", "commitlog", "commitlog", "consumequeue", "config")
    """Of paths, whose syncs may fail."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.serial = 0
        self.synced = 0
        """The log was on the medium up to here, whatever happened later."""
        self.surprises: list[BaseException] = []

    def begin(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._note_surprise)
        self.clock = VirtualClock()
        self.disk = SimulatedDisk(self.chance, self.clock)
        log.info("%s", self.config)

    @abstractmethod
    def _note(self, drafts: Sequence[Draft], appended: Sequence[Appended]) -> None:
        """Records an append."""

    @abstractmethod
    def _strike_out(self, log_end: int) -> None:
        """Removes the appends that a crash lost."""

    @abstractmethod
    async def _close_parts(self) -> None:
        """Closes the parts, before the store is closed."""

    # --- runs ---

    async def _act(self, actions: Sequence[Action], counts: Sequence[int]) -> None:
        for _ in range(self.chance.choice(counts)):
            await self._do(self.chance.choice(actions))
            if self.disk.is_off:
                break

    def _misfortunes(self) -> list[Action]:
        """Chooses two kinds of faults for a run, and perhaps a power cut."""
        chosen: list[Action] = self.chance.sample([self.fail_a_sync, self.stall, self.fill_disk], k=2)
        if self.chance.random() < 0.4:
            self.disk.cut_power_after(self.chance.randint(0, 800))
        return chosen

    async def _end(self) -> None:
        if self.disk.is_off or self.chance.random() < 0.6:
            await self._crash()
        else:
            await self._stop()

    async def _do(self, action: Action) -> None:
        """Runs an action; one that waits for the disk at a power cut never ends."""
        task = asyncio.create_task(action())
        await asyncio.wait({task}, timeout=ACTION_S)
        if not task.done():
            assert self.disk.is_off, f"{action.__name__} does not come to an end"
            task.cancel()
        with contextlib.suppress(PowerCut, asyncio.CancelledError):
            await task

    def _renew_disk(self) -> None:
        self.disk.cut_power_after(None)
        self.workers = SimulatedWorkers(self.disk)
        self.disk.used_ratio, self.disk.capacity = 0.5, 1 << 40

    def _open_store(self) -> Store:
        """Opens the store without serving; records every append from now on."""
        store = self.store = Store.open(self.config, self.disk, self.clock, self.workers)
        self._strike_out(store.log.end)
        plain_append = store.log.append

        def append(drafts: Sequence[Draft], together: bool = False) -> list[Appended]:
            appended = plain_append(drafts, together)
            self._note(drafts, appended)
            return appended

        store.log.append = append  # type: ignore[method-assign]
        return store

    def _start_store(self) -> None:
        """Starts the store as `Store.start`, without retention, which is an action here."""
        store = self.store
        store._dispatcher.loop = asyncio.get_running_loop()
        store.flusher.start()
        store.upkeep.start(store._tasks)

    async def _crash(self) -> None:
        survival, store = self.chance.choice(list(Survival)), self.store
        log.info("crash: %s, log ends at %d, synced %d", survival.name, store.log.end, store.log.synced)
        self.synced = max(self.synced, store.log.synced)
        self.disk = self.disk.crash(survival)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _close(self) -> None:
        with contextlib.suppress(PowerCut):
            await self._close_parts()
            await self.store.close()

    async def _stop(self) -> None:
        self.disk._syncs_to_fail.clear()
        self.workers.stall(0)
        self.disk.used_ratio, self.disk.capacity = 0.5, 1 << 40
        await asyncio.sleep(CALM_S)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        closing = asyncio.create_task(self._close())
        while not closing.done() and not self.disk.is_off:  # a callback that raises it is not awaited
            await asyncio.wait([closing], timeout=LOOK_S)
        if self.disk.is_off:
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            await self._crash()
            return
        await closing
        log.info("closed at %d", self.store.log.end)
        self.synced = max(self.synced, self.store.log.end)

    # --- actions ---

    async def fill(self) -> None:
        queue = self.store.queues.queue("Plain", 0)
        draft = Draft(queue, bytes(2000), b"", 0, 0, self.clock.now_ms(), bytes(8))
        with contextlib.suppress(Refused):
            self.store.log.append([draft] * self.chance.choice([1, 5]))

    async def wait(self) -> None:
        await asyncio.sleep(self.chance.choice(self.waits_s))

    async def delete_files(self) -> None:
        self.disk.used_ratio = 0.88
        try:
            with contextlib.suppress(OSError):
                await self.store.retention.round()
        finally:
            self.disk.used_ratio = 0.5
        log.info("deleted: the log begins at %d", self.store.log.min_offset)

    async def fail_a_sync(self) -> None:
        part = self.chance.choice(self.synced_parts)
        self.disk.fail_sync(self.chance.randint(0, 3), part)

    async def stall(self) -> None:
        self.workers.stall(self.chance.choice([0.5, 3]))

    async def fill_disk(self) -> None:
        self.disk.capacity = self.disk._used() + self.chance.choice([0, 1000, 100_000])
        await asyncio.sleep(self.chance.choice([0, 1]))
        self.disk.capacity = 1 << 40

    # --- checking ---

    def check_surprises(self) -> None:
        assert not self.surprises, f"an unforeseen exception: {self.surprises[0]!r}"

    def _note_surprise(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        exception = context.get("exception")
        if not isinstance(exception, PowerCut):
            self.surprises.append(exception or RuntimeError(context["message"]))
