"""`python -m benchmarks.quorum`: measures DLedger groups of three brokers, ours and Apache 4.9.7's.

    cost       CPU time per message of all three processes together, and the latency of sends
    failover   from a leader's kill -9 to the first message that another member stores, of our group with
               default and with fast intervals, and of Apache's

Groups stay up together; each round puts every load on each of them in turn, or kills the leader of each in
turn. `--only PART` measures one part; with `--output NAME` it replaces that part of earlier results.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop import peers
from tests.interop.asking import Refusal, asked
from tests.interop.dledger_group import GROUP, MASTER_ID, send

from turbopump.protocol import dialect
from turbopump.protocol.bodies import RaftStatus
from turbopump.protocol.codes import RequestCode as Code

from . import generator, report, servers
from .__main__ import write_results
from .generator import Sample
from .replicas import earlier
from .servers import BASELINE, OURS, Process

FAST = f"{OURS} fast"
COST, FAILOVER = PARTS = "cost", "failover"
GROUPS_OF = {COST: (OURS, BASELINE), FAILOVER: (OURS, FAST, BASELINE)}
SHAPES = {"1 KiB 4x64": (4, 64), "1 KiB 50x1": (50, 1)}
TARGETS = {"1 KiB 4x64": 3.0, "1 KiB 50x1": 2.0}
FAST_INTERVALS = {
    "dLegerHeartbeatInterval": "200",
    "dLegerMinVoteWait": "50",
    "dLegerMaxVoteWait": "200",
}
TOPIC = "TBW102"
PATIENCE_S = 90.0
POLL_S = 0.02
MEMBERS = 3

Figures = dict[str, Any]


@dataclass
class Group:
    """A name server and three members, each with a place of its own."""

    name: str
    kind: str
    home: Path
    namesrv: Process
    places: list[peers.Place]
    conf: list[dict[str, str]]
    processes: dict[int, Process] = field(default_factory=dict)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes.values()]

    def launch(self, number: int) -> None:
        """Starts the process of a member, without waiting until it is ready."""
        place = self.places[number]
        servers._configure_apache(place, {"flushDiskType": "ASYNC_FLUSH", **self.conf[number]})
        self.processes[number] = servers._process(place, "broker", _command(self.kind, "broker", place))

    def leader(self) -> int:
        """Waits for a member that the name server knows as the master; returns its number."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, Refusal):
                address = self.addresses().get(MASTER_ID)
                for number in self.processes:
                    if self.places[number].broker_addr == address:
                        return number
            time.sleep(0.1)
        raise RuntimeError(f"{self.name} has no leader after {PATIENCE_S} s")

    def addresses(self) -> dict[str, str]:
        """Returns the addresses by broker id, as the name server knows them."""
        body = asked(self.places[0].namesrv, Code.GET_BROKER_CLUSTER_INFO).body
        found = dialect.loads(body)["brokerAddrTable"].get(GROUP, {}).get("brokerAddrs", {})
        return {str(number): str(address) for number, address in found.items()}

    def is_whole(self) -> bool:
        """Whether all members are registered, and ours vote."""
        with contextlib.suppress(OSError, Refusal):
            statuses = [
                RaftStatus.decode(asked(place.broker_addr, Code.RAFT_STATUS).body)
                for place in self.places
                if self.kind == OURS
            ]
            return len(self.addresses()) == MEMBERS and all(one.joined and one.leader for one in statuses)
        return False

    def stop(self) -> None:
        for process in (*self.processes.values(), self.namesrv):
            process.kill()


def main() -> None:
    options = arguments().parse_args()
    generator.build()
    servers.compile_ours()
    home = Path(options.dir)
    shutil.rmtree(home, ignore_errors=True)
    measured: Figures = {}
    try:
        for part in options.only or PARTS:
            about = report.machine()
            with ExitStack() as stack:
                groups = {
                    name: stack.enter_context(started(name, home / part / name.replace(" ", "-")))
                    for name in GROUPS_OF[part]
                }
                run = put_loads if part == COST else kill_leaders
                measured[part] = {"machine": about, "samples": run(groups, options)}
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if options.output:
        measured = earlier(options.output) | measured
        write_results(options.output, measured, page(measured) + "\n")
    else:
        print(page(measured))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quorum",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("--only", choices=PARTS, action="append", help="measure this part alone (may be repeated)")
    option("--seconds", type=float, default=4.0, help="length of a measured window")
    option("--warm-up", type=float, default=8.0, help="seconds of load before the first window")
    option("--rounds", type=int, default=5)
    option("--kills", type=int, default=20, help="how often each group loses its leader")
    option("--dir", default=str(generator.CACHE / "quorum"), help="where stores are kept")
    option("--output", metavar="NAME", help="write benchmarks/results/NAME.json and NAME.md")
    return parser


# servers


@contextmanager
def started(name: str, home: Path, settings: Mapping[str, str] | None = None) -> Iterator[Group]:
    """Starts a name server and three members with these settings; waits until all of them take part."""
    kind = BASELINE if name == BASELINE else OURS
    first = peers.place(home / "n0")
    places = [first]
    for number in range(1, MEMBERS):
        place = peers.place(home / f"n{number}")
        places.append(peers.Place(place.home, first.namesrv_port, place.broker_port))
    listed = ";".join(f"n{number}-{peers.HOST}:{peers.free_port()}" for number in range(MEMBERS))
    conf = [
        {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": GROUP,
            "dLegerPeers": listed,
            "dLegerSelfId": f"n{number}",
            **(FAST_INTERVALS if name == FAST else {}),
            **(settings or {}),
        }
        for number in range(MEMBERS)
    ]
    servers._configure_apache(first, conf[0])
    namesrv = servers._process(first, "namesrv", _command(kind, "namesrv", first))
    group = Group(name, kind, home, namesrv, places, conf)
    try:
        namesrv.wait_ready()
        for number in range(MEMBERS):
            group.launch(number)
        for process in group.processes.values():
            process.wait_ready()
        wait_whole(group)
        yield group
    finally:
        group.stop()


def _command(kind: str, role: str, place: peers.Place) -> list[str]:
    if kind == OURS:
        return [sys.executable, "-m", "turbopump", role, "-c", str(place.home / f"{role}.conf")]
    return servers._apache_commands(kind, place)[role]


def wait_whole(group: Group) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not group.is_whole():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{group.name}: not all members take part after {PATIENCE_S} s")
        time.sleep(0.1)


# measuring


def put_loads(groups: dict[str, Group], options: argparse.Namespace) -> dict[str, dict[str, list[Any]]]:
    """Puts each load on each group in turn, round after round; returns what the generator printed."""
    found: dict[str, dict[str, list[Any]]] = {name: {} for name in groups}
    for group in groups.values():
        _load(group, (4, 64), options.warm_up, 0.0)
    for number in range(options.rounds):
        for load, shape in SHAPES.items():
            for name, group in groups.items():
                sample = _load(group, shape, options.seconds, 1.0)
                found[name].setdefault(load, []).append(sample.raw)
                print(f"round {number + 1}  {load}  {name:10} {sample.rate:9,.0f}/s {sample.cpu_us:6.2f} us "
                      f"p50 {sample.p50_us:,.0f} us p99 {_p99(sample):,.0f} us errors {sample.errors}",
                      flush=True)  # fmt: skip
    return found


def _load(group: Group, shape: tuple[int, int], seconds: float, warm_up: float) -> Sample:
    connections, in_flight = shape
    address = group.places[group.leader()].broker_addr
    times = {"duration": f"{seconds}s", "warmup": f"{warm_up}s"}
    return generator.run(
        "send", address, group.pids, connections=connections, in_flight=in_flight, size=1024, **times
    )


def kill_leaders(groups: dict[str, Group], options: argparse.Namespace) -> dict[str, list[float]]:
    """Kills the leader of each group in turn; returns the seconds until another member stored a message."""
    found: dict[str, list[float]] = {name: [] for name in groups}
    for number in range(options.kills):
        for name, group in groups.items():
            victim = group.leader()
            began = time.monotonic()
            group.processes.pop(victim).kill()
            _first_stored(group)
            found[name].append(time.monotonic() - began)
            print(f"kill {number + 1}  {name:10} {found[name][-1]:.2f} s", flush=True)
            group.launch(victim)
            group.processes[victim].wait_ready()
            wait_whole(group)
    return found


def _first_stored(group: Group) -> None:
    """Asks the members that run, in turn, until one stores a message."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for number in group.processes:
            with contextlib.suppress(OSError):
                if send(group.places[number].broker_addr, TOPIC, b"first").code == 0:
                    return
        time.sleep(POLL_S)
    raise RuntimeError(f"{group.name} stored nothing for {PATIENCE_S} s after the kill of its leader")


# the page


def page(measured: Figures) -> str:
    """Returns the results as Markdown."""
    pages = {COST: cost_page, FAILOVER: failover_page}
    blocks = []
    for part in (part for part in PARTS if part in measured):
        about = measured[part]["machine"]
        head = (
            f"{part.capitalize()}; {about['cores']} cores, load average {about['load_average_at_start']:.1f}:"
        )
        blocks += [head, pages[part](measured[part]["samples"])]
    return "\n\n".join(blocks)


def cost_page(samples: dict[str, dict[str, list[Any]]]) -> str:
    header = ["load", "group", "messages/s", "p50 us", "p99 us", "CPU us per message, all three", "errors"]
    rows, lines = [], []
    for load, target in TARGETS.items():
        of = {name: [generator.sample(raw) for raw in loads[load]] for name, loads in samples.items()}
        for name, found in of.items():
            rate, p50, p99, cpu = (
                statistics.median(figure(one) for one in found)
                for figure in (lambda one: one.rate, lambda one: one.p50_us, _p99, lambda one: one.cpu_us)
            )
            errors = str(sum(one.errors for one in found))
            rows.append([load, name, f"{rate:,.0f}", f"{p50:,.0f}", f"{p99:,.0f}", f"{cpu:.2f}", errors])
        ratios = [apache.cpu_us / ours.cpu_us for ours, apache in zip(of[OURS], of[BASELINE], strict=True)]
        lines.append(
            f"- {load}: {statistics.median(ratios):.2f}x of {BASELINE}'s work per CPU second "
            f"({min(ratios):.2f} to {max(ratios):.2f}; target {target}x)"
        )
    return "\n".join([report.table(header, rows), "", *lines])


def failover_page(samples: dict[str, list[float]]) -> str:
    header = ["group", "kills", "median s", "least s", "most s"]
    rows = [
        [
            name,
            str(len(found)),
            *(f"{figure:.2f}" for figure in (statistics.median(found), min(found), max(found))),
        ]
        for name, found in samples.items()
    ]
    return report.table(header, rows)


def _p99(sample: Sample) -> float:
    return float(sample.raw["latency"].get("p99_us", 0))


if __name__ == "__main__":
    main()
