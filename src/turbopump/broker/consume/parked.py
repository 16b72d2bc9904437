"""Table of parked pulls, which found nothing to read and wait for a message. No socket, clock or timer.

In: a pull that waits, or an entry that a queue has gained. Out: the pulls that can be answered. A pull is
known here only by its queue, offset and filter; everything else about it is in `pull.py`.
"""

from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar


class ParkedPull(Hashable, Protocol):
    """Interface of a pull that can be parked: its queue, its offset and which messages it accepts."""

    @property
    def queue(self) -> Hashable: ...

    @property
    def offset(self) -> int:
        """Queue offset at which the pull reads; only a message at this offset or later wakes the pull."""

    @property
    def matches(self) -> Callable[[bytes], bool] | None:
        """Predicate: does the pull accept a message with this property string? None accepts all."""

    @property
    def accepts(self) -> Callable[[int], bool] | None:
        """Predicate: does the pull accept a message with this tag code? None accepts all."""


P = TypeVar("P", bound=ParkedPull)


class ParkedPulls(Generic[P]):
    """Table of parked pulls by queue, at most `limit` in all; `park` returns False beyond it.

    Such a pull is answered at once instead, to bound the memory.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._parked: dict[Hashable, dict[P, None]] = {}  # an ordered set per queue: removal is cheap

    def __len__(self) -> int:
        return self._count

    def park(self, pull: P) -> bool:
        """Adds a pull to the table; returns False, without adding it, when the table is full."""
        if self._count >= self._limit:
            return False
        self._parked.setdefault(pull.queue, {})[pull] = None
        self._count += 1
        return True

    def waits_on(self, queue: Hashable) -> bool:
        return queue in self._parked

    def waiting(self, queue: Hashable) -> list[P]:
        return list(self._parked.get(queue, ()))

    def arrived(
        self, queue: Hashable, next_offset: int, tags_code: int, properties: Callable[[], bytes]
    ) -> list[P]:
        """Removes and returns the parked pulls that accept the new message at queue offset `next_offset` - 1.

        `properties` is called at most once, and only when a pull filters by properties.
        """
        parked = self._parked.pop(queue, None)
        if parked is None:
            return []
        woken: list[P] = []
        waiting: dict[P, None] = {}
        message: bytes | None = None
        for pull in parked:
            wanted = pull.offset < next_offset and (pull.accepts is None or pull.accepts(tags_code))
            if wanted and pull.matches is not None:
                message = properties() if message is None else message
                wanted = pull.matches(message)
            if wanted:
                woken.append(pull)
            else:
                waiting[pull] = None
        if waiting:
            self._parked[queue] = waiting
        self._count -= len(woken)
        return woken

    def withdraw(self, pull: P) -> bool:
        """Removes one pull after its timeout, or when its peer is gone; returns False if it is not parked."""
        parked = self._parked.get(pull.queue)
        if parked is None or pull not in parked:
            return False
        del parked[pull]
        self._count -= 1
        if not parked:
            del self._parked[pull.queue]
        return True

    def drain(self) -> list[P]:
        """Removes and returns all parked pulls; called when the broker stops."""
        pulls = [pull for parked in self._parked.values() for pull in parked]
        self._parked.clear()
        self._count = 0
        return pulls
