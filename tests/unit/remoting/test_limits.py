import pytest

from turbopump.protocol.frame import MAX_FRAME
from turbopump.remoting.limits import Limits, connections_within


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
