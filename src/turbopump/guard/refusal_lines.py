"""Limits the audit lines about refusals of one user at one network, so that they do not fill the audit files.

In: refusals with their time. Out: whether each has a line, and, when a window of time ends, how many had
none. Lines that say the same are limited more than others: one client that repeats a request must not hide
what else is refused. Pure: no clock, no file.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

WINDOW_S = 60.0
LINES_PER_WINDOW = 100  # 64 MiB are full after 36 hours, not after minutes
SAME_PER_WINDOW = 10
MAX_WINDOWS = 2_000  # at the same time, up to 20 MB; beyond it the oldest ends early

Key = tuple[str, str]
"""User and network."""


@dataclass(slots=True)
class _Window:
    ends: float
    lines: int = 0
    left_out: int = 0
    same: Counter[int] = field(default_factory=Counter)
    """How many lines say the same, by the hash of what they say."""


class RefusalLines:
    """Table of the refusals of each user and network in the current window of time."""

    def __init__(self) -> None:
        self._windows: OrderedDict[Key, _Window] = OrderedDict()  # in the order of their ends

    def __bool__(self) -> bool:
        return bool(self._windows)

    def admits(self, key: Key, what: Hashable, now: float) -> bool:
        """Returns whether a refusal has a line; counts it as left out otherwise."""
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(now + WINDOW_S)
        said = hash(what)
        if window.lines >= LINES_PER_WINDOW or window.same[said] >= SAME_PER_WINDOW:
            window.left_out += 1
            return False
        window.lines += 1
        window.same[said] += 1
        return True

    def ended(self, now: float) -> Iterator[tuple[str, str, int]]:
        """Ends windows; yields user, network and count of those with refusals that had no line."""
        while self._windows:
            (user, network), window = next(iter(self._windows.items()))
            if len(self._windows) <= MAX_WINDOWS and window.ends > now:
                return
            del self._windows[user, network]
            if window.left_out:
                yield user, network, window.left_out
