import logging

import pytest

from turbopump.protocol.frame import MAX_FRAME
from turbopump.remoting.limits import Limits, Seldom, connections_within


def test_a_line_is_written_once_per_interval_and_the_next_one_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seldom = Seldom(logging.getLogger("storm"), 10.0)
    for now in (100.0, 101.0, 109.9, 110.0, 111.0):
        seldom.say(now, "Refused %s", "somebody")
    assert [record.getMessage() for record in caplog.records] == [
        "Refused somebody",
        "Refused somebody (and 2 more since the last such line)",
    ]


def test_single_lines_are_all_written_and_of_a_burst_the_first_ones(caplog: pytest.LogCaptureFixture) -> None:
    seldom = Seldom(logging.getLogger("burst"), 1.0, lines=2)
    for now in (100.0, 100.1, 100.2, 100.3, 102.0, 104.0):
        seldom.say(now, "Made at %s", now)
    assert [record.getMessage() for record in caplog.records] == [
        "Made at 100.0",
        "Made at 100.1",
        "Made at 102.0 (and 2 more since the last such line)",
        "Made at 104.0",
    ]


def test_the_hard_output_limit_leaves_room_for_the_largest_frame() -> None:
    limits = Limits()
    assert limits.output_hard > 2 * MAX_FRAME + limits.output_high
    assert limits.output_low < limits.output_high


@pytest.mark.parametrize(
    ("descriptors", "servers", "connections"),
    [(2**31 - 1, 1, 16_384), (20_000, 1, 16_384), (20_000, 2, 9_500), (4096, 1, 3096), (1024, 1, 512)],
)
def test_connections_leave_descriptors_for_files(descriptors: int, servers: int, connections: int) -> None:
    assert connections_within(descriptors, servers) == connections
