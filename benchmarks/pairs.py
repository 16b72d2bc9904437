"""Compares SYNC_MASTER pairs of two checkouts: CPU time, calls and waits per message.

    python -m benchmarks.pairs --before PATH --after PATH              # 4 rounds, about two minutes

Each checkout is installed as `benchmarks.paired` does it. A round starts a fresh master and slave of each and
puts every load on one pair and then on the other; the order changes from round to round. CPU time is that of
both processes of a pair. A ratio is before over after, taken within a round: 1.1x means that a message costs
9 % less. A load whose median ratio is below 0.97x ends the command with exit status 1.

Beside it stands, for master and slave, what the kernel counts of each process while it works undisturbed:
calls that read or write, and how often it went to sleep. A slave reads and writes about once for each part of
the log that it gets, so these say how many messages share a part.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from . import checkouts, compare, generator, paired, replicas, report
from .checkouts import AFTER, BEFORE, MIN_RATIO
from .generator import Sample
from .replicas import Pair

SHAPES = {"1 KiB 50x1": (50, 1), "1 KiB 1x1": (1, 1), "1 KiB 4x64": (4, 64)}
FIRST_LOAD_S = 2.0
WARM_UP_S = 0.5
APPENDED = "putMessageTimesTotal"
ROLES = "master", "slave"
CALLS, SLEEPS, CPU_US = KINDS = "calls", "sleeps", "CPU us"
TICK_US = 1_000_000 / os.sysconf("SC_CLK_TCK")

Counts = dict[str, float]
"""Role and kind, such as `slave calls` -> how many."""


@dataclass(frozen=True)
class Window:
    """One measured window: what the generator saw, and the counts of each process per message."""

    sample: Sample
    counts: Counts


Windows = dict[str, dict[str, list[Window]]]
"""Load -> before or after -> one window per round."""


@dataclass(frozen=True)
class Plan:
    """What to measure, and how long."""

    sources: dict[str, Path]  # before and after -> directory for PYTHONPATH
    home: Path
    loads: Sequence[str]
    rounds: int
    window_s: float


def main() -> int:
    options = arguments().parse_args()
    home = Path(options.dir)
    generator.build()
    compare.check_disk(home, 10)
    paths = {BEFORE: Path(options.before), AFTER: Path(options.after)}
    sources = {name: home / f"source-{name}" for name in paths}
    if not options.installed:
        for name, path in paths.items():
            checkouts.installed(path, sources[name])
    plan = Plan(sources, home, options.loads or list(SHAPES), options.rounds, options.seconds)
    about = report.machine()
    result = {
        "machine": about,
        "commits": {name: checkouts.commit(path) for name, path in paths.items()},
        "rounds": plan.rounds,
        "window_s": plan.window_s,
        "loads": {load: summary(found) for load, found in measure(plan).items()},
    }
    print(f"\n{markdown(result)}", flush=True)
    if options.output:
        Path(f"{options.output}.json").write_text(json.dumps(result, indent=1) + "\n")
        Path(f"{options.output}.md").write_text(markdown(result))
    return 1 if paired.slower(result) else 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pairs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("--before", required=True, metavar="PATH", help="checkout before the change")
    option("--after", required=True, metavar="PATH", help="checkout after the change")
    option("--loads", action="append", choices=SHAPES, metavar="LOAD", help=f"one of: {', '.join(SHAPES)}")
    option("--rounds", type=int, default=4)
    option("--seconds", type=float, default=3.0, help="length of a measured window (default: 3)")
    option("--installed", action="store_true", help="the checkouts are installed in --dir, by a run before")
    option("--dir", default=str(generator.CACHE / "pairs"), help="where stores and installations are kept")
    option("--output", metavar="NAME", help="write NAME.json and NAME.md")
    return parser


# measurement


def measure(plan: Plan) -> Windows:
    windows: Windows = {load: {BEFORE: [], AFTER: []} for load in plan.loads}
    for number in range(plan.rounds):
        order = (BEFORE, AFTER) if number % 2 == 0 else (AFTER, BEFORE)
        with both_running(plan, order) as running:
            for load in plan.loads:
                for name in order:
                    window = put(running[name], load, plan.window_s)
                    windows[load][name].append(window)
                    print(f"round {number + 1}  {load}  {line(name, window)}", flush=True)
    return windows


def line(name: str, window: Window) -> str:
    sample, counts = window.sample, window.counts
    found = "  ".join(f"{key} {value:.2f}" for key, value in counts.items())
    return f"{name:6} {sample.rate:9,.0f}/s {sample.cpu_us:6.2f} us  p50 {sample.p50_us:,.0f} us  {found}"


@contextmanager
def both_running(plan: Plan, order: Sequence[str]) -> Iterator[dict[str, Pair]]:
    with ExitStack() as stack:
        running: dict[str, Pair] = {}
        for name in order:
            home = plan.home / name
            shutil.rmtree(home, ignore_errors=True)
            stack.callback(shutil.rmtree, home, ignore_errors=True)
            environment = {"PYTHONPATH": str(plan.sources[name])}
            running[name] = stack.enter_context(replicas.started(replicas.SYNC, home, environment))
        for pair in running.values():
            replicas._load(pair, (4, 64), pair.pids, FIRST_LOAD_S, 0.0)
        yield running


def put(pair: Pair, load: str, seconds: float) -> Window:
    before, began = counts_of(pair), replicas._figure(pair.place.broker_addr, APPENDED)
    sample = replicas._load(pair, SHAPES[load], pair.pids, seconds, WARM_UP_S)
    after, ended = counts_of(pair), replicas._figure(pair.place.broker_addr, APPENDED)
    if sample.errors:
        raise SystemExit(f"benchmarks.pairs: {load} got {sample.errors} errors")
    return Window(sample, {key: (after[key] - before[key]) / (ended - began) for key in after})


def counts_of(pair: Pair) -> Counts:
    found: Counts = {}
    for role, pid in zip(ROLES, pair.pids, strict=True):
        values = read_and_write_calls(pid), sleeps(pid), cpu_us(pid)
        found |= {f"{role} {kind}": value for kind, value in zip(KINDS, values, strict=True)}
    return found


def read_and_write_calls(pid: int) -> float:
    lines = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(lines["syscr"]) + int(lines["syscw"])


def sleeps(pid: int) -> float:
    """Returns how often the main thread of a process gave up its core, to wait."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)[0])


def cpu_us(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_US


# results


def summary(windows: dict[str, list[Window]]) -> dict[str, Any]:
    """Returns medians over the rounds."""
    costs = {name: [one.sample.cpu_us for one in found] for name, found in windows.items()}
    return {
        **paired.summary(costs),
        "p50_us": {name: median(one.sample.p50_us for one in found) for name, found in windows.items()},
        "rate": {name: median(one.sample.rate for one in found) for name, found in windows.items()},
        "counts": {
            name: {key: median(one.counts[key] for one in found) for key in found[0].counts}
            for name, found in windows.items()
        },
    }


def markdown(result: dict[str, Any]) -> str:
    about, commits = result["machine"], result["commits"]
    head = (
        f"SYNC_MASTER pairs, {commits[BEFORE]} before, {commits[AFTER]} after; {result['rounds']} rounds of "
        f"{result['window_s']} s windows; {about['cores']} cores ({about['cpu']}), Python {about['python']}, "
        f"load average at the start {about['load_average_at_start']:.1f}. CPU time of master and slave "
        f"together. Ratio: before / after, taken within each round, median over the rounds."
    )
    columns = ["load", "CPU us, before", "after", "ratio", "range", "p50 us, before", "after"]
    rows = [
        [
            load,
            *(f"{found['cpu_us'][name]:.2f}" for name in (BEFORE, AFTER)),
            f"{found['ratio']:.3f}x",
            "{:.3f}–{:.3f}".format(*found["range"]),
            *(f"{found['p50_us'][name]:,.0f}" for name in (BEFORE, AFTER)),
        ]
        for load, found in result["loads"].items()
    ]
    names = paired.slower(result)
    end = f"Below {MIN_RATIO}x: {', '.join(names)}." if names else f"No load is below {MIN_RATIO}x."
    return "\n\n".join((head, report.table(columns, rows), count_table(result["loads"]), end)) + "\n"


def count_table(loads: dict[str, Any]) -> str:
    keys = [f"{role} {kind}" for role in ROLES for kind in KINDS]
    rows = [
        [load, name, *(f"{found['counts'][name][key]:.2f}" for key in keys)]
        for load, found in loads.items()
        for name in (BEFORE, AFTER)
    ]
    return report.table(["per message", "", *keys], rows)


if __name__ == "__main__":
    sys.exit(main())
