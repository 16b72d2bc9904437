"""The planning world in virtual time: its phases, and what each of them is measured to cost.

`cold_start` lets all brokers and clients come at the same moment. `life` lets them come one after another,
so that their periods do not coincide, then measures a quiet time, the death and return of brokers, and the
restart of the name servers one by one.
"""

import asyncio
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from tests.simulation.scale.nodes import (
    BeatingClient,
    BrokerNode,
    PollingClient,
    begin_over,
    topics_of_truth,
)
from tests.simulation.scale.plan import Plan, name_server_ip
from tests.simulation.scale.traffic import CountedNetwork, Traffic

from turbopump.client.world import World
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.server import NameServer
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import VirtualClock
from turbopump.testing.memory import MemoryDisk
from turbopump.testing.network import MemoryNetwork, NetworkConditions

PORT = 9876
DELAYS = NetworkConditions(min_delay_s=0.0005, max_delay_s=0.0005)
PERIOD_S = 30.0  # of registrations and of the clients' polls
STEADY_S = PERIOD_S
STEP_S = 0.25  # between two comparisons of all routes
MAX_WAIT_S = 600.0
DOWN_S = 35.0  # for which a name server that is restarted is away: every client has asked another meanwhile

PHASES = ("steady", "killed", "isolated", "restarts")
"""What `life` can measure, in its order."""

Say = Callable[[str], None]
Figures = dict[str, Any]


class ScaleWorld:
    """Name servers, brokers and clients of a plan on one virtual network."""

    def __init__(self, plan: Plan, heartbeats: bool = False) -> None:
        self.plan = plan
        self.network = MemoryNetwork(Chance(plan.shape.seed), DELAYS, silent_cuts=True)
        self.clock = VirtualClock()
        self.heartbeats = heartbeats
        self.hosts = [name_server_ip(number) for number in range(plan.shape.name_servers)]
        self.addresses = tuple(f"{ip}:{PORT}" for ip in self.hosts)
        self.traffic = [Traffic() for _ in self.hosts]
        self.name_servers: list[NameServer] = []
        self.brokers: dict[str, BrokerNode] = {}
        self.dead: frozenset[str] = frozenset()
        chance = Chance(plan.shape.seed + 1)
        kind = BeatingClient if heartbeats else PollingClient
        self.clients = [
            kind(
                one,
                World(self.network.at(one.ip), self.clock, Chance(chance.getrandbits(32))),
                self.addresses,
            )
            for one in plan.clients
        ]

    # members

    async def start(self, over_s: float) -> None:
        """Starts the name servers, then all brokers and clients over so many seconds."""
        for number in range(len(self.hosts)):
            self.name_servers.append(await self._name_server(number))
        for plan in self.plan.brokers:
            await self._add_broker(plan.name)
        brokers = begin_over(self.brokers.values(), over_s)
        await asyncio.gather(brokers, begin_over(self.clients, over_s))

    async def stop(self) -> None:
        """Stops everything; brokers and clients that are cut off do not wait for an answer."""
        for server in self.name_servers:
            await server.stop(0)
        for ip in self.hosts:
            self.network.unplug(ip)
        await asyncio.gather(*(client.close() for client in self.clients))
        await asyncio.gather(*(broker.stop() for broker in self.brokers.values()))

    async def _name_server(self, number: int) -> NameServer:
        network = CountedNetwork(self.network.at(self.hosts[number]), self.traffic[number])
        config = NamesrvConfig(listen_port=PORT)
        server = NameServer(config, network, self.clock, MemoryDisk(self.clock))
        await server.start()
        return server

    async def _add_broker(self, name: str) -> BrokerNode:
        plan = next(one for one in self.plan.brokers if one.name == name)
        node = BrokerNode(plan, self.network.at(plan.ip), self.clock, self.addresses)
        if self.heartbeats:
            await node.listen()
        self.brokers[name] = node
        return node

    # faults

    async def kill(self, names: frozenset[str]) -> None:
        """Kills brokers as the end of their process does: every connection is reset."""
        self.dead |= names
        for name in sorted(names):
            node = self.brokers.pop(name)
            self.network.unplug(node.plan.ip)
            self._cut(node)
            await node.stop()

    def isolate(self, names: frozenset[str]) -> None:
        """Cuts brokers off from all others; nothing is reset, as when a machine loses its power."""
        self.dead |= names
        for name in names:
            self._cut(self.brokers[name])

    async def revive(self, names: frozenset[str]) -> None:
        """Starts killed brokers again, all at once."""
        for name in sorted(names):
            node = await self._add_broker(name)
            self._join(node)
            await node.start()
        self.dead -= names

    def rejoin(self, names: frozenset[str]) -> None:
        """Connects isolated brokers again."""
        for name in names:
            self._join(self.brokers[name])
        self.dead -= names

    async def restart(self, number: int) -> None:
        """Stops a name server, and starts an empty one at its address after DOWN_S."""
        await self.name_servers[number].stop(0)
        await asyncio.sleep(DOWN_S)
        self.name_servers[number] = await self._name_server(number)

    def _cut(self, node: BrokerNode) -> None:
        for ip in self._others(node):
            self.network.cut(node.plan.ip, ip)

    def _join(self, node: BrokerNode) -> None:
        for ip in self._others(node):
            self.network.join(node.plan.ip, ip)

    def _others(self, node: BrokerNode) -> list[str]:
        """Returns the hosts that a broker has connections with."""
        if not self.heartbeats:
            return self.hosts
        mine = {one.ip for one in self.plan.clients if not node.plan.topics.keys().isdisjoint(one.topics)}
        return [*self.hosts, *sorted(mine)]

    # figures

    async def window(self, seconds: float) -> list[Figures]:
        """Lets so many seconds pass and returns the traffic of each name server in them."""
        for one in self.traffic:
            one.clear()
        await asyncio.sleep(seconds)
        return [one.as_json(seconds) for one in self.traffic]

    @property
    def heard(self) -> int:
        """Heartbeats that the brokers have answered."""
        return sum(broker.heartbeats for broker in self.brokers.values())

    def table_sizes(self) -> list[Figures]:
        tables = [server._routes for server in self.name_servers]
        return [
            {"brokers": len(one.clusters().brokerAddrTable), "topics": len(one.topics())} for one in tables
        ]

    async def agreement(self) -> Figures:
        """Waits until all name servers and the routes of all clients name exactly the live brokers.

        Returns how long it took, in virtual seconds from now: the last name server, and the routes of
        clients that changed. Raises TimeoutError after MAX_WAIT_S.
        """
        begin, truth = self.clock.monotonic(), topics_of_truth(self.plan, self.dead)
        beats = self.heard
        live = {one.name for one in self.plan.brokers} - self.dead
        servers = list(self.name_servers)
        waiting = [
            (client, topic, truth[topic])
            for client in self.clients
            for topic in client.plan.topics
            if topic in truth and client.disagrees(topic, truth[topic])
        ]
        servers_s, times, affected = 0.0, [], {client for client, *_ in waiting}
        while servers or waiting:
            if self.clock.monotonic() - begin > MAX_WAIT_S:
                raise TimeoutError(f"{len(servers)} name servers, {len(waiting)} routes do not agree")
            await asyncio.sleep(STEP_S)
            passed = self.clock.monotonic() - begin
            still = [one for one in servers if one._routes.clusters().brokerAddrTable.keys() != live]
            if len(still) < len(servers):
                servers, servers_s = still, passed
            behind = [one for one in waiting if one[0].disagrees(one[1], one[2])]
            times += [passed] * (len(waiting) - len(behind))
            waiting = behind
        return {
            "name_servers_s": round(servers_s, 2),
            "routes_changed": len(times),
            "clients_affected": len(affected),
            "half_of_routes_s": round(statistics.median(times), 2) if times else 0.0,
            "all_routes_s": round(max(times, default=0.0), 2),
            "heartbeats_per_s": round((self.heard - beats) / max(STEP_S, self.clock.monotonic() - begin), 1),
        }

    def disagreements(self) -> int:
        """Returns the number of client routes that do not name exactly the live brokers of their topic."""
        truth = topics_of_truth(self.plan, self.dead)
        return sum(
            client.disagrees(topic, truth[topic])
            for client in self.clients
            for topic in client.plan.topics
            if topic in truth
        )


async def cold_start(plan: Plan, heartbeats: bool = False, say: Say = lambda text: None) -> Figures:
    """Lets all brokers and clients start at the same moment; returns the traffic until all have their routes.

    A client that asked for a route before its brokers had registered has it with its next poll.
    """
    world = ScaleWorld(plan, heartbeats)
    start = asyncio.create_task(world.start(0.0))
    await asyncio.sleep(0)
    first = await world.window(PERIOD_S / 2)
    await start
    say("cold start: all members have come")
    missing = world.disagreements()
    await world.agreement()
    figures = {
        "first": first,
        "routes_missing": missing,
        "agreed_s": round(world.clock.monotonic(), 2) if missing else None,
        "tables": world.table_sizes(),
    }
    await world.stop()
    return figures


async def life(
    plan: Plan,
    heartbeats: bool = False,
    say: Say = lambda text: None,
    phases: Sequence[str] = PHASES,
    figures: Figures | None = None,
) -> Figures:
    """Runs these phases in a cluster whose members have come one after another; returns a result for each.

    Each is put into `figures` as soon as it is known.
    """
    figures = {} if figures is None else figures
    world = ScaleWorld(plan, heartbeats)
    chance = Chance(plan.shape.seed + 2)
    await world.start(PERIOD_S)
    await world.agreement()
    say("all members have come, one after another")
    names = [one.name for one in plan.brokers]
    killed, isolated = (frozenset(chance.sample(names, plan.shape.deaths)) for _ in range(2))
    if "steady" in phases:
        before = world.heard
        figures["steady"] = await world.window(STEADY_S)
        figures["heartbeats_per_s"] = round((world.heard - before) / STEADY_S, 1)
        figures["tables"] = world.table_sizes()
        say("steady: measured")
    if "killed" in phases:
        await world.kill(killed)
        without = len(plan.placement) - len(topics_of_truth(plan, killed))
        figures["killed"] = {"topics_without_broker": without, **await world.agreement()}
        say(f"killed: {figures['killed']}")
        await world.revive(killed)
        figures["returned"] = await world.agreement()
        say(f"returned: {figures['returned']}")
    if "isolated" in phases:
        world.isolate(isolated)
        figures["isolated"] = await world.agreement()
        say(f"isolated: {figures['isolated']}")
        world.rejoin(isolated)
        figures["rejoined"] = await world.agreement()
        say(f"rejoined: {figures['rejoined']}")
    if "restarts" in phases:
        figures["restarts"] = await _restarts(world)
        say(f"restarts: {figures['restarts']}")
    assert world.disagreements() == 0, "routes changed without a broker's death"
    await world.stop()
    return figures


async def _restarts(world: ScaleWorld) -> list[Figures]:
    """Restarts each name server in turn; returns, for each, its own figures and the shares afterwards."""
    found = []
    for number in range(len(world.name_servers)):
        for one in world.traffic:
            one.clear()
        await world.restart(number)
        complete = await world.agreement()
        refused = sum(one.refused for one in world.traffic)
        after = await world.window(PERIOD_S)
        asked = [one["by_code"].get("105", {"requests": 0})["requests"] for one in after]
        found.append({"complete_s": complete["name_servers_s"], "refused": refused, "routes_asked": asked})
    return found
