"""Moments as users write them: a datetime, ISO text, or seconds since 1970. On the wire: milliseconds."""

from datetime import datetime

from turbopump.client.errors import InvalidArgument

Moment = datetime | str | float
"""A datetime or ISO text without a zone means local time, as everywhere in Python."""

LATEST_S = 32_503_680_000.0  # the year 3000: whoever gives more means milliseconds


def moment_ms(when: Moment) -> int:
    """Milliseconds since 1970.

    >>> moment_ms("2026-11-01T00:00:00Z"), moment_ms(1_793_491_200), moment_ms("2026-11-01T01:00+01:00")
    (1793491200000, 1793491200000, 1793491200000)
    """
    if isinstance(when, str):
        when = _parsed(when)
    seconds = when.timestamp() if isinstance(when, datetime) else float(when)
    if not 0 <= seconds <= LATEST_S:
        raise InvalidArgument(
            f"a time is a datetime, ISO text or seconds since 1970: {when} is none of these"
            + (f"; is it milliseconds? write {seconds / 1000}" if seconds > LATEST_S else "")
        )
    return round(seconds * 1000)


def _parsed(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"{text!r} is no time; write 2026-11-01T00:00:00Z") from None
