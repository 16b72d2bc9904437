"""Points in time as people type them: `turbopump.runtime.times`, in local time, and which zone that was."""

from datetime import datetime

from turbopump.cli.ending import warn
from turbopump.cli.failures import ASKED_WRONGLY, Failure
from turbopump.runtime import times

WHEN = "a time (2026-11-01T12:00; local unless it says otherwise, as ...T12:00Z does) or an age (10m)"
"""For help texts."""


def point_in_time(text: str, now_ms: int, name: str, otherwise: str = "") -> int:
    """Milliseconds since 1970. `otherwise` are words that the option would have taken as well."""
    try:
        found = times.parse_time(text, now_ms, name, local=True)
    except (ValueError, OverflowError) as error:
        also = f"; it may also be {otherwise}" if otherwise else ""
        raise Failure(f"{error}{also}", ASKED_WRONGLY) from None
    if is_local(text):
        warn(f"turbopump: {name} {text} is local time: {times.format_time(found)}")
    return found


def is_local(text: str) -> bool:
    """Whether the text names a time but no zone."""
    try:
        return not text.strip().isdecimal() and datetime.fromisoformat(text.strip()).tzinfo is None
    except ValueError:
        return False
