"""Simulates timed messages and recalls through crashes: the guarantees of `delays.py`, to the millisecond.

In addition, a message whose recall is in the log is not delivered, unless the recall was late. Between runs
the length of slots, the window and the size of the files change, and sometimes a file is lost.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import cast

from tests.simulation.constants import restored
from tests.simulation.delays import SAVE_S, START_S, AppendedRecord, DelaySimulation, Name
from tests.writers import writer_of

from turbopump.broker.config import BrokerIdentity, TimerRules, TopicRules
from turbopump.broker.delay import levels, timer_recovery, timers
from turbopump.broker.delay.timer_intake import RecallHandler, TimerIntake
from turbopump.broker.delay.timers import FILE, TimedMessages
from turbopump.broker.topics import Topic, TopicTable
from turbopump.protocol import properties as props
from turbopump.protocol.command import Command
from turbopump.protocol.errors import Refused
from turbopump.protocol.headers.send import RecallMessageRequest
from turbopump.protocol.names import TIMER_TOPIC
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Request
from turbopump.store import timer_wheel
from turbopump.store.append import Appended, Draft
from turbopump.store.config_files import ConfigFiles
from turbopump.store.delays import DELIVER_AT
from turbopump.testing.loop import run_virtual

SLOTS = 4_000
LATE_MS = 300  # a repeated recall is first: with a pool, after its next commit
SEEN_AFTER_MS = 400  # a sync or a commit of the pool: messages due sooner may be this late
RECALLED_BEFORE_MS = 8_000  # it is in the wheel long before, even with stalled disks
RECALL = b"recall "

log = logging.getLogger(__name__)


def run(seed: int) -> None:
    """Runs a seed. Raises AssertionError for a broken guarantee."""
    with restored(timer_wheel, timers, timer_recovery, levels):
        timer_wheel.SLOTS = SLOTS
        run_virtual(TimerSimulation(seed).run())


class TimerSimulation(DelaySimulation):
    synced_parts = ("", "commitlog", "timerlog", "consumequeue", "config")

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        timers.MESSAGES_PER_TURN, timers.UNITS_PER_TURN, timers.BATCH = self.chance.choice(
            [(2, 2, 2), (256, 4096, 128)]
        )
        timer_recovery.RECORDS_PER_TURN, timer_recovery.UNITS_PER_TURN = self.chance.choice(
            [(3, 2), (4096, 4096)]
        )
        self.rules = self._any_rules()
        self.handles: dict[Name, str] = {}
        self.sent_ms: dict[Name, int] = {}

    def _any_rules(self) -> TimerRules:
        chance = self.chance
        return TimerRules(
            precision_ms=chance.choice([100, 1000, 1000]),
            roll_window_slots=chance.choice([30, 100]),
            log_file_size=chance.choice([200, 1_000, 20_000]),
        )

    # --- runs ---

    def _open(self, is_calm: bool) -> None:
        self._renew_disk()
        if self.chance.random() < 0.4:
            self.rules = self._any_rules()
        if self.chance.random() < 0.1:
            self.disk.remove_tree(self.chance.choice(["/store/timerwheel", "/store/timerlog"]))
        store = self._open_store()
        topics = TopicTable(TopicRules(), BrokerIdentity(broker_name="a"), self.clock)
        topics.update(Topic("T", 4, 4), {})
        files = ConfigFiles(self.config.config_dir, self.disk)
        writer = writer_of(store, self.clock)
        self.timing = TimerIntake(store, lambda: self.rules, "a", self.clock, self.rules.precision_ms)
        self.timers = TimedMessages(
            store, topics, writer, files.save, self.workers, self.clock, self.disk, self.rules
        )
        files.load(FILE, lambda data: self.timers.load(data) >= 0)
        self.timers.open()
        self.timing.on_postponed = self.timers.postponed
        self.recalls = RecallHandler(
            topics, self.timing, writer, lambda: self.rules, lambda: True, self.clock, "a", "R"
        )
        store.retention.guards.append(self.timers.rescue)
        self._start_store()
        self.tasks = [asyncio.create_task(self.timers.run()), asyncio.create_task(self.timers.keep(SAVE_S))]
        self.opened_ms = self.clock.now_ms()
        log.info("opened: %d..%d, %s", store.log.min_offset, store.log.end, self.rules)

    async def _last_life(self) -> None:
        self._open(is_calm=True)
        latest = max(self.first_due_ms.values(), default=0)
        await asyncio.sleep(max(0, latest - self.clock.now_ms()) / 1000 + START_S + 2)
        self._check_delivered(all_of_them=True)
        assert self.timers.progress().waiting == 0, f"{self.timers.progress().waiting} still wait"
        await self._stop()

    async def _close_parts(self) -> None:
        await self.timers.close()

    # --- actions ---

    async def send(self) -> None:
        for _ in range(self.chance.choice([1, 1, 3, 10])):
            self.serial += 1
            key = f"ID{self.serial}"
            delay_ms = self.chance.choice(
                [1, 999, 1000, self.chance.randint(1, 5_000), self.chance.randint(1, 300_000)]
            )
            pairs = {props.UNIQUE_KEY: key, props.TIMER_DELAY_MS: str(delay_ms)}
            body = b"%d " % self.serial + bytes(self.chance.choice([0, 100, 1000]))
            name = body.split(b" ")[0], 0
            postponed = self.timing.postpone(pairs, "T", self.chance.randint(0, 5))
            assert postponed is not None
            packed = props.pack(pairs).encode() + postponed.suffix
            draft = Draft(postponed.queue, body, packed, 0, 0, self.clock.now_ms(), bytes(8), unique_key=key)
            with contextlib.suppress(Refused):
                self.store.log.append([draft])
                self.timing.on_postponed()
                self.handles[name] = postponed.fields["recallHandle"]
                self.sent_ms[name] = self.clock.now_ms()

    async def send_back(self) -> None:
        """Recalls a waiting message, in place of a send back."""
        soonest = self.clock.now_ms() + RECALLED_BEFORE_MS
        waiting = [name for name, due_ms in self.first_due_ms.items() if due_ms > soonest]
        if not waiting:
            return
        name = self.chance.choice(waiting)
        header = RecallMessageRequest("T", self.handles[name], "G")
        request = Request(Command(370), header, cast(Connection, _FakeConnection()))
        with contextlib.suppress(TimeoutError):  # the disk does not sync
            await asyncio.wait_for(self.recalls.recall(request), 30)

    # --- recording and checking ---

    def _note(self, drafts: Sequence[Draft], appended: Sequence[Appended]) -> None:
        now_ms = self.clock.now_ms()
        for draft, (begin, _, size) in zip(drafts, appended, strict=True):
            if draft.queue.topic == "Plain":
                continue
            name = draft.body.split(b" ")[0], 0
            pairs = props.parse(draft.properties)
            due_ms = int(pairs[DELIVER_AT]) if DELIVER_AT in pairs else None
            if props.TIMER_DEL_UNIQUE_KEY in pairs:
                assert draft.queue.topic == TIMER_TOPIC, "a recall was delivered"
                name = RECALL + pairs[props.TIMER_DEL_UNIQUE_KEY].encode(), 0
            elif draft.queue.topic == TIMER_TOPIC:
                assert due_ms is not None
                known = self.first_due_ms.setdefault(name, due_ms)
                assert known == due_ms, f"{name} had another time before it was put again"
            else:
                assert now_ms >= self.first_due_ms[name], f"{name} is early"
            self.noted.append(AppendedRecord(name, begin, begin + size, now_ms, due_ms))

    def _is_recalled(self, name: Name, recalled: set[bytes]) -> bool:
        return RECALL + b"ID" + name[0] in recalled

    def _check_delivered(self, all_of_them: bool) -> None:
        copies: dict[Name, int] = defaultdict(int)
        recalled = {one.name[0] for one in self.noted if one.name[0].startswith(RECALL)}
        for one in self.noted:
            if one.due_ms is None:
                copies[one.name] += 1
        for name, count in copies.items():
            assert count == 1, f"{name} was delivered {count} times"
            assert not self._is_recalled(name, recalled), f"{name} was recalled and came"
        if all_of_them:
            missing = [
                name
                for name in self.first_due_ms
                if name not in copies and not self._is_recalled(name, recalled)
            ]
            assert not missing, f"{len(missing)} were never delivered, {missing[0]} for one"

    def _check_punctual(self) -> None:
        recalled = {one.name[0] for one in self.noted if one.name[0].startswith(RECALL)}
        delivered = {one.name: one.at_ms for one in self.noted if one.due_ms is None}
        now_ms = self.clock.now_ms()
        for name, due_ms in self.first_due_ms.items():
            seen_ms = self.sent_ms.get(name, 0) + SEEN_AFTER_MS
            latest = max(due_ms + LATE_MS, seen_ms, self.opened_ms + round(1000 * START_S))
            if latest < now_ms and not self._is_recalled(name, recalled):
                assert name in delivered, f"{name} was due at {due_ms}, it is {now_ms}"
            if due_ms > self.opened_ms + 1000 * START_S and name in delivered:
                late_ms = delivered[name] - max(due_ms, seen_ms)
                assert late_ms <= LATE_MS, f"{name} was {late_ms} ms late"


class _FakeConnection:
    """The part of a connection that a recall needs."""

    peer_host = bytes(8)
