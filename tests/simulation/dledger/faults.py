"""What may go wrong in a simulated group: deaths, cut ways, slow processes and disks, a lost disk."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from tests.simulation.cluster import retention
from tests.simulation.cluster.history import Died, Fault, Loss, Lost, Made, Muted
from tests.simulation.dledger.group import GroupBase
from tests.simulation.dledger.member_node import MemberNode

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.headers.replicas import RaftTransferRequest
from turbopump.testing.simulated_files import Survival

MACHINE_CRASHES = (Survival.LOST, Survival.RANDOM, Survival.PREFIX)
AWAY_ROUNDS, AWAY_S = 10, 4.0  # how long a follower is away until its leader has deleted enough
FAULT_S = 8.0  # after a fault: an election, and tables that are saved again

Action = Callable[[], Awaitable[None]]


class GroupFaults(GroupBase):
    """The faults of a world; each is an action that chance picks."""

    has_retention = False

    async def live(self) -> None:
        """Lets faults happen, some of them at the same time."""
        seldom: dict[Action, int] = {
            self.kill_leader: 4,
            self.kill_follower: 3,
            self.kill_all: 1,
            self.restart_in_order: 1,
            self.transfer: 2,
            self.part: 3,
            self.isolate_leader: 3,
            self.pause: 2,
            self.break_connections: 2,
            self.stall_disk: 1,
            self.lose_disk: 2,
            self.send_in_vain: 2,
        }
        weights = {what: times for what, times in seldom.items() if self.chance.random() < 0.6}
        weights |= {self.wait: 4, self.wait_long: 1, self.make_topic: 1, self.make_topic_and_kill: 1}
        if self.has_retention:
            weights |= {self.delete_old_files: 3, self.outlast_follower: 3}
        actions, times = list(weights), list(weights.values())
        for _ in range(self.chance.randint(5, 12)):
            await self.chance.choices(actions, times)[0]()

    async def wait(self) -> None:
        await asyncio.sleep(self.chance.choice([0.05, 0.5, 2, 5]))

    async def wait_long(self) -> None:
        await asyncio.sleep(self.chance.uniform(8, 20))

    # deaths

    async def kill(self, node: MemberNode, survival: Survival | None = None) -> None:
        """Ends a process, or its machine where syncs are awaited; it comes back after a while."""
        if not node.is_up:
            return
        if survival is None:
            survival = self.chance.choice([Survival.KEPT, *MACHINE_CRASHES]) if self.syncs else Survival.KEPT
        self.tell(f"{node.name} dies: {survival.value}")
        self.history.add(Died(self.now, self.group, node.name))
        await node.die(survival)
        self.background(self._return(node, self.chance.choice([0.0, 0.5, 3.0, 12.0])))

    async def _return(self, node: MemberNode, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self.start(node)

    async def kill_leader(self) -> None:
        with self.fault():
            await self.kill(self.leader or self.any_node)
            await self.wait()

    async def kill_follower(self) -> None:
        with self.fault():
            await self.kill(self.chance.choice(self.followers or self.nodes))
            await self.wait()

    async def kill_all(self) -> None:
        with self.fault():
            await asyncio.gather(*(self.kill(node) for node in self.nodes))
            await self.wait()

    async def restart_in_order(self) -> None:
        node = self.any_node
        if node.is_up:
            with self.fault():
                self.tell(f"{node.name} stops in order")
                await node.stop()
                await asyncio.sleep(self.chance.choice([0.0, 5.0]))
                await self.start(node)

    async def lose_disk(self) -> None:
        """Replaces the disk of one member by an empty one, while all others are members and run."""
        if not all(node.has_joined for node in self.nodes):
            return
        node = self.any_node if self.chance.random() < 0.5 else self.chance.choice(self.followers)
        with self.fault():
            self.tell(f"the disk of {node.name} is gone")
            self.history.add(Died(self.now, self.group, node.name))
            await node.die(Survival.LOST)
            node.replace_disk()
            self.history.add(Loss(self.now, self.group, node.name, Lost.DISK, 0))
            if self.chance.random() < 0.5 and (others := [one for one in self.followers if one is not node]):
                # The other follower has fallen behind: what is committed is at the leader only.
                await self.kill(self.chance.choice(others))
            await asyncio.sleep(self.chance.choice([0.0, 2.0]))
            await self.start(node)
            if self.chance.random() < 0.5:
                await asyncio.sleep(self.chance.choice([0.0, 1.0]))
                await self.kill_leader()

    async def delete_old_files(self) -> None:
        """Asks all members to delete files that have expired."""
        for node in self.nodes:
            if node.is_up and await retention.ask_to_delete(self.tool, node):
                self.tell(f"{node.name} was asked to delete old files")

    async def outlast_follower(self) -> None:
        """Kills a follower, or takes its disk, until its leader has deleted what would continue its log."""
        leader = self.leader
        if leader is None or not all(node.has_joined for node in self.nodes):
            return
        node = self.chance.choice([one for one in self.nodes if one is not leader])
        with self.fault():
            end = node.store.log.end
            self.tell(f"{node.name} is away, its log ends at {end}")
            self.history.add(Died(self.now, self.group, node.name))
            await node.die(Survival.KEPT)
            if self.chance.random() < 0.3:
                node.replace_disk()
                self.history.add(Loss(self.now, self.group, node.name, Lost.DISK, 0))
            for _ in range(AWAY_ROUNDS):
                await asyncio.sleep(AWAY_S)
                await self.delete_old_files()
                if (leader := self.leader) is not None and leader.first_offset > end:
                    self.tell(f"the log of {leader.name} begins at {leader.first_offset}")
                    break
            await self.start(node)
            if self.chance.random() < 0.3:
                await self.wait()
                await self.kill_leader()

    async def transfer(self) -> None:
        """Asks the leader to hand over."""
        leader, target = self.leader, self.any_node
        if leader is None or leader is target:
            return
        header = RaftTransferRequest(member=target.name)
        with self.fault(), contextlib.suppress(OSError):
            answer = await self.tool.call(leader.address, request(RequestCode.RAFT_TRANSFER, header), 5.0)
            self.tell(f"{leader.name} was asked to hand over to {target.name}: {answer.code}")

    # ways

    async def part(self) -> None:
        """Parts two members, one way or both, for a while."""
        one, other = self.chance.sample(self.nodes, 2)
        both = self.chance.random() < 0.5
        ways = {(one.ip, other.ip)} | ({(other.ip, one.ip)} if both else set())
        await self._cut(ways, f"nothing passes from {one.name} to {other.name}{' or back' if both else ''}")

    async def isolate_leader(self) -> None:
        """Cuts the leader off from the others; clients reach it for longer, or not."""
        node = self.leader or self.any_node
        ways = {(node.ip, other.ip) for other in self.nodes} | {(other.ip, node.ip) for other in self.nodes}
        clients = self.chance.random() < 0.3
        if clients:
            ways |= self.all_ways(node.ip)
        words = f"{node.name} is cut off{', from clients too' if clients else ''}"
        await self._cut(ways, words, mutes=clients)

    async def send_in_vain(self) -> None:
        """Lets a leader append what nobody gets, and lose its machine or its leadership with it."""
        leader = self.leader
        if leader is None:
            return
        with self.fault():
            ways = {(leader.ip, other.ip) for other in self.nodes if other is not leader}
            self.background(self._for_a_while(ways, self.chance.choice([1.0, 4.0, 15.0])))
            await asyncio.sleep(self.chance.choice([0.3, 1.0, 2.0]))
            if self.chance.random() < 0.6:
                await self.kill(leader)

    async def pause(self) -> None:
        """Makes a process hear nothing, and its disk stand still: later it gets everything at once."""
        node, seconds = self.any_node, self.chance.choice([1.0, 4.0, 10.0])
        if node.is_up:
            node.workers.stall(seconds)
            await self._cut(self.all_ways(node.ip), f"{node.name} stands still", seconds, mutes=True)

    async def _cut(
        self, ways: set[tuple[str, str]], words: str, seconds: float = 0.0, mutes: bool = False
    ) -> None:
        seconds = seconds or self.chance.choice([1.0, 5.0, 15.0])
        self.tell(f"{words}, for {seconds} s")
        self._disturb(seconds + FAULT_S)
        if mutes:
            self.history.add(Muted(self.now, self.now + seconds, self.group))
        self.background(self._for_a_while(ways, seconds))
        await asyncio.sleep(self.chance.choice([0.0, 0.5, seconds]))

    async def _for_a_while(self, ways: set[tuple[str, str]], seconds: float) -> None:
        with self.cut(ways):
            await asyncio.sleep(seconds)

    async def break_connections(self) -> None:
        node = self.any_node
        self.tell(f"all connections of {node.name} break")
        self._disturb(FAULT_S)
        self.network.break_connections(node.ip)

    async def stall_disk(self) -> None:
        node, seconds = self.any_node, self.chance.choice([0.5, 2.0, 6.0])
        self._disturb(seconds + FAULT_S)
        if node.is_up:
            self.tell(f"the disk of {node.name} stalls for {seconds} s")
            node.workers.stall(seconds)

    # topics

    async def make_topic(self) -> None:
        """Creates a topic without messages: only the table has it."""
        leader, topic, queues = self.leader, f"made-{self.serial()}", self.chance.randint(1, 8)
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "perm": "6",
            "writeQueueNums": str(queues), "topicFilterType": "SINGLE_TAG", "order": "false",
        }  # fmt: skip
        command = Command(int(RequestCode.UPDATE_AND_CREATE_TOPIC), ext=fields)
        if leader is None:
            return
        with contextlib.suppress(OSError):
            answer = await self.tool.call(leader.address, command, 5.0)
            self.tell(f"topic {topic} at {leader.name}: {answer.code}")
            if answer.code == ResponseCode.SUCCESS:
                self.history.add(Made(self.now, self.group, topic, queues))

    async def make_topic_and_kill(self) -> None:
        await self.make_topic()
        await self.kill_leader()

    # notes

    def _disturb(self, for_s: float) -> None:
        self.history.add(Fault(self.now, self.now + for_s, self.group))

    @contextlib.contextmanager
    def fault(self) -> Iterator[None]:
        """Notes the time of a fault and a while after it."""
        begin = self.now
        yield
        self.history.add(Fault(begin, self.now + FAULT_S, self.group))

    def background(self, work: Any) -> None:
        self.pending.append(asyncio.create_task(work))
