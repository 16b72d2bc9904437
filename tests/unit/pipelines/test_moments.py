from datetime import UTC, datetime

import pytest

from turbopump.pipelines.moments import moment_of, seconds_of

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("span", "seconds"),
    [
        ("10m", 600),
        ("1h30m", 5400),
        ("10 minutes", 600),
        ("1 hour", 3600),
        ("250ms", 0.25),
        ("2 weeks", 1209600),
    ],
)
def test_spans_as_people_write_them(span, seconds):
    assert seconds_of(span) == seconds


@pytest.mark.parametrize("span", ["", "10", "m", "10 parsecs", "10m!", "ten minutes"])
def test_what_is_no_span_is_refused(span):
    with pytest.raises(ValueError, match="is no span of time"):
        seconds_of(span)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-01T11:00", datetime(2026, 11, 1, 11, tzinfo=UTC)),
        ("2026-11-01T12:00:00+02:00", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        ("2026-11-01T11:00:00Z", datetime(2026, 11, 1, 11, tzinfo=UTC)),
        ("1793530800000", datetime(2026, 11, 1, 11, tzinfo=UTC)),
        ("1h", datetime(2026, 11, 1, 11, tzinfo=UTC)),
    ],
)
def test_times_and_ages(text, moment):
    assert moment_of(text, NOW) == moment


def test_what_is_no_time_is_refused():
    with pytest.raises(ValueError, match="is no time"):
        moment_of("yesterday", NOW)
