"""Tables that live in a file: when they are written.

In: the news that a table changed. Out: its bytes, handed to a function that writes them beside the loop. A
change after a quiet time is written at once, and whoever waits for `settled` gets its answer when it is on
disk. Changes that follow within `pause_s` are gathered and written together, without anyone waiting: ten
thousand topics created in one go must not write the whole table ten thousand times. Until that write, a tenth
of a second later or a little more for a large table, such a change is lost when the process dies. What is in
a table is never known here. A large one comes in slices, and the loop does other things between two.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator

from turbopump.protocol.errors import SystemFailure
from turbopump.runtime.disk import Workers

log = logging.getLogger(__name__)

PAUSE_S = 0.1
RETRY_S = 1.0
SHARE = 10  # a table is put into bytes on the loop: at most a tenth of the time goes there


class PersistedTable:
    """Writes one table to its file, never two writes at a time."""

    def __init__(
        self,
        name: str,
        dump: Callable[[], bytes | Iterator[bytes]],
        write: Callable[[str, bytes], None],
        workers: Workers,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._name = name
        self._dump = dump
        self._write = write
        self._workers = workers
        self._least_pause_s = self._pause_s = pause_s
        self._changes = 0
        self._on_disk = 0
        self._last_start = -1e9
        self._failed = ""
        self._task: asyncio.Task[None] | None = None
        self._written = asyncio.Event()

    @property
    def is_dirty(self) -> bool:
        return self._on_disk < self._changes

    def changed(self) -> None:
        self._changes += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_up())

    async def settled(self) -> None:
        """Returns when all changes so far are on disk, in a burst at once. Raises when the disk refuses."""
        mine = self._changes
        quiet = asyncio.get_running_loop().time() - self._last_start >= self._pause_s
        while quiet and self._on_disk < mine:
            await self._written.wait()
            if self._failed:
                raise SystemFailure(f"{self._name} could not be written: {self._failed}")

    async def close(self) -> None:
        """Writes what is not on disk yet. Raises OSError when that fails."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self.is_dirty:
            await self._write_once()

    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self.is_dirty:
                await asyncio.sleep(max(0.0, self._last_start + self._pause_s - loop.time()))
                try:
                    await self._write_once()
                    self._say_failed(None)
                except Exception as error:  # whatever it is, those who wait must hear of it
                    self._say_failed(error)
                self._wake()
                if self._failed:
                    await asyncio.sleep(RETRY_S)
        finally:
            self._task = None

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
        self._pause_s = max(self._least_pause_s, SHARE * took_s)
        await self._workers.run(self._write, self._name, data)
        self._on_disk = changes

    def _wake(self) -> None:
        self._written.set()
        self._written = asyncio.Event()

    def _say_failed(self, error: Exception | None) -> None:
        if error is not None and not self._failed:
            log.error("%s cannot be written, trying again each second", self._name, exc_info=error)
        if error is None and self._failed:
            log.info("%s can be written again", self._name)
        self._failed = "" if error is None else f"{type(error).__name__}: {error}"
