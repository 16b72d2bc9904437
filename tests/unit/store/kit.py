"""What tests of the store's parts share."""

import tarfile
from pathlib import Path

STORES = Path(__file__).parents[2] / "compat" / "stores"


class HandClock:
    """Moves when the test moves it."""

    def __init__(self, now_ms: int = 1_794_733_741_890) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000

    async def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1000)


def apache_store(name: str, target: Path) -> str:
    """Unpacks a store that Apache's broker wrote, for instance `4.9.7-clean`; returns its directory."""
    with tarfile.open(STORES / f"{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    return str(target / "store")
