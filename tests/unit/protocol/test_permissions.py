"""Permission bits."""

import pytest

from turbopump.protocol.permissions import INHERIT, READ, READ_WRITE, WRITE, permission_text


@pytest.mark.parametrize(
    ("permission", "text"),
    [(READ_WRITE, "RW-"), (READ, "R--"), (WRITE, "-W-"), (READ_WRITE | INHERIT, "RWX"), (0, "---")],
)
def test_a_permission_is_printed_as_apache_prints_it(permission: int, text: str) -> None:
    assert permission_text(permission) == text
