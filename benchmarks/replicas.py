"""`python -m benchmarks.replicas`: measures what a copy on a slave costs, beside Apache 4.9.7's pair.

    lone     our broker without a slave
    async    our ASYNC_MASTER with a slave: CPU time of the master alone, and of both
    sync     our SYNC_MASTER with a slave: CPU time of both processes together
    4.9.7    Apache's SYNC_MASTER with a slave: the same

All of them stay up; each round puts every load on each in turn. Then a slave that starts empty copies the log
that the loads have left, and the idle pair is watched: what it costs when nothing is sent.
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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop import peers

from . import generator, report, servers
from .generator import Sample
from .servers import BASELINE, OURS, Process

LONE, ASYNC, SYNC = "lone", "async", "sync"
SHAPES = {"1 KiB 4x64": (4, 64), "1 KiB 50x1": (50, 1)}
TARGETS = {"1 KiB 4x64": (3.0, 0.8), "1 KiB 50x1": (2.0, 0.9)}
"""Our SYNC pair over Apache's, and our ASYNC_MASTER over a lone broker: work per CPU second."""
RUNTIME_INFO = 28
COPIED_WITHIN_S = 180.0
IDLE_S = 10.0


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
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    @property
    def pids(self) -> list[int]:
        return [one.pid for one in (self.master, self.slave) if one is not None]

    def add_slave(self, name: str) -> float:
        """Starts a slave and returns the seconds until it has the whole log."""
        place = peers.Place(self.home / name, self.place.namesrv_port, peers.free_port(also=(-2, 1)))
        place.home.mkdir(parents=True)
        began = time.monotonic()
        self.slave = _broker(self.kind, place, {"brokerRole": "SLAVE", "brokerId": "1"})
        self.slave_place = place
        wait_copied(self.place.broker_addr, place.broker_addr)
        return time.monotonic() - began

    def stop(self) -> None:
        for process in (self.slave, self.master, self.namesrv):
            if process is not None:
                process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replicas", description=__doc__)
    option = parser.add_argument
    option("--seconds", type=float, default=4.0, help="length of a measured window")
    option("--warm-up", type=float, default=8.0, help="seconds of load before the first window")
    option("--rounds", type=int, default=5)
    option("--only", choices=(LONE, ASYNC, SYNC, BASELINE), action="append", help="measure this alone")
    option("--dir", default=str(generator.CACHE / "replicas"), help="where stores are kept")
    option("--output", metavar="NAME", help="write benchmarks/results/NAME.json and NAME.md")
    options = parser.parse_args()
    generator.build()
    servers.compile_ours()
    home = Path(options.dir)
    shutil.rmtree(home, ignore_errors=True)
    wanted = options.only or [LONE, ASYNC, SYNC, BASELINE]
    try:
        with ExitStack() as stack:
            pairs = {name: stack.enter_context(started(name, home / name)) for name in wanted}
            idle = {name: idle_share(pair) for name, pair in pairs.items()}
            measure(pairs, options)
            copied = copy_speed(pairs[LONE]) if LONE in pairs else None
        text = page(pairs, idle, copied)
        print(text)
        if options.output:
            report.RESULTS.joinpath(f"{options.output}.md").write_text(text + "\n")
            figures = {name: {load: [one.raw for one in found] for load, found in pair.samples.items()}
                       for name, pair in pairs.items()}  # fmt: skip
            report.RESULTS.joinpath(f"{options.output}.json").write_text(json.dumps(figures) + "\n")
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def started(name: str, home: Path) -> Iterator[Pair]:
    """Starts a name server, a master and, unless it is to be alone, a slave."""
    kind = BASELINE if name == BASELINE else OURS
    role = "ASYNC_MASTER" if name in (LONE, ASYNC) else "SYNC_MASTER"
    place = peers.place(home / "master")
    peers._write_configuration(place, {}, {})
    namesrv = _start(kind, "namesrv", place)
    master = _broker(kind, place, {"brokerRole": role})
    pair = Pair(kind, role, home, place, namesrv, master)
    try:
        if name != LONE:
            pair.add_slave("slave")
        yield pair
    finally:
        pair.stop()


def _broker(kind: str, place: peers.Place, conf: dict[str, str]) -> Process:
    peers._write_configuration(place, {**servers.PATIENCE, "flushDiskType": "ASYNC_FLUSH", **conf}, {})
    return _start(kind, "broker", place)


def _start(kind: str, role: str, place: peers.Place) -> Process:
    if kind == OURS:
        command = [sys.executable, "-m", "turbopump", role, "-c", str(place.home / f"{role}.conf")]
    else:
        command = servers._apache_commands(kind, place)[role]
    process = servers._process(place, role, command)
    process.wait_ready()
    return process


def wait_copied(master: str, slave: str) -> None:
    """Waits until a slave's log ends where its master's does, and both have begun."""
    deadline, ends = time.monotonic() + COPIED_WITHIN_S, [-1, -2]
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):  # a server that starts may not answer in full yet
            ends = [_log_end(address) for address in (master, slave)]
        if ends[0] == ends[1]:
            return
        time.sleep(0.02)
    raise RuntimeError(f"the slave {slave} did not catch up: {ends}")


def _log_end(address: str) -> int:
    return int(json.loads(peers.ask(address, RUNTIME_INFO).body)["table"]["commitLogMaxOffset"])


def measure(pairs: dict[str, Pair], options: argparse.Namespace) -> None:
    """Puts each load on each pair in turn, round after round."""
    for pair in pairs.values():
        _load(pair, (4, 64), pair.pids, options.warm_up, 0.0)
    for number in range(options.rounds):
        for load, shape in SHAPES.items():
            for name, pair in pairs.items():
                sample = _load(pair, shape, pair.pids, options.seconds, 1.0)
                pair.samples.setdefault(load, []).append(sample)
                print(f"round {number + 1}  {load}  {name:6} {sample.rate:9,.0f}/s {sample.cpu_us:6.2f} us "
                      f"p50 {sample.p50_us:,.0f} us errors {sample.errors}", flush=True)  # fmt: skip
                if name == ASYNC:
                    alone = _load(pair, shape, [pair.master.pid], options.seconds, 0.0)
                    pair.samples.setdefault(f"{load}, master", []).append(alone)


def _load(pair: Pair, shape: tuple[int, int], pids: list[int], seconds: float, warm_up: float) -> Sample:
    connections, in_flight = shape
    times = {"duration": f"{seconds}s", "warmup": f"{warm_up}s"}
    return generator.run(
        "send", pair.place.broker_addr, pids, connections=connections, in_flight=in_flight, size=1024, **times
    )


def idle_share(pair: Pair) -> float:
    """Returns the share of a core that the idle processes use, in percent."""
    time.sleep(2.0)
    before = sum(map(_cpu_s, pair.pids))
    time.sleep(IDLE_S)
    return 100 * (sum(map(_cpu_s, pair.pids)) - before) / IDLE_S


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def copy_speed(pair: Pair) -> tuple[float, float]:
    """Returns MB and seconds of an empty slave that copies the log of the lone broker."""
    end = _log_end(pair.place.broker_addr)
    return end / 1e6, pair.add_slave("late")


def page(pairs: dict[str, Pair], idle: dict[str, float], copied: tuple[float, float] | None) -> str:
    """Returns the results as Markdown."""
    rows = ["| load | pair | messages/s | p50 us | p99 us | CPU us per message, both | errors |",
            "|---|---|---|---|---|---|---|"]  # fmt: skip
    for load in SHAPES:
        for name, pair in pairs.items():
            found = pair.samples[load]
            rate, p50, cpu = (_median(found, one) for one in ("rate", "p50_us", "cpu_us"))
            p99 = statistics.median(one.raw["latency"].get("p99_us", 0) for one in found)
            errors = sum(one.errors for one in found)
            rows.append(f"| {load} | {name} | {rate:,.0f} | {p50:,.0f} | {p99:,.0f} | {cpu:.2f} | {errors} |")
    lines = ["\n".join(rows), ""]
    for load, (sync_target, async_target) in TARGETS.items():
        if SYNC in pairs and BASELINE in pairs:
            ratio = _median(pairs[BASELINE].samples[load], "cpu_us") / _median(
                pairs[SYNC].samples[load], "cpu_us"
            )
            lines.append(f"- {load}: SYNC_MASTER pair {ratio:.2f}x of {BASELINE}'s (target {sync_target}x)")
        if ASYNC in pairs and LONE in pairs:
            master = _median(pairs[ASYNC].samples[f"{load}, master"], "cpu_us")
            ratio = _median(pairs[LONE].samples[load], "cpu_us") / master
            lines.append(f"- {load}: ASYNC_MASTER {ratio:.2f}x of a lone broker (target {async_target}x)")
    for name, share in idle.items():
        lines.append(f"- idle, {name}: {share:.2f} % of a core")
    if copied is not None:
        lines.append(
            f"- an empty slave copied {copied[0]:,.0f} MB in {copied[1]:.1f} s, start-up, queues and index "
            f"included: {copied[0] / copied[1]:,.0f} MB/s"
        )
    return "\n".join(lines)


def _median(samples: list[Sample], name: str) -> float:
    return statistics.median(getattr(one, name) for one in samples)


if __name__ == "__main__":
    main()
