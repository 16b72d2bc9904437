"""Statistics of a consumer over sliding windows, whose caller gives the current time."""


class SlidingWindow:
    """Counts events of the last `slots * slot_s` seconds and sums a value of each."""

    def __init__(self, slots: int = 60, slot_s: float = 1.0) -> None:
        self._slot_s = slot_s
        self._length_s = slots * slot_s
        self._counts = [0] * slots
        self._sums = [0.0] * slots
        self._now = 0

    def add(self, now_s: float, count: int = 1, value: float = 0.0) -> None:
        now = int(now_s / self._slot_s)
        slot = now % len(self._counts) if now == self._now else self._turn(now_s)
        self._counts[slot] += count
        self._sums[slot] += value

    def count(self, now_s: float) -> int:
        self._turn(now_s)
        return sum(self._counts)

    def rate(self, now_s: float) -> float:
        """Returns the events per second over the window that ends at `now_s`."""
        return self.count(now_s) / self._length_s

    def mean(self, now_s: float) -> float:
        count = self.count(now_s)
        return sum(self._sums) / count if count else 0.0

    def _turn(self, now_s: float) -> int:
        """Empties the slots that have left the window by `now_s`; returns the index of the current slot."""
        slots = len(self._counts)
        now = int(now_s / self._slot_s)
        for passed in range(max(self._now + 1, now - slots + 1), now + 1):
            self._counts[passed % slots] = 0
            self._sums[passed % slots] = 0.0
        self._now = max(self._now, now)
        return now % slots


class TopicConsumeStats:
    """Counts pulls, deliveries and failures of one topic, as `mqadmin consumerStatus` shows them."""

    def __init__(self) -> None:
        self.pulls = SlidingWindow()  # value: milliseconds until the answer
        self.pulled = SlidingWindow()  # messages
        self.consumed = SlidingWindow()  # value: milliseconds in the listener
        self.failed = SlidingWindow()
        self.failed_in_hour = SlidingWindow(60, 60.0)

    def count_failed(self, messages: int, now_s: float) -> None:
        self.failed.add(now_s, messages)
        self.failed_in_hour.add(now_s, messages)
