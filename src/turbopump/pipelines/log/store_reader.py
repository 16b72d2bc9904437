"""Reads one partition of a store directory as Arrow record batches.

In: the pieces of a partition and the query they answer. Out: batches of at most `batch_rows` rows. Conditions
that the plan could not decide by files and offsets (tags, keys, times, and topics where the log itself is
read) are checked here, before a column is made. A record that should exist and does not is an error, unless
the query is not strict: then it is skipped.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turbopump.pipelines.decode import BATCH_ROWS as BATCH_ROWS
from turbopump.pipelines.decode import batches
from turbopump.pipelines.inner_batches import has_inner_batches, turns, unpack
from turbopump.pipelines.log.batch_queue import BatchQueueFiles, ends_of, queue_of
from turbopump.pipelines.log.entries import ends_file
from turbopump.pipelines.log.files import StoreFiles, is_in_place, records_between
from turbopump.pipelines.log.plan import LogRange, LogRecords, Partition, QueueRange, StoreQuery
from turbopump.pipelines.log.queue import Entries, QueueEntries
from turbopump.pipelines.property_columns import PropertyColumns, cut
from turbopump.pipelines.record_positions import Data, Mask, Numbers, RecordPositions, locate, store_times
from turbopump.pipelines.schema import Schema
from turbopump.protocol import properties as props
from turbopump.protocol.dledger.entry import HEAD_SIZE
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.names import SCHEDULE_TOPIC
from turbopump.protocol.record import BLANK
from turbopump.store.consume_queue import BLANK_SIZE
from turbopump.store.dledger.entry_scan import beginning
from turbopump.store.pieces import LogPart
from turbopump.store.queue_ext import HIGHEST_ADDRESS

BLANK_MAGIC = BLANK.to_bytes(4, "big", signed=True)
LIGHT_PREFIX = "%LMQ%"  # light queues, which point to messages of other topics


class RecordsLost(Exception):
    """The store lacks messages that it should have; the text says where, and how to read the rest."""


@dataclass(frozen=True, slots=True)
class RowFormat:
    """Says how rows are built: their columns, the value of brokerName, and the largest size of a batch."""

    schema: Schema
    broker: str | None = None
    batch_rows: int = BATCH_ROWS


class StoreReader:
    """Reads partitions of one store directory as Arrow batches; maps its files when first needed."""

    def __init__(self, files: StoreFiles, query: StoreQuery, rows: RowFormat) -> None:
        self._files = files
        self._query = query
        self._rows = rows
        self._topics: dict[bytes, bool] = {}

    def read(self, partition: Partition) -> Iterator[pa.RecordBatch]:
        """Yields a partition's rows in batches. Raises RecordsLost if records are missing, if strict."""
        for piece in partition:
            match piece:
                case QueueRange():
                    yield from self._of_batches(piece) if piece.name.is_batch else self._queue(piece)
                case LogRange():
                    yield from self._log(piece)
                case LogRecords():
                    yield from self._picked(piece)

    # by queue

    def _queue(self, wanted: QueueRange) -> Iterator[pa.RecordBatch]:
        at, order = wanted.begin, _LogOrder()
        for first, entries in QueueEntries(self._files, wanted.name).pieces(wanted.begin, wanted.end):
            self._missing(first - at, f"{_named(wanted)}: entries from offset {at}")
            for begin in range(0, len(entries), self._rows.batch_rows):
                block = entries[begin : begin + self._rows.batch_rows]
                yield from self._block(wanted, first + begin, block, order)
            at = first + len(entries)
        self._missing(wanted.end - at, f"{_named(wanted)}: entries from offset {at}")

    def _block(
        self, wanted: QueueRange, first: int, entries: Entries, order: "_LogOrder"
    ) -> Iterator[pa.RecordBatch]:
        kept = np.flatnonzero((entries["size"] != BLANK_SIZE) & self._may_have_tags(wanted, entries))
        yield from self._named_by(wanted, entries[kept], first + kept, IN_QUEUES, order)

    def _named_by(
        self,
        wanted: QueueRange,
        entries: Entries,
        offsets: Numbers,
        tests: "tuple[Test, ...]",
        order: "_LogOrder",
    ) -> Iterator[pa.RecordBatch]:
        """Yields batches of the records that entries point to; one unlike its entry counts as missing."""
        physical = entries["physical"].astype(np.int64)
        for part, here in self._by_file(physical):
            places = locate(data := self._files.bytes_of(part), physical[here] - part.start)
            good = is_in_place(places, part) & (places.sizes == entries["size"][here])
            if not wanted.name.topic.startswith(LIGHT_PREFIX):
                good &= _is_of(wanted, places, offsets[here])
            good = order.keeps(physical[here], good)
            self._missing(int((~good).sum()), f"{_named(wanted)}: messages after offset {offsets[here][0]}")
            yield from self._batches(data, places.only(good), tests)

    def _may_have_tags(self, wanted: QueueRange, entries: Entries) -> Mask:
        """Marks the entries that may have a wanted tag: its hash matches, or the entry holds no hash.

        The tags themselves are compared when the records are read.
        """
        if not self._query.tags or wanted.name.topic == SCHEDULE_TOPIC:
            return np.ones(len(entries), np.bool_)
        codes = entries["tags"].astype(np.int64)
        return np.isin(codes, [java_hash(tag) for tag in self._query.tags]) | (codes <= HIGHEST_ADDRESS)

    def _by_file(self, physical: Numbers) -> Iterator[tuple[LogPart, slice]]:
        """Yields each log file with the slice of offsets in it; counts offsets in no file as missing."""
        parts = self._files.parts
        which = np.searchsorted([part.start for part in parts], physical, "right") - 1
        which[physical >= np.array([part.end for part in parts])[which]] = -1
        edges = [0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), len(which)]
        for begin, end in pairwise(edges):
            if begin == end:
                continue
            part = parts[which[begin]] if which[begin] >= 0 else None
            if part is None or not self._is_there(part):
                self._missing(end - begin, f"the file of the log that holds offset {physical[begin]}")
            else:
                yield part, slice(begin, end)

    def _is_there(self, part: LogPart) -> bool:
        try:
            self._files.bytes_of(part)
        except FileNotFoundError:  # retention has deleted it
            return False
        return True

    # by queue of batches

    def _of_batches(self, wanted: QueueRange) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a range of a batch consume queue, whose records hold several messages each.

        Entries stand for records, and offsets for messages: the first and the last record may reach beyond
        the range.
        """
        at, within, order = wanted.begin, _between(wanted.begin, wanted.end), _LogOrder()
        for block in BatchQueueFiles(self._files, wanted.name).blocks(wanted.begin, wanted.end):
            firsts = block["first"].astype(np.int64)
            holes = np.maximum(firsts - np.append(at, ends_of(block)[:-1]), 0).sum()
            self._missing(int(holes), f"{_named(wanted)}: entries from offset {at}")
            yield from self._named_by(wanted, block, firsts, (within, *IN_QUEUES), order)
            at = int(ends_of(block)[-1])
        self._missing(wanted.end - at, f"{_named(wanted)}: entries from offset {at}")

    # by log

    def _log(self, wanted: LogRange) -> Iterator[pa.RecordBatch]:
        part = self._files.part_at(wanted.begin)
        if part is None or not self._is_there(part):
            self._missing(1, f"the file of the log that holds offset {wanted.begin}")
            return
        data = self._files.bytes_of(part)
        at, end = wanted.begin - part.start, min(wanted.end, part.end) - part.start
        if part.holds_entries and at == 0:
            at = beginning(data, part.size)
        while at < end:
            starts, at = records_between(data, part, at, end)
            yield from self._walked(data, part, starts)
            if at < end and not _ends_file(data, part, at):
                self._missing(1, f"records after log offset {part.start + at}")
                at = self._next_record(part, at) - part.start
            else:
                return

    def _walked(self, data: Data, part: LogPart, starts: Numbers) -> Iterator[pa.RecordBatch]:
        for begin in range(0, len(starts), self._rows.batch_rows):
            places = locate(data, starts[begin : begin + self._rows.batch_rows])
            good = is_in_place(places, part)
            self._missing(int((~good).sum()), f"records after log offset {part.start + starts[begin]}")
            yield from self._batches(data, places.only(good), IN_LOG)

    def _next_record(self, part: LogPart, position: int) -> int:
        """Returns the log offset of the first record or entry behind a position that a queue has.

        Reading continues there after damage; the log's end if there is none.
        """
        physical = part.start + position + 1 + (HEAD_SIZE if part.holds_entries else 0)
        queues = [queue_of(self._files, name) for name in self._files.queue_names]
        found = [at for queue in queues if (at := queue.first_at(physical)) is not None]
        return self._files.begin_of(min(found)) if found else self._files.parts[-1].end

    def _picked(self, wanted: LogRecords) -> Iterator[pa.RecordBatch]:
        physical = np.array(wanted.offsets, np.int64)
        for part, here in self._by_file(physical):
            places = locate(data := self._files.bytes_of(part), physical[here] - part.start)
            yield from self._batches(data, places.only(is_in_place(places, part)), IN_LOG)

    # conditions

    def _batches(
        self, data: Data, places: RecordPositions, tests: "tuple[Test, ...]"
    ) -> Iterator[pa.RecordBatch]:
        if not has_inner_batches(places):
            yield from self._chosen(data, places, tests)
            return
        for some in turns(places.sizes):
            unpacked, starts = unpack(data, places.starts[some])
            yield from self._chosen(unpacked, locate(unpacked, starts), tests)

    def _chosen(
        self, data: Data, places: RecordPositions, tests: "tuple[Test, ...]"
    ) -> Iterator[pa.RecordBatch]:
        for is_wanted in tests:
            mask = is_wanted(self, data, places)
            if mask is not None and not mask.all():
                places = places.only(mask)
        if len(places):
            yield from batches(data, places, self._rows.schema, self._rows.broker, self._rows.batch_rows)

    def in_time(self, data: Data, places: RecordPositions) -> Mask | None:
        return is_in_time(data, places, self._query.since_ms, self._query.until_ms)

    def of_topics(self, data: Data, places: RecordPositions) -> Mask | None:
        names = cut(data, *places.topics, pa.binary()).dictionary_encode()
        wanted = [self._wants(name) for name in names.dictionary.to_pylist()]
        return None if all(wanted) else np.array(wanted)[names.indices.to_numpy()]

    def _wants(self, topic: bytes) -> bool:
        if topic not in self._topics:
            self._topics[topic] = self._query.wants_topic(topic.decode("utf-8", "replace"))
        return self._topics[topic]

    def of_queues(self, data: Data, places: RecordPositions) -> Mask | None:
        if self._query.queues is None:
            return None
        return np.isin(places.number("queue_id"), list(self._query.queues))

    def with_tags(self, data: Data, places: RecordPositions) -> Mask | None:
        return has_tag(data, places, self._query.tags) if self._query.tags else None

    def with_key(self, data: Data, places: RecordPositions) -> Mask | None:
        key = self._query.key
        if not key:
            return None
        pairs = PropertyColumns(data, *places.properties)
        mask = _mask(pc.equal(pairs.pick(props.UNIQUE_KEY), key))
        keys = pairs.pick(props.KEYS)
        for row in np.flatnonzero(_mask(pc.match_substring(keys, key))):
            mask[row] |= key in keys[int(row)].as_py().split(" ")
        return mask

    def _missing(self, count: int, what: str) -> None:
        if count > 0 and self._query.is_strict:
            raise RecordsLost(
                f"{self._files.directory}: {what} cannot be read. `turbopump store verify` shows details; "
                "failOnDataLoss=false skips what is missing"
            )


Test = Callable[[StoreReader, Data, RecordPositions], Mask | None]
IN_QUEUES: tuple[Test, ...] = (StoreReader.in_time, StoreReader.with_tags, StoreReader.with_key)
IN_LOG: tuple[Test, ...] = (StoreReader.of_topics, StoreReader.of_queues, *IN_QUEUES)
"""Conditions that each record must meet: each returns a mask, or None for all records."""


class _LogOrder:
    """Finds repeated records of one queue: those not after the last record that was read from the log.

    A queue's messages lie in the log in the order of the queue: a record before one that was read is not read
    again.
    """

    def __init__(self) -> None:
        self._last = -1

    def keeps(self, physical: Numbers, good: Mask) -> Mask:
        """Marks the `good` records whose log offset exceeds that of all good ones before, over all calls."""
        latest = np.maximum.accumulate(np.append(self._last, np.where(good, physical, -1)))
        self._last = int(latest[-1])
        mask: Mask = good & (physical > latest[:-1])
        return mask


def _between(begin: int, end: int) -> Test:
    def of_offsets(reader: StoreReader, data: Data, places: RecordPositions) -> Mask:
        offsets = places.number("queue_offset")
        mask: Mask = (offsets >= begin) & (offsets < end)
        return mask

    return of_offsets


def is_in_time(data: Data, places: RecordPositions, since: int | None, until: int | None) -> Mask | None:
    """Marks records stored in [since, until), in ms; returns None, meaning all, if neither bound is given."""
    if since is None and until is None:
        return None
    times = store_times(data, places)
    mask: Mask = np.ones(len(places), np.bool_)
    if since is not None:
        mask &= times >= since
    if until is not None:
        mask &= times < until
    return mask


def has_tag(data: Data, places: RecordPositions, tags: frozenset[str]) -> Mask:
    """Marks records with one of the tags."""
    found = PropertyColumns(data, *places.properties).pick(props.TAGS)
    return _mask(pc.is_in(found, value_set=pa.array(sorted(tags), pa.string())))


def _named(wanted: QueueRange) -> str:
    return f"{wanted.name.topic}/{wanted.name.queue_id}"


def _is_of(wanted: QueueRange, places: RecordPositions, offsets: Numbers) -> Mask:
    """Marks records whose queue id is that of `wanted` and whose queue offset is the one in `offsets`."""
    mask: Mask = places.number("queue_offset") == offsets
    mask &= places.number("queue_id") == wanted.name.queue_id
    return mask


def _ends_file(data: Data, part: LogPart, position: int) -> bool:
    if part.holds_entries:
        return ends_file(data, position)
    return bool(len(data) - position < 8) or data[position + 4 : position + 8] == BLANK_MAGIC


def _mask(column: pa.Array) -> Mask:
    found: Mask = pc.fill_null(column, False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return found
