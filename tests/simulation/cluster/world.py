"""A simulated cluster: masters and slaves, name servers, senders, readers, operators, and faults."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Coroutine
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from tests.simulation.cluster import retention
from tests.simulation.cluster.check import SETTLED_S, Anomaly, check
from tests.simulation.cluster.clients import Habits, PairClient, Reader, Sender, name_of
from tests.simulation.cluster.history import Broken, Fault, History, Kind, Made, Muted, PairEnd, SlaveEnd
from tests.simulation.cluster.ledger_driver import LedgerDriver
from tests.simulation.cluster.node import PORT, TOPIC, Node, running
from tests.simulation.cluster.operator import PairOperator, settled
from tests.simulation.cluster.retention import DeletionWitness, LateReader
from tests.simulation.cluster.slave_reader import MARKS, SlaveReader
from tests.simulation.constants import restored

from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.server import NameServer
from turbopump.protocol import record
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.store import timer_wheel
from turbopump.testing.disk import PowerCut, SimulatedDisk
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import PERFECT, MemoryNetwork, NetworkConditions
from turbopump.testing.simulated_files import Survival

TOOL_IP, NAME_SERVER_PORT = "10.0.9.9", 9876
SETTLED_WITHIN_S = 240.0
QUIET_S = 14.0  # after the last message: the longest delay, and a little more
WATCH_S = 0.5
SLOTS = 1_000  # of the wheel of timers
MACHINE_CRASHES = (Survival.LOST, Survival.RANDOM, Survival.PREFIX)


@dataclass(frozen=True, slots=True)
class Features:
    """What a world has beside senders and readers of masters: the seed decides, to keep worlds cheap."""

    timers: bool
    ledger: bool
    slave_reads: bool
    retention: bool

    @classmethod
    def of(cls, seed: int) -> "Features":
        chance = random.Random(f"features of {seed}")
        shares = 0.3, 0.3, 0.4, 0.25
        timers, ledger, slave_reads, retention = (chance.random() < share for share in shares)
        return cls(timers, ledger, slave_reads, retention and not slave_reads)


class ClusterWorld:
    """One world from one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.features = Features.of(seed)
        self.history = History()
        self.tasks: dict[str, list[asyncio.Task[Any]]] = {}
        self.surprises: list[BaseException] = []
        self.jumps_ms: dict[str, int] = {}
        self._client_hosts: dict[str, list[str]] = defaultdict(list)
        self.witness = DeletionWitness(self)
        self._serial = 0

    async def run(self) -> list[Anomaly]:
        """Lives through faults, then calm; returns what was wrong."""
        with restored(timer_wheel), retention.short_hours() if self.features.retention else nullcontext():
            timer_wheel.SLOTS = SLOTS
            return await self._run()

    async def _run(self) -> list[Anomaly]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._note_surprise)
        loop.set_task_factory(self._new_task)
        self.clock = VirtualClock()
        self._make()
        for server in self._servers:
            await server.start()
        for operator in self.operators:
            await operator.begin()
        clients = self._clients()
        self.slave_readers = [one for one in clients if isinstance(one, SlaveReader)]
        self.drivers = {one.pair: one for one in clients if isinstance(one, LedgerDriver)}
        is_sender = (Sender, LedgerDriver)
        senders = [asyncio.create_task(one.run()) for one in clients if isinstance(one, is_sender)]
        readers = [asyncio.create_task(one.run()) for one in clients if not isinstance(one, is_sender)]
        watch = asyncio.create_task(self._watch_slaves())
        await self._live()
        watch.cancel()
        ends = await self._settle(senders)
        await self._close([*senders, *readers])
        return check(self.history, ends)

    # making

    def _make(self) -> None:
        chance = self.chance
        self.network = MemoryNetwork(chance, self._any_weather(), silent_cuts=True)
        self.tool = Client(self.network.at(TOOL_IP), self.clock)
        ips = [f"10.0.9.{number}" for number in range(1, chance.choice([1, 1, 2]) + 1)]
        self.name_servers = [f"{ip}:{NAME_SERVER_PORT}" for ip in ips]
        self._servers = [self._name_server(ip) for ip in ips]
        self.habits = self._any_habits()
        self.operators = []
        self.tell(f"{self.network.conditions}")
        self.tell(f"{self.features}")
        for pair in ["a", "b"][: chance.choice([1, 1, 1, 2])]:
            role, common = chance.choice(["SYNC_MASTER", "SYNC_MASTER", "ASYNC_MASTER"]), self._any_conf()
            count = chance.choice([2, 2, 3])
            ips = [f"10.0.{ord(pair) - 96}.{number}" for number in range(1, count + 1)]
            nodes = [Node(self, pair, f"{pair}{n}", ip, common) for n, ip in enumerate(ips, 1)]
            for node in nodes if self.features.retention else ():
                node.on_open = self.witness.watch
            self.operators.append(PairOperator(self, pair, nodes, role))
            self.jumps_ms[pair] = 0
            self.tell(f"{pair}: {role} with {count - 1} slaves; {common[common.find('flushDisk') :].split()}")

    def _name_server(self, ip: str) -> NameServer:
        config = NamesrvConfig(listen_port=NAME_SERVER_PORT, bind_address=ip)
        disk = SimulatedDisk(self.chance, self.clock)
        return NameServer(config, self.network.at(ip), self.clock, disk)

    def _any_conf(self) -> str:
        chance, has_retention = self.chance, self.features.retention
        file_size = retention.SMALL_FILE_SIZE if has_retention else retention.FILE_SIZE
        return "\n".join(
            (
                "brokerClusterName=C",
                f"namesrvAddr={';'.join(self.name_servers)}",
                f"listenPort={PORT}",
                "storePathRootDir=/store",
                f"mappedFileSizeCommitLog={file_size}",
                "mappedFileSizeConsumeQueue=2000",
                "messageIndexEnable=false",
                "defaultTopicQueueNums=4",
                "registerNameServerPeriod=10000",
                "flushConsumerOffsetInterval=1000",
                "flushDelayOffsetInterval=2000",
                f"timerWheelEnable={str(self.features.timers).lower()}",
                f"timerPrecisionMs={100 if self.features.ledger else 1000}",
                "timerRollWindowSlot=60",
                "mappedFileSizeTimerLog=20800",
                f"slaveReadEnable={str(self.features.slave_reads).lower()}",
                f"flushDiskType={chance.choice(['SYNC_FLUSH', 'ASYNC_FLUSH', 'ASYNC_FLUSH'])}",
                f"flushIntervalCommitLog={chance.choice([200, 500, 3000])}",
                f"flushCommitLogLeastPages={chance.choice([0, 4])}",
                f"haSendHeartbeatInterval={chance.choice([1000, 5000])}",
                f"haHousekeepingInterval={chance.choice([4000, 20000])}",
                f"slaveTimeout={chance.choice([500, 3000])}",
                *(retention.conf(chance) if has_retention else ()),
                "",
            )
        )

    def _any_habits(self) -> Habits:
        chance = self.chance
        kinds = (
            [Kind.PLAIN] * 6 + [Kind.DELAYED] * chance.choice([0, 2]) + [Kind.HALF] * chance.choice([0, 2])
        )
        kinds += [Kind.TIMED] * (3 if self.features.timers else 0)
        # Messages of one size make a log whose records begin at the same offsets after a cut.
        sizes = chance.choice([(200,), (10, 300, 3000), (100, 6000)])
        return Habits(tuple(kinds), sizes, chance.choice([0.2, 0.4, 1.0]), chance.choice([1, 2]))

    def _any_weather(self) -> NetworkConditions:
        chance = self.chance
        slowest_s, loss = chance.choice([0.0, 0.005, 0.1]), chance.choice([0.0, 0.0, 0.0, 0.001])
        return NetworkConditions(0.0, slowest_s, chance.choice([1500, 65_536, 65_536]), loss)

    def _clients(self) -> list[PairClient]:
        clients: list[Any] = []
        for number, operator in enumerate(self.operators):
            for queue_id in range(self.habits.queues):
                client = self._client_of(operator, f"10.1.{number}.{queue_id + 1}")
                clients.append(Sender(self, operator.pair, client, queue_id, self.habits))
            client = self._client_of(operator, f"10.1.{number}.100")
            clients.append(Reader(self, operator.pair, client, self.habits.queues))
            more = (
                (SlaveReader, self.features.slave_reads),
                (LedgerDriver, self.features.ledger),
                (LateReader, self.features.retention),
            )
            for host, kind in enumerate((kind for kind, is_wanted in more if is_wanted), 101):
                client = self._client_of(operator, f"10.1.{number}.{host}")
                clients.append(kind(self, operator.pair, client, self.habits.queues))
        return clients

    def _client_of(self, operator: PairOperator, host: str) -> Client:
        self._client_hosts[operator.pair].append(host)
        return Client(self.network.at(host), self.clock)

    # what clients and operators see

    def nodes_of(self, pair: str) -> list[Node]:
        return next(operator.nodes for operator in self.operators if operator.pair == pair)

    def next_name(self, pair: str) -> str:
        self._serial += 1
        return f"{pair}-{self._serial:05d}"

    # a life

    async def _live(self) -> None:
        seldom = {
            self.fail_master: 4,
            self.fail_slave: 3,
            self.fail_all: 1,
            self.destroy_master: 1,
            self.restart_in_order: 1,
            self.part: 3,
            self.part_client: 2,
            self.break_connections: 2,
            self.stall_disk: 1,
            self.set_clock: 1,
            self.lose_master_and_power: 1,
            self.restart_name_server: 1,
        }
        weights = {what: times for what, times in seldom.items() if self.chance.random() < 0.6}
        weights |= {self.wait: 6, self.wait_long: 2, self.look: 2, self.make_topic: 2}
        weights |= {self.make_topic_and_promote: 1}
        if self.features.retention:
            weights |= {self.delete_old_files: 4, self.replace_slave: 2, self.outlast_slave: 2}
        actions, times = list(weights), list(weights.values())
        for _ in range(self.chance.randint(6, 16)):
            operator = self.chance.choice(self.operators)
            await self.chance.choices(actions, times)[0](operator)

    async def _watch_slaves(self) -> None:
        """Notes the time in which a slave does not follow: it does not get tables then."""
        while True:
            for operator in self.operators:
                slaves = operator.slaves
                found = [await operator.status(slave) for slave in slaves]
                for slave, status in zip(slaves, found, strict=True) if self.features.retention else ():
                    if status is not None and not slave.is_master:
                        is_complete = status.state == "following" and not status.missing
                        self.witness.look_at(slave, operator.master, is_complete)
                if not all(one is not None and one.state == "following" for one in found):
                    now = self.clock.monotonic()
                    self.history.add(Fault(now - 2 * WATCH_S, now + 2 * WATCH_S, operator.pair))
            await asyncio.sleep(WATCH_S)

    async def wait(self, operator: PairOperator) -> None:
        await asyncio.sleep(self.chance.choice([0.05, 0.5, 2, 4]))

    async def wait_long(self, operator: PairOperator) -> None:
        await asyncio.sleep(self.chance.uniform(8, 20))

    async def look(self, operator: PairOperator) -> None:
        await operator.look_after_slaves()

    async def fail_master(self, operator: PairOperator) -> None:
        """Ends the master; a slave takes over, or it comes back."""
        survival = self.chance.choice([Survival.KEPT, *MACHINE_CRASHES])
        with self._fault(operator):
            old = operator.master
            await operator.kill(old, survival)
            await self._replace_or_restart(operator, old, 0.6)

    async def destroy_master(self, operator: PairOperator) -> None:
        with self._fault(operator):
            old = operator.master
            await operator.destroy(old)
            await self._replace_or_restart(operator, old, 0.9)

    async def _replace_or_restart(self, operator: PairOperator, old: Node, promotes: float) -> None:
        await asyncio.sleep(self.chance.choice([0.0, 0.5, 4]))
        if self.chance.random() < promotes:
            is_replaced = await operator.fail_over()
            if not is_replaced and old.is_new and self.chance.random() < 0.7:
                await operator.fail_over(force=True)
            await asyncio.sleep(self.chance.choice([0.0, 0.5, 6]))
        await operator.restart(old)
        await asyncio.sleep(self.chance.choice([0.0, 3.0]))

    async def fail_slave(self, operator: PairOperator) -> None:
        with self._fault(operator):
            slave = self.chance.choice(operator.slaves)
            await operator.kill(slave, self.chance.choice([Survival.KEPT, *MACHINE_CRASHES]))
            await asyncio.sleep(self.chance.choice([0.0, 0.5, 6]))
            await operator.restart(slave)

    async def fail_all(self, operator: PairOperator) -> None:
        """Ends all brokers of a pair at once; the operator knows which one was the master."""
        survival = self.chance.choice([Survival.KEPT, *MACHINE_CRASHES])
        with self._fault(operator):
            for node in operator.nodes:
                await operator.kill(node, survival)
            await asyncio.sleep(1.0)
            for node in self.chance.sample(operator.nodes, len(operator.nodes)):
                await operator.restart(node)

    async def lose_master_and_power(self, operator: PairOperator) -> None:
        """Ends all machines at once, and the master's disk: its slaves may have lost the end of the log."""
        with self._fault(operator):
            old = operator.master
            for slave in operator.slaves:
                await operator.kill(slave, self.chance.choice(MACHINE_CRASHES))
            await operator.destroy(old)
            for slave in operator.slaves:
                await operator.restart(slave)
            await self._replace_or_restart(operator, old, 1.0)

    async def restart_in_order(self, operator: PairOperator) -> None:
        with self._fault(operator):
            node = self.chance.choice(operator.nodes)
            self.tell(f"{node.name} stops in order")
            await node.stop()
            await asyncio.sleep(self.chance.choice([0.0, 5.0]))
            await operator.restart(node)

    async def part(self, operator: PairOperator) -> None:
        """Parts two hosts, one way or both, for a while."""
        node = self.chance.choice(operator.nodes)
        others = 2 * [other.ip for other in operator.nodes if other is not node]
        others += [address.partition(":")[0] for address in self.name_servers]
        other, one_way = self.chance.choice(others), self.chance.random() < 0.4
        duration_s = self.chance.choice([1.0, 6.0, 30.0])
        self.tell(
            f"nothing passes from {node.ip} to {other}{'' if one_way else ' or back'}, for {duration_s} s"
        )
        self.network.cut(node.ip, other, one_way)
        asyncio.get_running_loop().call_later(duration_s, self.network.join, node.ip, other)
        self._disturb(operator, duration_s + 25)
        await asyncio.sleep(self.chance.choice([0.0, 0.0, duration_s]))

    async def part_client(self, operator: PairOperator) -> None:
        """Parts a client from a broker, one way or both, for a while: requests may stay without answer."""
        node = self.chance.choice(operator.nodes)
        client, one_way = self.chance.choice(self._client_hosts[operator.pair]), self.chance.random() < 0.4
        duration_s, now = self.chance.choice([1.0, 6.0, 30.0]), self.clock.monotonic()
        ends = (client, node.ip) if self.chance.random() < 0.5 else (node.ip, client)
        way = f"from {ends[0]} to {ends[1]}{'' if one_way else ' or back'}"
        self.tell(f"nothing passes {way}, for {duration_s} s")
        self.network.cut(*ends, one_way)
        asyncio.get_running_loop().call_later(duration_s, self.network.join, *ends)
        self.history.add(Muted(now, now + duration_s, operator.pair, node.name))
        await asyncio.sleep(self.chance.choice([0.0, 0.0, duration_s]))

    async def break_connections(self, operator: PairOperator) -> None:
        node = self.chance.choice(operator.nodes)
        self.tell(f"all connections of {node.name} break")
        self._disturb(operator, 5)
        self.network.break_connections(node.ip)

    async def stall_disk(self, operator: PairOperator) -> None:
        node = self.chance.choice(operator.nodes)
        seconds = self.chance.choice([0.5, 2.0, 8.0])
        self.tell(f"the disk of {node.name} stalls for {seconds} s")
        self._disturb(operator, seconds + 10)
        if node.is_up:
            node.workers.stall(seconds)

    async def set_clock(self, operator: PairOperator) -> None:
        node, jump_ms = self.chance.choice(operator.nodes), self.chance.choice([-5_000, -300, 2_000, 60_000])
        self.tell(f"the clock of {node.name} is set by {jump_ms} ms")
        self.jumps_ms[operator.pair] += abs(jump_ms)
        node.clock.jump(jump_ms)

    async def make_topic(self, operator: PairOperator) -> None:
        """Creates a topic without messages: only the table has it."""
        self._serial += 1
        topic, queues = f"made-{self._serial}", self.chance.randint(1, 8)
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "perm": "6",
            "writeQueueNums": str(queues), "topicFilterType": "SINGLE_TAG", "order": "false",
        }  # fmt: skip
        command = Command(int(RequestCode.UPDATE_AND_CREATE_TOPIC), ext=fields)
        try:
            answer = await self.tool.call(operator.master.address, command, 5.0)
        except OSError:
            return
        if answer.code == ResponseCode.SUCCESS:
            self.tell(f"{operator.master.name} has topic {topic}")
            self.history.add(Made(self.clock.monotonic(), operator.pair, topic, queues))

    async def make_topic_and_promote(self, operator: PairOperator) -> None:
        """Creates a topic, and has a slave take over soon after the topic must have reached it."""
        await self.make_topic(operator)
        await asyncio.sleep(SETTLED_S + 0.5)
        with self._fault(operator):
            old = operator.master
            await operator.kill(old, Survival.KEPT)
            await self._replace_or_restart(operator, old, 1.0)

    async def delete_old_files(self, operator: PairOperator) -> None:
        """Asks the brokers of a pair to delete expired files, whatever the hour, as `mqadmin` does."""
        for node in self.chance.sample(operator.nodes, len(operator.nodes)):
            if node.is_up and await retention.ask_to_delete(self.tool, node):
                self.tell(f"{node.name} may delete expired files at any hour")

    async def replace_slave(self, operator: PairOperator) -> None:
        """Has a slave begin with an empty disk, when its master may have deleted the first files."""
        with self._fault(operator):
            await operator.replace(self.chance.choice(operator.slaves))
        await asyncio.sleep(self.chance.choice([0.0, 3.0, 8.0]))

    async def outlast_slave(self, operator: PairOperator) -> None:
        """Keeps a slave down until its master may have deleted all that it has."""
        with self._fault(operator):
            slave = self.chance.choice(operator.slaves)
            await operator.kill(slave, self.chance.choice([Survival.KEPT, *MACHINE_CRASHES]))
            await self.delete_old_files(operator)
            await asyncio.sleep(slave.config.store.file_reserved_hours + self.chance.choice([2.0, 10.0]))
            await operator.restart(slave)

    async def restart_name_server(self, operator: PairOperator) -> None:
        number = self.chance.randrange(len(self._servers))
        self.tell(f"name server {number} restarts")
        for one in self.operators:
            self._disturb(one, 15)
        await self._servers[number].stop()
        await asyncio.sleep(self.chance.choice([0.0, 3.0]))
        self._servers[number] = self._name_server(self.name_servers[number].partition(":")[0])
        await self._servers[number].start()

    # the end

    async def _settle(self, senders: list[asyncio.Task[None]]) -> list[PairEnd]:
        """Ends all faults, then the senders, and waits until everything has come to rest."""
        self.tell("calm from now on")
        self.network.conditions = PERFECT
        for reader in self.slave_readers:
            reader.is_calm = True
        hosts = [node.ip for operator in self.operators for node in operator.nodes]
        hosts += [address.partition(":")[0] for address in self.name_servers]
        hosts += [host for of_pair in self._client_hosts.values() for host in of_pair]
        for one in hosts:
            for other in hosts:
                self.network.join(one, other)
        for operator in self.operators:
            for node in operator.nodes:
                await operator.restart(node)
        if not await settled(self.operators, SETTLED_WITHIN_S):
            self.tell("the slaves do not follow")
        await asyncio.sleep(3.0)  # what is sent now must be answered, and copied
        for sender in senders:
            sender.cancel()
        await asyncio.sleep(QUIET_S + max(self.jumps_ms.values()) / 1000)
        await settled(self.operators, 10.0)
        self.winners = {pair: await driver.end_all() for pair, driver in self.drivers.items()}
        if self.winners:
            await settled(self.operators, 10.0)
        return [await self._end_of(operator) for operator in self.operators]

    async def _end_of(self, operator: PairOperator) -> PairEnd:
        master = operator.master
        begin, records = master.first_offset, [one for one, _ in master.log()]
        slaves = []
        for slave in operator.slaves:
            status = await operator.status(slave)
            end, equal = slave.store.replica.end, slave.first_offset
            for one, data in slave.log():
                if one.physical_offset >= begin and not master.holds(one.physical_offset, data):
                    break
                equal = one.physical_offset + one.size
            state = status.state if status is not None else "silent"
            slaves.append(SlaveEnd(slave.name, state, end, equal, slave.first_offset))
        queues = range(self.habits.queues)
        return PairEnd(
            pair=operator.pair,
            log=tuple(retention.stored(one) for one in records),
            log_begin=begin,
            log_end=master.store.log.end,
            readable={queue_id: readable(master, queue_id) for queue_id in queues},
            offsets=master.committed(),
            topics=master.topics(),
            slaves=tuple(slaves),
            slave_group=master.committed(MARKS),
            winners=self.winners.get(operator.pair),
            clock_jumps_ms=self.jumps_ms[operator.pair],
        )

    async def _close(self, clients: list[asyncio.Task[None]]) -> None:
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await self.tool.close()
        for operator in self.operators:
            for node in operator.nodes:
                await node.stop()
        for server in self._servers:
            await server.stop()
        for surprise in self.surprises:
            self.history.add(Broken(self.clock.monotonic(), "surprise", repr(surprise)))

    # notes

    def tell(self, line: str) -> None:
        self.history.tell(self.clock.monotonic(), line)

    def _disturb(self, operator: PairOperator, for_s: float) -> None:
        now = self.clock.monotonic()
        self.history.add(Fault(now, now + for_s, operator.pair))

    def _fault(self, operator: PairOperator) -> "_FaultTime":
        return _FaultTime(self, operator)

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        if (node := running.get()) != "world":
            self.tasks.setdefault(node, []).append(task)
        return task

    def _note_surprise(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        exception = context.get("exception")
        if not isinstance(exception, PowerCut):
            self.surprises.append(exception or RuntimeError(context["message"]))


class _FaultTime:
    """Notes the time of a fault and a while after it."""

    def __init__(self, world: ClusterWorld, operator: PairOperator) -> None:
        self._world, self._operator = world, operator

    def __enter__(self) -> None:
        self._begin = self._world.clock.monotonic()

    def __exit__(self, *_: object) -> None:
        until = self._world.clock.monotonic() + 5
        self._world.history.add(Fault(self._begin, until, self._operator.pair))


def readable(master: Node, queue_id: int) -> tuple[str, ...]:
    """Returns the names of the messages that a queue of the topic shows."""
    names: list[str] = []
    queue = master.store.queues.find(TOPIC, queue_id)
    offset = 0 if queue is None else queue.min_offset
    while queue is not None and offset < queue.max_offset:
        found = master.store.reader.get(queue, offset, 32, 1 << 20, None)
        if not found.count:
            break
        offset = found.next_offset
        names.extend(name_of(one.body) for one in record.decode_all(found.body))
    return tuple(names)
