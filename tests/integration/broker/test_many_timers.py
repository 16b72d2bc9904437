"""Very many timers on the virtual clock and a real disk: none early, lost or twice over six lives."""

from pathlib import Path

import pytest
from benchmarks import timers as bench

from turbopump.broker.delay import timers
from turbopump.testing.loop import run_virtual


@pytest.mark.parametrize("count", [2_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_each_of_many_from_a_millisecond_to_400_days_comes_once_over_stops_and_kills(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "MAX_PAUSE_S", 86_400.0)  # nobody sets this clock
    row = run_virtual(bench.spread(str(tmp_path), count, 128))
    assert (row["missing"], row["twice"], row["early"]) == (0, 0, 0)
