import logging

import pytest

from turbopump.runtime.rate_limited_log import RateLimitedLog


def test_a_line_is_written_once_per_interval_and_the_next_one_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limited = RateLimitedLog(logging.getLogger("storm"), 10.0)
    for now in (100.0, 101.0, 109.9, 110.0, 111.0):
        limited.log(now, "Refused %s", "somebody")
    assert [record.getMessage() for record in caplog.records] == [
        "Refused somebody",
        "Refused somebody (and 2 more since the last such line)",
    ]


def test_single_lines_are_all_written_and_of_a_burst_the_first_ones(caplog: pytest.LogCaptureFixture) -> None:
    limited = RateLimitedLog(logging.getLogger("burst"), 1.0, lines=2)
    for now in (100.0, 100.1, 100.2, 100.3, 102.0, 104.0):
        limited.log(now, "Made at %s", now)
    assert [record.getMessage() for record in caplog.records] == [
        "Made at 100.0",
        "Made at 100.1",
        "Made at 102.0 (and 2 more since the last such line)",
        "Made at 104.0",
    ]
