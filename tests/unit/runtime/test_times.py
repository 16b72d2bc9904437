"""One rule for points in time, as values and as text."""

import doctest
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from turbopump.runtime import times
from turbopump.runtime.times import epoch_ms, format_time, parse_duration_s, parse_time

NOV = 1_793_491_200_000  # 2026-11-01T00:00:00Z


def test_the_examples_of_the_module_are_true() -> None:
    assert doctest.testmod(times).failed == 0


@pytest.mark.parametrize("value", [NOV, datetime(2026, 11, 1, tzinfo=UTC), timedelta(days=1)])
def test_a_value_is_milliseconds_a_datetime_with_a_zone_or_a_timedelta(
    value: datetime | timedelta | int,
) -> None:
    assert epoch_ms(value, now_ms=NOV - 86_400_000) == NOV


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1_793_491_200, "looks like seconds: write deliver_at=1793491200000"),
        (1_793_491_200.5, "must be a datetime with a time zone, a timedelta, or milliseconds"),
        (datetime(2026, 11, 1), "must have a time zone, got 2026-11-01T00:00:00"),
        (True, "must be a datetime"),
        (-1, "must be milliseconds since 1970, got -1"),
        ("2026-11-01T00:00:00Z", "must be a datetime"),
    ],
)
def test_a_value_that_could_mean_something_else_is_refused(value: int, words: str) -> None:
    with pytest.raises(ValueError, match="deliver_at") as caught:
        epoch_ms(value, now_ms=0, name="deliver_at")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "text", ["2026-11-01T00:00:00Z", "2026-11-01T01:00+01:00", str(NOV), "1d", "24 hours", "23h60m"]
)
def test_text_is_a_time_with_its_zone_milliseconds_or_an_age(text: str) -> None:
    assert parse_time(text, now_ms=NOV + 86_400_000) == NOV


def test_text_without_a_zone_is_local_time_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert parse_time("2026-11-01T01:00", 0, local=True) == NOV
        assert parse_time("2026-07-01T02:00", 0, local=True) == parse_time("2026-07-01T00:00Z", 0)
        assert format_time(NOV) == "2026-11-01T01:00:00+01:00"
    finally:
        monkeypatch.undo()
        time.tzset()
    with pytest.raises(ValueError, match="time must have a time zone, got 2026-11-01T02:00:00"):
        parse_time("2026-11-01T02:00", 0)


@pytest.mark.parametrize("text", ["", "yesterday", "10", "10x", "2026-13-01", "m", "10m ago"])
def test_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--since must be"):
        parse_time(text, 0, "--since", local=True)


@pytest.mark.parametrize("text", ["", "10", "10 mo", "ten minutes", "1h30"])
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration"):
        parse_duration_s(text)


def test_a_time_is_written_with_its_zone() -> None:
    assert format_time(NOV + 5, timezone(timedelta(hours=2))) == "2026-11-01T02:00:00.005+02:00"
