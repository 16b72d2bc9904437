"""Compares ours with Apache's 4.9.7 and 5.5.0: start-up, memory, and cost of a message by load.

All servers stay up for the whole run. Each round puts every load on each of them in turn, so that a ratio is
always taken between windows that are seconds apart.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import memory, servers
from .generator import Sample
from .servers import BASELINE, OURS, Running

KIB = 1024
WARM_UP_WINDOW_S = 3.0
MIN_WARM_UP_WINDOWS, MAX_WARM_UP_WINDOWS = 3, 10  # of each shape
STILL_FALLING = 0.95  # a window this much cheaper than the best one: the JVM still compiles
PULL_TOPIC = "pull_"
PULL_MESSAGES = 200_000
SETTLE_S = 3.0
QUIET_CORES = 0.3
QUIET_PROBE_S = 0.5


@dataclass(frozen=True)
class Cell:
    """A shape of load. `target` is our work per CPU second in multiples of the baseline's."""

    name: str
    mode: str
    connections: int
    in_flight: int
    target: float
    size: int = KIB
    keys: bool = False  # every message has its own key, as orders and payments do

    def options(self) -> dict[str, object]:
        shape: dict[str, object] = {"connections": self.connections, "in_flight": self.in_flight}
        if self.mode == "pull":
            return shape | {"topic": PULL_TOPIC, "batch": 32}
        return shape | {"size": self.size, "keys": self.keys}


CELLS = (
    Cell("send 1 KiB 4x64", "send", 4, 64, target=2.0),
    Cell("send 1 KiB keyed 4x64", "send", 4, 64, target=2.0, keys=True),
    Cell("send 128 B 4x64", "send", 4, 64, target=2.0, size=128),
    Cell("send 1 KiB 50x1", "send", 50, 1, target=2.5),
    Cell("send 128 B 50x1", "send", 50, 1, target=2.5, size=128),
    Cell("send 1 KiB 1x1", "send", 1, 1, target=1.5),
    Cell("send 128 B 1x1", "send", 1, 1, target=1.5, size=128),
    Cell("pull 32 x 1 KiB 4x1", "pull", 4, 1, target=1.0),
)
STARTUP_TARGET_S = 0.6
ANONYMOUS_TARGET_MIB = 100.0


@dataclass(frozen=True)
class Plan:
    """What to measure, and for how long."""

    kinds: Sequence[str]
    rounds: int
    duration_s: float
    warm_up_s: float
    patience_s: float  # longest wait of a window for quiet cores
    used_memory: bool = True  # see `memory.py`; filling it takes up to a minute

    @property
    def disk_gb(self) -> float:
        """Upper estimate: a log grows by 200 MB/s during sends of 1 KiB, by half of that during others."""
        per_second = sum(0.2 if cell.size == KIB else 0.1 for cell in CELLS if cell.mode == "send")
        measured = self.rounds * (self.duration_s + self.warm_up_s) * per_second
        return 2 + len(self.kinds) * (6 + measured)


Samples = dict[str, dict[str, list[Sample]]]  # cell -> kind -> one per round


def compare(plan: Plan, home: Path) -> dict[str, Any]:
    check_disk(home, plan.disk_gb)
    servers.compile_ours()
    filled = memory.used(home) if plan.used_memory else nullcontext()
    with filled, all_running(plan, home) as (running, startup):
        idle = {kind: server.memory_mib() for kind, server in running.items()}
        for server in running.values():
            warm_up(server)
        samples = measure(plan, running)
        after = {kind: server.memory_mib() for kind, server in running.items()}
    return {
        "plan": asdict(plan),
        "startup_s": startup,
        "memory_idle_mib": idle,
        "memory_after_load_mib": after,
        "cells": [summary(cell, samples[cell.name]) for cell in CELLS],
    }


def check_disk(home: Path, needed_gb: float) -> None:
    home.mkdir(parents=True, exist_ok=True)
    if (free := servers.free_gb(home)) < needed_gb:
        raise SystemExit(f"benchmarks: {home} has {free:.0f} GB free; this run may write {needed_gb:.0f} GB")


@contextmanager
def all_running(plan: Plan, home: Path) -> Iterator[tuple[dict[str, Running], dict[str, list[float]]]]:
    running: dict[str, Running] = {}
    startup: dict[str, list[float]] = {kind: [] for kind in plan.kinds}
    try:
        for turn in range(plan.rounds):
            for kind in plan.kinds:
                server, seconds = servers.start(kind, home / kind)
                running[kind] = server
                startup[kind].append(seconds)
                print_now(f"start {kind}: first acknowledgement after {seconds:.2f} s")
                if turn < plan.rounds - 1:
                    server.stop()
        time.sleep(2)
        yield running, startup
    finally:
        for server in running.values():
            server.kill()
        for kind in plan.kinds:
            shutil.rmtree(home / kind, ignore_errors=True)


def warm_up(server: Running) -> None:
    """Repeats each shape of load until its cost stops falling: a JVM compiles code that runs often."""
    new_backlog(server, PULL_TOPIC)
    for cell in CELLS:
        if cell.size == KIB and not cell.keys and cell.in_flight * cell.connections > 1:
            costs = list(falling_costs(server, cell))
            print_now(f"warm up {server.kind:6} {cell.name}: {costs[0]:.1f} -> {costs[-1]:.1f} us")


def falling_costs(server: Running, cell: Cell) -> Iterator[float]:
    best = float("inf")
    for window in range(MAX_WARM_UP_WINDOWS):
        cost = server.load(cell.mode, **cell.options(), warmup="0s", duration=f"{WARM_UP_WINDOW_S}s").cpu_us
        yield cost
        if window + 1 >= MIN_WARM_UP_WINDOWS and cost > best * STILL_FALLING:
            return
        best = min(best, cost)


def measure(plan: Plan, running: dict[str, Running]) -> Samples:
    samples: Samples = {cell.name: {kind: [] for kind in running} for cell in CELLS}
    window = {"warmup": f"{plan.warm_up_s}s", "duration": f"{plan.duration_s}s"}
    for turn in range(plan.rounds):
        for cell in CELLS:
            for kind, server in running.items():
                options = cell.options()
                if cell.mode == "pull":
                    options["topic"] = new_backlog(server, f"{PULL_TOPIC}{turn}_")
                wait_for_quiet(plan.patience_s)
                sample = server.load(cell.mode, **options, **window)
                samples[cell.name][kind].append(sample)
                noise = f"load {sample.load_average:.1f}  evictions {sample.evictions:.0f}"
                cost = f"{sample.rate:9,.0f}/s {sample.cpu_us:7.2f} us  errors {sample.errors}"
                print_now(f"round {turn + 1}  {cell.name:22} {kind:6} {cost}  {noise}")
    return samples


def new_backlog(server: Running, topic: str) -> str:
    """Sends a backlog for pulls, waits until it is flushed and indexed, and returns its topic.

    Each round gets a new one, because all brokers return fewer messages per pull when these are far behind
    the end of the log, and the broker that stores more messages per second would get there first.
    """
    server.load("send", count=PULL_MESSAGES, in_flight=64, topic=topic)
    time.sleep(SETTLE_S)
    return topic


def wait_for_quiet(patience_s: float) -> None:
    """Waits until other processes leave most cores free, at most `patience_s` seconds."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        before = servers.machine_busy_s()
        time.sleep(QUIET_PROBE_S)
        if servers.machine_busy_s() - before < QUIET_CORES * QUIET_PROBE_S:
            return


def summary(cell: Cell, by_kind: dict[str, list[Sample]]) -> dict[str, Any]:
    return {
        **asdict(cell),
        "servers": {kind: median_of(runs) for kind, runs in by_kind.items()},
        "work_per_cpu_second_vs_baseline": {
            kind: paired_ratio(runs, by_kind[BASELINE])
            for kind, runs in by_kind.items()
            if BASELINE in by_kind
        },
    }


def median_of(runs: list[Sample]) -> dict[str, Any]:
    def median(name: str) -> float:
        values: list[float] = [getattr(run, name) for run in runs]
        return statistics.median(values)

    names = ("rate", "cpu_us", "server_cores", "p50_us", "generator_cores", "other_cores", "load_average")
    return {
        **{name: median(name) for name in names},
        "evictions": median("evictions"),
        "cpu_us_all": [run.cpu_us for run in runs],
        "rate_all": [run.rate for run in runs],
        "errors": sum(run.errors for run in runs),
    }


def paired_ratio(runs: list[Sample], baseline: list[Sample]) -> float:
    """Median of work per CPU second over the baseline's in the same round."""
    ratios = [
        mine.per_cpu_second / theirs.per_cpu_second for mine, theirs in zip(runs, baseline, strict=True)
    ]
    return statistics.median(ratios)


def verdicts(result: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Returns each target, what was measured, and whether it was met."""
    found = []
    for cell in result["cells"]:
        ratio = cell["work_per_cpu_second_vs_baseline"].get(OURS)
        if ratio is not None:
            measured = f"{ratio:.2f}x (target {cell['target']}x)"
            found.append((f"{cell['name']}, work per CPU second", measured, ratio >= cell["target"]))
    if OURS in result["startup_s"]:
        seconds = statistics.median(result["startup_s"][OURS])
        found_text = f"{seconds:.2f} s (target {STARTUP_TARGET_S})"
        found.append(("start to first acknowledgement", found_text, seconds <= STARTUP_TARGET_S))
        anonymous = sum(memory["anonymous"] for memory in result["memory_after_load_mib"][OURS].values())
        found_text = f"{anonymous:.0f} MiB (target {ANONYMOUS_TARGET_MIB:.0f})"
        found.append(("anonymous memory after the load", found_text, anonymous <= ANONYMOUS_TARGET_MIB))
    return found


def print_now(text: str) -> None:
    print(text, flush=True)
