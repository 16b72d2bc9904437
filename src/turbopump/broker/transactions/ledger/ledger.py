"""The books of decisions: a state machine without clock, disk and network.

In: a run that begins, a decision about a batch. Out: the change that has to be written down, or a refusal.
A change counts when it is applied, and the log applies the same changes again at the next start. And the
verdict about a half message, from its stamp and the book of its id:

    its batch is decided            committed if its token has won, else rolled back
    a later batch is decided        rolled back: this one never will be
    its run is fenced off           rolled back
    its book has expired            rolled back: nobody has come back to decide it
    none of these                   it waits, for as long as it takes

A batch is decided once. Its winners are forgotten only when all brokers that have messages of them have ended
those; what is forgotten stays decided. A book that nobody has used for long expires: of it only the number of
the last decided batch stays, so a job that resumes continues after it.
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
from turbopump.protocol.ledger import Book, LedgerEntry

MAX_SETTLED: Final = 64  # entries of settled batches
MAX_UNSETTLED: Final = 4096  # entries that are owed to brokers which do not answer
MAX_PAST_RUNS: Final = 256
MAX_BOOKS: Final = 65_536  # that have not expired
MAX_IDS: Final = 1_000_000  # ids in all, also expired ones and those whose home is elsewhere
MAX_NAME_LENGTH: Final = 255  # of ids, runs, tokens and brokers
MAX_ENTRY_BYTES: Final = 1 << 20  # bytes
NOBODY: Final = LedgerEntry(())


class BookOpened(msgspec.Struct, frozen=True, tag="opened"):
    """`home` is another broker: all that is noted here is where."""

    id: str
    run: str
    home: str


class BookDecided(msgspec.Struct, frozen=True, tag="decided"):
    id: str
    batch: int
    entry: LedgerEntry
    settled: int


class BookKept(msgspec.Struct, frozen=True, tag="kept"):
    """All but the entries of a book, once more, since earlier records are about to go."""

    id: str
    home: str
    run: str
    past: list[str]
    highest: int
    settled: int
    used_ms: int = 0
    expired_ms: int = 0


class BookExpired(msgspec.Struct, frozen=True, tag="expired"):
    """Nobody has used the book since `used_ms`."""

    id: str
    used_ms: int
    expired_ms: int


class BookForgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    """Somebody has asked for it: nothing of the id is known any more."""

    id: str


Change = BookOpened | BookDecided | BookKept | BookExpired | BookForgotten

_CHANGE: msgspec.json.Decoder[Change] = msgspec.json.Decoder(Change)


def read_change(body: bytes) -> Change:
    try:
        return _CHANGE.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenBody(f"a record of the ledger cannot be read: {error}") from None


class LedgerBooks:
    def __init__(self, broker_name: str) -> None:
        self.broker_name = broker_name
        self.books: dict[str, Book] = {}

    # what is to be written down; None: nothing

    def open(self, id: str, run: str, home: str) -> BookOpened | None:
        """A run that is new becomes the current one, and fences off all before it, for ever."""
        check_names(id, run, home)
        book = self.books.get(id)
        if book is None:
            self._check_room()
            return BookOpened(id, run, home)
        if book.home != home:
            raise IllegalOperation(f"the home of {id} is broker {book.home}, not {home}")
        if run == book.run or home != self.broker_name:
            return None
        if run in book.past:
            raise Fenced(f"run {run} of {id} was ended by a newer one; the current run is {book.run}")
        return BookOpened(id, run, home)

    def decide(self, id: str, batch: int, run: str, entry: LedgerEntry) -> BookDecided | None:
        """None: it was decided before, see `entry`."""
        book = self.book(id)
        if batch in book.decided or batch <= book.highest:
            return None
        if batch < 0:
            raise InvalidParameter(f"batch {batch}: the first one is 0")
        self.check_run(book, id, run)
        check_names(*entry.tokens, *entry.brokers)
        size = sum(map(len, (*entry.tokens, *entry.brokers)))
        if size > MAX_ENTRY_BYTES:
            raise InvalidParameter(f"tokens and brokers take {size} bytes, {MAX_ENTRY_BYTES} is the most")
        if sum(one > book.settled for one in book.decided) >= MAX_UNSETTLED:
            where = ", ".join(owed(book))
            raise IllegalOperation(f"{MAX_UNSETTLED} decided batches of {id} are not settled yet at {where}")
        won = LedgerEntry(tuple(sorted(set(entry.tokens))), tuple(sorted(set(entry.brokers))))
        return BookDecided(id, batch, won, book.settled)

    def _check_room(self) -> None:
        if len(self.books) < MAX_BOOKS:
            return
        live = sum(not book.expired_ms and book.home == self.broker_name for book in self.books.values())
        if live >= MAX_BOOKS or len(self.books) >= MAX_IDS:
            raise SystemBusy(
                f"there are {live} transactional ids here already, {len(self.books)} with expired ones: "
                "`turbopump transactions ids` shows them, `turbopump transactions forget` removes one"
            )

    def idle(self, before_ms: int) -> list[str]:
        """Books kept here that were last used before then and have nothing left to settle."""
        return [
            id
            for id, book in self.books.items()
            if book.home == self.broker_name
            and not book.expired_ms
            and book.used_ms < before_ms
            and not owed(book)
        ]

    def expire(self, id: str, now_ms: int) -> BookExpired:
        return BookExpired(id, self.books[id].used_ms, now_ms)

    def forget(self, id: str) -> BookForgotten:
        """Raises IllegalOperation while brokers have half messages that are decided and not ended."""
        book = self.books.get(id)
        if book is None:
            raise QueryNotFound(f"transactional id {id} is not known here")
        if brokers := owed(book):
            raise IllegalOperation(f"decided batches of {id} are not settled yet at {', '.join(brokers)}")
        return BookForgotten(id)

    def check_run(self, book: Book, id: str, run: str) -> None:
        if book.expired_ms:
            raise Fenced(f"transactional id {id} was not used for long and has expired: open a new run")
        if run != book.run:
            raise Fenced(f"run {run} of {id} is not the current one: that is {book.run}")

    # what is known

    def book(self, id: str) -> Book:
        """One that is kept here."""
        book = self.books.get(id)
        if book is None:
            raise IllegalOperation(f"transactional id {id} was never opened here")
        if book.home != self.broker_name:
            raise IllegalOperation(f"the home of {id} is broker {book.home}, not {self.broker_name}")
        return book

    def snapshot(self, id: str) -> list[Change]:
        """Changes that make the book as it is."""
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

    # changes

    def apply(self, change: Change, at_ms: int = 0) -> None:
        """In the order in which they were written. `at_ms`: when that was."""
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
        """No broker has anything open up to this batch. Not written down by itself: who does not know it
        merely keeps more.
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
    """How a batch was decided; None: it is not. One whose winners are forgotten has nobody."""
    return book.decided.get(batch, NOBODY if batch <= book.highest else None)


def owed(book: Book) -> list[str]:
    """Brokers that may have messages of decided batches which are not settled."""
    entries = (entry for batch, entry in book.decided.items() if batch > book.settled)
    return sorted({broker for entry in entries for broker in entry.brokers})


def verdict(book: Book | None, stamp: LedgerStamp) -> HalfDecision | None:
    """None: it waits."""
    if book is None:
        return None
    entry = entry_of(book, stamp.batch)
    if entry is not None:
        return HalfDecision.COMMIT if stamp.token in entry.tokens else HalfDecision.ROLLBACK
    return HalfDecision.ROLLBACK if stamp.run in book.past or book.expired_ms else None


def state_of(book: Book, broker: str) -> str:
    """In one word, for people."""
    if book.home != broker:
        return "elsewhere"
    if book.expired_ms:
        return "expired"
    return "unsettled" if owed(book) else "open"


def check_names(*names: str) -> None:
    for name in names:
        if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
            raise InvalidParameter(f"{name[:40]!r}: ids, runs, tokens and brokers are short printable text")
