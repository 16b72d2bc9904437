"""Times and spans as users write them: 2026-11-01T00:00:00Z, 10m, 10 minutes. Pure."""

import re
from datetime import UTC, datetime

SPANS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def seconds_of(span: str) -> float:
    """Of `10m`, `1h30m` or `10 minutes`. Raises ValueError."""
    found, end = 0.0, 0
    while match := SPAN.match(span.lower(), end):
        found += float(match[1]) * _unit(match[2], span)
        end = match.end()
    if not end or end != len(span):
        raise ValueError(f"{span!r} is no span of time: write 10m, 1h30m or 10 minutes")
    return found


def _unit(word: str, span: str) -> float:
    for unit in (word, "ms" if word.startswith("milli") else word[:1]):
        if unit in SPANS_S and (unit == word or _names(unit).startswith(word.rstrip("s"))):
            return SPANS_S[unit]
    raise ValueError(f"{span!r} is no span of time: there is no unit {word!r}")


def _names(unit: str) -> str:
    names = {"ms": "millisecond", "s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}
    return names[unit]


def moment_of(text: str, now: datetime) -> datetime:
    """A time with or without its zone (then UTC), milliseconds since 1970, or an age (`10m` ago)."""
    if text.isdecimal():
        return datetime.fromtimestamp(int(text) / 1000, UTC)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    try:
        return datetime.fromtimestamp(now.timestamp() - seconds_of(text), UTC)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time: write 2026-11-01T12:00, milliseconds, or an age as 10m"
        ) from None
