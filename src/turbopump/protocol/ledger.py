"""Bodies of the ledger of decisions, exchanged by brokers and clients: JSON in, values out.

A transaction of many messages has an id that outlives its writers, such as a streaming query, and is written
in batches. Each attempt to write a part of a batch has its own token. Which tokens win a batch is decided
once, in one place: the book of the id, kept by the broker that is its home.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from turbopump.protocol.errors import BrokenBody

T = TypeVar("T")

NONE_YET = -1


class LedgerEntry(msgspec.Struct, frozen=True):
    """The decision of one batch: the attempts that won, and the brokers that have messages of them."""

    tokens: tuple[str, ...]
    brokers: tuple[str, ...] = ()


class Book(msgspec.Struct):
    """The state of one transactional id. A broker other than `home` knows nothing but the home."""

    home: str
    run: str = ""  # current run
    past: list[str] = []  # fenced runs, oldest first
    highest: int = NONE_YET  # greatest batch that is decided
    settled: int = NONE_YET  # up to this batch no broker has open messages
    decided: dict[int, LedgerEntry] = {}  # by batch; settled ones are removed after a while
    used_ms: int = 0  # last time a run was opened or a batch decided
    expired_ms: int = 0  # since then only `highest` is kept; 0: not expired
    owed: list[str] = []
    """In answers: brokers that may still have messages of decided batches that are not settled."""


class BookSummary(msgspec.Struct, frozen=True):
    """Summary of one book, in a broker's answer to LEDGER_LIST.

    `state`: open, unsettled (brokers have half messages to end), expired, or elsewhere (another broker is
    its home).
    """

    id: str
    home: str
    state: str
    run: str
    highest: int
    used_ms: int
    open_messages: int = 0  # half messages at the broker that answers


def encode(value: LedgerEntry | Book | Sequence[int] | Sequence[BookSummary]) -> bytes:
    return msgspec.json.encode(value)


def read_entry(body: bytes) -> LedgerEntry:
    return _read(body, _ENTRY)


def read_book(body: bytes) -> Book:
    return _read(body, _BOOK)


def read_summaries(body: bytes) -> list[BookSummary]:
    return _read(body, _SUMMARIES)


def read_batches(body: bytes) -> list[int]:
    """Decodes a list of batch numbers; an empty body is an empty list. Raises BrokenBody."""
    return _read(body, _BATCHES) if body else []


_ENTRY = msgspec.json.Decoder(LedgerEntry)
_BOOK = msgspec.json.Decoder(Book)
_SUMMARIES = msgspec.json.Decoder(list[BookSummary])
_BATCHES = msgspec.json.Decoder(list[int])


def _read(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenBody(f"unreadable ledger body: {error}") from None
