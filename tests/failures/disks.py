"""Disks that fail: a small one that can be filled, and a log that loses what was not synced."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.interop import processes

MOUNT = 'mount -t tmpfs -o size="$1" none "$0" && echo mounted && exec sleep infinity'
FILLER = "filler"
BLOCK = 64 * 1024
PAGE = 4096


class NotPossible(Exception):
    """This machine does not allow what a scenario needs."""


class SmallDisk:
    """A tmpfs in a mount namespace of its own, so that no rights are needed where users may have namespaces.

    A process keeps it, so it outlives the broker that writes to it; `prefix` runs a command that sees it.
    """

    def __init__(self, at: Path, size: int) -> None:
        if shutil.which("unshare") is None or shutil.which("nsenter") is None:
            raise NotPossible("needs unshare and nsenter")
        at.mkdir(parents=True, exist_ok=True)
        command = ["unshare", "-rm", "sh", "-c", MOUNT, str(at), str(size)]
        self._keeper = processes.start(command, subprocess.PIPE, None)
        assert self._keeper.stdout is not None
        said = self._keeper.stdout.readline().decode().strip()
        if said != "mounted":
            self.close()
            raise NotPossible(f"a mount in a namespace of its own is refused: {said}")
        self.inside = Path(f"/proc/{self._keeper.pid}/root") / at.relative_to("/")
        """Where this process sees it."""

    @property
    def prefix(self) -> tuple[str, ...]:
        return ("nsenter", "--preserve-credentials", "-U", "-m", "-t", str(self._keeper.pid))

    def fill(self) -> None:
        """Takes all the space that is left."""
        with (self.inside / FILLER).open("ab", buffering=0) as file:
            for size in (BLOCK, 4096):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        """Gives the space back, if it was taken."""
        (self.inside / FILLER).unlink(missing_ok=True)

    def close(self) -> None:
        processes.kill_group(self._keeper)


def lose_unsynced(commit_log: Path, synced: int, unit: int = PAGE) -> int:
    """Clears the log from the page of a position on, as a power cut may; returns how many bytes that took.

    With `unit` 1 it is cleared from that very byte on, inside of a record: a page that is written while it
    is being filled holds the beginning of one. The files keep their size: a file system has their lengths on
    disk before their contents.
    """
    taken = 0
    for path in sorted(commit_log.iterdir()):
        begin, size = int(path.name), path.stat().st_size
        keep = max(synced - synced % unit - begin, 0)
        if keep >= size:
            continue
        with path.open("r+b") as file:
            file.seek(keep)
            taken += len(file.read().rstrip(b"\0"))
            file.seek(keep)
            file.write(bytes(size - keep))
    return taken
