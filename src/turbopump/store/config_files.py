"""The small files of `config/`, replaced as a whole: a crash at any point leaves one that can be loaded.

Each has a `.bak` beside it, the contents before the last change, as Apache's broker keeps and reads it. What
the bytes mean is known to the callers only.
"""

import contextlib
import logging
from collections.abc import Callable

from turbopump.runtime.disk import Disk

log = logging.getLogger(__name__)


def _has_content(data: bytes) -> bool:
    return bool(data.strip(b" \t\r\n\0"))


class ConfigFiles:
    """Loads and saves the files of `config/`."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self.on_saved: Callable[[str, bytes], None] | None = None
        """Called with name and contents after each save, in the thread that saves."""
        self._directory = directory
        self._disk = disk

    def load(self, name: str, valid: Callable[[bytes], bool] = _has_content) -> bytes | None:
        """Returns a file's contents, or those of `.bak` or `.tmp` if it is damaged; None: none is valid.

        `valid` returns whether contents can be used; an exception counts as no.
        """
        with contextlib.suppress(FileNotFoundError):
            # A process may have been killed in `save` before this sync; what is loaded must not vanish later.
            self._disk.sync_dir(self._directory)
        # The newest contents may be under the temporary name only.
        for candidate in (name, f"{name}.bak", f"{name}.tmp"):
            data = self._read(candidate)
            if data is None:
                continue
            if _is_valid(data, valid):
                if candidate != name:
                    log.warning("%s is missing or damaged; using %s instead", self._path(name), candidate)
                return data
            if candidate == name:
                log.warning("%s is damaged (%d bytes)", self._path(name), len(data))
        return None

    def save(self, name: str, data: bytes) -> None:
        """Replaces a file's contents durably and keeps the old ones as `.bak`. Blocks for two syncs."""
        path = self._path(name)
        self._disk.make_dirs(self._directory)
        self._disk.write(f"{path}.tmp", data, sync=True)
        with contextlib.suppress(FileNotFoundError):
            self._disk.rename(path, f"{path}.bak")
        self._disk.rename(f"{path}.tmp", path)
        self._disk.sync_dir(self._directory)
        if self.on_saved is not None:
            self.on_saved(name, data)

    def remove(self, name: str) -> None:
        """Removes a file with its earlier contents, durably: it must not be loaded again."""
        for candidate in (f"{name}.bak", f"{name}.tmp", name):  # a crash on the way leaves the newest
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(self._path(candidate))
        with contextlib.suppress(FileNotFoundError):
            self._disk.sync_dir(self._directory)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _read(self, name: str) -> bytes | None:
        try:
            return self._disk.read(self._path(name))
        except FileNotFoundError:
            return None


def _is_valid(data: bytes, valid: Callable[[bytes], bool]) -> bool:
    try:
        return _has_content(data) and valid(data)
    except Exception:
        return False
