"""`DueTimers`: the timers of the current wheel slot and of earlier ones, sorted by due millisecond.

In: units of the timer log, when their slot becomes the current one. Out: those that are due by now. Which of
them have fired is remembered until their slot is over. Memory holds one number for each, and the units
themselves up to `MAX_UNITS_IN_MEMORY`. No clock, no file.
"""

import heapq

from turbopump.broker.delay.timer_records import Recalled
from turbopump.store.timer_log import Unit

PLACE_BITS = 52
PLACE = (1 << PLACE_BITS) - 1
MAX_UNITS_IN_MEMORY = 65_536  # 20 MiB; further ones are read from the timer log again

Key = int
"""The due millisecond in the high bits, the place in the timer log in the low ones: sorts by due time."""


class DueTimers:
    """Min-heap, by due millisecond, of the timers of the current wheel slot and of earlier ones."""

    def __init__(self) -> None:
        self._due: list[Key] = []  # a heap
        self._units: dict[int, Unit] = {}
        self.fired: list[int] = []
        """Places of units that have fired and are not marked as dead in the timer log yet."""
        self.recalled: set[Recalled] = set()
        """The timers in these slots that were recalled."""

    def expect(self, at: int, unit: Unit, due_ms: int) -> None:
        """Adds a timer that is due at `due_ms`; `at` is the place of its unit in the timer log."""
        heapq.heappush(self._due, due_ms << PLACE_BITS | at)
        if len(self._units) < MAX_UNITS_IN_MEMORY:
            self._units[at] = unit

    def next_ms(self) -> int | None:
        """Returns the wall-clock time (ms) at which the first timer is due; None: there is no timer."""
        return self._due[0] >> PLACE_BITS if self._due else None

    def is_due(self, now_ms: int) -> bool:
        return bool(self._due) and self._due[0] >> PLACE_BITS <= now_ms

    def take(self) -> tuple[Key, Unit | None]:
        """Removes and returns the first timer, due or not. Unit None: read it from the timer log."""
        key = heapq.heappop(self._due)
        return key, self._units.pop(key & PLACE, None)

    def put_back(self, key: Key) -> None:
        heapq.heappush(self._due, key)

    def finished(self, key: Key) -> None:
        """Notes that a taken timer has fired: its unit has to be marked as dead in the timer log."""
        self.fired.append(key & PLACE)

    def places(self) -> set[int]:
        """Returns the places in the timer log of all timers except those that are taken."""
        return {key & PLACE for key in self._due}

    def forget(self, places: set[int]) -> None:
        """Drops the cached units at these places of the timer log, where they were changed."""
        for at in places:
            self._units.pop(at, None)

    def slot_is_over(self) -> None:
        """Drops the cached units, fired places and recalled keys of the slot, which has no timers left."""
        assert not self._due, "timers that are due fire before their slot is left"
        self._units.clear()
        self.fired.clear()
        self.recalled.clear()

    def clear(self) -> None:
        self._due.clear()
        self.slot_is_over()
