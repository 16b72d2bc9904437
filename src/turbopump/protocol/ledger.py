"""What the ledger of decisions holds, as brokers and clients tell each other: JSON in, values out.

A transaction of many messages has an id that outlives its writers, such as a streaming query, and goes in
batches. Each attempt at writing a part of a batch has a token of its own. Which tokens win a batch is decided
once, in one place: the book of the id, kept by the broker that is its home.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from turbopump.protocol.errors import BrokenBody

T = TypeVar("T")

NONE_YET = -1


class Entry(msgspec.Struct, frozen=True):
    """How a batch was decided: the attempts that won, and the brokers that have messages of them."""

    tokens: tuple[str, ...]
    brokers: tuple[str, ...] = ()


class Book(msgspec.Struct):
    """What is known of one id. `home` is elsewhere: then the rest is not known here."""

    home: str
    run: str = ""  # the current one
    past: list[str] = []  # runs that are fenced off, oldest first
    highest: int = NONE_YET  # batch that is decided
    settled: int = NONE_YET  # up to this batch nothing is open at any broker
    decided: dict[int, Entry] = {}  # by batch; settled ones are forgotten in time
    used_ms: int = 0  # when it was last opened or decided in
    expired_ms: int = 0  # since then nothing but `highest` is kept; 0: it has not expired
    owed: list[str] = []
    """In answers: brokers that may have messages of decided batches which are not settled."""


class BookSummary(msgspec.Struct, frozen=True):
    """A line of the list of books of one broker. `state`: open, unsettled (brokers have half messages to
    end), expired, or elsewhere (another broker is its home).
    """

    id: str
    home: str
    state: str
    run: str
    highest: int
    used_ms: int
    open_messages: int = 0  # half messages of it at the broker that answers


def encode(value: Entry | Book | Sequence[int] | Sequence[BookSummary]) -> bytes:
    return msgspec.json.encode(value)


def read_entry(body: bytes) -> Entry:
    return _read(body, _ENTRY)


def read_book(body: bytes) -> Book:
    return _read(body, _BOOK)


def read_summaries(body: bytes) -> list[BookSummary]:
    return _read(body, _SUMMARIES)


def read_batches(body: bytes) -> list[int]:
    """Of an empty body: none."""
    return _read(body, _BATCHES) if body else []


_ENTRY = msgspec.json.Decoder(Entry)
_BOOK = msgspec.json.Decoder(Book)
_SUMMARIES = msgspec.json.Decoder(list[BookSummary])
_BATCHES = msgspec.json.Decoder(list[int])


def _read(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenBody(f"the ledger's body cannot be read: {error}") from None
