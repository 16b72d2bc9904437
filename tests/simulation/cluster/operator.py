"""The operator of one pair: restarts brokers, promotes slaves as `turbopump promote` allows, cuts lost tails.

In: brokers that died, and slaves that say that they have stopped. Out: brokers started in the right roles,
and events of the history that say which part of whose log is not part of the pair's any more.
"""

import asyncio
from typing import Protocol

from tests.simulation.cluster.clients import name_of
from tests.simulation.cluster.history import Broken, Cut, Died, Event, History, Loss, Lost, Opened
from tests.simulation.cluster.node import Node

from turbopump.protocol.bodies.replicas import ReplicaStatus
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import request
from turbopump.remoting.client import Client
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.store.tail import set_aside
from turbopump.testing.disk import SimulatedWorkers
from turbopump.testing.simulated_files import Survival

ASK_S = 3.0
STOPPED = "stopped"
NO_COPY = "its log was "  # ahead of its master, or not a copy


class Scene(Protocol):
    """The world as an operator sees it."""

    @property
    def chance(self) -> Chance: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def history(self) -> History: ...
    @property
    def tool(self) -> Client: ...


class PairOperator:
    """Looks after the brokers of one name."""

    def __init__(self, scene: Scene, pair: str, nodes: list[Node], master_role: str) -> None:
        self.pair = pair
        self.nodes = nodes
        self._scene = scene
        self._master_role = master_role
        self._known_ends: dict[str, int] = {}  # of killed processes: what must be there when they are back
        self._complete_ends: dict[str, int] = {}  # a node that has less of the log must not be promoted

    @property
    def master(self) -> Node:
        return next(node for node in self.nodes if node.is_master)

    @property
    def slaves(self) -> list[Node]:
        return [node for node in self.nodes if not node.is_master]

    async def begin(self) -> None:
        """Starts the first node as master, the others as slaves."""
        for number, node in enumerate(self.nodes):
            node.broker_id, node.role = number, self._master_role if number == 0 else "SLAVE"
            await self.start(node)

    # deaths

    async def kill(self, node: Node, survival: Survival) -> None:
        """Ends a node without warning, if it runs."""
        if node.is_up:
            self.tell(f"{node.name} dies: {survival.value}")
            end = node.store.log.end if node.is_master else _records_end(node)
            self._known_ends[node.name] = self._complete_ends[node.name] = end
            node.crashed_at = self.now
            self._scene.history.add(Died(self.now, self.pair, node.name))
            await node.die(survival)

    async def destroy(self, node: Node) -> None:
        """Ends a node, and its disk."""
        await self.kill(node, Survival.LOST)
        self.tell(f"the disk of {node.name} is gone")
        node.replace_disk()
        self._lost(node, Lost.DISK, 0)
        if self.master.is_up:
            self._complete_ends[node.name] = self.master.store.log.end

    # starting

    async def start(self, node: Node) -> None:
        """Starts a node in its role, and notes what its log has lost."""
        was_machine_down, node.is_machine_down = node.is_machine_down, False
        is_new, node.is_new = node.is_new, False
        await node.start()
        end = node.opened_end
        self.tell(f"{node.name} runs as {node.role} {node.broker_id}, its log ends at {end}")
        if node.is_master:
            self._scene.history.add(self._opened(node))
        known = self._known_ends.pop(node.name, 0)
        if end >= known:
            return
        if not was_machine_down and not is_new:
            text = f"{node.name} was killed with a log of {known} bytes, and is back with {end}"
            self._scene.history.add(Broken(self.now, "lost write", text))
        self._scene.history.add(Loss(node.crashed_at, self.pair, node.name, Lost.MACHINE, end))
        if node.is_master:
            self._cut(node.crashed_at, end)

    async def restart(self, node: Node) -> None:
        """Starts a dead node again, as what it was."""
        if not node.is_up:
            await self.start(node)

    async def fail_over(self, force: bool = False) -> bool:
        """Promotes a slave in place of a dead master, which stays down. Returns whether that was possible.

        As `turbopump promote` demands: the slave must be complete and in order, and no other one may have
        more of the log. `force`: the master's disk is gone, so that an incomplete copy is better than none;
        not after a cut, when the copy may be one of another log.
        """
        force = force and not any(isinstance(one, Cut) and one.pair == self.pair for one in self.events)
        old = self.master
        assert not old.is_up, "a master that lives is not replaced"
        found = [(node, await self.status(node)) for node in self.slaves]
        known = [(one.end, node) for node, one in found if one is not None and _may_be_promoted(one, force)]
        if not known:
            self.tell(f"no slave of {self.pair} may be promoted")
            return False
        chosen = max(known, key=lambda one: one[0])[1]
        self.tell(f"{chosen.name} is promoted")
        await self._end(chosen)
        self._known_ends.pop(chosen.name, None)  # begins a log that others are measured by
        chosen.role, old.role = self._master_role, "SLAVE"
        chosen.broker_id, old.broker_id = 0, chosen.broker_id
        await self.start(chosen)
        self._goes_on_with(chosen, old, force)
        return True

    def _goes_on_with(self, chosen: Node, old: Node, is_forced: bool) -> None:
        """Notes that the log of the pair is that of this node now."""
        end, complete = chosen.opened_end, self._complete_ends.get(chosen.name, 0)
        if end < complete and not is_forced:
            text = f"{chosen.name} was promoted with a log of {end} bytes; it must have {complete}"
            self._scene.history.add(Broken(self.now, "lost write", text))
        common = self._common_end(chosen, old)
        # Not now: what the new master has acknowledged since its log was opened is part of that log.
        self._cut(chosen.opened_at, common, end)
        for node in self.nodes:
            if node is not chosen:
                self._lost(node, Lost.LEFT, common, chosen.opened_at)

    async def status(self, node: Node) -> ReplicaStatus | None:
        """Asks a node about its copy; None: it does not answer."""
        if not node.is_up:
            return None
        try:
            answer = await self._scene.tool.call(node.address, request(RequestCode.REPLICA_STATUS), ASK_S)
        except OSError:
            return None
        if answer.code != ResponseCode.SUCCESS:
            return None
        return ReplicaStatus.decode(answer.body)

    async def _end(self, node: Node) -> None:
        """Stops a node, in order or not: a promotion is a restart."""
        if self._scene.chance.random() < 0.5:
            await node.stop()
        else:
            await self.kill(node, Survival.KEPT)

    # slaves that are no copies

    async def look_after_slaves(self) -> None:
        """Cuts or replaces the slaves that have stopped."""
        for slave in self.slaves:
            status = await self.status(slave)
            if status is not None and status.state == STOPPED and self.master.is_up:
                self.tell(f"{slave.name} says: {status.trouble}")
                await (self.cut if self._scene.chance.random() < 0.7 else self.replace)(slave)

    async def replace(self, slave: Node) -> None:
        """Starts a slave over with an empty disk."""
        await self.destroy(slave)
        await self.restart(slave)

    async def cut(self, slave: Node) -> None:
        """Removes from a slave's log what its master does not have, as `turbopump replica resync` does."""
        await slave.stop()
        common, gone = self._difference(slave)
        # Of a log that begins there or later nothing stays: `common` may be the end of a master that began
        # with an empty disk, below all that retention has left of this log.
        left = common if common > slave.first_offset else 0
        self.tell(f"{slave.name} is cut at {common}: {len(gone)} messages are set aside")
        await set_aside(slave.config.store, common, slave.disk, slave.clock, SimulatedWorkers(slave.disk))
        kept = slave.aside()
        if lost := [name for name in gone if name.encode() not in kept]:
            text = f"{slave.name} was cut at {common}, and {lost[:3]} are not set aside"
            self._scene.history.add(Broken(self.now, "lost write", text))
        self._lost(slave, Lost.LEFT, left)
        self._complete_ends[slave.name] = common
        if self._scene.chance.random() < 0.4:  # the power fails before anything else is written
            slave.disk = slave.disk.crash(self._scene.chance.choice([Survival.LOST, Survival.RANDOM]))
            self.tell(f"the machine of {slave.name} crashes after the cut")
        await self.start(slave)
        if slave.opened_end > common:
            text = f"{slave.name} was cut at {common}, and ends at {slave.opened_end} after a crash"
            self._scene.history.add(Broken(self.now, "resurrected", text))

    def _difference(self, slave: Node) -> tuple[int, list[str]]:
        """Returns where the log of a slave ceases to be its master's, and the messages behind."""
        master = self.master
        begin = master.first_offset
        common, gone, is_same = min(slave.first_offset, master.store.log.end), [], True
        for one, data in slave.log():
            is_same = is_same and (one.physical_offset < begin or master.holds(one.physical_offset, data))
            if is_same:
                common = one.physical_offset + one.size
            else:
                gone.append(name_of(one.body))
        return common, gone

    # notes

    def _opened(self, node: Node) -> Opened:
        return Opened(self.now, self.pair, node.committed(), node.queue_ends(), node.opened_at)

    @property
    def events(self) -> list[Event]:
        return self._scene.history.events

    @property
    def now(self) -> float:
        return self._scene.clock.monotonic()

    def tell(self, line: str) -> None:
        self._scene.history.tell(self.now, line)

    def _cut(self, at: float, end: int, adopted: int = 0) -> None:
        """Notes that the log of the pair is another one from `end` on."""
        self._scene.history.add(Cut(at, self.pair, end, adopted))
        for name, complete in self._complete_ends.items():
            self._complete_ends[name] = min(complete, max(end, adopted))

    def _common_end(self, chosen: Node, old: Node) -> int:
        """Returns up to where a promoted slave has the log of the old master, whose disk may be gone."""
        if old.is_new:
            cuts = [one.end for one in self.events if isinstance(one, Cut) and one.pair == self.pair]
            return min([chosen.opened_end, *cuts])
        end, begin = old.first_offset, chosen.first_offset
        for one, data in old.log():
            if one.physical_offset >= begin and not chosen.holds(one.physical_offset, data):
                break
            end = one.physical_offset + one.size
        return min(end, chosen.opened_end)

    def _lost(self, node: Node, why: Lost, end: int, at: float | None = None) -> None:
        self._scene.history.add(Loss(self.now if at is None else at, self.pair, node.name, why, end))


def _may_be_promoted(status: ReplicaStatus, force: bool) -> bool:
    """Whether a slave is a complete copy; with `force`, whether it is a copy of some length."""
    if status.state == STOPPED or status.missing.startswith(NO_COPY):
        return False
    return (force and status.end > 0) or not status.missing


def _records_end(slave: Node) -> int:
    """Returns where the last whole record of a slave ends.

    Behind it there may be the beginning of a record, or the blank that ends a file: recovery removes both
    when no file follows, and the master sends them again. Neither is a message.
    """
    replica = slave.store.replica
    data = replica.record(replica.last_record) if replica.last_record >= 0 else None
    return replica.dispatched if data is None else replica.last_record + len(data)


async def settled(operators: list[PairOperator], within_s: float) -> bool:
    """Waits until all slaves follow their masters and have all of their logs."""
    try:
        async with asyncio.timeout(within_s):
            while not all([await _follows(operator) for operator in operators]):
                await asyncio.sleep(1.0)
                for operator in operators:
                    await operator.look_after_slaves()
    except TimeoutError:
        return False
    return True


async def _follows(operator: PairOperator) -> bool:
    end = operator.master.store.log.end
    found = [await operator.status(slave) for slave in operator.slaves]
    return all(one is not None and one.state == "following" and one.dispatched >= end for one in found)
