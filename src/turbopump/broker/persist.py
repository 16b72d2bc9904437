"""Writes tables such as topics.json to their files when they change.

In: the notice that a table changed. Out: its bytes, handed to a function that writes them in a worker thread.
A change after a quiet time is written at once, and `settled` returns when it is on disk. Changes that follow
within `pause_s` are gathered and written together, and `settled` does not wait for them: ten
thousand topics created in one go must not write the whole table ten thousand times. Until that write, a tenth
of a second later or a little more for a large table, such a change is lost when the process dies. The content
of a table is never known here. A large one comes in slices, and the loop does other things between two.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from turbopump.protocol.errors import SystemFailure
from turbopump.runtime.disk import Workers
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

PAUSE_S = 0.1
RETRY_S = 1.0
PAUSE_FACTOR = 10  # tables are encoded on the loop: that may take at most a tenth of its time


class PersistedTable:
    """Writes one table to its file after changes, at once or several together, one write at a time."""

    def __init__(
        self,
        name: str,
        dump: Callable[[], bytes | Iterator[bytes]],
        write: Callable[[str, bytes], None],
        workers: Workers,
        pause_s: float = PAUSE_S,
        publish: Callable[[str, bytes], Awaitable[None]] | None = None,
    ) -> None:
        """`publish` gets what was written; until it has returned, the change does not count as settled."""
        self._name = name
        self._dump = dump
        self._write = write
        self._workers = workers
        self._publish = publish
        self._min_pause_s = self._pause_s = pause_s
        self._changes = 0
        self._on_disk = 0
        self._last_start = -1e9
        self._failed = ""
        self._is_writing = self._is_closing = False
        self._tasks = Tasks(log)
        self._written = asyncio.Event()

    @property
    def is_dirty(self) -> bool:
        return self._on_disk < self._changes

    def changed(self) -> None:
        """Starts writing the table to its file, now or, in a burst of changes, after a pause."""
        self._changes += 1
        if not self._is_writing:
            self._is_writing = True
            self._tasks.start(self._keep_up(), name=f"write {self._name}")

    async def settled(self) -> None:
        """Waits until all changes so far are on disk; returns at once in a burst. Raises SystemFailure.

        A burst: the last write began less than a pause ago. Its changes are written together, later. Raises
        when the write fails.
        """
        mine = self._changes
        quiet = asyncio.get_running_loop().time() - self._last_start >= self._pause_s
        while quiet and self._on_disk < mine:
            await self._written.wait()
            if self._failed:
                raise SystemFailure(f"cannot write {self._name}: {self._failed}")

    async def close(self) -> None:
        """Stops the background write, then writes the table if changes are not on disk. Raises OSError."""
        self._is_closing = True
        await self._tasks.close()
        self._is_writing = False  # a task that was cancelled before its first step has not reset it
        if self.is_dirty:
            await self._write_once()

    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self.is_dirty:
                await asyncio.sleep(max(0.0, self._last_start + self._pause_s - loop.time()))
                try:
                    await self._write_once()
                    self._log_failure(None)
                except Exception as error:  # whatever it is, callers of `settled` must get it
                    self._log_failure(error)
                self._wake()
                if self._failed:
                    await asyncio.sleep(RETRY_S)
        finally:
            self._is_writing = False

    async def _write_once(self) -> None:
        changes = self._changes
        loop = asyncio.get_running_loop()
        began = self._last_start = loop.time()
        data = self._dump()
        took_s = loop.time() - began
        if not isinstance(data, bytes):
            slices: list[bytes] = []
            for piece in data:
                slices.append(piece)
                took_s += loop.time() - began
                await asyncio.sleep(0)
                began = loop.time()
            data = b"".join(slices)
        self._pause_s = max(self._min_pause_s, PAUSE_FACTOR * took_s)
        await self._workers.run(self._write, self._name, data)
        if self._publish is not None and not self._is_closing:
            await self._publish(self._name, data)
        self._on_disk = changes

    def _wake(self) -> None:
        self._written.set()
        self._written = asyncio.Event()

    def _log_failure(self, error: Exception | None) -> None:
        if error is not None and not self._failed:
            log.error("Cannot write %s; retrying every %d s", self._name, RETRY_S, exc_info=error)
        if error is None and self._failed:
            log.info("Wrote %s again after failures", self._name)
        self._failed = "" if error is None else f"{type(error).__name__}: {error}"
