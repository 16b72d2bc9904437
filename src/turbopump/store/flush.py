"""Syncs the commit log to the medium and reports to the callbacks that wait for a sync.

All callbacks of one pass of the loop share one sync; while a sync is under way the next group gathers. Every
sync runs in a thread of its own, on a fast disk too: any disk may hang, and the loop serves all clients. Only
before the loop runs, and after it, does a sync block its caller.

A sync that fails is reported to every callback that waits for it, and nothing more is accepted until one
succeeds: the unsynced bytes are written again first, because the kernel may count their pages as clean after
the failure. No callback waits longer than `sync_flush_timeout_ms`; while a sync takes longer than
`page_cache_busy_ms` new messages are refused, whether a callback waits or not, so that the backlog behind a
hanging disk is bounded. No path out of here leaves the next group waiting for a sync that was not started.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import Enum

from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Workers
from turbopump.runtime.tasks import Tasks
from turbopump.store.commit_log import CommitLog, Syncable
from turbopump.store.config import StoreConfig
from turbopump.store.flags import Flags, Reason

PAGE = 4096
MIN_DISK_BYTES_PER_S = 10 << 20  # a slower disk counts as hanging

log_line = logging.getLogger("turbopump.store")


class Durability(Enum):
    """Where a message is when its sender is answered, or why it is not on the medium."""

    BUFFER = "buffer"
    MEMORY = "memory"
    DISK = "disk"
    TIMEOUT = "timeout"
    FAILED = "failed"


Done = Callable[[Durability], None]


class Flusher:
    """Syncs the commit log, in groups, and calls back when an offset is on the medium."""

    def __init__(
        self, log: CommitLog, flags: Flags, clock: Clock, workers: Workers, config: StoreConfig
    ) -> None:
        self.on_synced: Callable[[int], None] | None = None
        self._log = log
        self._flags = flags
        self._clock = clock
        self._workers = workers
        self.configure(config)
        self.syncs_each = config.syncs_each
        """SYNC_FLUSH: a send is answered when `durable` reports; otherwise at once, with `durability`."""
        self.durability = Durability.BUFFER if config.uses_pool else Durability.MEMORY
        """Where a message is when its sender is answered at once."""
        self._retry_s = config.flush_interval_ms / 1000
        self._thorough_s = config.flush_thorough_interval_ms / 1000
        self._least_bytes = config.flush_least_pages * PAGE
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks = Tasks(log_line)
        self._task: asyncio.Task[None] | None = None
        self._waiters: deque[tuple[int, float, Done]] = deque()
        self._wanted = 0  # offset to sync up to, even without a callback
        self._under_way = False
        self._write_again = False
        self._timer: asyncio.TimerHandle | None = None
        self._began = 0.0  # when the sync that is under way began
        self._allowance_s = 0.0  # time that it may take beyond `_busy_s`
        self._last_thorough = clock.monotonic()

    def configure(self, config: StoreConfig) -> None:
        """Sets how long a callback waits, and how long a sync may take until messages are refused."""
        self._timeout_s = config.sync_flush_timeout_ms / 1000
        self._busy_s = config.page_cache_busy_ms / 1000

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._waiters or self._wanted > self._log.synced:
            self._kick()

    async def stop(self) -> None:
        """Waits for the sync under way, then syncs the rest in the disk thread. Every callback is called."""
        if self._task is not None:
            await asyncio.wait([self._task])
        self._loop = None
        self._clear_timer()
        target, files = self._prepare()
        try:
            await self._workers.run(_sync_files, files)
        except OSError as error:
            self._failed(error)
        else:
            self._succeeded(target)
            self._answer_synced()

    # waiting

    def durable(self, offset: int, done: Done) -> None:
        """Calls `done` once: with DISK when all below `offset` is on the medium, else FAILED or TIMEOUT."""
        if offset <= self._log.synced:
            done(Durability.DISK)
            return
        self._waiters.append((min(offset, self._log.end), self._clock.monotonic(), done))
        self._kick()

    async def wait_durable(self, offset: int) -> Durability:
        """Waits for a sync of everything below `offset`; returns DISK, or FAILED or TIMEOUT instead."""
        outcome: asyncio.Future[Durability] = asyncio.get_running_loop().create_future()

        def done(durability: Durability) -> None:
            if not outcome.done():  # the waiter may have been cancelled
                outcome.set_result(durability)

        self.durable(offset, done)
        return await outcome

    @property
    def waiting(self) -> int:
        """Number of callbacks that wait for a sync."""
        return len(self._waiters)

    @property
    def unsynced_bytes(self) -> int:
        """Number of bytes of the log that are not on the medium yet."""
        return self._log.end - self._log.synced

    @property
    def waits_s(self) -> float:
        """How long the oldest callback has been waiting, in seconds."""
        return self._clock.monotonic() - self._waiters[0][1] if self._waiters else 0.0

    def want(self, offset: int) -> None:
        """Asks for a sync up to `offset` soon, without a callback."""
        self._wanted = max(self._wanted, offset)
        self._kick()

    def log_was_cut(self, end: int) -> None:
        """Lowers the offset that `want` asked for to the new end of the log: no sync could reach more.

        A callback that waits for an offset beyond it gets FAILED.
        """
        self._wanted = min(self._wanted, end)
        waiters, self._waiters = self._waiters, deque()
        for offset, since, done in waiters:
            if offset <= end:
                self._waiters.append((offset, since, done))
            else:
                _tell(done, Durability.FAILED)

    async def wait_idle(self) -> None:
        """Waits until no sync is under way. Until the caller waits again, none begins: it may cut the log."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def flush_in_background(self) -> None:
        """Starts a sync when enough bytes, or any bytes for long enough, are unsynced. For ASYNC_FLUSH.

        Called twice a second.
        """
        now = self._clock.monotonic()
        thorough = now - self._last_thorough >= self._thorough_s
        waiting = self._log.committed - self._log.synced
        if waiting >= self._least_bytes or (thorough and waiting):
            self._last_thorough = now
            self._wanted = self._log.committed
            self._start_task()

    # syncing

    def _kick(self) -> None:
        if self._under_way:
            return
        if self._loop is None:
            self._pass()
        else:
            self._under_way = True
            self._loop.call_soon(self._begin)  # after this pass of the loop, whose messages share the sync

    def _begin(self) -> None:
        self._under_way = False
        self._start_task()

    def _pass(self) -> None:
        """Syncs once, blocking, and answers the callbacks; used while no event loop runs."""
        self._under_way = True
        try:
            self._sync_blocking()
        except BaseException:  # unforeseen: no sync will answer the callbacks
            self._fail_waiters(Durability.FAILED)
            raise
        finally:
            self._under_way = False
        self._answer_synced()

    def _start_task(self) -> None:
        if self._loop is not None and not self._under_way:
            self._under_way = True
            self._task = self._tasks.start(self._sync_groups(), name="sync the commit log")

    async def _sync_groups(self) -> None:
        """Syncs in a worker thread, group after group of callbacks, until none waits or a sync fails."""
        try:
            while self._waiters or self._wanted > self._log.synced:
                self._began = self._clock.monotonic()
                self._set_timer()
                target, files = self._prepare()
                self._allowance_s = self._allowance_for(target)
                try:
                    await self._workers.urgent(_sync_files, files)
                except OSError as error:
                    self._failed(error)
                    break
                self._succeeded(target)
                self._answer_synced()
        finally:
            self._under_way = False
            self._task = None
            self._clear_timer()
            self._flags.clear(Reason.BUSY)
            # None is left here, unless something unforeseen ended the loop.
            self._fail_waiters(Durability.FAILED)
            if self._write_again:
                self._retry_later()

    def _retry_later(self) -> None:
        if self._loop is not None:
            self._loop.call_later(self._retry_s, self._start_task)

    def _sync_blocking(self) -> None:
        target, files = self._prepare()
        try:
            _sync_files(files)
        except OSError as error:
            self._failed(error)
        else:
            self._succeeded(target)

    def _allowance_for(self, target: int) -> float:
        """Returns the seconds that a slow but working disk may need to sync the log up to `target`.

        With SYNC_FLUSH it is 0: senders wait, so little gathers.
        """
        return 0.0 if self.syncs_each else (target - self._log.synced) / MIN_DISK_BYTES_PER_S

    def _prepare(self) -> tuple[int, list[Syncable]]:
        self._log.commit()
        self._flags.clear(Reason.POOL_EMPTY)
        target = self._log.end
        if self._write_again:
            self._log.dirty_again(target)
        return target, self._log.unsynced(target)

    def _succeeded(self, target: int) -> None:
        self._log.mark_synced(target)
        self._flags.clear(Reason.BUSY)
        if self._write_again:
            self._write_again = False
            self._flags.clear(Reason.SYNC_FAILED)
            log_line.info("The commit log can be synced again")

    def _failed(self, error: OSError) -> None:
        if not self._write_again:
            log_line.error("Cannot sync the commit log; refusing messages until a sync succeeds: %s", error)
        self._write_again = True
        self._wanted = self._log.committed
        self._flags.set(Reason.SYNC_FAILED, str(error))
        self._fail_waiters(Durability.FAILED)

    # reporting

    def _answer_synced(self) -> None:
        synced = self._log.synced
        if self.on_synced is not None:
            self.on_synced(synced)
        waiters = self._waiters
        while waiters and waiters[0][0] <= synced:
            _tell(waiters.popleft()[2], Durability.DISK)

    def _fail_waiters(self, outcome: Durability) -> None:
        waiters, self._waiters = self._waiters, deque()
        for _, _, done in waiters:
            _tell(done, outcome)

    def _set_timer(self) -> None:
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(min(self._busy_s, self._timeout_s) / 4, self._look_at_clock)

    def _clear_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at_clock(self) -> None:
        """Timer during a sync: answers overdue callbacks with TIMEOUT; refuses messages if it takes long."""
        self._timer = None
        now = self._clock.monotonic()
        waiters = self._waiters
        while waiters and now - waiters[0][1] >= self._timeout_s:
            _tell(waiters.popleft()[2], Durability.TIMEOUT)
        if now - self._began >= self._busy_s + self._allowance_s:
            self._flags.set(Reason.BUSY)
        self._set_timer()


def _sync_files(files: list[Syncable]) -> None:
    for file in files:
        file.sync()


def _tell(done: Done, outcome: Durability) -> None:
    """Calls a callback with the outcome; an exception of the callback is logged, not raised."""
    try:
        done(outcome)
    except Exception:
        log_line.exception("A callback after a sync failed")
