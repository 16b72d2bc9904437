"""Points in time as users of the client write them, parsed by `runtime/times.py`.

In: a datetime with a time zone, a timedelta from now, milliseconds since 1970, or text. Out: milliseconds
since 1970, or InvalidArgument, which says what to write instead.
"""

from datetime import datetime, timedelta

from turbopump.client.errors import InvalidArgument
from turbopump.runtime.times import epoch_ms, parse_time

Time = datetime | timedelta | int | str
"""Text is ISO 8601 with a time zone, milliseconds since 1970, or an age such as `10m`."""

MAX_AHEAD_MS = 60_000


def time_ms(when: Time, now_ms: int, name: str = "when") -> int:
    """Returns a point in time as milliseconds since 1970. Raises InvalidArgument, whose text has `name`.

    >>> time_ms("2026-11-01T00:00:00Z", 0), time_ms("10m", 600_000), time_ms(timedelta(seconds=-1), 5000)
    (1793491200000, 0, 4000)
    """
    try:
        return parse_time(when, now_ms, name) if isinstance(when, str) else epoch_ms(when, now_ms, name)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None


def past_ms(when: Time, now_ms: int, name: str = "when") -> int:
    """Returns ms since 1970 as `time_ms` does; raises InvalidArgument also for a time in the future.

    For reading stored messages: a time in the future would skip all of them. Up to a minute ahead is
    accepted: the clocks of two machines may differ.
    """
    found = start_ms(when, now_ms, name)
    if found > now_ms + MAX_AHEAD_MS:
        raise InvalidArgument(f"{name} must not lie in the future, got {when!r}, which skips all messages")
    return found


def start_ms(when: Time, now_ms: int, name: str = "when") -> int:
    """Returns ms since 1970 as `time_ms` does; raises InvalidArgument also for a positive (future) timedelta.

    Absolute times are not compared with now: a consumer may be set up to begin at a time that is to come.
    """
    if isinstance(when, timedelta) and when > timedelta():
        raise InvalidArgument(f"{name} must not lie in the future, got {when!r}: write -{when!r}")
    return time_ms(when, now_ms, name)
