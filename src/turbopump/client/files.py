"""What a client needs of the file system: whole small files. Works on Windows too, where servers do not."""

import os
from pathlib import Path
from typing import Protocol


class FileAccess(Protocol):
    """`runtime.disk.Disk` is one too, and so are the simulated disks."""

    def exists(self, path: str) -> bool: ...

    def make_dirs(self, path: str) -> None: ...

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: bytes, sync: bool = True) -> None: ...

    def rename(self, old: str, new: str) -> None:
        """In place of what has the new name."""


class SystemFiles:
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
