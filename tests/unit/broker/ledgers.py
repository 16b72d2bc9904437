"""The writing parts of a ledger over a store of their own, compiled or not, and what came of requests."""

from collections import Counter
from collections.abc import Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

from tests.unit.broker.desk import CONFIG, SMALL_STORE
from tests.unit.broker.sends import Bench, Recorder

from turbopump.broker.delay.timer_intake import TimerIntake
from turbopump.broker.transactions.book.book import GlobalBook
from turbopump.broker.transactions.halves import CheckRules, HalfDecision
from turbopump.broker.transactions.ledger.ledger import BookDecided, BookOpened, LedgerBooks
from turbopump.broker.transactions.ledger.local_books import LocalBooks
from turbopump.broker.transactions.ledger.send import LedgerSendHandler
from turbopump.broker.transactions.ledger.settlement import Settlement
from turbopump.broker.transactions.transactions import OpenTransactions
from turbopump.compiled import Twins
from turbopump.protocol.errors import BrokenBody, Refused
from turbopump.protocol.headers.ledger import LedgerSendRequest
from turbopump.protocol.ledger import Book, LedgerEntry
from turbopump.store.config import StoreConfig

ID, RUN, HOME = "query", "run", "broker-a"
T = TypeVar("T")


class LedgerBench:
    def __init__(self, twins: Twins | None, config: StoreConfig = SMALL_STORE) -> None:
        self.bench = Bench(twins, config)
        store, clock = self.bench.store, self.bench.clock
        timing = TimerIntake(store, lambda: CONFIG.timers, HOME, clock, 1000)
        self.ledger = LedgerBooks(HOME)
        self.ledger.apply(BookOpened(ID, RUN, HOME))
        self.transactions = OpenTransactions(
            store,
            self.bench.topics,
            None,  # type: ignore[arg-type] # how far everything is closed is not asked here
            self.bench.kinds,
            self.bench.writer,
            lambda: CheckRules(6000, 15, DAY_MS),
            clock,
        )
        self.ended: Counter[tuple[str, HalfDecision, int]] = Counter()
        self.transactions.on_ended = self._on_ended
        written: Any = None  # nothing is written or waited for here
        books = LocalBooks(self.ledger, written, GlobalBook(), written)
        self.desk = LedgerSendHandler(
            books, HOME, self.transactions, self.bench.targets, timing, self.bench.writer, store, clock
        )
        self.settling = Settlement(self.transactions, store, self, lambda: 30.0, clock)
        self.answers: list[Any] = []

    def _on_ended(self, topic: str, decision: HalfDecision, age_ms: int, count: int) -> None:
        self.ended[topic, decision, age_ms] += count

    async def book(self, id: str, home: str, batches: Sequence[int]) -> Book | None:
        return self.ledger.books[id]

    def send(self, number: int, token: str, body: bytes) -> None:
        header = LedgerSendRequest(id=ID, batch=number, run=RUN, token=token, home=HOME)
        request: Any = SimpleNamespace(header=header, body=body, connection=Recorder())
        try:
            answer = driven(self.desk.send(request))
            self.answers.append((answer.header, answer.code))
        except Refused as refused:
            self.answers.append((refused.code, refused.remark))
        except BrokenBody as broken:
            self.answers.append(("broken", str(broken)))

    def decide(self, number: int, *tokens: str) -> None:
        self.ledger.apply(BookDecided(ID, number, LedgerEntry(tokens, (HOME,)), -1))

    def settle(self) -> None:
        counts = driven(self.settling.settle(ID))
        self.answers.append((counts.committed, counts.rolled_back))

    def outcome(self) -> list[Any]:
        halves, stamps = self.transactions.halves, self.transactions.stamps
        traffic = self.bench.writer.traffic
        return [
            self.answers,
            self.bench.log(),
            *self.bench.derived(),
            [(half.offset, half.at, half.due_ms, half.root, half.topic) for half in halves.all()],
            +halves.by_topic,
            [(batch, one) for batch in stamps.batches(ID) for one in stamps.of(ID, batch)],
            (stamps.total, stamps.count(ID)),
            self.ended,
            traffic.put_times,
        ]


DAY_MS = 86_400_000


def driven(work: Coroutine[Any, Any, T]) -> T:
    """Without a loop: nothing here waits for more than its turn."""
    while True:
        try:
            work.send(None)
        except StopIteration as done:
            value: T = done.value
            return value
