"""A simulated DLedger group: clients, faults, calm, and what is there at the end."""

import asyncio
import random
from collections.abc import Coroutine
from contextlib import nullcontext
from typing import Any

from tests.simulation.cluster import retention
from tests.simulation.cluster.check import Anomaly, check
from tests.simulation.cluster.clients import Habits, Reader, Sender
from tests.simulation.cluster.history import Broken, Fault, Kind, Opened, PairEnd, SlaveEnd
from tests.simulation.cluster.ledger_driver import LedgerDriver
from tests.simulation.cluster.node import Node
from tests.simulation.cluster.world import SLOTS, readable
from tests.simulation.constants import restored
from tests.simulation.dledger.faults import FAULT_S, GroupFaults
from tests.simulation.dledger.follower_reader import FollowerReader
from tests.simulation.dledger.group import CLIENT_IPS
from tests.simulation.dledger.member_node import MemberNode

from turbopump.protocol.names import TABLE_TOPIC
from turbopump.remoting.client import Client
from turbopump.store import timer_wheel
from turbopump.store.store import Store
from turbopump.testing.disk import PowerCut
from turbopump.testing.network import PERFECT

SETTLED_WITHIN_S = 120.0
QUIET_S = 14.0  # after the last message: the longest delay, and a little more
WATCH_S = 0.5


class DLedgerWorld(GroupFaults):
    """One world from one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = random.Random(f"features of {seed}")
        self._is_over = False
        self._kept: list[asyncio.Task[Any]] = []
        self.has_timers, self.has_ledger = chance.random() < 0.3, chance.random() < 0.2
        self.has_retention = chance.random() < 0.3
        self._retention_conf = retention.conf(chance) if self.has_retention else []
        self._witness = retention.DeletionWitness(self)
        self._watched: list[Store] = []

    async def run(self) -> list[Anomaly]:
        """Lives through faults, then calm; returns what was wrong."""
        with restored(timer_wheel), retention.short_hours() if self.has_retention else nullcontext():
            timer_wheel.SLOTS = SLOTS
            return await self._run()

    async def _run(self) -> list[Anomaly]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._note)
        loop.set_task_factory(self._new_task)
        precision = f"timerPrecisionMs={100 if self.has_ledger else 1000}\n"
        own = [f"mappedFileSizeCommitLog={retention.SMALL_FILE_SIZE}", *self._retention_conf, ""]
        more = "\n".join(own if self.has_retention else [])
        self.make(f"timerWheelEnable={str(self.has_timers).lower()}\n{precision}{more}")
        await self.name_server.start()
        for node in self.nodes:
            node.on_lead = self._leads
            if self.has_retention:
                node.on_open = self._watch_deletions
            await self.start(node)
        await self._until(lambda: self.leader is not None)
        clients = self._clients()
        is_sender = (Sender, LedgerDriver)
        senders = [asyncio.create_task(one.run()) for one in clients if isinstance(one, is_sender)]
        readers = [asyncio.create_task(one.run()) for one in clients if not isinstance(one, is_sender)]
        watch = asyncio.create_task(self._watch())
        await self.live()
        watch.cancel()
        end = await self._settle(senders, [one for one in clients if isinstance(one, LedgerDriver)])
        await self._close([*senders, *readers])
        return check(self.history, [end])

    def _clients(self) -> list[Any]:
        chance = self.chance
        kinds = (
            [Kind.PLAIN] * 6 + chance.choice([0, 2]) * [Kind.DELAYED] + chance.choice([0, 2]) * [Kind.HALF]
        )
        kinds += [Kind.TIMED] * (3 if self.has_timers else 0)
        sizes = chance.choice([(200,), (10, 300, 3000), (100, 6000)])
        self.habits = Habits(tuple(kinds), sizes, chance.choice([0.2, 0.4, 1.0]), chance.choice([1, 2]))
        hosts = [Client(self.network.at(ip), self.clock) for ip in CLIENT_IPS]
        queues = self.habits.queues
        clients: list[Any] = [
            Sender(self, self.group, hosts[number], number, self.habits) for number in range(queues)
        ]
        clients.append(Reader(self, self.group, hosts[2], queues))
        # Followers may still have, or lack, what the leader is about to delete.
        late = retention.LateReader if self.has_retention else FollowerReader
        clients.append(late(self, self.group, hosts[3], queues))
        if self.has_ledger:
            clients.append(LedgerDriver(self, self.group, hosts[4], queues))
        return clients

    def _leads(self, node: MemberNode) -> None:
        if node.is_up and not self._is_over:
            self.tell(f"{node.name} serves as master")
            self.history.add(Opened(self.now, self.group, node.committed(), node.queue_ends()))

    def _watch_deletions(self, node: Node, store: Store) -> None:
        """Has the witness watch each store once: a broker shows it again in each role."""
        if store not in self._watched:
            self._watched.append(store)
            self._witness.watch(node, store)

    async def _watch(self) -> None:
        """Notes the time in which the group has no leader: it does not save tables then."""
        while True:
            if self.leader is None or not all(node.is_up for node in self.nodes):
                self.history.add(Fault(self.now - 2 * WATCH_S, self.now + FAULT_S, self.group))
            await asyncio.sleep(WATCH_S)

    # the end

    async def _settle(self, senders: list[asyncio.Task[None]], drivers: list[LedgerDriver]) -> PairEnd:
        """Ends all faults, then the senders, and waits until everything has come to rest."""
        self.tell("calm from now on")
        await asyncio.gather(*self.pending)
        self.network.conditions = PERFECT
        for node in self.nodes:
            await self.start(node)
        if not await self._until(self._is_whole):
            self.history.add(Broken(self.now, "not a copy", f"no whole group: {self._states()}"))
        await asyncio.sleep(3.0)  # what is sent now must be answered, and copied
        for sender in senders:
            sender.cancel()
        await asyncio.sleep(QUIET_S)
        winners = [await driver.end_all() for driver in drivers]
        await asyncio.sleep(3.0)
        await self._until(self._is_equal)
        return self._end(winners[0] if winners else None)

    async def _until(self, condition: Any) -> bool:
        """Waits until something has come about; returns False when it took too long."""
        try:
            async with asyncio.timeout(SETTLED_WITHIN_S):
                while not condition():  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
        except TimeoutError:
            return False
        return True

    def _is_whole(self) -> bool:
        return self.leader is not None and all(node.has_joined for node in self.nodes)

    def _is_equal(self) -> bool:
        logs = [node.store.log for node in self.nodes if node.is_up]
        return len({log.dispatched for log in logs}) == 1 and logs[0].dispatched == max(
            log.end for log in logs
        )

    def _states(self) -> list[str]:
        return [f"{one.name} {one.member.server.role.value if one.is_up else 'down'}" for one in self.nodes]

    def _end(self, winners: dict[int, tuple[str, ...]] | None) -> PairEnd:
        leader = self.leader or self.nodes[0]
        records = [one for one, _ in leader.log() if one.topic != TABLE_TOPIC]
        others = [node for node in self.nodes if node is not leader]
        for node in others:
            if (node.topics(), node.committed()) != (leader.topics(), leader.committed()):
                text = f"{node.name} has {node.topics()} and {node.committed()}, its leader "
                text += f"{leader.topics()} and {leader.committed()}"
                self.history.add(Broken(self.now, "lost topic", text))
        return PairEnd(
            pair=self.group,
            log=tuple(retention.stored(one) for one in records),
            log_begin=leader.first_offset,
            log_end=leader.store.log.end,
            readable={number: readable(leader, number) for number in range(self.habits.queues)},
            offsets=leader.committed(),
            topics=leader.topics(),
            slaves=tuple(_copy_at_end(node, leader) for node in others),
            winners=winners,
            is_group=True,
            rewrites=self.has_retention,
        )

    async def _close(self, clients: list[asyncio.Task[None]]) -> None:
        self._is_over = True
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await self.tool.close()
        for surprise in self.surprises:
            self.history.add(Broken(self.now, "surprise", repr(surprise)))
        for node in self.nodes:
            await node.stop()
        await self.name_server.stop()
        left = [task for task in self._kept if not task.done() and task is not asyncio.current_task()]
        for task in left:  # of killed processes, in the order in which they were begun
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        """Keeps each task: one of a killed process must not end when memory happens to be collected."""
        task = asyncio.Task(work, loop=loop, **options)
        self._kept.append(task)
        return task

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # A process that is killed leaves tasks behind.
        if not isinstance(context.get("exception"), PowerCut) and "was destroyed" not in context["message"]:
            self.note_surprise(loop, context)


def _copy_at_end(node: MemberNode, leader: MemberNode) -> SlaveEnd:
    """Returns how much of a follower's log equals that of its leader."""
    end, begin = node.store.log.end, max(node.first_offset, leader.first_offset)
    equal = begin
    for one, data in node.log(end):
        if one.physical_offset < begin:
            continue  # the leader has deleted it
        if not leader.holds(one.physical_offset, data):
            break
        equal = one.physical_offset + one.size
    follows = node.member.server.leader == leader.name and node.store.log.dispatched == end
    return SlaveEnd(node.name, "following" if follows else "behind", end, equal, node.first_offset)
