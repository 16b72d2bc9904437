"""The machines of a simulated group: three brokers, a name server, and the ways between their hosts."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.simulation.cluster.history import History
from tests.simulation.cluster.node import PORT
from tests.simulation.cluster.world import NAME_SERVER_PORT, TOOL_IP
from tests.simulation.dledger.member_node import MemberNode

from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.server import NameServer
from turbopump.raft import Role
from turbopump.remoting.client import Client
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork, NetworkConditions

GROUP, RAFT_PORT, NAME_SERVER_IP = "g", 40911, "10.0.9.1"
IPS = {f"n{number}": f"10.0.1.{number + 1}" for number in range(3)}
PEERS = ";".join(f"{name}-{ip}:{RAFT_PORT}" for name, ip in IPS.items())
CLIENT_IPS = tuple(f"10.1.0.{number}" for number in range(1, 9))


class GroupBase:
    """Hosts, and who can reach whom."""

    group = GROUP

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.history = History()
        self.tasks: dict[str, list[asyncio.Task[Any]]] = {}
        self.surprises: list[BaseException] = []
        self.pending: list[asyncio.Task[None]] = []
        self.name_servers = [f"{NAME_SERVER_IP}:{NAME_SERVER_PORT}"]
        self.syncs = self.chance.random() < 0.5
        """Whether a member counts what is synced: then machines may crash, not only processes."""
        self._ways: Counter[tuple[str, str]] = Counter()
        self._dying: list[str] = []
        self._starting: set[str] = set()
        self._serial = 0

    def make(self, features: str) -> None:
        """Makes the hosts; starts nothing."""
        self.clock = VirtualClock()
        self.network = MemoryNetwork(self.chance, self._any_weather(), silent_cuts=True)
        self.tool = Client(self.network.at(TOOL_IP), self.clock)
        config = NamesrvConfig(listen_port=NAME_SERVER_PORT, bind_address=NAME_SERVER_IP)
        disk = SimulatedDisk(self.chance, self.clock)
        self.name_server = NameServer(config, self.network.at(NAME_SERVER_IP), self.clock, disk)
        common = self._any_conf() + features
        self.nodes = [MemberNode(self, GROUP, name, ip, common) for name, ip in IPS.items()]
        self.tell(f"a group with {common[common.find('flushDiskType') :].split()}")

    def _any_conf(self) -> str:
        chance = self.chance
        beat_ms = chance.choice([300, 1000])
        return "\n".join(
            (
                "brokerClusterName=C",
                f"namesrvAddr={self.name_servers[0]}",
                f"listenPort={PORT}",
                "storePathRootDir=/store",
                "mappedFileSizeCommitLog=262144",
                "mappedFileSizeConsumeQueue=2000",
                "messageIndexEnable=false",
                "defaultTopicQueueNums=4",
                "registerNameServerPeriod=10000",
                "flushConsumerOffsetInterval=1000",
                "flushDelayOffsetInterval=2000",
                "timerRollWindowSlot=60",
                "mappedFileSizeTimerLog=20800",
                "slaveReadEnable=true",
                "enableDLegerCommitLog=true",
                f"dLegerGroup={GROUP}",
                f"dLegerPeers={PEERS}",
                f"flushDiskType={'SYNC_FLUSH' if self.syncs else 'ASYNC_FLUSH'}",
                f"dLegerHeartbeatInterval={beat_ms}",
                f"dLegerMinVoteWait={beat_ms // 3}",
                f"dLegerMaxVoteWait={beat_ms}",
                f"dLegerQuorumTimeout={chance.choice([1000, 2500])}",
                "",
            )
        )

    def _any_weather(self) -> NetworkConditions:
        chance = self.chance
        slowest_s, loss = chance.choice([0.0, 0.005, 0.1]), chance.choice([0.0, 0.0, 0.0, 0.001])
        return NetworkConditions(0.0, slowest_s, chance.choice([1500, 65_536, 65_536]), loss)

    # who is there

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    @property
    def any_node(self) -> MemberNode:
        return self.chance.choice(self.nodes)

    @property
    def leader(self) -> MemberNode | None:
        """The broker that serves as master, of several that of the highest term."""
        serving = [one for one in self.nodes if one.is_master and one.member.server.role is Role.LEADER]
        return max(serving, key=lambda node: node.member.term, default=None)

    @property
    def followers(self) -> list[MemberNode]:
        return [node for node in self.nodes if node.is_up and node is not self.leader]

    async def start(self, node: MemberNode) -> None:
        """Starts a broker that does not run."""
        if not node.is_up and node.name not in self._starting:
            self._starting.add(node.name)
            try:
                await node.start()
            finally:
                self._starting.discard(node.name)
            self.tell(f"{node.name} runs, its log ends at {node.opened_end}")

    def nodes_of(self, pair: str) -> list[MemberNode]:
        return self.nodes

    def next_name(self, pair: str) -> str:
        return f"{pair}-{self.serial():05d}"

    def serial(self) -> int:
        self._serial += 1
        return self._serial

    # ways

    @property
    def _hosts(self) -> tuple[str, ...]:
        return (*IPS.values(), NAME_SERVER_IP, TOOL_IP, *CLIENT_IPS)

    def all_ways(self, ip: str) -> set[tuple[str, str]]:
        """Returns all ways to and from a host."""
        others = [other for other in self._hosts if other != ip]
        return {(ip, other) for other in others} | {(other, ip) for other in others}

    @contextlib.contextmanager
    def cut(self, ways: set[tuple[str, str]]) -> Iterator[None]:
        """Lets nothing pass on these ways meanwhile."""
        self._ways.update(ways)
        self._set_ways()
        try:
            yield
        finally:
            self._ways.subtract(ways)
            self._set_ways()

    @contextlib.contextmanager
    def dying(self, ip: str) -> Iterator[None]:
        self._dying.append(ip)
        try:
            with self.cut(self.all_ways(ip)):
                yield
        finally:
            self._dying.remove(ip)

    def _set_ways(self) -> None:
        self.network._cut = {way for way, times in self._ways.items() if times > 0}
        for transport in list(self.network._pipes):
            transport.go_on()

    # notes

    def tell(self, line: str) -> None:
        self.history.tell(self.now, line)

    def note_surprise(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._dying:  # what a killed process raises does not count
            self.surprises.append(context.get("exception") or RuntimeError(context["message"]))
