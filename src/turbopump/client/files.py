"""Access to small files, read and written as a whole. Works on Windows too, where servers do not run."""

import os
from pathlib import Path
from typing import Protocol


class FileAccess(Protocol):
    """The file operations that a client needs; `runtime.disk.Disk` and simulated disks have them too."""

    def exists(self, path: str) -> bool: ...

    def make_dirs(self, path: str) -> None: ...

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: bytes, sync: bool = True) -> None: ...

    def rename(self, old: str, new: str) -> None:
        """Renames a file; replaces a file that exists at `new`."""


class SystemFiles:
    """`FileAccess` to the file system of this machine."""

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def make_dirs(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def write(self, path: str, data: bytes, sync: bool = True) -> None:
        with Path(path).open("wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())

    def rename(self, old: str, new: str) -> None:
        Path(old).replace(new)
