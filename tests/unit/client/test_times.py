"""Points in time as users of the client write them."""

import doctest
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from tests.unit.admin.kit import NAMESRV

from turbopump.client import times
from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message
from turbopump.client.push.consumer import Consumer
from turbopump.client.times import Time, past_ms, start_ms, time_ms

NOV = 1_793_491_200_000  # 2026-11-01T00:00:00Z


def test_the_examples_of_the_module_are_true() -> None:
    assert doctest.testmod(times).failed == 0


@pytest.mark.parametrize(
    "when",
    [
        datetime(2026, 11, 1, tzinfo=UTC),
        datetime(2026, 11, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        "2026-11-01T00:00:00Z",
        "2026-11-01T01:00:00+01:00",
        NOV,
        str(NOV),
        -timedelta(minutes=10),
        "10m",
    ],
)
def test_a_time_may_be_written_in_several_ways(when: Time) -> None:
    assert past_ms(when, NOV + 600_000) == NOV


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (NOV // 1000, "when must be milliseconds since 1970, got 1793491200, which looks like seconds"),
        (str(NOV // 1000), "looks like seconds"),
        (NOV / 1000, "must be a datetime with a time zone, a timedelta, or milliseconds"),
        (datetime(2026, 11, 1), "must have a time zone"),
        ("2026-11-01T00:00:00", "must have a time zone"),
        ("yesterday", "when must be 2026-11-01T12:00:00Z, milliseconds since 1970, or an age"),
        ("", "when must be"),
        (-5, "must be milliseconds since 1970, got -5"),
        (True, "must be a datetime"),
        (None, "must be a datetime"),
    ],
)
def test_what_could_mean_another_time_is_refused(wrong: Any, words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        time_ms(wrong, NOV)
    assert words in str(caught.value)


def test_reading_from_a_timedelta_into_the_future_is_refused() -> None:
    """It would skip everything that is stored."""
    with pytest.raises(InvalidArgument, match=r"must not lie in the future, got datetime.timedelta"):
        past_ms(timedelta(hours=2), NOV)


@pytest.mark.parametrize("when", [NOV, str(NOV), "2026-11-01T00:00:00Z", datetime(2026, 11, 1, tzinfo=UTC)])
def test_reading_from_a_time_in_the_future_is_refused(when: Time) -> None:
    with pytest.raises(InvalidArgument, match=r"when must not lie in the future, got .* skips all messages"):
        past_ms(when, NOV - 60_001)
    assert past_ms(when, NOV - 60_000) == NOV  # the clock of another machine


def test_a_consumer_may_be_set_up_to_begin_at_a_time_to_come() -> None:
    assert start_ms(NOV, 0) == NOV
    with pytest.raises(InvalidArgument, match="must not lie in the future"):
        start_ms(timedelta(hours=2), NOV)


@pytest.mark.parametrize("wrong", [NOV // 1000, NOV / 1000, datetime(2026, 11, 1), "yesterday"])
def test_a_wrong_consume_timestamp_is_refused_when_the_consumer_is_made(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="consume_timestamp"):
        Consumer("g", name_servers=NAMESRV, consume_timestamp=wrong)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            NOV // 1000 + 60,
            "deliver_at must be milliseconds since 1970, got 1793491260, which looks",
        ),
        (1.5, "deliver_at must be a datetime"),
        (datetime(2026, 11, 1), "deliver_at must have a time zone"),
        (timedelta(minutes=1), "write delay="),
        ("2026-11-01T00:00:00Z", "must be a datetime"),
    ],
)
def test_a_deliver_at_that_means_another_time_is_refused_when_the_message_is_made(
    wrong: Any, words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Message("T", b"x", deliver_at=wrong)


def test_the_property_of_a_time_is_held_to_the_same_rule() -> None:
    with pytest.raises(InvalidArgument, match="TIMER_DELIVER_MS must be milliseconds since 1970"):
        Message("T", b"x", properties={"TIMER_DELIVER_MS": "1793491260"})
    Message("T", b"x", properties={"TIMER_DELIVER_MS": str(NOV)})
