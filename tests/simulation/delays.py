"""Simulates delayed messages and retries through crashes: a store, the delay parts of a broker, and faults.

Every append is recorded. After a crash the log is a prefix of the recorded appends, and the lost ones are
removed from the record. Guarantees for every stored delayed message:

    nothing is delivered before its time
    the log has one delivered copy: not two, and in the end not none, unless the log lost the message itself
    before it was synced
    in a run without faults it is at most a tick late

Deliveries that a consumer may see twice, because the first copy was lost in a crash, are counted.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from tests.simulation.constants import restored
from tests.simulation.crashing_store import Action, CrashingStore
from tests.writers import writer_of

from turbopump.broker.config import BrokerIdentity, GroupRules, TopicRules
from turbopump.broker.consume.send_back import SendBackHandler
from turbopump.broker.delay import levels
from turbopump.broker.delay.level_records import DelaySchedule
from turbopump.broker.delay.levels import FILE, TICK_S, DelayedMessages
from turbopump.broker.groups.groups import SubscriptionGroups
from turbopump.broker.topics import Topic, TopicTable
from turbopump.protocol import properties as props
from turbopump.protocol.command import Command
from turbopump.protocol.errors import Refused
from turbopump.protocol.headers.send import ConsumerSendMsgBackRequest
from turbopump.protocol.names import SCHEDULE_TOPIC
from turbopump.protocol.properties import REAL_QUEUE_ID
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Request
from turbopump.store.append import Appended, Draft
from turbopump.store.config import StoreConfig
from turbopump.store.config_files import ConfigFiles
from turbopump.testing.loop import run_virtual

LEVELS = ("1s 3s 8s", "1s 3s 8s 30s", "8s 1s", "2s", "30s 1s 3s 1s", "3s 8s 1s 2s 5s")
GROUP, MAX_RETRIES = "G", 4
SAVE_S = 2.0
ACTION_S = 60.0
START_S = 1.5  # after a start, overdue messages are delivered within this time
LATE_MS = round(1000 * TICK_S)

log = logging.getLogger(__name__)


def run(seed: int) -> None:
    """Runs a seed. Raises AssertionError for a broken guarantee."""
    with restored(levels):
        run_virtual(DelaySimulation(seed).run())


Name = tuple[bytes, int]
"""Which message it is: its body, and the round of its retries."""


@dataclass(slots=True)
class AppendedRecord:
    """One appended record of a message: delayed or delivered."""

    name: Name
    begin: int
    end: int
    at_ms: int
    due_ms: int | None  # None: a delivered copy


class DelaySimulation(CrashingStore):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        levels.ENTRIES_PER_TURN, levels.RECORDS_PER_TURN, levels.BATCH = self.chance.choice(
            [(2, 3, 2), (4096, 4096, 256)]
        )
        self.config = self._any_config()
        self.runs = self.chance.randint(2, 5)
        self.noted: list[AppendedRecord] = []  # in log order
        self.first_due_ms: dict[Name, int] = {}
        self.repeats = 0

    async def run(self) -> None:
        self.begin()
        for _ in range(self.runs):
            await self._live()
            self.config = replace(self.config, message_delay_levels=self.chance.choice(LEVELS))
            await asyncio.sleep(self.chance.choice([0, 0, 5]))
        await self._last_life()
        log.info("%d messages, %d repeats", len(self.first_due_ms), self.repeats)
        self.check_surprises()

    # --- runs ---

    async def _live(self) -> None:
        is_calm = self.chance.random() < 0.4
        self._open(is_calm)
        actions: list[Action] = (
            [self.send] * 5 + [self.wait] * 4 + [self.send_back] * 3 + [self.fill, self.delete_files]
        )
        if not is_calm:
            actions += self._misfortunes()
        await self._act(actions, [1, 20, 50])
        if is_calm:
            self._check_punctual()
        await self._end()

    async def _last_life(self) -> None:
        """Runs without faults until every delayed message is due."""
        self._open(is_calm=True)
        latest = max(self.first_due_ms.values(), default=0)
        await asyncio.sleep(max(0, latest - self.clock.now_ms()) / 1000 + START_S + 1)
        self._check_delivered(all_of_them=True)
        assert not list(self.delays._pending.runs()), "something still waits"
        await self._stop()

    def _open(self, is_calm: bool) -> None:
        self._renew_disk()
        store = self._open_store()
        topics = TopicTable(TopicRules(), BrokerIdentity(broker_name="a"), self.clock)
        topics.update(Topic("T", 4, 4), {})
        files = ConfigFiles(self.config.config_dir, self.disk)
        self.schedule = DelaySchedule(store)
        writer = writer_of(store, self.clock)
        self.delays = DelayedMessages(store, topics, writer, files.save, self.workers, self.clock)
        files.load(FILE, lambda data: self.delays.load(data) >= 0)
        self.delays.open()
        self.schedule.on_postponed = self.delays.postponed
        store.retention.guards.append(self.delays.rescue)
        groups = SubscriptionGroups(GroupRules(), self.clock)
        self.retries = SendBackHandler(store, topics, groups, self.schedule, writer, self.chance, "127.0.0.1")
        self._start_store()
        self.tasks = [asyncio.create_task(self.delays.run()), asyncio.create_task(self.delays.keep(SAVE_S))]
        self.opened_ms = self.clock.now_ms()
        log.info(
            "opened: %d..%d, levels %s", store.log.min_offset, store.log.end, self.config.message_delay_levels
        )

    async def _close_parts(self) -> None:
        await self.delays.close()

    # --- actions ---

    async def send(self) -> None:
        for _ in range(self.chance.choice([1, 1, 3, 10])):
            self.serial += 1
            body = b"%d " % self.serial + bytes(self.chance.choice([0, 100, 1000]))
            pairs = {props.UNIQUE_KEY: f"ID{self.serial}"}
            level = self.chance.randint(1, 6)
            queue, delay_ms = self.schedule.postpone(pairs, level, "T", self.chance.randint(0, 5))
            draft = Draft(
                queue,
                body,
                props.pack(pairs).encode(),
                0,
                0,
                self.clock.now_ms(),
                bytes(8),
                delay_ms=delay_ms,
            )
            with contextlib.suppress(Refused):
                self.store.log.append([draft])
                self.schedule.on_postponed(queue)

    async def send_back(self) -> None:
        """Sends a delivered message back, as a consumer that failed."""
        found = [
            one for one in self.noted[-200:] if one.due_ms is None and one.begin >= self.store.log.min_offset
        ]
        if not found:
            return
        one = self.chance.choice(found)
        body, times = one.name
        if times > MAX_RETRIES or any(other.name == (body, times + 1) for other in self.noted):
            return  # a dead letter or sent back before
        level = self.chance.choice([0, 0, 1, 2])
        header = ConsumerSendMsgBackRequest(one.begin, GROUP, level, maxReconsumeTimes=MAX_RETRIES)
        request = Request(Command(36), header, cast(Connection, _FakeConnection()))
        with contextlib.suppress(Refused):
            self.retries.send_back(request)

    # --- recording ---

    def _note(self, drafts: Sequence[Draft], appended: Sequence[Appended]) -> None:
        now_ms = self.clock.now_ms()
        for draft, (begin, _, size) in zip(drafts, appended, strict=True):
            if draft.queue.topic == "Plain":
                continue
            due_ms = None
            name = draft.body, draft.reconsume_times
            if draft.queue.topic == SCHEDULE_TOPIC:
                due_ms = draft.tags_code if draft.delay_ms < 0 else now_ms + draft.delay_ms
                known = self.first_due_ms.setdefault(name, due_ms)
                assert known == due_ms, f"{name} had another time before it was written anew"
            elif (
                props.find(draft.properties, REAL_QUEUE_ID) is not None and draft.prepared_transaction_offset
            ):
                assert now_ms >= self.first_due_ms[name], f"{name} is early"
            self.noted.append(AppendedRecord(name, begin, begin + size, now_ms, due_ms))

    def _strike_out(self, log_end: int) -> None:
        """Removes what the crash lost; a message lost before it was synced is forgotten."""
        lost = [one for one in self.noted if one.end > log_end]
        assert all(one.begin >= self.synced for one in lost), "a synced record is lost"
        del self.noted[len(self.noted) - len(lost) :]
        self.repeats += sum(1 for one in lost if one.due_ms is None)
        left = {one.name for one in self.noted}
        for one in lost:
            if one.name not in left:
                self.first_due_ms.pop(one.name, None)
        self._check_delivered(all_of_them=False)

    # --- checking ---

    def _check_delivered(self, all_of_them: bool) -> None:
        copies: dict[Name, int] = defaultdict(int)
        for one in self.noted:
            if one.due_ms is None:
                copies[one.name] += 1
        for name, count in copies.items():
            assert count == 1, f"{name} was delivered {count} times"
        if all_of_them:
            missing = [name for name in self.first_due_ms if name not in copies]
            assert not missing, f"{len(missing)} were never delivered, {missing[0]} for one"

    def _check_punctual(self) -> None:
        """Checks a run without faults: due messages are delivered in time, overdue ones soon."""
        delivered = {one.name: one.at_ms for one in self.noted if one.due_ms is None}
        now_ms = self.clock.now_ms()
        for name, due_ms in self.first_due_ms.items():
            latest = max(due_ms + LATE_MS, self.opened_ms + round(1000 * START_S))
            if latest < now_ms:
                assert name in delivered, f"{name} was due at {due_ms}, it is {now_ms}"
            if due_ms > self.opened_ms + 1000 * START_S and name in delivered:
                late_ms = delivered[name] - due_ms
                assert late_ms <= LATE_MS, f"{name} was {late_ms} ms late"

    def _any_config(self) -> StoreConfig:
        chance = self.chance
        return StoreConfig(
            root_dir="/store",
            commit_log_file_size=chance.choice([10_000, 32_768]),
            consume_queue_file_size=chance.choice([100, 400, 2_000]),
            index_enabled=False,
            message_delay_levels=chance.choice(LEVELS),
            flush_disk_type=chance.choice(["SYNC_FLUSH", "ASYNC_FLUSH", "ASYNC_FLUSH"]),
            transient_pool=chance.random() < 0.2,
            flush_least_pages=chance.choice([0, 4]),
            checkpoint_interval_ms=chance.choice([500, 2_000, 10_000]),
            open_log_files=chance.choice([2, 64]),
            open_queue_files=chance.choice([2, 512]),
        )


class _FakeConnection:
    """The part of a connection that an answer needs."""

    def begin(self, size: int) -> None: ...
    def end(self, size: int) -> None: ...
    def reply(self, request: Command, response: Command) -> None: ...
