"""Fills the page cache before a run, as it is on a machine that has been up for a while.

Every server writes its log to pages of the cache. On a virtual machine a page that was never used must first
come from the host, which takes 10 us here; a page that held something else takes 1 us. Without filling, a
message of 1 KiB would cost 3 us more for a reason that lies in the machine, and only until all memory was
used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LEFT_FREE = 2 << 30  # for the processes of the servers
CHUNK = 1 << 20


@contextmanager
def used(home: Path) -> Iterator[Callable[[], None]]:
    """Fills the page cache with a sparse file, whose pages are dropped when the servers need them.

    Yields a function that fills it again. A deleted log leaves free pages, which a virtual machine may give
    back to its host.
    """
    size = max(0, available() - LEFT_FREE)
    print(f"filling {size / 1e9:.0f} GB of memory with cached pages", flush=True)
    home.mkdir(parents=True, exist_ok=True)
    path = home / "cache"

    def fill() -> None:
        with path.open("rb", buffering=0) as file:
            chunk = bytearray(CHUNK)
            while file.readinto(chunk):
                continue

    try:
        with path.open("wb") as file:
            file.truncate(size)
        fill()
        yield fill
    finally:
        path.unlink(missing_ok=True)


def available() -> int:
    """Bytes of memory that can be used without swapping; 0 if unknown."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return 0
