"""Simulates consumer groups: consumers join, leave and die, the broker too, and offsets are reset.

A real broker on a disk that loses unsynced writes, a network with delays, breaks and cuts, and small model
consumers (`consumers.py`). Guarantees, checked throughout and at the end:

- at least once: every group handled all messages in the log at the end, unless a reset skipped them;
- in order: an ordered group begins a message when all before it in its queue are handled, and no queue is
  handled by two ordered consumers at once (except for locks lost with a killed broker);
- no offset beyond the log;
- a group that was reset to the beginning, and had a minute without faults, handles everything again.
"""

import asyncio
import contextlib
import logging
import random
from collections import defaultdict
from collections.abc import Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from tests.simulation.consumers import BROKER_NAME, TOPIC, AssignedQueue, Consumer, GroupBehaviour

from turbopump.broker.config import BrokerConfig, BrokerIdentity, ListenConfig, NameServerConfig, OffsetRules
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.server import Broker
from turbopump.protocol import properties, record
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.store.config import StoreConfig
from turbopump.store.store import Store
from turbopump.testing.disk import PowerCut, SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.testing.network import PERFECT, MemoryNetwork, NetworkConditions
from turbopump.testing.simulated_files import Survival

log = logging.getLogger(__name__)

BROKER_IP, TOOL_IP = "10.0.0.1", "10.0.0.2"
PORT = 10911
ADDRESS = f"{BROKER_IP}:{PORT}"
DRAINED_WITHIN_S = 600.0  # after the last fault: locks and memberships of killed consumers expire first
MAX_CONSUMERS = 5  # per group
SETTLED_S = 0.5  # of changes in quick succession, only the first is on disk when it is answered

who: ContextVar[str] = ContextVar("who", default="world")


def run(seed: int) -> None:
    """Runs a seed. Raises AssertionError for a broken guarantee."""
    run_virtual(GroupSimulation(seed).run())


@dataclass(slots=True)
class Progress:
    """Messages that a group has handled, and those it may skip because of a reset."""

    plan: GroupBehaviour
    done: set[bytes] = field(default_factory=set)
    excused: set[bytes] = field(default_factory=set)
    frontier: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Queue -> the first offset that is neither done nor excused, as far as it was looked."""
    at_work: dict[int, tuple[Consumer, int]] = field(default_factory=dict)
    """Queue -> who handles it, with a lock from which life of the broker."""
    being_reset: int = 0
    resets: int = 0
    repeats: int = 0
    begun: dict[bytes, float] = field(default_factory=dict)  # time of the last start
    due_again: dict[bytes, float] = field(default_factory=dict)  # since the reset that requires it


class GroupSimulation:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.groups: list[Progress] = []
        self.consumers: list[Consumer] = []
        self.queues = self.chance.randint(1, 4)
        self.bodies: dict[int, list[bytes]] = defaultdict(list)  # queue -> bodies by offset
        self.promised: set[bytes] = set()  # acknowledged as on disk
        self.serial = self.life = 0
        self.is_up = False
        self.disturbed = 0.0  # last time of an event that can lose a reset
        self.surprises: list[BaseException] = []
        self.broken: list[str] = []
        self._broker_tasks: list[asyncio.Task[Any]] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._note_surprise)
        loop.set_task_factory(self._new_task)
        self.clock = VirtualClock()
        self.disk = SimulatedDisk(self.chance, self.clock)
        self.network = MemoryNetwork(self.chance, self._any_weather())
        self.config = self._any_config()
        self.tool = Client(self.network.at(TOOL_IP), self.clock)
        log.info("%s, %d queues, %s", self.config.store.flush_disk_type, self.queues, self.network.conditions)
        await self._start_broker()
        await self._shape_topic()
        for number in range(self.chance.choice([1, 1, 2])):
            self.groups.append(Progress(self._any_plan(f"G{number}")))
            for _ in range(self.chance.randint(1, 3)):
                await self.join()
        await self._live()
        await self._settle()
        self._check_all_handled()
        await self._end()

    # --- a run ---

    async def _live(self) -> None:
        often = {self.send: 30, self.wait: 12}
        seldom = {
            self.wait_long: 2,
            self.join: 3,
            self.leave: 2,
            self.kill_consumer: 2,
            self.break_connections: 2,
            self.cut_off: 1,
            self.reset: 2,
            self.stop_broker: 1,
            self.kill_broker: 1,
            self.fail_power: 1,
            self.scale_out: 1,
        }
        weights = often | {what: times for what, times in seldom.items() if self.chance.random() < 0.6}
        actions, times = list(weights), list(weights.values())
        for _ in range(self.chance.randint(20, 80)):
            await self.chance.choices(actions, times)[0]()
            self._check_offsets()

    async def _settle(self) -> None:
        """Runs without faults until all consumers have had enough time."""
        self.network.conditions = PERFECT
        for consumer in self.consumers:
            self.network.join(BROKER_IP, _ip(consumer))
        for progress in self.groups:
            if not any(consumer.plan is progress.plan for consumer in self.consumers):
                await self.join(progress)
        log.info("calm from now on")
        began = self.clock.monotonic()
        while self.clock.monotonic() - began < DRAINED_WITHIN_S:
            await asyncio.sleep(5)
            self._check_offsets()
            if not any(self._unhandled(one) or self._missed_repeats(one) for one in self.groups):
                return

    async def _end(self) -> None:
        for consumer in list(self.consumers):
            await consumer.leave()
        await self.tool.close()
        await self.broker.stop()
        assert not self.surprises, f"an unforeseen exception: {self.surprises[0]!r}"

    # --- actions ---

    async def send(self) -> None:
        """Sends one message, sometimes several to one queue; the result may stay unknown."""
        queue_id = self.chance.randrange(self.queues)
        for _ in range(self.chance.choice([1, 1, 1, 5])):
            self.serial += 1
            body = b"%06d" % self.serial
            request = Command(RequestCode.SEND_MESSAGE_V2, ext=_letters(queue_id), body=body)
            try:
                answer = await self.tool.call(ADDRESS, request, 3)
            except OSError:
                return
            if answer.code == ResponseCode.SUCCESS and (answer.ext or {}).get("durability") == "disk":
                self.promised.add(body)

    async def wait(self) -> None:
        await asyncio.sleep(self.chance.choice([0.01, 0.3, 1, 3]))

    async def wait_long(self) -> None:
        await asyncio.sleep(self.chance.uniform(10, 70))

    async def join(self, progress: Progress | None = None) -> None:
        progress = progress or self.chance.choice(self.groups)
        if sum(consumer.plan is progress.plan for consumer in self.consumers) >= MAX_CONSUMERS:
            return
        self._disturb()  # during a rebalance two pull from a queue, and only one is notified of a reset
        self.serial += 1
        ip = f"10.1.{self.serial // 250}.{self.serial % 250}"
        network = self.network.at(ip)
        consumer = Consumer(f"{ip}@1", progress.plan, ADDRESS, network, self.clock, self.chance, self)
        self.consumers.append(consumer)
        consumer.start()

    async def leave(self) -> None:
        """Makes a consumer leave. Its last commit may precede a reset under way, and so undo it."""
        if consumer := self._any_consumer():
            if self.network.conditions.max_delay_s or not consumer.plan.is_5x:
                self._disturb()
            await consumer.leave()

    async def kill_consumer(self) -> None:
        """Kills a consumer, perhaps with its machine: the broker notices missing heartbeats."""
        if consumer := self._any_consumer():
            self._disturb()
            await consumer.die()
            if self.chance.random() < 0.5:
                self.network.cut(BROKER_IP, _ip(consumer))
            else:
                self.network.unplug(_ip(consumer))

    async def break_connections(self) -> None:
        self._disturb()
        if self.consumers:
            self.network.break_connections(_ip(self.chance.choice(self.consumers)))

    async def cut_off(self) -> None:
        self._disturb(for_s=150)
        if self.consumers:
            ip = _ip(self.chance.choice(self.consumers))
            self.network.cut(BROKER_IP, ip)
            log.info("%s is cut off", ip)
            again_s = self.chance.choice([2, 20, 50, 140])
            asyncio.get_running_loop().call_later(again_s, self.network.join, BROKER_IP, ip)

    async def reset(self) -> None:
        progress = self.chance.choice(self.groups)
        timestamp = self.chance.choice([-1, 0, self.clock.now_ms() - self.chance.randint(0, 60_000)])
        fields = {"topic": TOPIC, "group": progress.plan.name, "timestamp": str(timestamp), "isForce": "true"}
        log.info("%s is reset to %d", progress.plan.name, timestamp)
        progress.being_reset += 1
        progress.resets += 1
        progress.due_again.clear()
        request = Command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext=fields)
        try:
            answer = await self.tool.call(ADDRESS, request, 5)
            if not timestamp and answer.code == ResponseCode.SUCCESS and self.config.offsets.reset_here:
                self._expect_repeats(progress)
        except OSError as error:
            log.info("... perhaps: %s", error)
        finally:
            progress.being_reset -= 1
            if timestamp:
                self._excuse_all(progress)

    def _expect_repeats(self, progress: Progress) -> None:
        self._read_on()
        now, number = self.clock.monotonic(), progress.resets
        due = {body: now for bodies in self.bodies.values() for body in bodies}

        def quiet_minute_is_over() -> None:
            if self.disturbed < now and progress.resets == number and not self.network.conditions.loss:
                progress.due_again.update(due)

        asyncio.get_running_loop().call_later(60, quiet_minute_is_over)

    async def stop_broker(self) -> None:
        log.info("the broker stops")
        self._disturb()
        self.is_up = False
        await self.broker.stop()
        await asyncio.sleep(self.chance.choice([0.1, 5, 40]))
        await self._start_broker()

    async def kill_broker(self) -> None:
        await self._crash(Survival.KEPT)

    async def fail_power(self) -> None:
        await self._crash(self.chance.choice([Survival.LOST, Survival.RANDOM, Survival.PREFIX]))

    async def scale_out(self) -> None:
        self.queues = min(self.queues + self.chance.randint(1, 2), 6)
        await self._shape_topic()

    # --- the broker ---

    async def _start_broker(self) -> None:
        self.life += 1
        workers = SimulatedWorkers(self.disk)
        network = self.network.at(BROKER_IP)
        self.broker = Broker(
            self.config, network, self.clock, self.disk, workers, self.chance, lambda: BROKER_IP
        )
        token = who.set("broker")
        try:
            with mock.patch("turbopump.broker.tables.CommittedOffsets", self._new_offsets):
                await asyncio.create_task(self.broker.start())
        finally:
            who.reset(token)
        self.is_up = True
        self._read_again()

    def _new_offsets(self, *args: Any) -> CommittedOffsets:
        self.offsets = CommittedOffsets(*args)
        return self.offsets

    async def _crash(self, survival: Survival) -> None:
        log.info("the broker dies: %s", survival.name)
        self._disturb()
        self.is_up = False
        self.network.unplug(BROKER_IP)
        self.disk = self.disk.crash(survival)
        tasks = [task for task in self._broker_tasks if not task.done()]
        self._broker_tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(self.chance.choice([0.1, 5, 40]))
        await self._start_broker()

    async def _shape_topic(self) -> None:
        fields = {
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "readQueueNums": str(self.queues),
            "writeQueueNums": str(self.queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        }
        while True:
            with contextlib.suppress(OSError):
                request = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=fields)
                if (await self.tool.call(ADDRESS, request, 5)).code == ResponseCode.SUCCESS:
                    await asyncio.sleep(SETTLED_S)
                    return
            await asyncio.sleep(0.1)

    @property
    def store(self) -> Store:
        store = self.broker._store
        assert store is not None
        return store

    # --- events of consumers ---

    def read_queues(self) -> int:
        return self.queues

    def life_of_broker(self) -> int:
        return self.life

    def begins(self, consumer: Consumer, taken: AssignedQueue, offset: int, body: bytes) -> None:
        progress = self._progress(consumer)
        progress.begun[body] = self.clock.monotonic()
        if body in progress.done:
            progress.repeats += 1
        if not consumer.plan.orderly:
            return
        queue_id = taken.queue_id
        other = progress.at_work.get(queue_id)
        if other is not None and other[0] is not consumer and other[1] == taken.locked_in:
            self._break(f"{consumer.client_id} and {other[0].client_id} are both at work on queue {queue_id}")
        progress.at_work[queue_id] = consumer, taken.locked_in
        if body not in progress.done and not progress.being_reset:
            self._check_order(progress, queue_id, offset, body)

    def ends(self, consumer: Consumer, taken: AssignedQueue, offset: int, body: bytes, done: bool) -> None:
        progress = self._progress(consumer)
        if done:
            progress.done.add(body)
        if progress.at_work.get(taken.queue_id, (None, 0))[0] is consumer:
            del progress.at_work[taken.queue_id]

    # --- guarantees ---

    def _check_order(self, progress: Progress, queue_id: int, offset: int, body: bytes) -> None:
        """Checks that earlier messages are handled, except those lost in a crash but cached."""
        self._read_on()
        bodies = self.bodies[queue_id]
        if offset >= len(bodies) or bodies[offset] != body:
            return
        first = self._advance(progress, queue_id)
        if offset > first:
            self._break(
                f"{progress.plan.name} begins offset {offset} of queue {queue_id} before {first} "
                f"({bodies[first].decode()})"
            )

    def _advance(self, progress: Progress, queue_id: int) -> int:
        bodies = self.bodies[queue_id]
        first = progress.frontier[queue_id]
        while first < len(bodies) and (bodies[first] in progress.done or bodies[first] in progress.excused):
            first += 1
        progress.frontier[queue_id] = first
        return first

    def _check_offsets(self) -> None:
        """Checks the committed offsets in the broker's table."""
        if self.broken:
            raise AssertionError(self.broken[0])
        for progress in self.groups:
            for queue_id in range(self.queues):
                offset = self.offsets.query(progress.plan.name, TOPIC, queue_id)
                queue = self.store.queues.find(TOPIC, queue_id)
                end = queue.max_offset if queue is not None else 0
                name = progress.plan.name
                assert offset <= end, f"{name} is at {offset} of queue {queue_id}, which ends at {end}"

    def _check_all_handled(self) -> None:
        held = {body for bodies in self.bodies.values() for body in bodies}
        lost = self.promised - held
        assert not lost, f"promised to be on disk, and gone: {sorted(lost)[:5]}"
        for progress in self.groups:
            left = self._unhandled(progress)
            assert not left, f"{progress.plan.name} never handled (queue, offset): {left[:5]}"
            missed = self._missed_repeats(progress)
            assert not missed, f"{progress.plan.name} was reset, and did not handle again: {missed[:5]}"

    def _missed_repeats(self, progress: Progress) -> list[bytes]:
        held = {body for bodies in self.bodies.values() for body in bodies}
        begun, due = progress.begun, progress.due_again
        return sorted(body for body, since in due.items() if body in held and begun.get(body, 0) < since)

    def _unhandled(self, progress: Progress) -> list[tuple[int, int]]:
        self._read_on()
        return [
            (queue_id, offset)
            for queue_id, bodies in sorted(self.bodies.items())
            for offset, body in enumerate(bodies)
            if offset >= progress.frontier[queue_id]
            and body not in progress.done
            and body not in progress.excused
        ]

    def _excuse_all(self, progress: Progress) -> None:
        """Excuses all messages: a reset may have skipped them."""
        self._read_on()
        for bodies in self.bodies.values():
            progress.excused.update(bodies)

    # --- the current log ---

    def _read_on(self) -> None:
        if not self.is_up:
            return
        for queue_id in range(self.queues):
            queue = self.store.queues.find(TOPIC, queue_id)
            bodies = self.bodies[queue_id]
            end = queue.max_offset if queue is not None else 0
            while queue is not None and len(bodies) < end:
                found = self.store.reader.get(queue, len(bodies), 32, 1 << 20, None)
                if not found.count:
                    break
                bodies.extend(one.body for one in record.decode_all(found.body))

    def _read_again(self) -> None:
        """Reads the log again: a crash may have lost its end, and other messages replace it."""
        self.bodies.clear()
        self._read_on()
        for progress in self.groups:
            for queue_id, first in progress.frontier.items():
                progress.frontier[queue_id] = min(first, len(self.bodies[queue_id]))

    # --- chance ---

    def _any_config(self) -> BrokerConfig:
        chance = self.chance
        store = StoreConfig(
            root_dir="/store",
            commit_log_file_size=1 << 16,
            consume_queue_file_size=2000,
            index_enabled=False,
            flush_disk_type=chance.choice(["SYNC_FLUSH", "ASYNC_FLUSH"]),
            flush_least_pages=chance.choice([0, 4]),
            flush_interval_ms=chance.choice([100, 500, 3000]),
        )
        return BrokerConfig(
            identity=BrokerIdentity(broker_name=BROKER_NAME),
            listening=ListenConfig(bind_address=BROKER_IP, port=PORT),
            name_servers=NameServerConfig(),
            offsets=OffsetRules(reset_here=chance.random() < 0.7),
            store=store,
        )

    def _any_weather(self) -> NetworkConditions:
        slowest = self.chance.choice([0.0, 0.01, 0.3])
        loss = self.chance.choice([0.0, 0.0, 0.0003, 0.003])
        return NetworkConditions(0.0, slowest, self.chance.choice([64, 1500, 65_536]), loss)

    def _any_plan(self, name: str) -> GroupBehaviour:
        orderly, is_5x = self.chance.random() < 0.5, self.chance.random() < 0.6
        return GroupBehaviour(name, orderly, is_5x, self.chance.choice([0.01, 1.0, 15.0]))

    def _any_consumer(self) -> Consumer | None:
        """Removes and returns a random consumer."""
        if not self.consumers:
            return None
        return self.consumers.pop(self.chance.randrange(len(self.consumers)))

    # --- verbose output ---

    def _progress(self, consumer: Consumer) -> Progress:
        return next(progress for progress in self.groups if progress.plan is consumer.plan)

    def _disturb(self, for_s: float = 0) -> None:
        self.disturbed = max(self.disturbed, self.clock.monotonic() + for_s)

    def _break(self, text: str) -> None:
        log.info("BROKEN: %s", text)
        self.broken.append(text)

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        if who.get() == "broker":
            self._broker_tasks.append(task)
        return task

    def _note_surprise(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        exception = context.get("exception")
        if not isinstance(exception, PowerCut):
            self.surprises.append(exception or RuntimeError(context["message"]))


def _ip(consumer: Consumer) -> str:
    return consumer.client_id.partition("@")[0]


def _letters(queue_id: int) -> dict[str, str]:
    pairs = properties.pack({"UNIQ_KEY": "7F000001000100000000000000000001", "WAIT": "true"})
    rest = {"d": "4", "e": str(queue_id), "f": "0", "g": "0", "h": "0", "i": pairs, "j": "0", "k": "false"}
    return {"a": "PG", "b": TOPIC, "c": "TBW102"} | rest | {"m": "false"}
