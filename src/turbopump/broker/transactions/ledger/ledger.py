"""The books of the ledger and the changes to them: a state machine without clock, disk and network.

In: a run that begins, a decision about a batch. Out: the change that has to be stored, or a refusal. A change
counts when it is applied, and the log applies the same changes again at the next start. Also the verdict
about a half message, from its stamp and the book of its id:

    its batch is decided            committed if its token has won, else rolled back
    a later batch is decided        rolled back: this one never will be
    its run is fenced off           rolled back
    its book has expired            rolled back: no run has come back to decide it
    none of these                   it waits, for as long as it takes

A batch is decided once. Its winners are dropped only when all brokers that have messages of them have ended
those; the batch stays decided. A book that was not used for long expires: only the number of the last decided
batch stays, so a job that resumes continues after it.
"""

from typing import Final

import msgspec

from turbopump.broker.transactions.halves import HalfDecision
from turbopump.broker.transactions.ledger.stamps import LedgerStamp
from turbopump.protocol.errors import (
    BrokenBody,
    Fenced,
    IllegalOperation,
    InvalidParameter,
    QueryNotFound,
    SystemBusy,
)
from turbopump.protocol.global_transactions import split_ledger_id
from turbopump.protocol.ledger import Book, LedgerEntry
from turbopump.protocol.names import LEDGER_TOPIC

MAX_SETTLED: Final = 64  # entries of settled batches
MAX_UNSETTLED: Final = 4096  # entries that are owed to brokers which do not answer
MAX_PAST_RUNS: Final = 256
MAX_BOOKS: Final = 65_536  # that have not expired
MAX_IDS: Final = 1_000_000  # ids in all, also expired ones and those whose home is elsewhere
MAX_NAME_LENGTH: Final = 255  # of ids, runs, tokens and brokers
MAX_ENTRY_BYTES: Final = 1 << 20  # bytes
NO_WINNERS: Final = LedgerEntry(())


class BookOpened(msgspec.Struct, frozen=True, tag="opened"):
    """Change of a book: `run` became the current run. If `home` is another broker, only the home is noted."""

    id: str
    run: str
    home: str


class BookDecided(msgspec.Struct, frozen=True, tag="decided"):
    """Change of a book: a batch was decided; `entry` has the tokens that won, and brokers that have them."""

    id: str
    batch: int
    entry: LedgerEntry
    settled: int


class BookKept(msgspec.Struct, frozen=True, tag="kept"):
    """Change of a book: its state without entries, stored again because older records will be deleted."""

    id: str
    home: str
    run: str
    past: list[str]
    highest: int
    settled: int
    used_ms: int = 0
    expired_ms: int = 0


class BookExpired(msgspec.Struct, frozen=True, tag="expired"):
    """Change of a book: it expired, after it was last used at `used_ms`; only the highest batch is kept."""

    id: str
    used_ms: int
    expired_ms: int


class BookForgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    """Change of a book: an operator removed it, and nothing of its id is known any more."""

    id: str


Change = BookOpened | BookDecided | BookKept | BookExpired | BookForgotten

_CHANGE: msgspec.json.Decoder[Change] = msgspec.json.Decoder(Change)


def read_change(body: bytes) -> Change:
    """Decodes the body of a ledger record to a change of a book. Raises BrokenBody."""
    try:
        return _CHANGE.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenBody(f"a record of the ledger cannot be read: {error}") from None


class LedgerBooks:
    """The books that a broker knows, by transactional id. Checks and applies changes; stores nothing."""

    topic = LEDGER_TOPIC
    words = "ledger"

    def __init__(self, broker_name: str) -> None:
        self.broker_name = broker_name
        self.books: dict[str, Book] = {}

    # changes to store; None: nothing changes

    def open(self, id: str, run: str, home: str) -> BookOpened | None:
        """Returns the change that makes `run` the current run and fences earlier ones; None: no change.

        The change is not applied yet. Raises Fenced for a run that a later one has ended, IllegalOperation
        for another home than before.
        """
        check_names(id, run, home)
        book = self.books.get(id)
        if book is None:
            self._check_capacity()
            return BookOpened(id, run, home)
        if book.home != home:
            raise IllegalOperation(f"the home of {id} is broker {book.home}, not {home}")
        if run == book.run or home != self.broker_name:
            return None
        if run in book.past:
            raise Fenced(f"run {run} of {id} was ended by a newer one; the current run is {book.run}")
        return BookOpened(id, run, home)

    def decide(self, id: str, batch: int, run: str, entry: LedgerEntry) -> BookDecided | None:
        """Returns the change that decides a batch; None: decided before (see `entry_of`). Raises Fenced.

        The change is not applied yet. Raises Fenced for a run that is not the current one, IllegalOperation
        for a book that is not kept here.
        """
        book = self.book(id)
        if batch in book.decided or batch <= book.highest:
            return None
        if batch < 0:
            raise InvalidParameter(f"batch {batch}: the first one is 0")
        self.check_run(book, id, run)
        check_names(*entry.tokens, *entry.brokers)
        size = sum(map(len, (*entry.tokens, *entry.brokers)))
        if size > MAX_ENTRY_BYTES:
            raise InvalidParameter(
                f"tokens and brokers must take at most {MAX_ENTRY_BYTES} bytes, got {size}"
            )
        if sum(one > book.settled for one in book.decided) >= MAX_UNSETTLED:
            where = ", ".join(owed(book))
            raise IllegalOperation(f"{MAX_UNSETTLED} decided batches of {id} are not settled yet at {where}")
        won = LedgerEntry(tuple(sorted(set(entry.tokens))), tuple(sorted(set(entry.brokers))))
        return BookDecided(id, batch, won, book.settled)

    def _check_capacity(self) -> None:
        if len(self.books) < MAX_BOOKS:
            return
        live = sum(not book.expired_ms and book.home == self.broker_name for book in self.books.values())
        if live >= MAX_BOOKS or len(self.books) >= MAX_IDS:
            raise SystemBusy(
                f"there are {live} transactional ids here already, {len(self.books)} with expired ones: "
                "`turbopump transactions ids` shows them, `turbopump transactions forget` removes one"
            )

    def idle(self, before_ms: int) -> list[str]:
        """Returns ids of books kept here that were last used before `before_ms` and are fully settled.

        The home of a group's global transactions is not among them: it is used without being opened again.
        """
        return [
            id
            for id, book in self.books.items()
            if book.home == self.broker_name
            and not book.expired_ms
            and book.used_ms < before_ms
            and not owed(book)
            and split_ledger_id(id) is None
        ]

    def expire(self, id: str, now_ms: int) -> BookExpired:
        """Returns the change that expires a book; the change is not applied yet."""
        return BookExpired(id, self.books[id].used_ms, now_ms)

    def forget(self, id: str) -> BookForgotten:
        """Returns the change that removes a book, not applied yet. Raises if unknown or not settled.

        Raises QueryNotFound for an unknown id, IllegalOperation while decided half messages of it are open.
        """
        book = self.books.get(id)
        if book is None:
            raise QueryNotFound(f"transactional id {id} is not known here")
        if brokers := owed(book):
            raise IllegalOperation(f"decided batches of {id} are not settled yet at {', '.join(brokers)}")
        return BookForgotten(id)

    def check_run(self, book: Book, id: str, run: str) -> None:
        """Raises Fenced unless `run` is the current run of a book that has not expired."""
        if book.expired_ms:
            raise Fenced(f"transactional id {id} was not used for long and has expired: open a new run")
        if run != book.run:
            raise Fenced(f"run {run} of {id} is not the current one: that is {book.run}")

    # state

    def book(self, id: str) -> Book:
        """Returns the book of an id; raises IllegalOperation if unknown here or at home at another broker."""
        book = self.books.get(id)
        if book is None:
            raise IllegalOperation(f"transactional id {id} was never opened here")
        if book.home != self.broker_name:
            raise IllegalOperation(f"the home of {id} is broker {book.home}, not {self.broker_name}")
        return book

    def snapshot(self, id: str) -> list[Change]:
        """Returns the changes that, applied in order, make a book as it is now."""
        book = self.books[id]
        kept = BookKept(
            id,
            book.home,
            book.run,
            list(book.past),
            book.highest,
            book.settled,
            book.used_ms,
            book.expired_ms,
        )
        return [kept, *(BookDecided(id, batch, entry, book.settled) for batch, entry in book.decided.items())]

    # storing and applying changes

    def read(self, body: bytes) -> Change:
        """Decodes a stored change. Raises BrokenBody."""
        return read_change(body)

    def key(self, change: Change) -> str:
        return change.id

    def removes(self, change: Change) -> bool:
        return isinstance(change, BookForgotten)

    def apply(self, change: Change, at_ms: int = 0) -> None:
        """Applies a change that was stored at `at_ms`. Changes are applied in the order of the log."""
        if isinstance(change, BookOpened):
            self._opened(change)
            self.books[change.id].used_ms = at_ms
        elif isinstance(change, BookExpired):
            book = self.books.setdefault(change.id, Book(self.broker_name))
            self.books[change.id] = _expired(book, change)
        elif isinstance(change, BookForgotten):
            self.books.pop(change.id, None)
        elif isinstance(change, BookDecided):
            book = self.books.setdefault(change.id, Book(self.broker_name))
            book.used_ms = max(book.used_ms, at_ms)
            book.decided.setdefault(change.batch, change.entry)
            book.highest = max(book.highest, change.batch)
            self._settled(book, change.settled)
        else:
            book = self.books.setdefault(change.id, Book(change.home))
            book.home, book.run, book.past = change.home, change.run, list(change.past)
            book.used_ms, book.expired_ms = change.used_ms or at_ms, change.expired_ms
            book.highest = max(book.highest, change.highest)
            self._settled(book, change.settled)

    def settled(self, id: str, batch: int) -> None:
        """Notes that no broker has open half messages of the batches up to `batch`.

        Stored with the next decision only: without it, a broker merely keeps more entries.
        """
        book = self.book(id)
        self._settled(book, min(batch, book.highest))

    def _opened(self, change: BookOpened) -> None:
        book = self.books.setdefault(change.id, Book(change.home))
        if book.run and book.run != change.run and change.home == self.broker_name:
            book.past = [*book.past, book.run][-MAX_PAST_RUNS:]
        book.home, book.run, book.expired_ms = change.home, change.run, 0

    def _settled(self, book: Book, batch: int) -> None:
        book.settled = max(book.settled, batch)
        done = sorted(one for one in book.decided if one <= book.settled)
        for one in done[:-MAX_SETTLED]:
            del book.decided[one]


def _expired(book: Book, change: BookExpired) -> Book:
    return Book(
        book.home,
        highest=book.highest,
        settled=book.highest,
        used_ms=change.used_ms,
        expired_ms=change.expired_ms,
    )


def entry_of(book: Book, batch: int) -> LedgerEntry | None:
    """Returns the decision of a batch; None: it is not decided.

    An old batch whose winners were dropped has an entry without tokens.
    """
    return book.decided.get(batch, NO_WINNERS if batch <= book.highest else None)


def owed(book: Book) -> list[str]:
    """Returns the brokers that may still have open half messages of decided batches."""
    entries = (entry for batch, entry in book.decided.items() if batch > book.settled)
    return sorted({broker for entry in entries for broker in entry.brokers})


def verdict(book: Book | None, stamp: LedgerStamp) -> HalfDecision | None:
    """Returns COMMIT or ROLLBACK for a half message, from its stamp and book; None: it is not decided yet."""
    if book is None:
        return None
    entry = entry_of(book, stamp.batch)
    if entry is not None:
        return HalfDecision.COMMIT if stamp.token in entry.tokens else HalfDecision.ROLLBACK
    return HalfDecision.ROLLBACK if stamp.run in book.past or book.expired_ms else None


def state_of(book: Book, broker: str) -> str:
    """Returns the state of a book as tools show it: elsewhere, expired, unsettled or open."""
    if book.home != broker:
        return "elsewhere"
    if book.expired_ms:
        return "expired"
    return "unsettled" if owed(book) else "open"


def check_names(*names: str) -> None:
    """Raises InvalidParameter for a name that is empty, too long or not printable."""
    for name in names:
        if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
            rule = f"must be 1 to {MAX_NAME_LENGTH} printable characters"
            raise InvalidParameter(f"ids, runs, tokens and brokers {rule}, got {name[:40]!r}")
