"""The delay levels of `messageDelayLevel`: a list such as "1s 5s 10s 1m 2h 1d", numbered from 1."""

from bisect import bisect_right
from typing import Final

import msgspec

from turbopump.runtime.disk import Disk
from turbopump.store.config_files import ConfigFiles

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
UNKNOWN_MS = 1_000

DELIVER_AT: Final = "TURBOPUMP_DELIVER_AT"
"""A property of ours: the delivery time (ms) of a delayed message that was rewritten. For all others it is
the store time plus the delay of the level.
"""


class DelayLevels:
    """The configured delay levels: the delay in ms of each level number, counted from 1."""

    def __init__(self, text: str) -> None:
        """Parses a list such as "1s 5s 2h". Raises ValueError when malformed, e.g. for a double space."""
        self._levels = [_milliseconds(part) for part in text.split(" ")]

    def __len__(self) -> int:
        return len(self._levels)

    def delay_ms(self, level: int) -> int:
        """Returns a level's delay in ms; beyond the last level the last one's, below level 1 one second."""
        if level < 1:
            return UNKNOWN_MS
        return self._levels[min(level, len(self._levels)) - 1]


def _milliseconds(part: str) -> int:
    number, unit = part[:-1], part[-1:]
    if unit not in UNITS_MS or not (number.isascii() and number.isdecimal()):
        raise ValueError(f"a delay must be a number and one of s, m, h, d, got {part!r}")
    return int(number) * UNITS_MS[unit]


class LevelsSince(msgspec.Struct, frozen=True):
    """Delay levels, and the log offset from which on they are used."""

    log_offset: int
    levels: str


class DelayHistory:
    """The delay levels that were used for each part of the log.

    A message is delivered at the time that was computed when it was stored. That time is in its queue only,
    so a queue that is rebuilt from the log needs the levels of then, not the current ones.
    """

    FILE: Final = "delayLevels.json"

    def __init__(self, directory: str, disk: Disk, current: str) -> None:
        self._files = ConfigFiles(directory, disk)
        self._current = current
        data = self._files.load(self.FILE, _is_history)
        self._since: list[LevelsSince] = _decode(data) if data is not None else []
        self._set_levels()

    def delay_ms(self, level: int, log_offset: int) -> int:
        """Returns the delay in ms that `level` has for a message stored at this log offset."""
        at = bisect_right(self._begins, log_offset) - 1
        return self._levels[max(at, 0)].delay_ms(level)

    def go_on(self, log_begin: int, log_end: int) -> None:
        """Records that the configured levels hold from `log_end` on; blocks for a write if they changed."""
        if self._since and self._since[-1].levels == self._current:
            return
        kept = [since for since in self._since if since.log_offset < log_end]
        while len(kept) > 1 and kept[1].log_offset <= log_begin:
            del kept[0]  # that part of the log is deleted
        self._since = [*kept, LevelsSince(log_end if kept else 0, self._current)]
        self._files.save(self.FILE, msgspec.json.encode(self._since))
        self._set_levels()

    def _set_levels(self) -> None:
        since = self._since or [LevelsSince(0, self._current)]
        self._begins = [one.log_offset for one in since]
        self._levels = [DelayLevels(one.levels) for one in since]


def _decode(data: bytes) -> list[LevelsSince]:
    return msgspec.json.decode(data, type=list[LevelsSince])


def _is_history(data: bytes) -> bool:
    return all(DelayLevels(since.levels) for since in _decode(data))
