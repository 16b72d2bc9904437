"""Back-off after failed signatures, so that a secret cannot be guessed by trying.

In: failures and successes of identification, with address, name, connection and time. Out: a refusal while a
name is to wait. An entry belongs to a network (`peer_networks.py`) together with the name that was claimed:
others at the same address, and the same user elsewhere, are served. Only names that have a secret are
counted: for others no signature is computed, so there is nothing to guess, and one network has at most as
many entries as there are users.

Who guesses must not lock out the user whose name he claims, behind the same address. So while a name waits,
two kinds of connections are looked at all the same: those that have signed for it rightly before, and those
that have not tried it yet, a few in a second together. A connection that has failed waits.

Pure but for what its caller passes: no clock, no log line.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from turbopump.guard.peer_networks import network_of
from turbopump.protocol.errors import NoPermission

FREE_FAILURES = 5  # a client that still has the old secret sends a few requests at once
FIRST_WAIT_S = 0.1
MAX_WAIT_S = 30.0
FORGET_S = 600.0
MAX_ENTRIES = 20_000  # about 4 MB: more than there are users, so that no network pushes out its own entries
LOOKS_PER_S = 2.0  # at connections that are new, while a name waits: so many guesses in a second at most
MAX_LOOKS = 20.0  # saved up: a program that starts opens a few connections to each server
MAX_NAMES = 64  # of users that have signed on one connection, and that are remembered


@dataclass(slots=True)
class SignedNames:
    """What one connection has shown: the names that it has signed for rightly, and those that failed."""

    right: set[str] = field(default_factory=set)
    wrong: set[str] = field(default_factory=set)

    def signed(self, name: str) -> None:
        if name not in self.right and len(self.right) < MAX_NAMES:
            self.right.add(name)

    def failed(self, name: str) -> None:
        self.right.discard(name)
        if len(self.wrong) < MAX_NAMES:
            self.wrong.add(name)

    def is_new_to(self, name: str) -> bool:
        """Returns whether this connection has not tried the name; one that has tried very many has."""
        return name not in self.wrong and len(self.wrong) < MAX_NAMES


@dataclass(slots=True)
class _Failures:
    count: int
    last: float
    until: float
    looks: float = MAX_LOOKS
    looked: float = 0.0

    def look(self, now: float) -> bool:
        """Takes one of the looks at new connections; returns whether there was one."""
        self.looks = min(MAX_LOOKS, self.looks + max(0.0, now - self.looked) * LOOKS_PER_S)
        self.looked = now
        if self.looks < 1:
            return False
        self.looks -= 1
        return True


class FailedSignatures:
    """Table of failed identifications by network and claimed name, and how long each has to wait."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def check(self, address: str, name: str, shown: SignedNames, now: float) -> None:
        """Raises NoPermission while requests of this name from this connection are not looked at."""
        if not self._entries:
            return
        entry = self._entries.get((network_of(address), name))
        if entry is None or now >= entry.until or name in shown.right:
            return
        if shown.is_new_to(name) and entry.look(now):
            return
        raise NoPermission(
            f"{entry.count} requests of this user from {address} failed; try again in "
            f"{entry.until - now:.1f} s"
        )

    def failed(self, address: str, name: str, shown: SignedNames, now: float) -> int:
        """Counts a failure of a name that has a secret; returns how many there were in a row."""
        shown.failed(name)
        key = network_of(address), name
        entry = self._entries.pop(key, None)
        if entry is None or now - entry.last > FORGET_S:
            entry = _Failures(0, now, now, looked=now)
        entry.count, entry.last = entry.count + 1, now
        entry.until = now + _wait_s(entry.count)
        self._entries[key] = entry
        if len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)  # the one that failed longest ago
        return entry.count

    def succeeded(self, address: str, name: str, shown: SignedNames) -> None:
        """Notes that a signature was right. Forgets the failures if they were of this connection.

        Those of others stay: each request of a user would give free tries to who guesses beside him.
        """
        shown.signed(name)
        if name in shown.wrong:
            shown.wrong.discard(name)
            self._entries.pop((network_of(address), name), None)


def _wait_s(count: int) -> float:
    if count <= FREE_FAILURES:
        return 0.0
    return min(FIRST_WAIT_S * 2.0 ** min(count - FREE_FAILURES - 1, 20), MAX_WAIT_S)
