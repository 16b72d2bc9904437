"""Apache's servers still do what was recorded with every variant of every request body.

What ours do is compared with the recordings in tests/compat/test_bodies.py, which needs no Java.
"""

from __future__ import annotations

import pytest

from . import artifacts, compare, recordings, request_bodies
from .conftest import StartOnce


@pytest.mark.parametrize("server", artifacts.SERVERS)
def test_apache_still_reads_bodies_as_recorded(server: str, start_once: StartOnce) -> None:
    seen = request_bodies.observe(start_once(server))
    found = list(compare.differences(recordings.load(request_bodies.RECORDED, server), seen))
    assert not found, compare.listing(found) + "\nIf Apache is right: make record"
