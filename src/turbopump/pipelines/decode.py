"""Decodes the records of a commit log or of a pull response into Arrow columns, without a loop per message.

In: a buffer, the positions where records begin in it, and the wanted columns. Out: a record batch of exactly
that schema; other columns are not decoded. Rare rows (compressed bodies, IPv6 hosts, irregular properties)
are decoded one by one, by the functions that servers and clients use. This module knows neither files nor
brokers.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from turbopump.pipelines.property_columns import PropertyColumns, cut, patched
from turbopump.pipelines.record_positions import (
    BORN_HOST_AT,
    RECONSUMED_AT,
    STORE_HOST_AT,
    Data,
    Mask,
    Numbers,
    RecordPositions,
    field_at,
    locate,
    longer_by,
    starts_in,
    store_times,
)
from turbopump.pipelines.schema import TIME, Schema
from turbopump.protocol import properties as props
from turbopump.protocol.compression import CodecMissing, decompress
from turbopump.protocol.errors import BrokenBody, BrokenRecord
from turbopump.protocol.ids import host_text, offset_id
from turbopump.protocol.record import PHYSICAL_OFFSET_AT
from turbopump.protocol.sysflag import BORN_V6, COMPRESSED, HOSTS_MASK, STORE_V6

__all__ = ["BATCH_ROWS", "BatchTooLarge", "batches", "decode", "starts_in"]

# Years 1 to 9999: no program downstream can show a time outside these.
FIRST_MS = -62_135_596_800_000
LAST_MS = 253_402_300_799_999
SET_BY_BROKER = 1  # Kafka's LogAppendTime
BATCH_ROWS = 16_384  # each batch costs Spark and its worker the same, however many rows it has
MAX_EXPANDED_BATCH = 64 * 1024 * 1024
"""Bytes of decompressed bodies in one batch; a batch that would have more gets fewer rows."""
_DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)


class BatchTooLarge(ValueError):
    """The bodies of these rows do not fit into one batch: decode fewer rows. `batches` does so."""


def decode(data: Data, starts: Numbers, schema: Schema, *, broker: str | None = None) -> pa.RecordBatch:
    """Decodes the records at these rising positions into one batch.

    Raises BrokenRecord when one of them is incomplete, and BatchTooLarge.
    """
    places = locate(data, starts)
    if not places.is_whole.all():
        raise BrokenRecord(f"no complete record at byte {starts[~places.is_whole][0]}")
    return rows_of(data, places, schema, broker)


def batches(
    data: Data, places: RecordPositions, schema: Schema, broker: str | None, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yields the records in decoded batches of at most `rows` rows each, fewer where bodies are large."""
    for at in range(0, len(places), rows):
        part = places.only(slice(at, at + rows))
        try:
            batch = rows_of(data, part, schema, broker)
        except BatchTooLarge:
            yield from batches(data, part, schema, broker, (len(part) + 1) // 2)
        else:
            yield batch


def rows_of(data: Data, places: RecordPositions, schema: Schema, broker: str | None) -> pa.RecordBatch:
    """Decodes records that are known to be complete into one batch. Raises BatchTooLarge."""
    rows = _ColumnReader(data, places, broker)
    return pa.RecordBatch.from_arrays([READ[name](rows) for name in schema.names], schema=schema.arrow)


class _ColumnReader:
    """Decodes the columns of the records at `places`, each as an Arrow array."""

    def __init__(self, data: Data, places: RecordPositions, broker: str | None) -> None:
        self.data = data
        self.places = places
        self._broker = broker

    @cached_property
    def pairs(self) -> PropertyColumns:
        return PropertyColumns(self.data, *self.places.properties)

    # numbers

    def number(self, name: str, of: pa.DataType) -> Any:
        return _plain(self.places.number(name), of)

    def reconsume_times(self) -> Any:
        if not (self.places.sys_flags & HOSTS_MASK).any():
            return self.number("reconsumed", pa.int32())
        at = self.places.starts + RECONSUMED_AT + longer_by(self.places.sys_flags)
        return _plain(field_at(self.data, ">i4", at), pa.int32())

    # times

    def born(self) -> Any:
        return _times(self.places.number("born_time"))

    def stored(self) -> Any:
        return _times(store_times(self.data, self.places))

    # texts and bytes

    def topic(self) -> Any:
        column = cut(self.data, *self.places.topics, pa.string())
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            raw = cut(self.data, *self.places.topics, pa.binary())
            return pa.array([name.decode("utf-8", "replace") for name in raw.to_pylist()], pa.string())
        return column

    def broker(self) -> Any:
        return pa.repeat(pa.scalar(self._broker, pa.string()), len(self.places))

    def body(self) -> Any:
        """Returns the decompressed bodies; null where one is broken. Raises BatchTooLarge or CodecMissing."""
        starts, sizes = self.places.bodies
        packed: Mask = (self.places.sys_flags & COMPRESSED) != 0
        if int(sizes.sum()) > MAX_EXPANDED_BATCH and len(starts) > 1:
            raise BatchTooLarge(f"bodies must have at most {MAX_EXPANDED_BATCH} bytes, got {sizes.sum()}")
        if not packed.any():
            return cut(self.data, starts, sizes, pa.binary())
        column = cut(self.data, starts, np.where(packed, 0, sizes), pa.binary())
        return patched(column, np.flatnonzero(packed), self._expanded(np.flatnonzero(packed)))

    def _expanded(self, rows: Numbers) -> list[bytes | None]:
        found: list[bytes | None] = []
        # A single row is decompressed whatever its size: it cannot be split.
        total, limit = 0, MAX_EXPANDED_BATCH if len(self.places) > 1 else np.inf
        starts, sizes = self.places.bodies
        for row in rows:
            at, size = int(starts[row]), int(sizes[row])
            found.append(_expanded(bytes(self.data[at : at + size]), int(self.places.sys_flags[row])))
            total += len(found[-1] or b"")
            if total > limit:
                raise BatchTooLarge(f"bodies must have at most {limit} bytes, got {total} or more")
        return found

    def keys(self) -> Any:
        return self.pairs.pick(props.KEYS)

    def tags(self) -> Any:
        return self.pairs.pick(props.TAGS)

    def message_id(self) -> Any:
        """Returns the unique keys that senders gave, or the offset message id where there is none."""
        column = self.pairs.pick(props.UNIQUE_KEY)
        if not column.null_count:
            return column
        return pc.coalesce(column, self.offset_id())

    def first_key(self) -> Any:
        keys = pc.utf8_ltrim(self.keys(), " ")
        key = pc.list_element(pc.split_pattern(keys, " ", max_splits=1), 0)
        return pc.if_else(pc.equal(key, ""), None, key).cast(pa.binary())

    # hosts

    def offset_id(self) -> Any:
        """Returns the offset message ids: store host and log offset in hexadecimal."""
        rows = np.concatenate((self._bytes(self._store_hosts, 8), self._bytes_at(PHYSICAL_OFFSET_AT, 8)), 1)
        digits = np.stack((_DIGITS[rows >> 4], _DIGITS[rows & 15]), 2)
        width = 2 * rows.shape[1]
        edges = np.arange(0, width * (len(rows) + 1), width, dtype=np.int32)
        column = pa.Array.from_buffers(
            pa.string(), len(rows), [None, pa.py_buffer(edges), pa.py_buffer(np.ascontiguousarray(digits))]
        )
        long = np.flatnonzero(self.places.sys_flags & STORE_V6)
        return patched(column, long, [self._long_id(int(row)) for row in long])

    def _long_id(self, row: int) -> str:
        at, start = int(self._store_hosts[row]), int(self.places.starts[row]) + PHYSICAL_OFFSET_AT
        offset = int.from_bytes(self.data[start : start + 8], "big", signed=True)
        return offset_id(bytes(self.data[at : at + 20]), offset)

    def born_host(self) -> Any:
        return self._hosts(self.places.starts + BORN_HOST_AT, BORN_V6)

    def store_host(self) -> Any:
        return self._hosts(self._store_hosts, STORE_V6)

    @property
    def _store_hosts(self) -> Numbers:
        return self.places.starts + STORE_HOST_AT + longer_by(self.places.sys_flags, BORN_V6)

    def _hosts(self, positions: Numbers, v6: int) -> Any:
        """Returns the hosts at these positions as `ip:port`; the bit `v6` of sysFlag marks IPv6 hosts.

        Each distinct host is formatted once: there are few.
        """
        packed, which = np.unique(field_at(self.data, ">i8", positions), return_inverse=True)
        texts = [host_text(int(host).to_bytes(8, "big", signed=True)) for host in packed]
        column = pa.array(texts, pa.string()).take(pa.array(which))
        long = np.flatnonzero(self.places.sys_flags & v6)
        return patched(column, long, [self._long_host(int(positions[row])) for row in long])

    def _long_host(self, at: int) -> str:
        return host_text(bytes(self.data[at : at + 20]))

    def _bytes_at(self, at: int, width: int) -> NDArray[np.uint8]:
        return self._bytes(self.places.starts + at, width)

    def _bytes(self, positions: Numbers, width: int) -> NDArray[np.uint8]:
        found: NDArray[np.uint8] = np.frombuffer(self.data, np.uint8)[positions[:, None] + np.arange(width)]
        return found


READ: dict[str, Callable[[_ColumnReader], Any]] = {
    "topic": _ColumnReader.topic,
    "brokerName": _ColumnReader.broker,
    "queueId": lambda rows: rows.number("queue_id", pa.int32()),
    "queueOffset": lambda rows: rows.number("queue_offset", pa.int64()),
    "msgId": _ColumnReader.message_id,
    "tags": _ColumnReader.tags,
    "keys": _ColumnReader.keys,
    "body": _ColumnReader.body,
    "bornTimestamp": _ColumnReader.born,
    "storeTimestamp": _ColumnReader.stored,
    "reconsumeTimes": _ColumnReader.reconsume_times,
    "flag": lambda rows: rows.number("flag", pa.int32()),
    "properties": lambda rows: rows.pairs.maps(),
    "sysFlag": lambda rows: _plain(rows.places.sys_flags, pa.int32()),
    "bornHost": _ColumnReader.born_host,
    "storeHost": _ColumnReader.store_host,
    "offsetMsgId": _ColumnReader.offset_id,
    "commitLogOffset": lambda rows: rows.number("physical", pa.int64()),
    "storeSize": lambda rows: _plain(rows.places.sizes, pa.int32()),
    "key": _ColumnReader.first_key,
    "value": _ColumnReader.body,
    "partition": lambda rows: rows.number("queue_id", pa.int32()),
    "offset": lambda rows: rows.number("queue_offset", pa.int64()),
    "timestamp": _ColumnReader.stored,
    "timestampType": lambda rows: pa.repeat(pa.scalar(SET_BY_BROKER, pa.int32()), len(rows.places)),
    "headers": lambda rows: rows.pairs.headers(),
}
"""Column → how it is read. Covers both tables of `schema.py`."""


def _plain(numbers: Numbers, kind: pa.DataType) -> Any:
    return pa.array(numbers.astype(np.int32) if kind == pa.int32() else numbers, kind)


def _times(in_ms: Numbers) -> Any:
    """Converts ms since 1970 to Arrow timestamps; null outside the years 1 to 9999.

    A producer may send any number as its time.
    """
    if len(in_ms) and in_ms.min() >= FIRST_MS and in_ms.max() <= LAST_MS:
        return pa.Array.from_buffers(TIME, len(in_ms), [None, pa.py_buffer(in_ms * 1000)])
    missing = (in_ms < FIRST_MS) | (in_ms > LAST_MS)
    return pa.array(np.where(missing, 0, in_ms) * 1000, pa.int64(), mask=missing).cast(TIME)


def _expanded(body: bytes, sys_flag: int) -> bytes | None:
    try:
        return decompress(body, sys_flag)
    except CodecMissing:
        raise  # the user can install the codec
    except BrokenBody:
        return None
