"""`python -m benchmarks.clients`: compares our client with confluent-kafka, aiokafka, redis-py and nats-py.

All servers stay up for the whole run. Each round runs every shape of load with each client in turn, so that
compared figures are seconds apart. A client is one process, its server another. `--more` adds rounds to the
last results: the tables show medians over all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.interop.artifacts import Missing

from benchmarks import report
from benchmarks.__main__ import RESULTS, write_results
from benchmarks.compare import print_now, wait_for_quiet
from benchmarks.generator import CACHE, ROOT

from . import shapes, systems, table
from .shapes import CONSUMES, FILL, SENDS, Job, Measured
from .systems import System
from .table import CLIENTS, Client

FILLERS = {
    systems.OURS: "turbopump",
    systems.KAFKA: "confluent",
    systems.REDIS: "redis",
    systems.NATS: "nats",
}
SEND_TOPIC, BACKLOG_TOPIC = "sends", "backlog"
CLIENT_TIMEOUT_S = 120.0
WARM_UP_S = 8.0  # for servers on a JVM, which compiles code that runs often


def main() -> None:
    options = arguments().parse_args()
    clients = [client for client in CLIENTS if not options.only or client.name in options.only]
    result = before(options.more)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, options.dir, ignore_errors=True)
        running, missing = start_all(clients, Path(options.dir), stack)
        bench = Bench(running, plan_of(options), round_number=1 + last_round(result))
        result["missing"] = {name: why for name, why in result["missing"].items() if name not in running}
        result["missing"].update(missing)
        result["systems"].update({system.name: system.version for system in running.values()})
        result["packages"].update(bench.packages)
        bench.prepare(clients)
        for run in bench.rounds(clients):
            result["runs"].append(run)
    write_results("clients", result, table.markdown(result))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clients", description=__doc__)
    option = parser.add_argument
    option("--quick", action="store_true", help="one round of short windows, for a rough figure")
    option(
        "--only",
        action="append",
        choices=[client.name for client in CLIENTS],
        help="only this client (may be repeated)",
    )
    option("--shape", action="append", choices=(*SENDS, *CONSUMES), help="only this shape (may be repeated)")
    option("--rounds", type=int, default=3)
    option("--seconds", type=float, default=3.0, help="length of a measured window")
    option("--messages", type=int, default=300_000, help="size of the backlog that is consumed")
    option("--patience", type=float, default=2.0, help="seconds a window may wait for quiet cores")
    option("--more", action="store_true", help="add to the last results")
    option("--dir", default=str(CACHE / "clients"), help="where the servers keep their stores")
    return parser


def plan_of(options: argparse.Namespace) -> argparse.Namespace:
    options.shape = options.shape or [*SENDS, *CONSUMES]
    options.warm_s = 1.0
    if options.quick:
        options.rounds, options.seconds, options.warm_s, options.patience = 1, 1.0, 0.5, 0.0
        options.messages = min(options.messages, 50_000)
    return options


def before(more: bool) -> dict[str, Any]:
    path = RESULTS / "clients.json"
    if more and path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    return {"machine": report.machine(), "systems": {}, "packages": {}, "missing": {}, "runs": []}


def last_round(result: dict[str, Any]) -> int:
    return max((run["round"] for run in result["runs"]), default=0)


def start_all(
    clients: list[Client], home: Path, stack: contextlib.ExitStack
) -> tuple[dict[str, System], dict[str, str]]:
    running: dict[str, System] = {}
    missing: dict[str, str] = {}
    for name in dict.fromkeys(client.system for client in clients):
        try:
            if name != systems.OURS:
                systems.python_of_others()  # its client; without one the server is not needed
            running[name] = systems.start(name, home / name)
            stack.callback(running[name].process.kill)
            print_now(f"{name} {running[name].version} is running")
        except (Missing, RuntimeError) as error:
            missing[name] = str(error)
            print_now(f"{name} is missing: {error}")
    return running, missing


class Bench:
    """Runs the client processes one after the other."""

    def __init__(self, running: dict[str, System], plan: argparse.Namespace, round_number: int) -> None:
        self._running, self._plan, self._first = running, plan, round_number
        self._python = {systems.OURS: sys.executable}
        self.packages: dict[str, str] = {}
        if set(running) - {systems.OURS}:
            python = systems.python_of_others()
            self._python.update(dict.fromkeys(set(running) - {systems.OURS}, python))
            self.packages = systems.versions_of_others(python)

    def prepare(self, clients: list[Client]) -> None:
        """Fills the backlogs that are consumed, and warms up servers that run on a JVM."""
        for name, system in self._running.items():
            self._drive(FILLERS[name], system, FILL, BACKLOG_TOPIC)
            if not self._plan.quick:
                self._drive(FILLERS[name], system, shapes.SEND_MANY, SEND_TOPIC, seconds=WARM_UP_S)
            print_now(f"{name} is prepared")

    def rounds(self, clients: list[Client]) -> Iterator[dict[str, Any]]:
        for number in range(self._first, self._first + self._plan.rounds):
            for shape in self._plan.shape:
                for client in clients:
                    if shape in client.shapes and client.system in self._running:
                        yield self._run(client, shape, number)

    def _run(self, client: Client, shape: str, number: int) -> dict[str, Any]:
        wait_for_quiet(self._plan.patience)
        topic = BACKLOG_TOPIC if shape in CONSUMES else SEND_TOPIC
        group = f"{client.name}-{shape.replace(' ', '-')}-{number}"
        measured = self._drive(
            client.module, self._running[client.system], shape, topic, group=group, acks=client.acks
        )
        cost = f"{measured.client_us:6.1f} us client {measured.server_us:6.1f} us server"
        latency = f"p50 {measured.p50_ms:6.2f} p99 {measured.p99_ms:7.2f} ms"
        noise = f"others {measured.other_cores:.1f} cores, load {measured.load_average:.1f}"
        print_now(f"{number} {shape:14} {client.name:15} {measured.rate:9,.0f}/s {cost} {latency} {noise}")
        return {"client": client.name, "shape": shape, "round": number, **asdict(measured)}

    def _drive(
        self,
        module: str,
        system: System,
        shape: str,
        topic: str,
        group: str = "",
        acks: str = "1",
        seconds: float = 0.0,
    ) -> Measured:
        job = Job(
            client=module,
            shape=shape,
            address=system.address,
            pids=(system.process.pid,),
            topic=topic,
            group=group,
            messages=self._plan.messages,
            warm_s=self._plan.warm_s,
            seconds=seconds or self._plan.seconds,
            acks=acks,
        )
        command = [self._python[system.name], "-m", "benchmarks.clients.drive", json.dumps(asdict(job))]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S)
        if done.returncode != 0:
            raise RuntimeError(f"{module}, {shape}:\n{done.stderr[-4000:]}")
        return Measured(**json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print_now(f"{time.monotonic() - began:.0f} s")
