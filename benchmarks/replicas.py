"""`python -m benchmarks.replicas`: measures what a copy on a slave costs, beside Apache 4.9.7's pair.

    idle       share of a core that a pair uses when nothing is sent
    cost       CPU time per message of a lone broker, of an ASYNC_MASTER alone and with its slave, and of
               SYNC_MASTER pairs
    latency    what a SYNC_MASTER's slave adds to the time of a send: median and 99th percentile, against the
               same broker alone
    copy       how fast a slave that starts empty copies a log, and has its queues and index
    failover   from a master's kill to the first send elsewhere and the first read from its slave, with our
               client and Java's; `failover.py`

Servers of a part stay up together; each round puts every load on each of them in turn. `--only PART` measures
one part, in a few minutes each; with `--output NAME` it replaces that part of earlier results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop import peers

from . import failover, generator, report, servers
from .__main__ import RESULTS, write_results
from .generator import Sample
from .servers import BASELINE, OURS, Process

LONE, ASYNC, SYNC = "lone", "async", "sync"
BASELINE_LONE = f"{BASELINE} lone"
IDLE, COST, LATENCY, COPY, FAILOVER = PARTS = "idle", "cost", "latency", "copy", "failover"
SERVERS_OF = {
    IDLE: (LONE, ASYNC, SYNC, BASELINE),
    COST: (LONE, ASYNC, SYNC, BASELINE),
    LATENCY: (LONE, SYNC, BASELINE_LONE, BASELINE),
    COPY: (LONE,),
    FAILOVER: (),
}
SHAPES = {"1 KiB 4x64": (4, 64), "1 KiB 50x1": (50, 1)}
LATENCY_SHAPES = {"1 KiB 1x1": (1, 1), "1 KiB 50x1": (50, 1)}
TARGETS = {"1 KiB 4x64": (3.0, 0.8), "1 KiB 50x1": (2.0, 0.9)}
"""Our SYNC pair over Apache's, and our ASYNC_MASTER over a lone broker: work per CPU second."""
MASTER_ALONE = ", master"
RUNTIME_INFO = 28
COPIED_WITHIN_S = 180.0
COPIED_MB = 1000
IDLE_S = 30.0

Figures = dict[str, Any]


@dataclass
class Pair:
    """A name server, a master and perhaps a slave."""

    kind: str
    role: str
    home: Path
    place: peers.Place
    namesrv: Process
    master: Process
    slave: Process | None = None
    slave_place: peers.Place | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def pids(self) -> list[int]:
        return [one.pid for one in (self.master, self.slave) if one is not None]

    def add_slave(self, name: str) -> Figures:
        """Starts a slave and returns the seconds until it has the whole log, and until it has its queues."""
        place = peers.Place(self.home / name, self.place.namesrv_port, peers.free_port(also=(-2, 1)))
        place.home.mkdir(parents=True)
        began = time.monotonic()
        self.slave = _broker(self.kind, place, {"brokerRole": "SLAVE", "brokerId": "1"}, self.environment)
        self.slave_place = place
        wait_copied(self.place.broker_addr, place.broker_addr)
        copied = time.monotonic()
        wait_dispatched(place.broker_addr)
        return {"log_s": copied - began, "queues_s": time.monotonic() - began}

    def stop(self) -> None:
        for process in (self.slave, self.master, self.namesrv):
            if process is not None:
                process.kill()


def main() -> None:
    options = arguments().parse_args()
    generator.build()
    servers.compile_ours()
    home = Path(options.dir)
    shutil.rmtree(home, ignore_errors=True)
    try:
        measured = measure(options.only or PARTS, home, options)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if options.output:
        measured = earlier(options.output) | measured
        write_results(options.output, measured, page(measured) + "\n")
    else:
        print(page(measured))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replicas",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("--only", choices=PARTS, action="append", help="measure this part alone (may be repeated)")
    option("--seconds", type=float, default=4.0, help="length of a measured window")
    option("--warm-up", type=float, default=8.0, help="seconds of load before the first window")
    option("--rounds", type=int, default=5)
    option("--failovers", type=int, default=1, help="how often each cluster loses its master")
    option("--dir", default=str(generator.CACHE / "replicas"), help="where stores are kept")
    option("--output", metavar="NAME", help="write benchmarks/results/NAME.json and NAME.md")
    return parser


def earlier(name: str) -> Figures:
    """Returns the results of earlier runs, by part."""
    file = RESULTS / f"{name}.json"
    found: Figures = json.loads(file.read_text()) if file.exists() else {}
    return found


def measure(parts: Iterable[str], home: Path, options: argparse.Namespace) -> Figures:
    """Measures the parts one after the other; returns their figures, each with the load of the machine."""
    found: Figures = {}
    for part in (part for part in PARTS if part in parts):
        about = report.machine()
        with ExitStack() as stack:
            pairs = {
                name: stack.enter_context(started(name, home / part / name)) for name in SERVERS_OF[part]
            }
            found[part] = {"machine": about, **measure_part(part, pairs, home, options)}
    return found


def measure_part(part: str, pairs: dict[str, Pair], home: Path, options: argparse.Namespace) -> Figures:
    if part == IDLE:
        return {"percent": {name: idle_shares(pair) for name, pair in pairs.items()}}
    if part == COST:
        return {"samples": put_loads(pairs, SHAPES, options)}
    if part == LATENCY:
        return {"samples": put_loads(pairs, LATENCY_SHAPES, options)}
    if part == COPY:
        return copy_speed(pairs[LONE])
    return {"runs": failover.measure((OURS, BASELINE), options.failovers, home / part)}


# servers


@contextmanager
def started(name: str, home: Path, environment: Mapping[str, str] | None = None) -> Iterator[Pair]:
    """Starts a name server, a master and, unless it is to be alone, a slave."""
    given = environment or {}
    kind = BASELINE if name in (BASELINE, BASELINE_LONE) else OURS
    role = "SYNC_MASTER" if name in (SYNC, BASELINE) else "ASYNC_MASTER"
    place = peers.place(home / "master")
    peers._write_configuration(place, {}, {})
    namesrv = _start(kind, "namesrv", place, given)
    master = _broker(kind, place, {"brokerRole": role}, given)
    pair = Pair(kind, role, home, place, namesrv, master, environment=given)
    try:
        if name not in (LONE, BASELINE_LONE):
            pair.add_slave("slave")
        yield pair
    finally:
        pair.stop()


def _broker(kind: str, place: peers.Place, conf: dict[str, str], environment: Mapping[str, str]) -> Process:
    peers._write_configuration(place, {**servers.PATIENCE, "flushDiskType": "ASYNC_FLUSH", **conf}, {})
    return _start(kind, "broker", place, environment)


def _start(kind: str, role: str, place: peers.Place, environment: Mapping[str, str]) -> Process:
    if kind == OURS:
        command = [sys.executable, "-m", "turbopump", role, "-c", str(place.home / f"{role}.conf")]
    else:
        command = servers._apache_commands(kind, place)[role]
    process = servers._process(place, role, command, dict(environment))
    process.wait_ready()
    return process


def wait_copied(master: str, slave: str) -> None:
    """Waits until a slave's log ends where its master's does, and both have begun."""
    deadline, ends = time.monotonic() + COPIED_WITHIN_S, [-1, -2]
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):  # a server that starts may not answer in full yet
            ends = [_figure(address, "commitLogMaxOffset") for address in (master, slave)]
        if ends[0] == ends[1]:
            return
        time.sleep(0.02)
    raise RuntimeError(f"the slave {slave} did not catch up: {ends}")


def wait_dispatched(slave: str) -> None:
    """Waits until all messages of a slave's log are in its queues and its index."""
    deadline = time.monotonic() + COPIED_WITHIN_S
    while behind := _figure(slave, "dispatchBehindBytes"):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the queues of {slave} are {behind} bytes behind its log")
        time.sleep(0.02)


def _figure(address: str, name: str) -> int:
    return int(json.loads(peers.ask(address, RUNTIME_INFO).body)["table"][name])


# measuring


def put_loads(
    pairs: dict[str, Pair], shapes: dict[str, tuple[int, int]], options: argparse.Namespace
) -> dict[str, dict[str, list[Any]]]:
    """Puts each load on each pair in turn, round after round; returns what the generator printed."""
    found: dict[str, dict[str, list[Any]]] = {name: {} for name in pairs}
    for pair in pairs.values():
        _load(pair, (4, 64), pair.pids, options.warm_up, 0.0)
    for number in range(options.rounds):
        for load, shape in shapes.items():
            for name, pair in pairs.items():
                sample = _load(pair, shape, pair.pids, options.seconds, 1.0)
                found[name].setdefault(load, []).append(sample.raw)
                print(f"round {number + 1}  {load}  {name:10} {sample.rate:9,.0f}/s {sample.cpu_us:6.2f} us "
                      f"p50 {sample.p50_us:,.0f} us p99 {_p99(sample):,.0f} us errors {sample.errors}",
                      flush=True)  # fmt: skip
                if name == ASYNC:
                    alone = _load(pair, shape, [pair.master.pid], options.seconds, 0.0)
                    found[name].setdefault(f"{load}{MASTER_ALONE}", []).append(alone.raw)
    return found


def _load(pair: Pair, shape: tuple[int, int], pids: list[int], seconds: float, warm_up: float) -> Sample:
    connections, in_flight = shape
    times = {"duration": f"{seconds}s", "warmup": f"{warm_up}s"}
    return generator.run(
        "send", pair.place.broker_addr, pids, connections=connections, in_flight=in_flight, size=1024, **times
    )


def idle_shares(pair: Pair) -> list[float]:
    """Returns the share of a core that each idle process uses, in percent, the master's first."""
    time.sleep(2.0)
    before = [_cpu_s(pid) for pid in pair.pids]
    time.sleep(IDLE_S)
    return [100 * (_cpu_s(pid) - used) / IDLE_S for pid, used in zip(pair.pids, before, strict=True)]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def copy_speed(pair: Pair) -> Figures:
    """Fills the log of a lone broker, then measures how fast an empty slave has log, queues and index."""
    messages = COPIED_MB * 1000
    generator.run("send", pair.place.broker_addr, connections=4, in_flight=64, size=1024, count=messages)
    end = _figure(pair.place.broker_addr, "commitLogMaxOffset")
    return {"mb": end / 1e6, "messages": messages, **pair.add_slave("late")}


# the page


def page(measured: Figures) -> str:
    """Returns the results as Markdown."""
    pages = {
        IDLE: idle_page,
        COST: cost_page,
        LATENCY: latency_page,
        COPY: copy_page,
        FAILOVER: failover_page,
    }
    blocks = []
    for part in (part for part in PARTS if part in measured):
        about = measured[part]["machine"]
        head = (
            f"{part.capitalize()}; {about['cores']} cores, load average {about['load_average_at_start']:.1f}:"
        )
        blocks += [head, pages[part](measured[part])]
    return "\n\n".join(blocks)


def idle_page(figures: Figures) -> str:
    rows = [
        [name, f"{master:.2f}", *(f"{share:.2f}" for share in slaves)]
        for name, (master, *slaves) in figures["percent"].items()
    ]
    return report.table(["pair", "% of a core, master", "slave"], [[*row, "–"][:3] for row in rows])


def cost_page(figures: Figures) -> str:
    header = ["load", "pair", "messages/s", "p50 us", "p99 us", "CPU us per message, both", "errors"]
    samples = _samples(figures)
    rows = [[load, name, *_row(loads[load])] for load in SHAPES for name, loads in samples.items()]
    lines = []
    for load, (sync_target, async_target) in TARGETS.items():
        sync, apache, lone = (_median(samples[name][load], "cpu_us") for name in (SYNC, BASELINE, LONE))
        master = _median(samples[ASYNC][f"{load}{MASTER_ALONE}"], "cpu_us")
        lines.append(
            f"- {load}: SYNC_MASTER pair {apache / sync:.2f}x of {BASELINE}'s (target {sync_target}x)"
        )
        lines.append(f"- {load}: ASYNC_MASTER {lone / master:.2f}x of a lone broker (target {async_target}x)")
    return "\n".join([report.table(header, rows), "", *lines])


def latency_page(figures: Figures) -> str:
    """Returns a table of both kinds of brokers, and below it what the slave of each adds."""
    header = ["load", "pair", "messages/s", "p50 us", "p99 us", "CPU us per message, both", "errors"]
    samples = _samples(figures)
    rows = [[load, name, *_row(loads[load])] for load in LATENCY_SHAPES for name, loads in samples.items()]
    lines = []
    for load in LATENCY_SHAPES:
        for kind, lone, pair in ((OURS, LONE, SYNC), (BASELINE, BASELINE_LONE, BASELINE)):
            p50, p99 = (
                statistics.median(figure(one) for one in samples[pair][load])
                - statistics.median(figure(one) for one in samples[lone][load])
                for figure in (_p50, _p99)
            )
            lines.append(f"- {load}, {kind}: the slave adds {p50:,.0f} us to p50, {p99:,.0f} us to p99")
    return "\n".join([report.table(header, rows), "", *lines])


def copy_page(figures: Figures) -> str:
    mb, messages = figures["mb"], figures["messages"]
    log_s, queues_s = figures["log_s"], figures["queues_s"]
    return (
        f"An empty slave of ours copied {mb:,.0f} MB in {log_s:.1f} s, start-up included: "
        f"{mb / log_s:,.0f} MB/s. It had queues and index of {messages:,} messages after {queues_s:.1f} s: "
        f"{mb / queues_s:,.0f} MB/s, {messages / queues_s:,.0f} messages/s."
    )


def failover_page(figures: Figures) -> str:
    return failover.table(figures["runs"])


def _samples(figures: Figures) -> dict[str, dict[str, list[Sample]]]:
    return {
        name: {load: [generator.sample(raw) for raw in found] for load, found in loads.items()}
        for name, loads in figures["samples"].items()
    }


def _row(samples: list[Sample]) -> list[str]:
    rate, p50, cpu = (_median(samples, one) for one in ("rate", "p50_us", "cpu_us"))
    p99 = statistics.median(map(_p99, samples))
    return [
        f"{rate:,.0f}",
        f"{p50:,.0f}",
        f"{p99:,.0f}",
        f"{cpu:.2f}",
        str(sum(one.errors for one in samples)),
    ]


def _p50(sample: Sample) -> float:
    return sample.p50_us


def _p99(sample: Sample) -> float:
    return float(sample.raw["latency"].get("p99_us", 0))


def _median(samples: list[Sample], name: str) -> float:
    return statistics.median(getattr(one, name) for one in samples)


if __name__ == "__main__":
    main()
