"""What all tests of replication share."""

import pytest

from turbopump.store import timer_wheel


@pytest.fixture(autouse=True)
def small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel of a real broker has 1,209,600 slots: 39 MB, three times on the disk of each broker."""
    monkeypatch.setattr(timer_wheel, "SLOTS", 1_000)
