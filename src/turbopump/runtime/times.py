"""Points in time and durations as users write them, in Python values and as text. Pure: `now_ms` is given.

One rule holds for the client, the commands and the pipelines:

- A number is milliseconds since 1970. One that looks like seconds is refused, and so is a float.
- A datetime must have a time zone. A timedelta is relative to now.
- Text is ISO 8601, milliseconds since 1970, or an age such as `10m`. Text without a time zone is local time
  where a person types it (commands say which zone they took), and refused in options and settings.

Raises ValueError, with what to write instead. Never belongs here: reading a clock.
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo

MIN_MS = 100_000_000_000
"""The smallest number taken for milliseconds (March 1973). As seconds it would be the year 5138."""
MAX_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, the last that a datetime holds."""

UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
UNIT_NAMES = {"ms": "millisecond", "s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_EXAMPLES = "2026-11-01T12:00:00Z, milliseconds since 1970, or an age such as 10m"


def epoch_ms(value: datetime | timedelta | int, now_ms: int, name: str = "time") -> int:
    """Converts a point in time to ms since 1970; a timedelta counts from now on. Raises ValueError.

    >>> epoch_ms(datetime(2026, 11, 1, tzinfo=UTC), now_ms=0), epoch_ms(timedelta(seconds=2), now_ms=500)
    (1793491200000, 2500)
    >>> epoch_ms(1793491200, now_ms=0, name="deliver_at")
    Traceback (most recent call last):
    ...
    ValueError: deliver_at must be milliseconds since 1970, got 1793491200, which looks like seconds: \
write deliver_at=1793491200000, or a datetime with a time zone
    """
    if isinstance(value, datetime):
        return _datetime_ms(value, name)
    if isinstance(value, timedelta):
        return now_ms + round(value.total_seconds() * 1000)
    if isinstance(value, int) and not isinstance(value, bool):
        return _checked_ms(value, name, f"{name}=")
    raise ValueError(
        f"{name} must be a datetime with a time zone, a timedelta, or milliseconds since 1970, got {value!r}"
    )


def parse_time(text: str, now_ms: int, name: str = "time", local: bool = False) -> int:
    """Converts ISO 8601, ms since 1970, or an age back from now to ms since 1970. Raises ValueError.

    >>> parse_time("2026-11-01T01:00+01:00", now_ms=0), parse_time("1m30s", now_ms=100_000)
    (1793491200000, 10000)
    """
    text = text.strip()
    if text.isdecimal():
        return _checked_ms(int(text), name, "")
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return now_ms - _age_ms(text, name)
    if found.tzinfo is None and local:
        found = found.astimezone()
    return _datetime_ms(found, name)


def parse_duration_s(text: str) -> float:
    """Converts `10m`, `1h30m` or `10 minutes` to seconds. Raises ValueError.

    >>> parse_duration_s("1h30m"), parse_duration_s("10 minutes"), parse_duration_s("250ms")
    (5400.0, 600.0, 0.25)
    """
    seconds, end, lower = 0.0, 0, text.lower()
    while match := _PART.match(lower, end):
        seconds += float(match[1]) * _unit_s(match[2], text)
        end = match.end()
    if not end or end != len(text):
        raise ValueError(f"a duration must be written as 10m, 1h30m or 10 minutes, got {text!r}")
    return seconds


def format_time(ms: int, zone: tzinfo | None = None) -> str:
    """Writes a point in time with its zone, to say which one was meant; local time unless a zone is given.

    >>> format_time(1793491200000, UTC)
    '2026-11-01T00:00:00+00:00'
    """
    at = datetime.fromtimestamp(ms // 1000, UTC) + timedelta(milliseconds=ms % 1000)
    return at.astimezone(zone).isoformat(timespec="milliseconds" if ms % 1000 else "seconds")


def _datetime_ms(value: datetime, name: str) -> int:
    if value.tzinfo is None:
        raise ValueError(
            f"{name} must have a time zone, got {value.isoformat()}: write {value.isoformat()}Z for UTC; "
            "in Python datetime(..., tzinfo=UTC), or .astimezone() for local time"
        )
    return round(value.timestamp() * 1000)


def _checked_ms(ms: int, name: str, how: str) -> int:
    if 0 < ms < MIN_MS:
        raise ValueError(
            f"{name} must be milliseconds since 1970, got {ms}, which looks like seconds: "
            f"write {how}{ms * 1000}, or a datetime with a time zone"
        )
    if not 0 <= ms <= MAX_MS:
        raise ValueError(f"{name} must be milliseconds since 1970, got {ms}")
    return ms


def _age_ms(text: str, name: str) -> int:
    try:
        return round(parse_duration_s(text) * 1000)
    except ValueError:
        raise ValueError(f"{name} must be {_EXAMPLES}, got {text!r}") from None


def _unit_s(word: str, text: str) -> float:
    for unit, full in UNIT_NAMES.items():
        if word == unit or (len(word) > 2 and full.startswith(word.rstrip("s"))):
            return UNITS_S[unit]
    raise ValueError(f"a duration has the units {', '.join(UNITS_S)}, got {word!r} in {text!r}")
