"""Simulates transactions through crashes: a store, the transaction parts of a broker, producers, and faults.

Every append is recorded. After a crash the log is a prefix of the recorded appends, and the lost ones are
removed from the record, with the answers that depended on them. Guarantees for every transaction:

    no message is delivered before its commit
    the log has one message for each committed transaction: not two, and in the end not none, unless the log
    lost the half message before it was synced
    none for a rolled back one, and no two answers contradict each other
    a transaction that no producer ended is ended by the check, or has expired and can be found

Producers may end a transaction late, twice, in both ways, by the offsets of any of its records.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tests.simulation.constants import restored
from tests.simulation.crashing_store import Action, CrashingStore
from tests.writers import writer_of

from turbopump.broker.config import BrokerIdentity, OffsetRules, TopicRules
from turbopump.broker.delay.level_records import DelaySchedule
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.produce.kinds import WaitingKinds
from turbopump.broker.topics import Topic, TopicTable
from turbopump.broker.transactions import checks, recovery
from turbopump.broker.transactions.checks import TransactionChecks
from turbopump.broker.transactions.halves import CheckRules
from turbopump.broker.transactions.records import prepare
from turbopump.broker.transactions.recovery import reopen
from turbopump.broker.transactions.requests import TransactionHandler
from turbopump.broker.transactions.transactions import OpenTransactions
from turbopump.protocol import properties as props
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.errors import Refused
from turbopump.protocol.headers.send import EndTransactionRequest, ResumeCheckHalfMessageRequest
from turbopump.protocol.ids import offset_id
from turbopump.protocol.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from turbopump.protocol.record import Record
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Answer, Request
from turbopump.store.append import Appended, Draft
from turbopump.store.config import StoreConfig
from turbopump.store.config_files import ConfigFiles
from turbopump.testing.disk import PowerCut
from turbopump.testing.loop import run_virtual

GROUP, TOPIC, FILE = "PG", "T", "consumerOffset.json"
COMMIT, ROLLBACK = 8, 12
ACTION_S = 60.0
ROUND_S = 5.0
RULES = CheckRules(timeout_ms=3_000, max_checks=4, lifetime_ms=10**9, interval_s=ROUND_S)

log = logging.getLogger(__name__)


def run(seed: int) -> None:
    """Runs a seed. Raises AssertionError for a broken guarantee."""
    with restored(checks, recovery):
        run_virtual(TransactionSimulation(seed).run())


@dataclass(slots=True)
class AppendedRecord:
    """One appended record: a half, committed or expired message."""

    name: bytes
    topic: str
    begin: int
    end: int
    queue_offset: int


@dataclass(slots=True)
class TransactionHistory:
    """A transaction from the view of its producer."""

    truth: int
    """How the local work ended: what a check says."""
    answered: set[int] = field(default_factory=set)
    """The decisions that the broker said yes to, and has not lost."""
    answers: list[tuple[int, int]] = field(default_factory=list)
    """They, and where the log ended then."""
    tried: set[int] = field(default_factory=set)
    """The decisions that may count although no answer came, or the log has lost what the answer rested on."""


class TransactionSimulation(CrashingStore):
    waits_s = (0, 0.01, 0.3, 3, 12)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        checks.HALVES_PER_TURN, recovery.ENTRIES_PER_TURN, recovery.RECORDS_PER_TURN = self.chance.choice(
            [(1, 2, 3), (64, 1024, 8192)]
        )
        checks.FAR_BEHIND_BYTES = self.chance.choice([5_000, 30_000, 1 << 30])
        self.config = self._any_config()
        self.runs = self.chance.randint(2, 5)
        self.noted: list[AppendedRecord] = []  # in log order
        self.stories: dict[bytes, TransactionHistory] = {}
        self.silence = 0.3
        self.is_staffed = True
        self.answers: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        self.begin()
        for _ in range(self.runs):
            await self._live()
            await asyncio.sleep(self.chance.choice([0, 0, 5]))
        await self._last_life()
        log.info("%d transactions", len(self.stories))
        self.check_surprises()

    # --- runs ---

    async def _live(self) -> None:
        is_calm = self.chance.random() < 0.4
        await self._open()
        self.silence = self.chance.choice([0.0, 0.5, 1.0])
        actions: list[Action] = [self.send] * 4 + [self.wait] * 3 + [self.decide] * 6 + [self.staff]
        actions += [self.fill, self.delete_files, self.resume]
        if not is_calm:
            actions += self._misfortunes()
        await self._act(actions, [1, 20, 60])
        await self._end()

    async def _last_life(self) -> None:
        """Runs without faults and with answering producers until every transaction ends."""
        await self._open()
        self.silence, self.is_staffed = 0.0, True
        await asyncio.sleep(8 * ROUND_S)
        self._check_ended()
        assert not self.transactions.halves, "something is still open"
        await self._stop()
        for answer in self.answers:
            if not answer.cancelled() and (error := answer.exception()) is not None:
                raise error

    async def _open(self) -> None:
        self._renew_disk()
        store = self._open_store()
        topics = TopicTable(TopicRules(), BrokerIdentity(broker_name="a"), self.clock)
        topics.update(Topic(TOPIC, 4, 4), {})
        self.files = ConfigFiles(self.config.config_dir, self.disk)
        self.offsets = CommittedOffsets(OffsetRules(), self.clock)
        self.files.load(FILE, lambda data: self.offsets.load(data) >= 0)
        self.offsets.recover(store.queues, store.recovered_end, self.clock.now_ms())
        self._start_store()
        if not self.noted:
            store.log.append([Draft(store.queues.queue("Plain", 0), b"first", b"", 0, 0, 0, bytes(8))])
        writer = writer_of(store, self.clock)
        self.transactions = OpenTransactions(
            store,
            topics,
            self.offsets,
            WaitingKinds([DelaySchedule(store)]),
            writer,
            lambda: RULES,
            self.clock,
        )
        await reopen(store, self.transactions)
        self.requests = TransactionHandler(
            self.transactions, store, writer.acknowledgement, lambda: RULES, self.clock
        )
        self.checks = TransactionChecks(
            self.transactions, store, writer.acknowledgement, _Deciders(self), lambda: RULES, self.clock
        )
        store.retention.guards.append(self.checks.rescue)
        self.tasks = [asyncio.create_task(work) for work in (self.checks.run(), self._keep())]
        log.info(
            "opened: %d..%d, %d open", store.log.min_offset, store.log.end, len(self.transactions.halves)
        )

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self.chance.choice([0.5, 2]))
            await self._save()

    async def _save(self) -> None:
        with contextlib.suppress(OSError):
            await self.transactions.save_progress()
            await self.workers.run(self.files.save, FILE, self.offsets.dump())

    async def _close_parts(self) -> None:
        await self._save()

    # --- actions ---

    async def send(self) -> None:
        for _ in range(self.chance.choice([1, 1, 3, 10])):
            self.serial += 1
            name = b"%d" % self.serial
            pairs = {props.TRANSACTION_PREPARED: "true", props.PRODUCER_GROUP: GROUP}
            pairs |= {props.UNIQUE_KEY: f"ID{self.serial}"}
            if self.chance.random() < 0.1:
                pairs[props.CHECK_IMMUNITY_TIME_IN_SECONDS] = "20"
            prepare(pairs, TOPIC, self.chance.randrange(4), pairs[props.UNIQUE_KEY])
            body = name + b" " + bytes(self.chance.choice([0, 100, 1000]))
            queue = self.store.queues.queue(HALF_TOPIC, 0)
            packed, now_ms = props.pack(pairs).encode(), self.clock.now_ms()
            draft = Draft(queue, body, packed, 0, 0, now_ms, bytes(8), unique_key=pairs[props.UNIQUE_KEY])
            with contextlib.suppress(Refused):
                [appended] = self.store.log.append([draft])
                self.stories[name] = TransactionHistory(self.chance.choice([COMMIT, COMMIT, ROLLBACK]))
                self.transactions.prepared(draft, appended)

    async def decide(self) -> None:
        """Ends a transaction, mostly with the true decision, by the offsets of any of its records."""
        known = [one for one in self.noted[-100:] if one.topic == HALF_TOPIC]
        known = [one for one in known if one.begin >= self.store.log.min_offset]
        for _ in range(self.chance.choice([1, 1, 5])):
            if known:
                one = self.chance.choice(known)
                truth = self.stories[one.name].truth
                decision = truth if self.chance.random() < 0.7 else COMMIT + ROLLBACK - truth
                if not self.stories[one.name].answered and self.chance.random() < 0.5:
                    self.stories[one.name].truth = decision  # the producer had not decided before
                await self.end(one.name, (one.begin, one.queue_offset), decision)

    async def end(self, name: bytes, place: tuple[int, int], decision: int, checked: bool = True) -> None:
        header = EndTransactionRequest(
            GROUP, place[1], place[0], decision, "ID", fromTransactionCheck=checked
        )
        self.stories[name].tried.add(decision)
        line = _FakeConnection()
        request = Request(Command(37), header, cast(Connection, line))
        try:
            answer = self.requests.end(request)
            if isinstance(answer, Awaitable):
                answer = await answer
            if answer is None:
                answer = await line.answer
        except Refused as refused:
            self._heard(name, decision, refused)
            return
        if isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS:
            story = self.stories.get(name)
            if story is not None:
                story.answered.add(decision)
                story.answers.append((decision, self.store.log.end))
                assert len(story.answered) == 1, f"{name!r} was committed and rolled back"

    async def answer(self, name: bytes, place: tuple[int, int]) -> None:
        """Answers a check with the decision of the producer."""
        with contextlib.suppress(PowerCut):
            await self.end(name, place, self.stories[name].truth)

    def _heard(self, name: bytes, decision: int, refused: Refused) -> None:
        """Checks a refusal: the other decision must have been made."""
        if refused.code == ResponseCode.ILLEGAL_OPERATION:
            story = self.stories[name]
            assert decision not in story.answered, f"{name!r}: {refused.remark}"

    async def resume(self) -> None:
        """Resumes expired transactions, as an operator."""
        for one in [one for one in self.noted if one.topic == CHECK_MAX_TIME_TOPIC][-3:]:
            if one.begin >= self.store.log.min_offset:
                header = ResumeCheckHalfMessageRequest(msgId=offset_id(bytes(8), one.begin))
                request = Request(Command(323), header, cast(Connection, _FakeConnection()))
                with contextlib.suppress(Refused):
                    answer = await self.requests.resume(request)
                    assert isinstance(answer, Answer)

    async def staff(self) -> None:
        """Adds and removes producers."""
        self.is_staffed = not self.is_staffed

    # --- recording ---

    def _note(self, drafts: Sequence[Draft], appended: Sequence[Appended]) -> None:
        for draft, (begin, offset, size) in zip(drafts, appended, strict=True):
            topic = draft.queue.topic
            if topic not in ("Plain", OP_HALF_TOPIC):
                name = draft.body.partition(b" ")[0]
                self.noted.append(AppendedRecord(name, topic, begin, begin + size, offset))
                if topic == TOPIC:
                    committed = [one for one in self.noted if one.topic == TOPIC and one.name == name]
                    assert len(committed) == 1, f"{name!r} was committed {len(committed)} times"

    def _strike_out(self, log_end: int) -> None:
        """Removes what the crash lost, and the answers that depended on it.

        A transaction that was lost before it was synced is forgotten.
        """
        lost = [one for one in self.noted if one.end > log_end]
        assert all(one.begin >= self.synced for one in lost), "a synced record is lost"
        del self.noted[len(self.noted) - len(lost) :]
        left = {one.name for one in self.noted}
        self.stories = {name: story for name, story in self.stories.items() if name in left}
        for story in self.stories.values():
            story.answers = [answer for answer in story.answers if answer[1] <= log_end]
            story.answered = {decision for decision, _ in story.answers}

    # --- checking ---

    def _check_ended(self) -> None:
        committed = {one.name for one in self.noted if one.topic == TOPIC}
        expired = {one.name for one in self.noted if one.topic == CHECK_MAX_TIME_TOPIC}
        for name, story in self.stories.items():
            if story.answered:
                was_committed = COMMIT in story.answered
                assert (name in committed) == was_committed, f"{name!r}: {story}"
            elif name not in expired and name not in committed:
                assert ROLLBACK in {story.truth, *story.tried}, f"{name!r} has no end: {story}"
            elif name in committed:
                assert COMMIT in {story.truth, *story.tried}, f"{name!r} was never committed: {story}"

    def _any_config(self) -> StoreConfig:
        chance = self.chance
        return StoreConfig(
            root_dir="/store",
            commit_log_file_size=chance.choice([10_000, 32_768]),
            consume_queue_file_size=chance.choice([100, 400, 2_000]),
            index_enabled=chance.random() < 0.5,
            index_slots=20,
            index_items=60,
            flush_disk_type=chance.choice(["SYNC_FLUSH", "ASYNC_FLUSH", "ASYNC_FLUSH"]),
            transient_pool=chance.random() < 0.2,
            flush_least_pages=chance.choice([0, 4]),
            checkpoint_interval_ms=chance.choice([500, 2_000, 10_000]),
            open_log_files=chance.choice([2, 64]),
            open_queue_files=chance.choice([2, 512]),
        )


class _Deciders:
    """Producers that answer checks: they may be absent or not answer."""

    def __init__(self, world: TransactionSimulation) -> None:
        self._world = world

    def can_ask(self, half: Record) -> bool:
        return self._world.is_staffed

    def ask(self, half: Record) -> None:
        world = self._world
        if world.chance.random() >= world.silence:
            name = half.body.partition(b" ")[0]
            place = half.physical_offset, half.queue_offset
            asyncio.get_running_loop().create_task(
                _quietly(world.end(name, place, world.stories[name].truth))
            )


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(PowerCut):
        await work


class _FakeConnection:
    """The part of a connection that an answer needs."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()

    def begin(self, size: int) -> None: ...
    def end(self, size: int) -> None: ...

    def reply(self, request: Command, response: Command) -> None:
        if not self.answer.done():
            self.answer.set_result(response)
