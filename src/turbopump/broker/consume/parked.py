"""Pulls that found nothing to read and wait for a message. Holds no socket, no clock and no timer.

In: a pull that waits, or the news that a queue has grown. Out: the pulls that can go on. What a pull is,
beyond the queue, offset and filter it waits with, is the business of `pull.py`.
"""

from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar


class ParkedPull(Hashable, Protocol):
    @property
    def queue(self) -> Hashable: ...

    @property
    def offset(self) -> int:
        """The first queue offset that the pull can read."""

    @property
    def matches(self) -> Callable[[bytes], bool] | None:
        """Whether a message with this property string is wanted; None wants all."""

    @property
    def accepts(self) -> Callable[[int], bool] | None:
        """Whether a message with this tag code is wanted; None wants all."""


P = TypeVar("P", bound=ParkedPull)


class ParkedPulls(Generic[P]):
    """Beyond `limit` a pull is not parked but answered at once: waiting costs a bounded memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._parked: dict[Hashable, dict[P, None]] = {}  # an ordered set per queue: leaving is cheap

    def __len__(self) -> int:
        return self._count

    def park(self, pull: P) -> bool:
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
        """The message before `next_offset`, with this tag code, can be read now: who was waiting for it? Its
        properties are asked for only when somebody chooses by them.
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
        """Takes one pull out (its time is over, its peer is gone); False when it was woken before."""
        parked = self._parked.get(pull.queue)
        if parked is None or pull not in parked:
            return False
        del parked[pull]
        self._count -= 1
        if not parked:
            del self._parked[pull.queue]
        return True

    def drain(self) -> list[P]:
        """Everyone, for the moment when the broker stops."""
        everyone = [pull for parked in self._parked.values() for pull in parked]
        self._parked.clear()
        self._count = 0
        return everyone
