"""Real files whose syncs fail or hang and whose space ends on demand, for tests of real servers."""

import errno
import time
from typing import Any

from turbopump.runtime.disk import MappedFile, PlainFile, SystemDisk


class FaultyDisk(SystemDisk):
    """Real files whose syncs fail or hang and whose space ends on demand."""

    def __init__(self) -> None:
        self.hangs_s = 0.0  # delay of the next sync
        self.failing_syncs = 0  # number of next syncs that raise EIO
        self.space: int | None = None  # bytes that can still be allocated

    def create_mapped(
        self, path: str, size: int, sparse: bool = False, durable_name: bool = True
    ) -> MappedFile:
        self._take_space(size)
        return _FaultyFile(self, super().create_mapped(path, size, sparse, durable_name))

    def open_mapped(self, path: str, writable: bool = True) -> MappedFile:
        return _FaultyFile(self, super().open_mapped(path, writable))

    def open_plain(self, path: str, create: bool = False, size: int = 0) -> PlainFile:
        if create and not self.exists(path):
            self._take_space(size)
        return _FaultyFile(self, super().open_plain(path, create, size))

    def _take_space(self, size: int) -> None:
        if self.space is not None:
            if size > self.space:
                raise OSError(errno.ENOSPC, "the simulated disk is full")
            self.space -= size

    def sync_dir(self, path: str) -> None:
        self._hang()
        super().sync_dir(path)

    def _hang(self) -> None:
        hangs_s, self.hangs_s = self.hangs_s, 0.0
        if hangs_s:
            time.sleep(hangs_s)

    def _before_sync(self) -> None:
        self._hang()
        if self.failing_syncs > 0:
            self.failing_syncs -= 1
            raise OSError(errno.EIO, "simulated sync failure")


class _FaultyFile:
    def __init__(self, disk: FaultyDisk, file: MappedFile | PlainFile) -> None:
        self._disk = disk
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        self._disk._before_sync()
        self._file.sync()
