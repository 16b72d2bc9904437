"""Parses points in time: `turbopump.runtime.times`, in local time, with a note about the zone."""

from datetime import datetime

from turbopump.cli.exits import warn
from turbopump.cli.failures import USAGE_ERROR, CommandFailure
from turbopump.runtime import times

WHEN = "a time (2026-11-01T12:00, local, or with a zone: 2026-11-01T12:00Z) or an age (10m)"
"""For help texts."""


def point_in_time(text: str, now_ms: int, name: str, otherwise: str = "") -> int:
    """Returns milliseconds since 1970. `otherwise`: other words that the option accepts."""
    try:
        found = times.parse_time(text, now_ms, name, local=True)
    except (ValueError, OverflowError) as error:
        also = f"; it may also be {otherwise}" if otherwise else ""
        raise CommandFailure(f"{error}{also}", USAGE_ERROR) from None
    if is_local(text):
        warn(f"turbopump: {name} {text} is local time: {times.format_time(found)}")
    return found


def is_local(text: str) -> bool:
    """Tells whether the text is a time without a zone."""
    try:
        return not text.strip().isdecimal() and datetime.fromisoformat(text.strip()).tzinfo is None
    except ValueError:
        return False
