"""The tables of `benchmarks.pairs`; its measurements need servers and minutes."""

import os
from typing import Any

from benchmarks import generator, pairs
from benchmarks.pairs import Window

MACHINE = {"cores": 2, "cpu": "a processor", "python": "3.11", "load_average_at_start": 0.1}


def window(cpu_us: float, calls: float) -> Window:
    raw: dict[str, Any] = {
        "messages": 1,
        "errors": 0,
        "messages_per_second": 100.0,
        "server": {"cpu_us_per_message": cpu_us},
        "latency": {"p50_us": 50.0},
        "machine": {"generator_cores": 0.5, "other_cores": 0.0, "load_average": 0.1},
    }
    counts = {f"{role} {kind}": 1.0 for role in pairs.ROLES for kind in pairs.KINDS}
    return Window(generator.sample(raw), counts | {"slave calls": calls})


def result(before: list[Window], after: list[Window]) -> dict[str, Any]:
    summary = pairs.summary({"before": before, "after": after})
    commits = {"before": "a", "after": "b"}
    return {"machine": MACHINE, "commits": commits, "rounds": 1, "window_s": 1, "loads": {"1x1": summary}}


def test_a_ratio_is_that_of_both_processes_and_counts_are_medians() -> None:
    found = result([window(30.0, 0.1), window(30.0, 0.3), window(30.0, 0.2)], [window(20.0, 0.1)] * 3)
    load = found["loads"]["1x1"]
    assert load["ratio"] == 1.5
    assert load["counts"]["before"]["slave calls"] == 0.2
    page = pairs.markdown(found)
    assert "| 1x1 | 30.00 | 20.00 | 1.500x |" in page
    assert "No load is below" in page


def test_a_pair_that_costs_more_is_named() -> None:
    assert "Below 0.97x: 1x1." in pairs.markdown(result([window(20.0, 0.1)], [window(30.0, 0.1)]))


def test_the_calls_and_sleeps_of_a_process_are_read_from_the_kernel() -> None:
    assert pairs.read_and_write_calls(os.getpid()) > 0
    assert pairs.sleeps(os.getpid()) >= 0
    assert pairs.cpu_us(os.getpid()) > 0
