"""The books of decisions: a state machine without clock, disk and network.

In: a run that begins, a decision about a batch. Out: the change that has to be written down, or a refusal.
A change counts when it is applied, and the log applies the same changes again at the next start. And the
verdict about a half message, from its stamp and the book of its id:

    its batch is decided            committed if its token has won, else rolled back
    a later batch is decided        rolled back: this one never will be
    its run is fenced off           rolled back
    none of these                   it waits, for as long as it takes

A batch is decided once. Its winners are forgotten only when all brokers that have messages of them have ended
those; what is forgotten stays decided.
"""

from typing import Final

import msgspec

from turbopump.broker.halves import Decision
from turbopump.broker.stamped import Stamp
from turbopump.protocol.errors import BrokenBody, Fenced, IllegalOperation, InvalidParameter, SystemBusy
from turbopump.protocol.ledger import Book, Entry

KEPT_SETTLED: Final = 64  # entries of settled batches
MOST_UNSETTLED: Final = 4096  # entries that are owed to brokers which do not answer
PAST_RUNS: Final = 256
MOST_BOOKS: Final = 65_536
LONGEST_NAME: Final = 255  # of ids, runs, tokens and brokers
LARGEST_ENTRY: Final = 1 << 20  # bytes
NOBODY: Final = Entry(())


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """`home` is another broker: all that is noted here is where."""

    id: str
    run: str
    home: str


class Decided(msgspec.Struct, frozen=True, tag="decided"):
    id: str
    batch: int
    entry: Entry
    settled: int


class Kept(msgspec.Struct, frozen=True, tag="kept"):
    """All but the entries of a book, once more, since earlier records are about to go."""

    id: str
    home: str
    run: str
    past: list[str]
    highest: int
    settled: int


Change = Opened | Decided | Kept

_CHANGE: msgspec.json.Decoder[Change] = msgspec.json.Decoder(Change)


def read_change(body: bytes) -> Change:
    try:
        return _CHANGE.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenBody(f"a record of the ledger cannot be read: {error}") from None


class Ledger:
    def __init__(self, broker_name: str) -> None:
        self._name = broker_name
        self.books: dict[str, Book] = {}

    # what is to be written down; None: nothing

    def open(self, id: str, run: str, home: str) -> Opened | None:
        """A run that is new becomes the current one, and fences off all before it, for ever."""
        check_names(id, run, home)
        book = self.books.get(id)
        if book is None:
            if len(self.books) >= MOST_BOOKS:
                raise SystemBusy(f"there are {len(self.books)} transactional ids already")
            return Opened(id, run, home)
        if book.home != home:
            raise IllegalOperation(f"the home of {id} is broker {book.home}, not {home}")
        if run == book.run or home != self._name:
            return None
        if run in book.past:
            raise Fenced(f"run {run} of {id} was ended by a newer one; the current run is {book.run}")
        return Opened(id, run, home)

    def decide(self, id: str, batch: int, run: str, entry: Entry) -> Decided | None:
        """None: it was decided before, see `entry`."""
        book = self.book(id)
        if batch in book.decided or batch <= book.highest:
            return None
        if batch < 0:
            raise InvalidParameter(f"batch {batch}: the first one is 0")
        self.check_run(book, id, run)
        check_names(*entry.tokens, *entry.brokers)
        size = sum(map(len, (*entry.tokens, *entry.brokers)))
        if size > LARGEST_ENTRY:
            raise InvalidParameter(f"tokens and brokers take {size} bytes, {LARGEST_ENTRY} is the most")
        if sum(one > book.settled for one in book.decided) >= MOST_UNSETTLED:
            where = ", ".join(owed(book))
            raise IllegalOperation(f"{MOST_UNSETTLED} decided batches of {id} are not settled yet at {where}")
        won = Entry(tuple(sorted(set(entry.tokens))), tuple(sorted(set(entry.brokers))))
        return Decided(id, batch, won, book.settled)

    def check_run(self, book: Book, id: str, run: str) -> None:
        if run != book.run:
            raise Fenced(f"run {run} of {id} is not the current one: that is {book.run}")

    # what is known

    def book(self, id: str) -> Book:
        """One that is kept here."""
        book = self.books.get(id)
        if book is None:
            raise IllegalOperation(f"transactional id {id} was never opened here")
        if book.home != self._name:
            raise IllegalOperation(f"the home of {id} is broker {book.home}, not {self._name}")
        return book

    def snapshot(self, id: str) -> list[Change]:
        """Changes that make the book as it is."""
        book = self.books[id]
        kept = Kept(id, book.home, book.run, list(book.past), book.highest, book.settled)
        return [kept, *(Decided(id, batch, entry, book.settled) for batch, entry in book.decided.items())]

    # changes

    def apply(self, change: Change) -> None:
        """In the order in which they were written."""
        if isinstance(change, Opened):
            self._opened(change)
        elif isinstance(change, Decided):
            book = self.books.setdefault(change.id, Book(self._name))
            book.decided.setdefault(change.batch, change.entry)
            book.highest = max(book.highest, change.batch)
            self._settled(book, change.settled)
        else:
            book = self.books.setdefault(change.id, Book(change.home))
            book.home, book.run, book.past = change.home, change.run, list(change.past)
            book.highest = max(book.highest, change.highest)
            self._settled(book, change.settled)

    def settled(self, id: str, batch: int) -> None:
        """No broker has anything open up to this batch. Not written down by itself: who does not know it
        merely keeps more.
        """
        book = self.book(id)
        self._settled(book, min(batch, book.highest))

    def _opened(self, change: Opened) -> None:
        book = self.books.setdefault(change.id, Book(change.home))
        if book.run and book.run != change.run and change.home == self._name:
            book.past = [*book.past, book.run][-PAST_RUNS:]
        book.home, book.run = change.home, change.run

    def _settled(self, book: Book, batch: int) -> None:
        book.settled = max(book.settled, batch)
        done = sorted(one for one in book.decided if one <= book.settled)
        for one in done[:-KEPT_SETTLED]:
            del book.decided[one]


def entry_of(book: Book, batch: int) -> Entry | None:
    """How a batch was decided; None: it is not. One whose winners are forgotten has nobody."""
    return book.decided.get(batch, NOBODY if batch <= book.highest else None)


def owed(book: Book) -> list[str]:
    """Brokers that may have messages of decided batches which are not settled."""
    entries = (entry for batch, entry in book.decided.items() if batch > book.settled)
    return sorted({broker for entry in entries for broker in entry.brokers})


def verdict(book: Book | None, stamp: Stamp) -> Decision | None:
    """None: it waits."""
    if book is None:
        return None
    entry = entry_of(book, stamp.batch)
    if entry is not None:
        return Decision.COMMIT if stamp.token in entry.tokens else Decision.ROLLBACK
    return Decision.ROLLBACK if stamp.run in book.past else None


def check_names(*names: str) -> None:
    for name in names:
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            raise InvalidParameter(f"{name[:40]!r}: ids, runs, tokens and brokers are short printable text")
