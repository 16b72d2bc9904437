"""Reads times given as options: `now`, milliseconds, or `yyyy-MM-dd#HH:mm:ss:SSS` in local time."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from turbopump.admin.options import defaulting
from turbopump.client.admin.messages import FOREVER_MS
from turbopump.runtime.times import MIN_MS

FORM = "%Y-%m-%d#%H:%M:%S:%f"
WORDS = "now, milliseconds since 1970, or a time such as 2025-06-30#12:00:00:000"


@dataclass(frozen=True, slots=True)
class GivenTime:
    """A time given as an option, with its text."""

    text: str
    """The text as given."""
    _ms: int | None
    """None: now."""

    def ms(self, now: Callable[[], int]) -> int:
        return now() if self._ms is None else self._ms


def time(word: str) -> GivenTime:
    word = word.strip()
    if word == "now":
        return GivenTime(word, None)
    if word.lstrip("-").isdecimal():
        return GivenTime(word, milliseconds(word))
    try:
        return GivenTime(word, round(datetime.strptime(word, FORM).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise ValueError(WORDS) from None


def milliseconds(word: str) -> int:
    """Parses ms since 1970; raises ValueError for other text, and for a number that looks like seconds."""
    try:
        found = int(word.strip())
    except ValueError:
        raise ValueError("milliseconds since 1970") from None
    if 0 < found < MIN_MS:
        raise ValueError(f"milliseconds since 1970 (for these seconds {found * 1000})")
    return found


BEGIN = defaulting("b", "beginTimestamp", "Begin timestamp(ms). default:0, eg:1676730526212", milliseconds, 0)
END = defaulting(
    "e",
    "endTimestamp",
    "End timestamp(ms). default:Long.MAX_VALUE, eg:1676730526212",
    milliseconds,
    FOREVER_MS,
)


def local_second(time_ms: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    try:
        return datetime.fromtimestamp(time_ms // 1000).strftime(form)
    except (ValueError, OverflowError, OSError):  # no such year
        return str(time_ms)
