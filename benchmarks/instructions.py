"""Compares two checkouts of ours: user instructions and system calls per message, before and after a change.

    python -m benchmarks.instructions --before PATH --after PATH          # about fifteen minutes
    python -m benchmarks.instructions --before PATH --after PATH --loads "send 1 KiB 4x64"

CPU time differs by tens of percent between equal runs on a shared machine; the number of instructions differs
by 1 or 2 % for pipelined loads and clients, by up to 10 % for 50x1 and 1x1 (see the spread). The price: an
instruction is not a time. A cache miss counts nothing, and neither does the kernel: system calls and bytes
written are counted beside it.

Each checkout is installed as `benchmarks.paired` does it. Its server runs under callgrind and gets each load
three times: to warm up, a short one and a long one. The difference of the last two, divided by the difference
of their messages, is the figure: opening and closing of connections does not count. Then a server without
callgrind gets the same loads under strace. Clients run under callgrind from start to end, with few and with
many messages, against the server of `--before`. Everything is done twice, with fresh processes; the spread is
the larger distance between the two figures of a checkout. A ratio is before over after: 0.95x means that a
message takes 5 % more instructions. A load below 0.97x ends the command with exit status 1.

Not counted is what the clock starts (`WITHOUT_CLOCK`), such as publishing the index every ten seconds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop import peers

from . import checkouts, compare, counters, generator, report, servers
from .checkouts import AFTER, BEFORE, CELLS, MIN_RATIO, SEND_CLIENT

BACKLOG_MESSAGES = 20_000  # a pull that reaches the end begins again
SETTLE_S = 0.5  # closed connections are noticed by then
CLIENT_TIMEOUT_S = 300.0
REPEATS = 2
FIXED = {"PYTHONHASHSEED": "0"}  # the order of sets, and with it the work on them

# Work that the clock starts, not a message, would fall into one run or the other: the index of a slow server
# is published with 100 million instructions every ten seconds.
RARELY_MS = "3600000"
WITHOUT_CLOCK = {
    "flushIntervalConsumeQueue": RARELY_MS,
    "flushConsumeQueueThoroughInterval": RARELY_MS,
    "cleanResourceInterval": RARELY_MS,
}

INSTRUCTIONS, CALLS, BYTES = "instructions", "system calls", "bytes written"
FIGURES = (INSTRUCTIONS, CALLS, BYTES)

Figures = dict[str, dict[str, dict[str, list[float]]]]
"""Per message: load -> figure -> before or after -> one value per repetition."""


@dataclass(frozen=True)
class Counts:
    """Requests of the short and of the long run of a load."""

    short: int
    long: int


PIPELINED, ONE_BY_ONE, PULLS = Counts(5_000, 25_000), Counts(1_000, 5_000), Counts(200, 1_200)
CLIENT_COUNTS = Counts(
    4_480, 16_640
)  # multiples of 64, and a tenth of them too: nobody sends less than others


@dataclass(frozen=True)
class Plan:
    """What to measure, and where."""

    sources: dict[str, Path]  # before and after -> directory for PYTHONPATH
    home: Path
    loads: Sequence[str]
    repeats: int


def main() -> int:
    options = arguments().parse_args()
    counters.check_valgrind()
    home = Path(options.dir)
    generator.build()
    compare.check_disk(home, 10)
    paths = {BEFORE: Path(options.before), AFTER: Path(options.after)}
    sources = {name: checkouts.installed(path, home / f"source-{name}") for name, path in paths.items()}
    plan = Plan(sources, home, checkouts.wanted_loads(options), options.repeats)
    began = time.monotonic()
    figures = measure(plan)
    result = {
        "machine": report.machine(),
        "minutes": round((time.monotonic() - began) / 60, 1),
        "commits": {name: checkouts.commit(path) for name, path in paths.items()},
        "repeats": plan.repeats,
        "loads": {
            load: {figure: summary(of) for figure, of in found.items()} for load, found in figures.items()
        },
    }
    print(f"\n{markdown(result)}", flush=True)
    if options.output:
        Path(f"{options.output}.json").write_text(json.dumps(result, indent=1) + "\n")
        Path(f"{options.output}.md").write_text(markdown(result))
    return 1 if costlier(result) else 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.instructions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    checkouts.add_arguments(parser, generator.CACHE / "instructions")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="processes for each figure (default: 2)")
    return parser


# Measurement


def measure(plan: Plan) -> Figures:
    figures: Figures = {load: {} for load in plan.loads}
    for _ in range(plan.repeats):
        for name in (BEFORE, AFTER):
            for load, figure, value in measured(plan, name):
                figures[load].setdefault(figure, {BEFORE: [], AFTER: []})[name].append(value)
                print(f"{name:6}  {load:33} {figure:13} {value:12,.3f}", flush=True)
    return figures


def measured(plan: Plan, name: str) -> Iterator[tuple[str, str, float]]:
    """Yields load, figure and value per message of one checkout."""
    cells = [load for load in plan.loads if load in CELLS]
    if cells:
        parts = plan.home / "callgrind"
        with running(plan, name, counters.callgrind(parts)) as server:
            counter = counters.Instructions(server.pids[0], parts)
            for load in cells:
                yield load, INSTRUCTIONS, server_instructions(server, counter, load)
        if counters.has_strace():
            with running(plan, name) as server:
                for load in cells:
                    yield from ((load, *found) for found in server_calls(plan, server, load))
    for load in plan.loads:
        if load not in CELLS:
            with running(plan, BEFORE) as server:
                yield load, INSTRUCTIONS, client_instructions(plan, load, name, server.place.namesrv)


@contextmanager
def running(plan: Plan, name: str, prefix: tuple[str, ...] = ()) -> Iterator[servers.Running]:
    """Runs the server of a checkout on an empty store, with a backlog to pull."""
    home = plan.home / "server"
    shutil.rmtree(home, ignore_errors=True)
    environment = {"PYTHONPATH": str(plan.sources[name]), **FIXED}
    server = servers.Running(servers.OURS, peers.place(home), extra=WITHOUT_CLOCK, environment=environment)
    try:
        servers.restart(server, (*prefix, sys.executable, "-m", "turbopump"))
        if any(CELLS[load].mode == "pull" for load in plan.loads if load in CELLS):
            server.load("send", count=BACKLOG_MESSAGES, in_flight=64, topic=compare.PULL_TOPIC)
        yield server
    finally:
        server.kill()
        shutil.rmtree(home, ignore_errors=True)


def counts_of(load: str) -> Counts:
    cell = CELLS[load]
    if cell.mode == "pull":
        return PULLS
    return PIPELINED if cell.in_flight > 1 else ONE_BY_ONE


def put(server: servers.Running, load: str, count: int) -> int:
    """Puts a load on a server and returns the number of its messages."""
    cell = CELLS[load]
    sample = server.load(cell.mode, **cell.options(), count=count)
    if sample.errors:
        raise SystemExit(f"benchmarks.instructions: {load} got {sample.errors} errors")
    time.sleep(SETTLE_S)
    return sample.messages


def server_instructions(server: servers.Running, counter: counters.Instructions, load: str) -> float:
    counts = counts_of(load)
    put(server, load, counts.short)
    counter.since_last()

    def run(count: int) -> tuple[int, int]:
        return put(server, load, count), counter.since_last()

    return per_message(run, counts)


def server_calls(plan: Plan, server: servers.Running, load: str) -> Iterator[tuple[str, float]]:
    counts, pid = counts_of(load), server.pids[0]
    put(server, load, counts.short)
    written: list[int] = []
    sent: list[int] = []

    def run(count: int) -> tuple[int, int]:
        before = counters.bytes_written(pid)
        with counters.system_calls(pid, plan.home / "strace") as found:
            messages = put(server, load, count)
        written.append(counters.bytes_written(pid) - before)
        sent.append(messages)
        return messages, sum(found.values())

    yield CALLS, per_message(run, counts)
    yield BYTES, (written[1] - written[0]) / (sent[1] - sent[0])


def client_instructions(plan: Plan, load: str, name: str, name_servers: str) -> float:
    """Counts this checkout's benchmark of the client, with the client of the source that is named."""

    def run(messages: int) -> tuple[int, int]:
        parts = plan.home / "callgrind"
        prefix = counters.callgrind(parts)
        if load == SEND_CLIENT:
            run_client(plan, name, prefix, send_command(messages, name_servers))
            return messages + messages // 10, counters.at_end(parts)  # with its warm-up
        run_client(plan, BEFORE, (), [*consume_command(messages, name_servers), "--rounds", "0"])
        run_client(plan, name, prefix, [*consume_command(messages, name_servers), "--filled"])
        return messages, counters.at_end(parts)

    return per_message(run, CLIENT_COUNTS)


def send_command(messages: int, name_servers: str) -> list[str]:
    flags = ["--messages", str(messages), "--in-flight", "64", "--rounds", "1"]
    return ["benchmarks.client_sends", *flags, "--name-servers", name_servers]


def consume_command(messages: int, name_servers: str) -> list[str]:
    flags = [
        "--messages",
        str(messages),
        "--topic",
        f"Consume{messages}",
        "--handler",
        "batch",
        "--rounds",
        "1",
    ]
    return ["benchmarks.client_consumes", *flags, "--name-servers", name_servers]


def run_client(plan: Plan, name: str, prefix: Sequence[str], command: Sequence[str]) -> None:
    environment = checkouts.environment_of(plan.sources[name], generator.ROOT) | FIXED
    done = subprocess.run(
        [*prefix, sys.executable, "-m", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=CLIENT_TIMEOUT_S,
    )
    if done.returncode != 0:
        raise SystemExit(
            f"benchmarks.instructions: {command[0]} failed with {name}:\n{done.stdout}{done.stderr}"
        )


def per_message(run: Callable[[int], tuple[int, int]], counts: Counts) -> float:
    """Divides what the long run took beyond the short one by its messages beyond the short one.

    `run` takes a number of requests and returns messages and what they took.
    """
    messages, taken = run(counts.short)
    more_messages, more_taken = run(counts.long)
    return (more_taken - taken) / (more_messages - messages)


# Results


def summaries(figures: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    return {figure: summary(values) for figure, values in figures.items()}


def summary(values: dict[str, list[float]]) -> dict[str, Any]:
    means = {name: statistics.mean(found) for name, found in values.items()}
    return {
        "ratio": ratio(means[BEFORE], means[AFTER]),
        "spread": max(spread(found) for found in values.values()),
        **means,
        "all": values,
    }


def ratio(before: float, after: float) -> float:
    return 1.0 if before == after else before / after


def spread(values: Sequence[float]) -> float:
    """Returns the distance between the largest and the smallest figure, as part of the smallest."""
    return (max(values) - min(values)) / min(values) if min(values) else 0.0


def costlier(result: dict[str, Any]) -> list[str]:
    """Returns the loads that take more instructions per message than the limit allows."""
    return [name for name, found in result["loads"].items() if found[INSTRUCTIONS]["ratio"] < MIN_RATIO]


def markdown(result: dict[str, Any]) -> str:
    about, commits = result["machine"], result["commits"]
    head = (
        f"{commits[BEFORE]} before, {commits[AFTER]} after; each figure from {result['repeats']} fresh "
        f"processes, {result['minutes']} minutes; {about['cores']} cores ({about['cpu']}), "
        f"Python {about['python']}. "
        f"Ratio: before / after, so below 1 is costlier; spread: between the processes of one checkout."
    )
    names = costlier(result)
    end = f"Below {MIN_RATIO}x: {', '.join(names)}." if names else f"No load is below {MIN_RATIO}x."
    return f"{head}\n\n{instruction_table(result['loads'])}\n\n{call_table(result['loads'])}\n\n{end}\n"


def instruction_table(loads: dict[str, Any]) -> str:
    rows = [
        [
            name,
            f"{found[INSTRUCTIONS][BEFORE]:,.0f}",
            f"{found[INSTRUCTIONS][AFTER]:,.0f}",
            f"{found[INSTRUCTIONS]['ratio']:.3f}x",
            f"{found[INSTRUCTIONS]['spread']:.1%}",
            f"**below {MIN_RATIO}x**" if found[INSTRUCTIONS]["ratio"] < MIN_RATIO else "",
        ]
        for name, found in loads.items()
    ]
    return report.table(["user instructions per message", BEFORE, AFTER, "ratio", "spread", ""], rows)


def call_table(loads: dict[str, Any]) -> str:
    counted = {name: found for name, found in loads.items() if CALLS in found}
    if not counted:
        return "System calls were not counted: strace is not installed, or no load of a server was measured."
    rows = [
        [
            name,
            *(f"{found[CALLS][side]:.3f}" for side in (BEFORE, AFTER)),
            f"{found[CALLS]['spread']:.1%}",
            *(f"{found[BYTES][side]:,.0f}" for side in (BEFORE, AFTER)),
        ]
        for name, found in counted.items()
    ]
    columns = ["per message", "system calls before", "after", "spread", "bytes written before", "after"]
    return report.table(columns, rows)


if __name__ == "__main__":
    sys.exit(main())
