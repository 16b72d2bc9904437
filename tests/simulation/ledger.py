"""Simulates the ledger with kills: two brokers, drivers replaced by newer runs, and failing writers.

A driver writes batches of rows by several attempts, decides for one, and ends it or not. It may be replaced
by a newer run at any time, and continues as a zombie. Brokers are killed, stopped and started; whole days
pass, with retention. Some rows are delayed, by a level or until a time; and a broker may be killed between
the records of the append that commits them. At the end, when all brokers run and time has passed, for every
decided batch:

    each row of the winning attempt is delivered once, by any broker
    no row is delivered before its time, which for a level counts from the decision
    no row of another attempt or of an undecided batch is ever delivered
    all answers about the winner agree
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.simulation.constants import restored

from turbopump.broker.server import Broker
from turbopump.client.message import Message
from turbopump.client.produce.ledger import Ledger, Written
from turbopump.protocol.errors import Refused
from turbopump.protocol.names import OP_HALF_TOPIC
from turbopump.store import timer_wheel
from turbopump.store.append import Appended, Draft
from turbopump.store.message_log import MessageLog
from turbopump.testing.cluster import AsyncCluster
from turbopump.testing.loop import VirtualLoop, run_virtual
from turbopump.testing.servers import EmbeddedBroker

TOPIC, ID = "T", "query"
DAY_S = 86_400
MIDNIGHT = datetime(2026, 11, 15, tzinfo=UTC)
ROUNDS_S = 100  # three rounds of checks
LEVELS_S = 1, 30, 7_200
LATEST_S = 2 * DAY_S
SLOTS = 1_000  # of the wheel: few, so that some times need several turns
SETTINGS = {
    "mappedFileSizeCommitLog": "65536",
    "maxMessageSize": "16384",
    "fileReservedTime": "12",
    "messageDelayLevel": "1s 30s 2h",
    "timerRollWindowSlot": "200",
}
FILLER = b"x" * 8_000

log = logging.getLogger(__name__)


def run(seed: int) -> None:
    async def main() -> None:
        chance = random.Random(seed)
        start = MIDNIGHT + timedelta(minutes=37 * seed)  # the hour at which files are deleted is one of these
        async with AsyncCluster(2, clock="virtual", start=start, settings=SETTINGS, seed=seed) as cluster:
            await cluster.create_topic(TOPIC, queues=2)
            await cluster.create_topic("Filler", queues=1)
            await LedgerSimulation(cluster, chance).live()

    with restored(timer_wheel):
        timer_wheel.SLOTS = SLOTS
        run_virtual(main())


@dataclass
class Driver:
    ledger: Ledger
    batch: int
    attempts: list[Written] = field(default_factory=list)


class LedgerSimulation:
    def __init__(self, cluster: AsyncCluster, chance: random.Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self.drivers: list[Driver] = []  # the last is the newest; the others are zombies
        self.wrote: dict[str, tuple[int, Counter[bytes]]] = {}  # token -> batch and rows
        self.winners: dict[int, frozenset[str]] = {}  # from answers
        self.seen: dict[tuple[str, int, int], bytes] = {}
        self.due_ms: dict[bytes, int] = {}  # row -> delivery time
        self.levels: dict[bytes, int] = {}  # row -> delay level
        self.asked_ms: dict[int, int] = {}  # batch -> time of the first decision request
        self.dead: list[Broker] = []
        self.is_over = False  # no more kills
        self.runs = 0

    async def live(self) -> None:
        await self.replace_driver()
        actions: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self.write, 10),
            (self.decide, 6),
            (self.end, 4),
            (self.replace_driver, 2),
            (self.kill_or_start, 4),
            (self.let_one_die_committing, 5),
            (self.wait, 3),
            (self.a_day_passes, 3),
        ]
        choices = [action for action, weight in actions for _ in range(weight)]
        for _ in range(self.chance.randrange(20, 80)):
            try:
                await self.chance.choice(choices)()
            except (OSError, Refused) as error:
                log.info("%s", error)
            while self.dead:
                await self.dead.pop().stop()
        await self.settle_and_judge()

    # actions

    def driver(self) -> Driver:
        return self.drivers[-1] if self.chance.random() < 0.8 else self.chance.choice(self.drivers)

    async def replace_driver(self) -> None:
        self.runs += 1
        ledger = Ledger(ID, **self.cluster.client_settings.of_client())
        self.cluster._keep(ledger)
        await ledger.open(f"r{self.runs}")
        batch = 0
        while await ledger.decided(batch):
            batch += 1
        self.drivers.append(Driver(ledger, batch))

    async def write(self) -> None:
        driver = self.driver()
        writer = driver.ledger.writer(driver.batch)
        number = len(self.wrote)
        rows = [b"%d/%d/%d" % (driver.batch, number, row) for row in range(self.chance.choice((1, 7, 150)))]
        self.wrote[writer.token] = driver.batch, Counter(rows)
        half = self.chance.randrange(len(rows)) if self.chance.random() < 0.3 else len(rows)
        await writer.send([self.message(row) for row in rows[:half]])
        if half == len(rows):  # otherwise the attempt failed halfway
            driver.attempts.append(writer.written)

    def message(self, row: bytes) -> Message:
        kind = self.chance.choice(("plain", "plain", "level", "time"))
        more: dict[str, Any] = {}
        if kind == "level":
            level = self.chance.randrange(len(LEVELS_S))
            self.levels[row] = 1000 * LEVELS_S[level]
            more = {"delay_level": 1 + level}
        elif kind == "time":
            later_ms = self.chance.choice((-5, 1, 700, 20_000, 3_600_000, 1000 * LATEST_S))
            self.due_ms[row] = self.now_ms() + later_ms
            more = {"deliver_at": self.due_ms[row]}
        return Message(TOPIC, row, **more)

    def now_ms(self) -> int:
        return self.cluster.world.clock.now_ms()

    async def decide(self) -> None:
        driver = self.driver()
        chosen = self.chance.choice(driver.attempts) if driver.attempts else None
        if chosen is None:
            return
        self.asked_ms.setdefault(driver.batch, self.now_ms())
        for _ in range(self.chance.choice((1, 1, 2))):
            won = await driver.ledger.decide(driver.batch, [chosen])
            assert self.winners.setdefault(driver.batch, won) == won, "two answers differ"
            chosen = self.chance.choice(driver.attempts)
        driver.batch += self.chance.choice((1, 1, 1, 2))
        driver.attempts.clear()

    async def end(self) -> None:
        driver = self.driver()
        await driver.ledger.end(max(0, driver.batch - self.chance.choice((0, 1, 1, 2))))

    async def kill_or_start(self) -> None:
        broker = self.chance.choice(self.cluster.brokers)
        action = self.chance.choice((self.cluster.kill_broker, self.cluster.stop_broker))
        if self.chance.random() < 0.5:
            self.look()
            await action(broker)
        if self.chance.random() < 0.7:
            await self.cluster.start_broker(broker)

    async def let_one_die_committing(self) -> None:
        """Kills a broker in the next commit of half messages: after a message, before its op record."""
        broker = self.chance.choice(self.cluster._servers.brokers)
        store, running = broker._store, broker._running
        if store is None or running is None:
            return
        append = MessageLog.append

        def torn(drafts: Sequence[Draft], together: bool = False) -> list[Appended]:
            is_op = [draft.queue.topic == OP_HALF_TOPIC for draft in drafts]
            between = [place for place in range(1, len(drafts)) if is_op[place] and not is_op[place - 1]]
            if not between or self.is_over or broker._running is not running:
                return append(store.log, drafts, together)
            append(store.log, drafts[: self.chance.choice(between)])
            self.die_now(broker)
            raise Refused(0, "it is dead")

        store.log.append = torn  # type: ignore[method-assign]
        if self.chance.random() < 0.7:
            await self.decide()
            await self.end()

    def die_now(self, broker: EmbeddedBroker) -> None:
        """Kills a broker now. The old one may still write, to files that are not used any more."""
        assert broker._running is not None
        assert broker._network is not None
        log.info("%s dies in an append", broker.name)
        self.look()
        broker.disk = broker.disk.copy()
        broker._network.kill()
        self.dead.append(broker._running)
        broker._running = None

    async def wait(self) -> None:
        await asyncio.sleep(self.chance.choice((0.1, 5, 40)))

    async def a_day_passes(self) -> None:
        """Advances a day, with enough writes for files to be deleted."""
        async with self.cluster.producer("filler") as producer:
            for _ in range(40):
                await producer.send(Message("Filler", FILLER))
        self.look()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.jump(DAY_S)
        await asyncio.sleep(1)
        for broker in self.cluster._servers.brokers:
            store = broker._store
            if store is not None:
                store.retention.ask()
                self.look()
                while await store.retention.round():
                    self.look()

    # guarantees

    def look(self) -> None:
        """Records what consumers could read by now, even if its file is deleted later."""
        for broker in self.cluster._servers.brokers:
            for message in broker.messages(TOPIC):
                place = broker.name, message.queue.id, message.record.queue_offset
                if place not in self.seen:
                    self.check_time(message.body, message.record.store_timestamp)
                assert self.seen.setdefault(place, message.body) == message.body

    def check_time(self, row: bytes, seen_ms: int) -> None:
        due_ms = self.due_ms.get(row, 0)
        if row in self.levels:
            due_ms = self.asked_ms[int(row.partition(b"/")[0])] + self.levels[row]
        assert seen_ms >= due_ms, f"{row!r} came {due_ms - seen_ms} ms early"

    async def settle_and_judge(self) -> None:
        self.is_over = True
        for broker in self.cluster.brokers:
            await self.cluster.start_broker(broker)
        await asyncio.sleep(ROUNDS_S)
        self.look()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.jump(LATEST_S)
        await asyncio.sleep(ROUNDS_S)
        self.look()
        book = await self.drivers[-1].ledger._book(list(range(60)))
        for batch, won in self.winners.items():
            assert frozenset(book.decided[batch].tokens) == won, f"batch {batch} changed"
        expected: Counter[bytes] = Counter()
        for batch, entry in book.decided.items():
            for token in entry.tokens:
                assert self.wrote[token][0] == batch
                expected += self.wrote[token][1]
        found = Counter(self.seen.values())
        assert found == expected, f"missing {expected - found}, too many {found - expected}"
