"""Back-off after failed signatures, so that a secret cannot be guessed by trying.

In: failures and successes of identification, with address, name and time. Out: a refusal while a name is to
wait. An entry belongs to an address together with the name that was claimed: others behind the same
address, and the same user elsewhere, are served. Pure but for what its caller passes: no clock, no log
line.
"""

from collections import OrderedDict
from dataclasses import dataclass

from turbopump.protocol.errors import NoPermission

FREE_FAILURES = 5  # a client that still has the old secret sends a few requests at once
FIRST_WAIT_S = 0.1
MAX_WAIT_S = 30.0
FORGET_S = 600.0
MAX_ENTRIES = 10_000  # about 2 MB; beyond it the one that failed longest ago is dropped
MAX_NAMES_PER_ADDRESS = 100  # further names of an address share one entry
ANY_NAME = "\0"  # no name of a user


@dataclass(slots=True)
class _Failures:
    count: int
    last: float
    until: float


class FailedSignatures:
    """Table of failed identifications by address and claimed name, and how long each has to wait."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, str], _Failures] = OrderedDict()
        self._names: dict[str, int] = {}  # entries of each address

    def __len__(self) -> int:
        return len(self._entries)

    def check(self, address: str, name: str, now: float) -> None:
        """Raises NoPermission while requests of this name from this address are not looked at."""
        if not self._entries:
            return
        for key in ((address, name), (address, ANY_NAME)):
            entry = self._entries.get(key)
            if entry is not None and now < entry.until:
                raise NoPermission(
                    f"{entry.count} requests of this user from {address} failed; try again in "
                    f"{entry.until - now:.1f} s"
                )

    def failed(self, address: str, name: str, now: float) -> int:
        """Counts a failure; returns how many there were in a row."""
        key = self._key(address, name)
        entry = self._entries.pop(key, None)
        if entry is None:
            self._names[address] = self._names.get(address, 0) + 1
        elif now - entry.last > FORGET_S:
            entry = None
        count = 1 if entry is None else entry.count + 1
        self._entries[key] = _Failures(count, now, now + _wait_s(count))
        while len(self._entries) > MAX_ENTRIES:
            self._drop(next(iter(self._entries)))
        return count

    def succeeded(self, address: str, name: str) -> None:
        """Forgets the failures of a name whose signature was right."""
        if self._entries and (address, name) in self._entries:
            self._drop((address, name))

    def _key(self, address: str, name: str) -> tuple[str, str]:
        is_known = (address, name) in self._entries
        if is_known or self._names.get(address, 0) < MAX_NAMES_PER_ADDRESS:
            return address, name
        return address, ANY_NAME

    def _drop(self, key: tuple[str, str]) -> None:
        del self._entries[key]
        self._names[key[0]] -= 1
        if not self._names[key[0]]:
            del self._names[key[0]]


def _wait_s(count: int) -> float:
    if count <= FREE_FAILURES:
        return 0.0
    return min(FIRST_WAIT_S * 2.0 ** min(count - FREE_FAILURES - 1, 20), MAX_WAIT_S)
