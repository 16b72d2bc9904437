"""Parses points in time given as options: local time unless they name a zone, which is noted on stderr."""

from datetime import datetime

from turbopump.cli.exits import warn
from turbopump.cli.failures import USAGE_ERROR, CommandFailure
from turbopump.runtime import times

WHEN = "a time (2026-11-01T12:00, local, or with a zone: 2026-11-01T12:00Z) or an age (10m)"
"""For help texts."""


def point_in_time(text: str, now_ms: int, name: str, otherwise: str = "") -> int:
    """Parses the time given for option `name` to ms since 1970. Raises CommandFailure.

    `otherwise`: other words that the option accepts. A time without a zone is local, as stderr notes.
    """
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
