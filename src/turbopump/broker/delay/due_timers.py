"""What is due in the slots up to that of the present, in the order of the milliseconds.

In: units of the timer log, as their slot becomes that of the present. Out: those that are due by now. Which
of them are done is remembered until their slot is over. Memory holds a number for each, and the units
themselves as long as they are not too many. No clock, no file.
"""

import heapq

from turbopump.store.timer_log import Unit

PLACE_BITS = 52
PLACE = (1 << PLACE_BITS) - 1
KNOWN = 65_536  # units in memory: 20 MiB; what is beyond is read from the timer log again

Key = int
"""The millisecond, and behind it the place in the timer log: these are sorted."""


class DueTimers:
    def __init__(self) -> None:
        self._due: list[Key] = []  # a heap
        self._units: dict[int, Unit] = {}
        self.fired: list[int] = []
        """Places of units that are done, in slots that are not over, or not marked as dead."""
        self.recalled: set[bytes] = set()
        """Keys of messages that are not to be delivered, in these slots."""

    def expect(self, at: int, unit: Unit, due_ms: int) -> None:
        heapq.heappush(self._due, due_ms << PLACE_BITS | at)
        if len(self._units) < KNOWN:
            self._units[at] = unit

    def next_ms(self) -> int | None:
        """When the first of them is due."""
        return self._due[0] >> PLACE_BITS if self._due else None

    def is_due(self, now_ms: int) -> bool:
        return bool(self._due) and self._due[0] >> PLACE_BITS <= now_ms

    def take(self) -> tuple[Key, Unit | None]:
        """The first of them. No unit: it is in the timer log alone."""
        key = heapq.heappop(self._due)
        return key, self._units.pop(key & PLACE, None)

    def put_back(self, key: Key) -> None:
        heapq.heappush(self._due, key)

    def finished(self, key: Key) -> None:
        self.fired.append(key & PLACE)

    def places(self) -> set[int]:
        """Of all that still wait."""
        return {key & PLACE for key in self._due}

    def forget(self, places: set[int]) -> None:
        """Their units are not what they were."""
        for at in places:
            self._units.pop(at, None)

    def slot_is_over(self) -> None:
        assert not self._due, "what is due comes before the slot is left"
        self._units.clear()
        self.fired.clear()
        self.recalled.clear()

    def clear(self) -> None:
        self._due.clear()
        self.slot_is_over()
