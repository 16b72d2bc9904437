"""Times by key, and which of them have come: without looking at all keys.

In: a time for each key, which may change. Out: the first time, and the keys whose time has come, the earliest
first. No clock belongs here.
"""

from heapq import heapify, heappop, heappush
from typing import Final

MAX_STALE: Final = 64  # entries of earlier times, beside one for each key


class DueTimes:
    """A time for each key; finds the keys whose time has come in the order of their times."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []  # also earlier times of a key, which count no more

    def __len__(self) -> int:
        return len(self._times)

    def set(self, key: str, at: int) -> None:
        if self._times.get(key) != at:
            self._times[key] = at
            heappush(self._heap, (at, key))
            self._drop_stale()

    def discard(self, key: str) -> None:
        if self._times.pop(key, None) is not None:
            self._drop_stale()

    def get(self, key: str) -> int | None:
        return self._times.get(key)

    def first(self) -> int | None:
        """Returns the earliest time; None: there is no key."""
        while self._heap and not self._counts(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: int, count: int) -> list[str]:
        """Returns at most `count` keys whose time is not after `now`, the earliest first; removes none."""
        found: dict[str, int] = {}
        while len(found) < count and (first := self.first()) is not None and first <= now:
            at, key = heappop(self._heap)
            found[key] = at  # a time that was set, changed and set again is in the heap twice
        for key, at in found.items():
            heappush(self._heap, (at, key))
        return list(found)

    def _counts(self, entry: tuple[int, str]) -> bool:
        return self._times.get(entry[1]) == entry[0]

    def _drop_stale(self) -> None:
        if len(self._heap) > 2 * len(self._times) + MAX_STALE:
            self._heap = [(at, key) for key, at in self._times.items()]
            heapify(self._heap)
