"""Back-off after failed signatures, so that a secret cannot be guessed by trying.

In: failures and successes of identification, with address, name and time. Out: a refusal while a name is to
wait. An entry belongs to a network (`peer_networks.py`) together with the name that was claimed: others at
the same address, and the same user elsewhere, are served. Only names that have a secret are counted: for
others no signature is computed, so there is nothing to guess, and one network has at most as many entries as
there are users. Pure but for what its caller passes: no clock, no log line.
"""

from collections import OrderedDict
from dataclasses import dataclass

from turbopump.guard.peer_networks import network_of
from turbopump.protocol.errors import NoPermission

FREE_FAILURES = 5  # a client that still has the old secret sends a few requests at once
FIRST_WAIT_S = 0.1
MAX_WAIT_S = 30.0
FORGET_S = 600.0
MAX_ENTRIES = 20_000  # about 4 MB: more than there are users, so that no network pushes out its own entries


@dataclass(slots=True)
class _Failures:
    count: int
    last: float
    until: float


class FailedSignatures:
    """Table of failed identifications by network and claimed name, and how long each has to wait."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def check(self, address: str, name: str, now: float) -> None:
        """Raises NoPermission while requests of this name from this address are not looked at."""
        if not self._entries:
            return
        entry = self._entries.get((network_of(address), name))
        if entry is not None and now < entry.until:
            raise NoPermission(
                f"{entry.count} requests of this user from {address} failed; try again in "
                f"{entry.until - now:.1f} s"
            )

    def failed(self, address: str, name: str, now: float) -> int:
        """Counts a failure of a name that has a secret; returns how many there were in a row."""
        key = network_of(address), name
        entry = self._entries.pop(key, None)
        if entry is not None and now - entry.last > FORGET_S:
            entry = None
        count = 1 if entry is None else entry.count + 1
        self._entries[key] = _Failures(count, now, now + _wait_s(count))
        if len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)  # the one that failed longest ago
        return count

    def succeeded(self, address: str, name: str) -> None:
        """Forgets the failures of a name whose signature was right."""
        if self._entries:
            self._entries.pop((network_of(address), name), None)


def _wait_s(count: int) -> float:
    if count <= FREE_FAILURES:
        return 0.0
    return min(FIRST_WAIT_S * 2.0 ** min(count - FREE_FAILURES - 1, 20), MAX_WAIT_S)
