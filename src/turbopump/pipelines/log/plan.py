"""Plans which parts of a store answer a query, and divides them into partitions. Pure.

In: a `StoreQuery`, and the queues with their first and last offsets. Out: partitions, each read by one
reader. The end of every queue is fixed here, once: messages stored later are not part of the answer, however
long reading takes.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from turbopump.pipelines.log.files import QueueName
from turbopump.pipelines.options import EARLIEST, LATEST
from turbopump.pipelines.refusals import nearest
from turbopump.protocol.names import is_retry_or_dlq, is_system_topic
from turbopump.store.pieces import LogPart

LAST_OFFSET = 2**63 - 1
FEW_ROWS = 10_000
"""Queues with fewer rows share a partition: thousands of tasks of a few rows cost more than reading them."""
ROWS_PER_PARTITION = 250_000


class OffsetsGone(ValueError):
    """Requested offsets are deleted or not yet in the store; the text says how to read the rest."""


class NoSuchTopic(ValueError):
    """The store does not have the topic; the text names the nearest that it has."""


@dataclass(frozen=True, slots=True)
class QueuePositions:
    """Start or end offsets of a query: `of` for the queues named there, `default` for all others."""

    default: int
    of: Mapping[QueueName, int] = field(default_factory=dict)

    def at(self, name: QueueName) -> int:
        return self.of.get(name, self.default)


@dataclass(frozen=True, slots=True)
class StoreQuery:
    """Which messages of a store are read. Without topics: all topics that are not the broker's own."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    has_system: bool = False  # includes the broker's own topics
    among: frozenset[str] | None = None  # only these topics, whether the store has them or not
    queues: frozenset[int] | None = None
    min_offset: int = 0  # in any queue
    max_offset: int = LAST_OFFSET
    starting: QueuePositions = QueuePositions(EARLIEST)
    ending: QueuePositions = QueuePositions(LATEST)
    since_ms: int | None = None  # stored in [since, until)
    until_ms: int | None = None
    tags: frozenset[str] = frozenset()  # empty: any
    key: str = ""
    scan: str = ""  # queue or log; empty: by queue where there are queues
    is_strict: bool = True  # missing messages are an error
    rows_per_partition: int = ROWS_PER_PARTITION

    def wants_topic(self, name: str) -> bool:
        if self.among is not None and name not in self.among:
            return False
        if self.topics:
            return name in self.topics
        if not self.has_system and (is_system_topic(name) or is_retry_or_dlq(name)):
            return False
        return not self.pattern or re.fullmatch(self.pattern, name) is not None

    def wants(self, name: QueueName) -> bool:
        return self.wants_topic(name.topic) and (self.queues is None or name.queue_id in self.queues)


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Queue offsets [begin, end) of one queue."""

    name: QueueName
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class LogRange:
    """Log offsets [begin, end) within one file of the commit log.

    Both are where records begin, or the end of the log.
    """

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class LogRecords:
    """Log offsets, rising, of records that may have the wanted key; keys are compared when they are read."""

    offsets: tuple[int, ...]


Piece = QueueRange | LogRange | LogRecords
Partition = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class QueueEnds:
    """A queue's first offset and the one after its last, and the offsets that bound the wanted times."""

    name: QueueName
    begin: int
    end: int
    since: int | None = None
    until: int | None = None


def check_topics(query: StoreQuery, known: Sequence[str]) -> None:
    """Raises NoSuchTopic for a named topic that the store does not have."""
    for name in query.topics:
        if name not in known:
            hint = nearest(name, dict(zip(known, known, strict=True)), f"it has {', '.join(known) or 'none'}")
            raise NoSuchTopic(f"the store has no topic {name!r}: {hint}")


def narrowed(query: StoreQuery, ends: QueueEnds) -> QueueRange:
    """Returns the range of a queue that the query wants, perhaps empty. Raises OffsetsGone if strict."""
    begin, end = query.starting.at(ends.name), query.ending.at(ends.name)
    if query.is_strict and 0 <= begin < ends.begin:
        raise OffsetsGone(
            f"{ends.name.topic}/{ends.name.queue_id} begins at offset {ends.begin}: {begin} is gone. "
            "Begin at earliest, or set failOnDataLoss=false"
        )
    if query.is_strict and ends.name in query.ending.of and end > ends.end:
        raise OffsetsGone(
            f"{ends.name.topic}/{ends.name.queue_id} ends at offset {ends.end}: it cannot be read up to "
            f"{end}. End at latest, or set failOnDataLoss=false"
        )
    if query.is_strict and ends.name in query.starting.of and begin > ends.end:
        raise OffsetsGone(
            f"{ends.name.topic}/{ends.name.queue_id} ends at offset {ends.end}: it cannot be read from "
            f"{begin} on. Begin at an earlier offset, or set failOnDataLoss=false"
        )
    begin = {EARLIEST: ends.begin, LATEST: ends.end}.get(begin, begin)
    end = {EARLIEST: ends.begin, LATEST: ends.end}.get(end, end)
    begin = max(begin, ends.begin, query.min_offset, ends.since if ends.since is not None else 0)
    end = min(end, ends.end, query.max_offset + 1, ends.until if ends.until is not None else ends.end)
    return QueueRange(ends.name, begin, max(begin, end))


def divided(ranges: Iterable[QueueRange], max_rows: int) -> list[Partition]:
    """Returns partitions of queue ranges: long ones cut to at most `max_rows` each, short ones joined."""
    partitions: list[Partition] = []
    together: list[QueueRange] = []
    for one in ranges:
        if len(one) >= min(FEW_ROWS, max_rows):
            partitions += [(piece,) for piece in pieces_of(one, max_rows)]
        elif len(one):
            if sum(map(len, together)) + len(one) > min(FEW_ROWS, max_rows):
                partitions.append(tuple(together))
                together = []
            together.append(one)
    return [*partitions, tuple(together)] if together else partitions


def pieces_of(one: QueueRange, max_rows: int) -> list[QueueRange]:
    count = -(-len(one) // max_rows)
    edges = [one.begin + len(one) * number // count for number in range(count + 1)]
    return [QueueRange(one.name, begin, end) for begin, end in pairwise(edges)]


def preferred_cuts(begin: int, end: int, rows_per_byte: float, max_rows: int) -> list[int]:
    """Returns log offsets, not at record starts, that cut [begin, end) evenly by about `max_rows` rows."""
    count = max(1, round(rows_per_byte * (end - begin) / max_rows + 0.5))
    return [begin + (end - begin) * number // count for number in range(1, count)]


def log_ranges(part: LogPart, end: int, cuts: Iterable[int]) -> list[Partition]:
    """Divides a log file, up to log offset `end`, at the given cuts into partitions of one LogRange each."""
    end = min(end, part.end)
    edges = sorted({part.start, end, *(cut for cut in cuts if part.start < cut < end)})
    return [(LogRange(begin, stop),) for begin, stop in pairwise(edges)]
