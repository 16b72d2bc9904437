"""Half messages about which a ledger decides: the stamp on each, and the table of those that are open.

In: half messages as they are stored or found at a start. Out: the open ones of an id, by batch and token. The
stamp is only in the properties of the half record; the message that consumers get does not have it. Whether a
half message is still open is known to `halves.py`: some of those here may have ended meanwhile.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from turbopump.protocol import properties

ID: Final = "TURBOPUMP_TXN"
BATCH: Final = "TURBOPUMP_TXN_BATCH"
RUN: Final = "TURBOPUMP_TXN_RUN"
TOKEN: Final = "TURBOPUMP_TXN_TOKEN"
HOME: Final = "TURBOPUMP_TXN_HOME"
STAMP: Final = (ID, BATCH, RUN, TOKEN, HOME)
GROUP: Final = "TURBOPUMP_LEDGER"
"""The producer group of stamped half messages. It has no members."""

MAX_DIGITS = 18  # of a batch's number
_MARK = ID.encode() + properties.NAME_END.encode()


@dataclass(frozen=True, slots=True)
class LedgerStamp:
    """The properties of a half message that tie it to a batch, run and token of a transactional id."""

    id: str
    batch: int
    run: str
    token: str
    home: str  # the broker that keeps the book

    def pairs(self) -> dict[str, str]:
        return dict(zip(STAMP, (self.id, str(self.batch), self.run, self.token, self.home), strict=True))


def stamp_of(packed: bytes) -> LedgerStamp | None:
    """Returns the ledger's stamp in packed properties; None: a producer decides about the half message."""
    if _MARK not in packed:
        return None
    pairs = properties.parse(packed)
    if not all(name in pairs for name in STAMP):
        return None
    id, batch, run, token, home = (pairs[name] for name in STAMP)
    if not batch.isdecimal() or len(batch) > MAX_DIGITS:
        return None
    return LedgerStamp(id, int(batch), run, token, home)


@dataclass(slots=True)
class WrittenHalf:
    """The open half messages, by root, of one attempt (token) at a batch."""

    stamp: LedgerStamp
    roots: dict[int, None] = field(default_factory=dict)


class StampedHalves:
    """The open half messages about which a ledger decides, by transactional id, batch and token."""

    def __init__(self) -> None:
        self._ids: dict[str, dict[int, dict[str, WrittenHalf]]] = {}  # id -> batch -> token
        self._counts: dict[str, int] = {}
        self.total = 0

    def add(self, stamp: LedgerStamp, roots: Iterable[int]) -> None:
        tokens = self._ids.setdefault(stamp.id, {}).setdefault(stamp.batch, {})
        written = tokens.get(stamp.token)
        if written is None:
            written = tokens[stamp.token] = WrittenHalf(stamp)
        before = len(written.roots)
        written.roots.update(dict.fromkeys(roots))
        self._count(stamp.id, len(written.roots) - before)

    def discard(self, written: WrittenHalf, roots: Iterable[int]) -> None:
        """Removes half messages that have ended, by their roots; unknown roots are ignored."""
        before = len(written.roots)
        for root in roots:
            written.roots.pop(root, None)
        if len(written.roots) == before:
            return
        self._count(written.stamp.id, len(written.roots) - before)
        if not written.roots:
            self._forget(written.stamp)

    def _count(self, id: str, more: int) -> None:
        self._counts[id] = self._counts.get(id, 0) + more
        self.total += more

    def _forget(self, stamp: LedgerStamp) -> None:
        batches = self._ids[stamp.id]
        del batches[stamp.batch][stamp.token]
        if not batches[stamp.batch]:
            del batches[stamp.batch]
        if not batches:
            del self._ids[stamp.id], self._counts[stamp.id]

    def ids(self) -> list[str]:
        return list(self._ids)

    def count(self, id: str) -> int:
        return self._counts.get(id, 0)

    def batches(self, id: str, last: int | None = None) -> list[int]:
        """Returns the batches of an id with open half messages, lowest first, up to and with `last`."""
        return sorted(batch for batch in self._ids.get(id, {}) if last is None or batch <= last)

    def of(self, id: str, batch: int) -> Iterator[WrittenHalf]:
        """Yields each attempt at a batch with its half messages; those may be discarded during iteration."""
        yield from list(self._ids.get(id, {}).get(batch, {}).values())
