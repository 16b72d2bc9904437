"""The delay levels of `messageDelayLevel`: a list such as "1s 5s 10s 1m 2h 1d", numbered from 1."""

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
UNKNOWN_MS = 1_000


class DelayLevels:
    def __init__(self, text: str) -> None:
        """Raises ValueError when the text is malformed; a double space is, as in Apache."""
        self._levels = [_milliseconds(part) for part in text.split(" ")]

    def __len__(self) -> int:
        return len(self._levels)

    def delay_ms(self, level: int) -> int:
        """Levels beyond the last count as the last."""
        if level < 1:
            return UNKNOWN_MS
        return self._levels[min(level, len(self._levels)) - 1]


def _milliseconds(part: str) -> int:
    number, unit = part[:-1], part[-1:]
    if unit not in UNITS_MS or not (number.isascii() and number.isdecimal()):
        raise ValueError(f"{part!r} is no delay: a number and one of s, m, h, d are wanted")
    return int(number) * UNITS_MS[unit]
