"""Measures the cost of a message by size of the log (1 MB to 20 GB) and number of topics (1 to 10,000)."""

from __future__ import annotations

import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import servers
from .compare import check_disk, print_now
from .generator import Sample
from .servers import Running

MB = 1_000_000
LOG_STEPS_MB = (1, 100, 1_000, 5_000, 10_000, 20_000)
TOPIC_STEPS = (1, 10, 100, 1_000, 10_000)
WINDOWS = 3
SEND = {"in_flight": 64, "connections": 4}


@dataclass(frozen=True)
class Plan:
    """Which server, and how far to go."""

    kind: str
    log_gb: float
    topics: int
    duration_s: float


def flat(plan: Plan, home: Path) -> dict[str, Any]:
    check_disk(home, plan.log_gb * 1.3 + 5)
    try:
        return {"by_log_size": by_log_size(plan, home / "log"), "by_topics": by_topics(plan, home / "topics")}
    finally:
        for name in ("log", "topics"):
            shutil.rmtree(home / name, ignore_errors=True)


def by_log_size(plan: Plan, home: Path) -> dict[str, Any]:
    server, seconds = servers.start(plan.kind, home)
    steps = []
    try:
        for size_mb in [step for step in LOG_STEPS_MB if step <= plan.log_gb * 1000]:
            fill(server, home, size_mb)
            step = {"log_mb": size_mb, **windows(server, plan.duration_s, "send", **SEND)}
            step["pull_cpu_us"] = windows(server, plan.duration_s, "pull")["cpu_us"]
            steps.append(step)
            print_now(f"log {size_mb:6,} MB: send {step['cpu_us']:.2f} us, pull {step['pull_cpu_us']:.2f} us")
        server.stop()
        _, again = servers.restart(server)
        print_now(f"start with an empty store {seconds:.2f} s, with this log {again:.2f} s")
    finally:
        server.kill()
    return {"steps": steps, "startup_empty_s": seconds, "startup_full_s": again}


def fill(server: Running, home: Path, size_mb: float) -> None:
    missing = size_mb * MB - log_bytes(server, home)
    if (count := int(missing / 1300)) > 0:
        server.load("send", count=count, **SEND)


def log_bytes(server: Running, home: Path) -> int:
    """Bytes written to the log. Blocks count, since the last file has its full length from the start."""
    return sum(path.stat().st_blocks * 512 for path in home.glob("**/commitlog/*"))


def by_topics(plan: Plan, home: Path) -> list[dict[str, Any]]:
    server, _ = servers.start(plan.kind, home)
    steps = []
    try:
        for topics in [step for step in TOPIC_STEPS if step <= plan.topics]:
            prefix = f"flat{topics}_"
            created = server.load("send", count=topics * 4, topic=prefix, topics=topics, **SEND)
            step = {"topics": topics, "creation_ms": created.raw["seconds"] * 1000 / topics}
            step |= windows(server, plan.duration_s, "send", topic=prefix, topics=topics, **SEND)
            step["anonymous_mib"] = servers.memory_mib(server.pids[0])["anonymous"]
            steps.append(step)
            costs = f"send {step['cpu_us']:.2f} us, creation {step['creation_ms']:.2f} ms per topic"
            print_now(f"{topics:6,} topics: {costs}")
    finally:
        server.kill()
    return steps


def windows(server: Running, duration_s: float, mode: str, **options: object) -> dict[str, Any]:
    """Medians of a few short windows, which on a shared machine vary less than one long one."""
    runs: list[Sample] = [
        server.load(mode, warmup="300ms", duration=f"{duration_s}s", **options) for _ in range(WINDOWS)
    ]
    return {
        "cpu_us": statistics.median(run.cpu_us for run in runs),
        "rate": statistics.median(run.rate for run in runs),
        "load_average": runs[-1].load_average,
        "errors": sum(run.errors for run in runs),
    }
