"""The tables of `benchmarks.replicas`; its measurements need servers and minutes."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import failover, replicas
from benchmarks.servers import BASELINE

MACHINE = {"cores": 2, "load_average_at_start": 0.3}


def window(p50: float, p99: float, cpu_us: float = 10.0) -> dict[str, Any]:
    """What the generator prints, as far as the tables use it."""
    return {
        "messages": 100,
        "errors": 0,
        "messages_per_second": 1000.0,
        "latency": {"p50_us": p50, "p99_us": p99},
        "server": {"cpu_us_per_message": cpu_us},
        "machine": {"generator_cores": 0.1, "other_cores": 0.1, "load_average": 0.3},
    }


def latencies(**p99s: tuple[float, ...]) -> dict[str, Any]:
    names = {"lone": replicas.LONE, "sync": replicas.SYNC, "apache": BASELINE,
             "apache_lone": replicas.BASELINE_LONE}  # fmt: skip
    samples = {
        names[name]: {load: [window(p99 / 10, p99) for p99 in found] for load in replicas.LATENCY_SHAPES}
        for name, found in p99s.items()
    }
    return {replicas.LATENCY: {"machine": MACHINE, "samples": samples}}


def test_what_a_slave_adds_is_the_difference_of_the_medians_over_rounds() -> None:
    text = replicas.page(
        latencies(lone=(100, 900, 110), sync=(300, 310, 9000), apache_lone=(400,), apache=(1400,))
    )
    assert "1 KiB 1x1, ours: the slave adds 20 us to p50, 200 us to p99" in text
    assert "1 KiB 1x1, 4.9.7: the slave adds 100 us to p50, 1,000 us to p99" in text


def test_the_page_says_how_busy_the_machine_was() -> None:
    assert "load average 0.3" in replicas.page(latencies(lone=(1,), sync=(1,), apache_lone=(1,), apache=(1,)))


def test_costs_are_compared_with_apaches_pair_and_with_a_lone_broker() -> None:
    costs = {replicas.LONE: 8.0, replicas.ASYNC: 12.0, replicas.SYNC: 16.0, BASELINE: 48.0}
    samples = {name: {load: [window(1, 2, cpu)] for load in replicas.SHAPES} for name, cpu in costs.items()}
    for load in replicas.SHAPES:
        samples[replicas.ASYNC][f"{load}{replicas.MASTER_ALONE}"] = [window(1, 2, 10.0)]
    text = replicas.page({replicas.COST: {"machine": MACHINE, "samples": samples}})
    assert "1 KiB 4x64: SYNC_MASTER pair 3.00x of 4.9.7's (target 3.0x)" in text
    assert "1 KiB 50x1: ASYNC_MASTER 0.80x of a lone broker (target 0.9x)" in text


def test_a_copy_is_told_with_its_queues_and_index() -> None:
    figures = {"machine": MACHINE, "mb": 1000.0, "messages": 800_000, "log_s": 4.0, "queues_s": 5.0}
    text = replicas.page({replicas.COPY: figures})
    assert "1,000 MB in 4.0 s, start-up included: 250 MB/s" in text
    assert "queues and index of 800,000 messages after 5.0 s: 200 MB/s, 160,000 messages/s" in text


def test_a_failover_has_a_line_for_each_client() -> None:
    row = dict.fromkeys(failover.SECONDS, 1.5) | {
        "cluster": "ours", "client": "python", "failed": 0, "stay": {"repeated": 3},
    }  # fmt: skip
    text = replicas.page({replicas.FAILOVER: {"machine": MACHINE, "runs": [row]}})
    assert text.endswith("| ours | ours | 1.50 | 1.50 | 1.50 | 1.50 | 1.50 | 0 | 3 |")


def test_a_part_that_is_measured_again_replaces_that_part_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "RESULTS", tmp_path)
    assert replicas.earlier("replicas") == {}
    (tmp_path / "replicas.json").write_text(json.dumps({"idle": {"percent": {}}, "copy": {"mb": 1}}))
    assert replicas.earlier("replicas") | {"copy": {"mb": 2}} == {"idle": {"percent": {}}, "copy": {"mb": 2}}


def test_each_part_can_be_measured_alone() -> None:
    parse = replicas.arguments().parse_args
    assert parse(["--only", "failover", "--only", "copy"]).only == ["failover", "copy"]
    assert set(replicas.SERVERS_OF) == set(replicas.PARTS)
