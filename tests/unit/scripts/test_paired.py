"""The arithmetic of `benchmarks.paired`; its measurements need servers and minutes."""

import pytest
from benchmarks import paired


def result(**loads: dict[str, list[float]]) -> dict[str, object]:
    return {"loads": {name: paired.summary(costs) for name, costs in loads.items()}}


def test_a_ratio_is_taken_within_a_round() -> None:
    found = paired.summary({"before": [10.0, 20.0, 40.0], "after": [10.0, 25.0, 80.0]})
    assert found["ratio"] == pytest.approx(0.8)
    assert found["range"] == [0.5, 1.0]
    assert found["cpu_us"] == {"before": 20.0, "after": 25.0}


def test_one_round_has_no_spread() -> None:
    found = paired.summary({"before": [10.0], "after": [8.0]})
    assert found["ratio"] == 1.25
    assert found["quartiles"] == [1.25, 1.25]


def test_a_load_below_the_limit_is_named() -> None:
    just_in, just_out = {"before": [97.0], "after": [100.0]}, {"before": [96.9], "after": [100.0]}
    assert paired.slower(result(fine=just_in, slow=just_out)) == ["slow"]


def test_the_pull_is_measured_before_the_sends() -> None:
    modes = [cell.mode for cell in paired.CELLS.values()]
    assert modes == sorted(modes, key=lambda mode: mode != "pull")


def test_the_cpu_time_of_a_client_is_found_in_its_output() -> None:
    found = paired.CPU_US.search("59,000 sends/s, p50 1.02 ms, p99 2.10 ms, 12.66 us CPU each")
    assert found is not None
    assert found[1] == "12.66"
