"""Sends, and three ways to serve them: one by one, many at once, and by the compiled twin of that."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from tests.unit.broker.desk import CONFIG, SMALL_STORE
from tests.unit.store.kit import HandClock
from tests.unit.store.lab import Workers
from tests.writers import writer_of

from turbopump.broker.delay.level_records import DelaySchedule
from turbopump.broker.delay.timer_intake import TimerIntake
from turbopump.broker.groups.groups import SubscriptionGroups
from turbopump.broker.produce.kinds import WaitingKind, WaitingKinds
from turbopump.broker.produce.plain_sends import PlainSendHandler
from turbopump.broker.produce.receipt import Receipts
from turbopump.broker.produce.send import SendHandler
from turbopump.broker.produce.targets import BrokerSendRules, SendTargets
from turbopump.broker.topics import Topic, TopicTable
from turbopump.broker.transactions.half_kind import HalfMessages
from turbopump.compiled import Twins
from turbopump.protocol.command import Command, encode
from turbopump.protocol.errors import BrokenFrame
from turbopump.protocol.frame import JSON, Frame, cut
from turbopump.protocol.ids import pack_host
from turbopump.remoting.router import Router, Routes
from turbopump.runtime.chance import Chance
from turbopump.store.append import Appended, Draft
from turbopump.store.config import StoreConfig
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.store import Store
from turbopump.testing.disk import SimulatedDisk

WORDS = (
    *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag"),
    *("bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch"),
)
LONG_NAMES = dict(zip("abcdefghijklm", WORDS, strict=True))


class _UnwatchedHalves(HalfMessages):
    """Half messages whose transactions nothing looks after."""

    def stored(self, draft: Draft, appended: Appended) -> None:
        pass


class QuietRouter(Router):
    """Works without an event loop: refusals of one-way requests are not logged."""

    def log_refused_oneway(self, name: str, connection: Any, refused: Exception) -> None:
        pass


class Bench:
    """The sending parts of a broker over a store of their own, and what they answered."""

    def __init__(
        self,
        twins: Twins | None = None,
        config: StoreConfig = SMALL_STORE,
        make_router: Callable[[Routes], Router] = QuietRouter,
        more_kinds: Callable[[Store], Sequence[WaitingKind]] = lambda store: (),
    ) -> None:
        clock = HandClock()
        self.disk = SimulatedDisk(Chance(1), clock)
        self.store = Store.open(config, self.disk, clock, Workers(), twins=twins)
        self.store.log.store_host = pack_host("127.0.0.1", 10911)
        self.topics = TopicTable(CONFIG.topics, CONFIG.identity, clock)
        self.topics.update(Topic("T", 4, 4), {})
        self.topics.update(Topic("Multi", 1, 1, filter_type="MULTI_TAG"), {})
        receipts = Receipts(self.store.log.store_host, "DefaultRegion", True)
        rules = BrokerSendRules("127.0.0.1", "DefaultCluster", "DefaultRegion", True, 4 << 20)
        numbers = iter(range(1 << 40))
        self.writer = writer_of(self.store, clock)
        timers = TimerIntake(self.store, lambda: CONFIG.timers, "broker-a", clock, 1000)
        self.kinds = WaitingKinds([DelaySchedule(self.store), timers])
        self.targets = SendTargets(self.topics, rules, clock)
        halves = _UnwatchedHalves(self.store, None, timers, rules)  # type: ignore[arg-type]
        self.all_kinds = self.kinds.before([*more_kinds(self.store), halves])
        sending = SendHandler(
            self.store,
            self.targets,
            SubscriptionGroups(CONFIG.groups, clock),
            receipts,
            self.all_kinds,
            self.writer,
            Chance(1),
            lambda: f"GENERATED{next(numbers)}",
        )
        self.sending, self.receipts, self.clock = sending, receipts, clock
        self.router = make_router(sending.routes())
        self.many = PlainSendHandler(
            self.store, self.targets, self.all_kinds, self.writer, receipts, self.router
        )
        self.topics.on_change = lambda topics: self.many.topics_changed([topic.name for topic in topics])
        self.connection = Recorder()

    def listen(self) -> list[tuple[int, int, int]]:
        """Gets queue id, next offset and tag code of whatever arrives."""
        heard: list[tuple[int, int, int]] = []

        def arrived(queue: ConsumeQueue, next_offset: int, code: int) -> None:
            heard.append((queue.queue_id, next_offset, code))

        self.store.log.on_arrival = arrived
        return heard

    def receive(self, data: bytes) -> int:
        """As a connection does it: first the shortcut, then `serve`. How many bytes the shortcut took."""
        used, answers = self.many.shortcut(self.connection, data) if self.many.shortcut else (0, b"")
        self.connection.write(answers)
        frames: list[Frame] = []
        with contextlib.suppress(BrokenFrame):
            cut(data, frames, at=used)
        with contextlib.suppress(BrokenFrame):
            self.many.serve(self.connection, frames)
        return used

    def log(self) -> bytes:
        return b"".join(
            bytes(self.disk.open_mapped(f"/store/commitlog/{entry.name}").buffer)
            for entry in self.disk.entries("/store/commitlog")
        )

    def derived(self) -> list[Any]:
        """What came of the log: entries, numbers of queues, keys that wait for the index."""
        store = self.store
        queues = [
            (queue.topic, queue.queue_id, bytes(queue.tail), queue.next_offset, queue.last_physical)
            for queue in store.queues.dirty
        ]
        keys = [(queue.topic, queue.queue_id, *rest) for queue, *rest in store._appender.keys]
        puts = sorted(
            (queue.topic, queue.queue_id, number, size) for queue, number, size in store.queues.take_counts()
        )
        ends = (
            store.log.end,
            store.log.appended_messages,
            store.log.appended_bytes,
            store._dispatcher.state(),
        )
        return [queues, keys, puts, ends]

    def outcome(self) -> list[Any]:
        return [self.connection.written, self.log(), *self.derived()]


class Recorder:
    """As much of a connection as sends need."""

    saturated = False
    peer = ("127.0.0.1", 4711)

    def __init__(self) -> None:
        self.peer_host = pack_host(*self.peer)
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def reply(self, request: Command, response: Command) -> None:
        if not request.is_oneway:
            self.write(encode(response))

    def answered(self, response: Command) -> None:
        self.written += b"answered"


def header(code: int, ext: dict[str, Any], opaque: int, flag: int = 0) -> dict[str, Any]:
    if code == 10:
        ext = {LONG_NAMES[letter]: value for letter, value in ext.items()}
    return {
        "code": code,
        "extFields": {name: str(value) for name, value in ext.items() if value is not None},
        "flag": flag,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
    }


def frame(code: int, ext: dict[str, Any], body: bytes, opaque: int, flag: int = 0) -> Frame:
    return JSON, msgspec.json.encode(header(code, ext, opaque, flag)), body
