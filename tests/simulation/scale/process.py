"""`python -m tests.simulation.scale.process`: memory and CPU of a real name server process.

The brokers of a plan register over TCP, and the clients that one of its name servers would have poll their
routes, in real time. `--apache 4.9.7` measures Apache's name server under the same load. What is read: the
resident memory and the CPU time of the process, as the operating system counts them.
"""

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.interop import peers
from tests.simulation.scale.nodes import BrokerNode, PollingClient, begin_over
from tests.simulation.scale.plan import Plan, add_arguments, plan, shape_as_json, shape_of

from turbopump.client.world import World
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import request
from turbopump.protocol.headers.namesrv import GetRouteInfoRequest
from turbopump.remoting.client import Client
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.network import SystemNetwork

ARRIVAL_S = 30.0
STEADY_S = 30.0
CALLERS = 50  # connections over which the burst of route requests comes
ROUTES_PER_CALLER = 200
ROUNDS = 5  # of registrations of all brokers, for the CPU of one
TIMEOUT_S = 60.0
MIB = 1 << 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.scale.process", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--apache", metavar="VERSION", help="measure Apache's name server of this version")
    parser.add_argument("--json", type=Path, help="file for the figures; without it they are printed")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    drawn, kind = plan(shape_of(arguments)), arguments.apache or peers.OURS
    with tempfile.TemporaryDirectory(prefix=f"scale-{kind}-") as home:
        where = peers.place(Path(home))
        cluster = peers.Cluster(kind, where)
        peers.write_configuration(where, {}, {})
        try:
            cluster._start("namesrv", kind)
            process = Process(cluster.servers[0]._process.pid)
            figures = asyncio.run(measure(drawn, where.namesrv, process))
        finally:
            cluster.kill()
    text = json.dumps({"kind": kind, "shape": shape_as_json(drawn.shape), **figures}, indent=1) + "\n"
    if arguments.json is None:
        print(text, end="")
    else:
        arguments.json.write_text(text)
    return 0


class Process:
    """The figures that the operating system has of a process."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._stat = Path(f"/proc/{pid}/stat")

    @property
    def memory_mib(self) -> float:
        """Resident memory."""
        lines = self._status.read_text().splitlines()
        (kib,) = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
        return round(int(kib) * 1024 / MIB, 1)

    @property
    def cpu_s(self) -> float:
        """CPU time so far, of the process and of the system for it."""
        fields = self._stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(drawn: Plan, address: str, process: Process) -> dict[str, Any]:
    """Puts the load of a plan on the name server at `address`; returns what it costs its process."""
    clock, network, chance = SystemClock(), SystemNetwork(), Chance(drawn.shape.seed)
    figures: dict[str, Any] = {"memory_empty_mib": process.memory_mib}
    brokers = [BrokerNode(one, network, clock, (address,)) for one in drawn.brokers]
    before = process.cpu_s
    await begin_over(brokers, 0.0)
    await asyncio.gather(*(node.registration.registered(TIMEOUT_S) for node in brokers))
    figures["cpu_first_registrations_s"] = round(process.cpu_s - before, 2)
    figures["memory_registered_mib"] = process.memory_mib
    figures["registration_cpu_ms"] = await _registrations(brokers, process)
    figures["route_cpu_us"] = await _routes(drawn, address, process)
    share = drawn.clients[:: drawn.shape.name_servers]
    clients = [PollingClient(one, World(network, clock, chance), (address,)) for one in share]
    await begin_over(clients, ARRIVAL_S)
    figures["clients"] = len(clients)
    figures["routes_polled"] = sum(len(one.plan.topics) for one in clients)
    figures["memory_with_clients_mib"] = process.memory_mib
    figures |= await _steady(clients, process)
    await asyncio.gather(*(one.close() for one in clients))
    await asyncio.gather(*(one.stop() for one in brokers))
    return figures


async def _steady(clients: list[PollingClient], process: Process) -> dict[str, Any]:
    """Returns the CPU time in percent of a core while the clients poll, and how much they really asked.

    On a busy machine they ask less than in the plan.
    """
    cpu, asked, began = process.cpu_s, sum(one.asked for one in clients), time.monotonic()
    await asyncio.sleep(STEADY_S)
    used, passed = process.cpu_s - cpu, time.monotonic() - began
    return {
        "steady_cpu_percent": round(100 * used / passed, 1),
        "steady_routes_per_s": round((sum(one.asked for one in clients) - asked) / passed, 1),
        "memory_last_mib": process.memory_mib,
    }


async def _registrations(brokers: list[BrokerNode], process: Process) -> float:
    """Returns the CPU time of one registration in milliseconds: each broker registers ROUNDS times."""
    before = process.cpu_s
    for _ in range(ROUNDS):
        for node in brokers:
            for peer in node.registration._peers:
                assert await peer._register(node.topics.registrations())
    return round(1000 * (process.cpu_s - before) / (ROUNDS * len(brokers)), 2)


async def _routes(drawn: Plan, address: str, process: Process) -> float:
    """Returns the CPU time of one route request in microseconds."""
    topics = list(drawn.placement)
    client_of = [Client(SystemNetwork(), SystemClock()) for _ in range(CALLERS)]

    async def ask(number: int) -> None:
        for at in range(ROUTES_PER_CALLER):
            topic = topics[(number + at * CALLERS) % len(topics)]
            header = GetRouteInfoRequest(topic=topic, acceptStandardJsonOnly=True)
            question = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            answer = await client_of[number].call(address, question, TIMEOUT_S)
            assert answer.code == 0, answer.remark

    before = process.cpu_s
    await asyncio.gather(*map(ask, range(CALLERS)))
    used = process.cpu_s - before
    await asyncio.gather(*(client.close() for client in client_of))
    return round(1e6 * used / (CALLERS * ROUTES_PER_CALLER), 1)


if __name__ == "__main__":
    sys.exit(main())
