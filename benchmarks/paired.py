"""Compares two checkouts of ours: CPU time per message, before and after a change.

    python -m benchmarks.paired --before PATH --after PATH          # 10 rounds, about ten minutes
    python -m benchmarks.paired --before PATH --after PATH --rounds 1 --loads "send 1 KiB 4x64"

Each checkout is installed into a directory of its own, with its own compiled module, by the same Python and
with the same dependencies. A round starts a fresh server of each and puts every load on one and then on the
other; the order changes from round to round. Fresh processes matter: two processes of the same code differ by
a few percent in where their memory lies, and keep that difference for life. Only one of the two servers works
at a time. Each round begins with memory full of cached pages (`memory.py`): without that a message of 1 KiB
costs 2 us in one window and 5 us in the next.

The ratio of a round is work per CPU second after the change over before it, so 0.95x means that a message
costs 5 % more CPU time. The result is the median over the rounds with its quartiles; a load whose median is
below 0.97x ends the command with exit status 1. `client:` loads measure the CPU time of our Python client,
both against the server of `--before`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop import peers

from . import compare, generator, memory, report, servers
from .checkouts import (
    AFTER,
    BEFORE,
    CELLS,
    MIN_RATIO,
    PUSH_CLIENT,
    SEND_CLIENT,
    add_arguments,
    commit,
    environment_of,
    installed,
    wanted_loads,
)

BACKLOG_MESSAGES = 60_000  # a pull that reaches the end begins again
SETTLE_S = 1.0
FREE_PAGES_LOAD = "send 1 KiB 4x64"
FREE_PAGES_S = 4.0
"""Length of that load on each server before the first window of a round. Memory that is free then, such as
the log of the round before, costs the server that uses it first twice the CPU time: 3.8 instead of 1.7 us."""
CLIENT_TIMEOUT_S = 120.0
CPU_US = re.compile(r"([\d.]+) us CPU each")

CLIENTS: dict[str, tuple[str, ...]] = {
    SEND_CLIENT: (
        "benchmarks.client_sends",
        "--messages",
        "50000",
        "--in-flight",
        "64",
    ),
    PUSH_CLIENT: (
        "benchmarks.client_consumes",
        "--messages",
        "60000",
        "--handler",
        "batch",
    ),
}

Costs = dict[str, dict[str, list[float]]]
"""CPU microseconds per message: load -> before or after -> one figure per round."""


@dataclass(frozen=True)
class Plan:
    """What to measure, and how long."""

    sources: dict[str, Path]  # before and after -> directory for PYTHONPATH
    home: Path
    loads: Sequence[str]
    rounds: int
    window_s: float
    warm_up_s: float
    patience_s: float


def main() -> int:
    options = arguments().parse_args()
    home = Path(options.dir)
    generator.build()
    compare.check_disk(home, 10)
    checkouts = {BEFORE: Path(options.before), AFTER: Path(options.after)}
    sources = {name: installed(path, home / f"source-{name}") for name, path in checkouts.items()}
    plan = Plan(
        sources,
        home,
        wanted_loads(options),
        options.rounds,
        options.seconds,
        options.warm_up,
        options.patience,
    )
    began, machine = time.monotonic(), report.machine()
    with memory.used(home) if options.fill else nullcontext(lambda: None) as fill:
        costs = measure(plan, fill)
    result = {
        "machine": machine,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "commits": {name: commit(path) for name, path in checkouts.items()},
        "rounds": plan.rounds,
        "window_s": plan.window_s,
        "loads": {name: summary(of) for name, of in costs.items()},
    }
    print(f"\n{markdown(result)}", flush=True)
    if options.output:
        Path(f"{options.output}.json").write_text(json.dumps(result, indent=1) + "\n")
        Path(f"{options.output}.md").write_text(markdown(result))
    return 1 if slower(result) else 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paired",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    add_arguments(parser, generator.CACHE / "paired")
    option("--rounds", type=int, default=10)
    option("--seconds", type=float, default=2.0, help="length of a measured window (default: 2)")
    option("--warm-up", type=float, default=0.5, help="seconds of load before each window (default: 0.5)")
    option("--patience", type=float, default=0.0, help="seconds a window may wait for quiet cores")
    option("--no-fill", dest="fill", action="store_false", help="do not fill the page cache before rounds")
    return parser


# Measurement


def measure(plan: Plan, fill: Callable[[], None]) -> Costs:
    costs: Costs = {load: {BEFORE: [], AFTER: []} for load in plan.loads}
    for number in range(plan.rounds):
        fill()
        order = (BEFORE, AFTER) if number % 2 == 0 else (AFTER, BEFORE)
        with both_running(plan, order) as running:
            for load in plan.loads:
                for name in order:
                    compare.wait_for_quiet(plan.patience_s)
                    costs[load][name].append(cost(plan, load, name, running, number))
                before, after = costs[load][BEFORE][-1], costs[load][AFTER][-1]
                figures = f"{before:7.2f} us -> {after:7.2f} us  {before / after:.3f}x"
                print(f"round {number + 1:2}  {load:33} {figures}", flush=True)
    return costs


@contextmanager
def both_running(plan: Plan, order: Sequence[str]) -> Iterator[dict[str, servers.Running]]:
    running: dict[str, servers.Running] = {}
    try:
        for name in order:
            home = plan.home / name
            shutil.rmtree(home, ignore_errors=True)
            environment = {"PYTHONPATH": str(plan.sources[name])}
            server = servers.Running(servers.OURS, peers.place(home), environment=environment)
            running[name] = server
            servers.restart(server, (sys.executable, "-m", "turbopump"))
            if any(CELLS[load].mode == "pull" for load in plan.loads if load in CELLS):
                server.load("send", count=BACKLOG_MESSAGES, in_flight=64, topic=compare.PULL_TOPIC)
        for server in running.values():
            server.load("send", **CELLS[FREE_PAGES_LOAD].options(), warmup="0s", duration=f"{FREE_PAGES_S}s")
        time.sleep(SETTLE_S)
        yield running
    finally:
        for server in running.values():
            server.kill()
        for name in order:
            shutil.rmtree(plan.home / name, ignore_errors=True)


def cost(plan: Plan, load: str, name: str, running: dict[str, servers.Running], number: int) -> float:
    if load in CLIENTS:
        return client_cost(plan, load, name, running[BEFORE].place.namesrv)
    cell = CELLS[load]
    window = {"warmup": f"{plan.warm_up_s}s", "duration": f"{plan.window_s}s"}
    sample = running[name].load(cell.mode, **cell.options(), **window)
    if sample.errors:
        raise SystemExit(
            f"benchmarks.paired: {load} got {sample.errors} errors from {name}, round {number + 1}"
        )
    return sample.cpu_us


def client_cost(plan: Plan, load: str, name: str, name_servers: str) -> float:
    """Runs this checkout's benchmark of the client with the client of the source that is named."""
    module, *flags = CLIENTS[load]
    command = [sys.executable, "-m", module, *flags, "--rounds", "1", "--name-servers", name_servers]
    environment = environment_of(plan.sources[name], generator.ROOT)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=CLIENT_TIMEOUT_S
    )
    found = CPU_US.search(done.stdout)
    if done.returncode != 0 or found is None:
        raise SystemExit(f"benchmarks.paired: {module} failed with {name}:\n{done.stdout}{done.stderr}")
    return float(found[1])


# Results


def summary(costs: dict[str, list[float]]) -> dict[str, Any]:
    ratios = [before / after for before, after in zip(costs[BEFORE], costs[AFTER], strict=True)]
    low, middle, high = quartiles(ratios)
    return {
        "ratio": middle,
        "quartiles": [low, high],
        "range": [min(ratios), max(ratios)],
        "cpu_us": {name: statistics.median(found) for name, found in costs.items()},
        "cpu_us_all": costs,
    }


def quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def slower(result: dict[str, Any]) -> list[str]:
    return [name for name, found in result["loads"].items() if found["ratio"] < MIN_RATIO]


def markdown(result: dict[str, Any]) -> str:
    about, commits = result["machine"], result["commits"]
    head = (
        f"{commits[BEFORE]} before, {commits[AFTER]} after; {result['rounds']} rounds of "
        f"{result['window_s']} s windows in {result['minutes']} minutes; {about['cores']} cores "
        f"({about['cpu']}), Python {about['python']}, load average at the start "
        f"{about['load_average_at_start']:.1f}. Ratio: work per CPU second after / before, taken within "
        f"each round, median over the rounds."
    )
    rows = [
        [
            name,
            f"{found['cpu_us'][BEFORE]:.2f} us",
            f"{found['cpu_us'][AFTER]:.2f} us",
            f"{found['ratio']:.3f}x",
            "{:.3f}–{:.3f}".format(*found["quartiles"]),
            "{:.3f}–{:.3f}".format(*found["range"]),
            f"**below {MIN_RATIO}x**" if found["ratio"] < MIN_RATIO else "",
        ]
        for name, found in result["loads"].items()
    ]
    names = slower(result)
    end = f"Below {MIN_RATIO}x: {', '.join(names)}." if names else f"No load is below {MIN_RATIO}x."
    table = report.table(["load", "before", "after", "ratio", "quartiles", "range", ""], rows)
    return f"{head}\n\n{table}\n\n{end}\n"


if __name__ == "__main__":
    sys.exit(main())
