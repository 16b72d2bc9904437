"""The pure parts of `benchmarks.instructions`; its measurements need valgrind, servers and minutes."""

import shutil
from typing import Any

import pytest
from benchmarks import counters, instructions
from benchmarks.instructions import BYTES, CALLS, INSTRUCTIONS, Counts

DUMP = "version: 1\nevents: Ir\nsummary: 720841061\n\nfn=(1) main\n0 23\n\ntotals: 720841061\n"
STRACE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000300           3       100           write
 40.00    0.000200           2       101         1 read
------ ----------- ----------- --------- --------- ----------------
100.00    0.000500           2       201         1 total
"""


def result(**loads: tuple[float, float]) -> dict[str, Any]:
    figures = {
        name: {INSTRUCTIONS: {"before": [before], "after": [after]}}
        for name, (before, after) in loads.items()
    }
    return {
        "machine": {"cores": 2, "cpu": "a CPU", "python": "3.11"},
        "commits": {"before": "aaa", "after": "bbb"},
        "minutes": 1.0,
        "repeats": 1,
        "loads": {name: instructions.summaries(found) for name, found in figures.items()},
    }


def test_the_total_of_a_dump_is_read() -> None:
    assert counters.instructions(DUMP) == 720841061


def test_a_dump_without_a_total_is_an_error() -> None:
    with pytest.raises(counters.NotCounted, match="totals"):
        counters.instructions("version: 1\n")


def test_system_calls_are_read_with_and_without_errors() -> None:
    assert counters.calls(STRACE) == {"write": 100, "read": 101}


def test_a_table_of_strace_without_a_total_is_an_error() -> None:
    with pytest.raises(counters.NotCounted, match="total"):
        counters.calls("strace: Process 1 detached\n")


def test_a_machine_without_valgrind_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(SystemExit, match="install valgrind"):
        counters.check_valgrind()


def test_what_both_runs_take_does_not_count() -> None:
    assert instructions.per_message(lambda count: (count, 1_000_000 + 7 * count), Counts(10, 110)) == 7


def test_the_spread_is_that_of_the_less_steady_checkout() -> None:
    found = instructions.summary({"before": [100.0, 100.0], "after": [100.0, 110.0]})
    assert found["spread"] == pytest.approx(0.1)
    assert found["ratio"] == pytest.approx(100 / 105)


def test_a_load_below_the_limit_is_named() -> None:
    found = result(fine=(97.0, 100.0), costly=(96.9, 100.0))
    assert instructions.costlier(found) == ["costly"]
    assert "Below 0.97x: costly." in instructions.markdown(found)


def test_the_table_shows_both_checkouts_and_the_ratio() -> None:
    found = result(send=(18_352.0, 17_000.0))
    assert "| send | 18,352 | 17,000 | 1.080x | 0.0% |  |" in instructions.markdown(found)


def test_missing_system_calls_are_said() -> None:
    assert "strace is not installed" in instructions.markdown(result(send=(1.0, 1.0)))


def test_system_calls_and_bytes_have_their_own_table() -> None:
    found = result(send=(1.0, 1.0))
    values = {CALLS: {"before": [3.0], "after": [2.5]}, BYTES: {"before": [356.0], "after": [355.0]}}
    found["loads"]["send"] |= instructions.summaries(values)
    assert "| send | 3.000 | 2.500 | 0.0% | 356 | 355 |" in instructions.markdown(found)
