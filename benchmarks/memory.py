"""Memory as a server finds it that has been running for a while: all of it was used before.

Every server writes its log to pages of the cache. On a virtual machine a page that nobody has used yet must
first come from the host, which takes 10 us here; one that held something else takes 1 us. A message of 1 KiB
would carry 3 us that say something about the machine alone, and only until its memory is used up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LEFT_FREE = 2 << 30  # of the servers themselves: the rest is cache
CHUNK = 1 << 20


@contextmanager
def used(home: Path) -> Iterator[None]:
    """Fills the page cache with a file that has only a length, which makes way for what is written next."""
    size = max(0, available() - LEFT_FREE)
    print(f"filling {size / 1e9:.0f} GB of memory with cached pages", flush=True)
    home.mkdir(parents=True, exist_ok=True)
    path = home / "cache"
    try:
        with path.open("wb") as file:
            file.truncate(size)
        with path.open("rb", buffering=0) as file:
            chunk = bytearray(CHUNK)
            while file.readinto(chunk):
                continue
        yield
    finally:
        path.unlink(missing_ok=True)


def available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return 0
