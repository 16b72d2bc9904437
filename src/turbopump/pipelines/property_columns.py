"""Parses the property strings of many records at once: as maps, or the values of single names.

In: a buffer, and the positions of the strings in it. Out: Arrow columns. Regular strings (name and value in
turn, no name twice, valid UTF-8) are split at their separators, all strings in one pass. Any other row is
parsed by `protocol/properties.py`, alone: that is the reference, and a property test holds the two together.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turbopump.pipelines.record_positions import Data, Mask, Numbers
from turbopump.pipelines.schema import HEADERS, PAIRS
from turbopump.protocol.properties import parse

VALUE_END = 2
MAX_PICKED_NAME_BYTES = 8  # bytes of a name that `pick` compares, as one number
_MIXER = np.uint64(0x9E3779B97F4A7C15)


def cut(data: Any, begins: Numbers, sizes: Numbers, kind: pa.DataType, missing: Mask | None = None) -> Any:
    """Copies slices of a buffer into one Arrow array of type `kind`; null where `missing` says so.

    Makes an array over the buffer in which slices and the bytes between them alternate, and takes every
    second element. `begins` rise.
    """
    count = len(begins)
    if not count:
        return pa.array([], kind)
    base = int(begins[0])
    span = int(begins[-1] + sizes[-1]) - base
    assert span < 2**31, "a batch lies in one file, and its offsets have 32 bits"
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = begins - base
    edges[1::2] = edges[0::2] + sizes
    whole = pa.py_buffer(data).slice(base, span)
    alternating = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(edges), whole])
    return alternating.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=missing))


def patched(column: Any, rows: Numbers, values: list[Any]) -> Any:
    """Returns the column with these values instead of its own in these rows."""
    if not len(rows):
        return column
    order = np.arange(len(column), dtype=np.int64)
    order[rows] = len(column) + np.arange(len(rows))
    return pa.concat_arrays([column, pa.array(values, column.type)]).take(pa.array(order))


class PropertyColumns:
    """Parses the property strings of many records into Arrow columns."""

    def __init__(self, data: Data, begins: Numbers, sizes: Numbers) -> None:
        self._count = len(begins)
        self._text, self._edges = _gathered(data, begins, sizes)
        ends: Numbers = np.flatnonzero(self._text - np.uint8(1) < VALUE_END)
        # index of each string's first separator
        bounds = np.searchsorted(ends, self._edges, "right")
        self._odd: Mask = self._oddly_parted(ends, bounds) | self._unreadable()
        if self._odd.any():
            is_kept = np.repeat(~self._odd, np.diff(bounds))
            ends = ends[is_kept]
            bounds = np.concatenate(([0], np.cumsum(np.where(self._odd, 0, np.diff(bounds)))))
        self._bounds = bounds // 2  # index of each string's first pair
        self._rows = np.repeat(np.arange(self._count), np.diff(self._bounds))
        self._name_ends, self._value_ends = ends[0::2], ends[1::2]
        self._name_begins = np.empty_like(self._name_ends)
        self._name_begins[1:] = self._value_ends[:-1] + 1
        firsts = self._bounds[:-1][np.diff(self._bounds) > 0]
        self._name_begins[firsts] = self._edges[self._rows[firsts]] + 1
        self._drop(self._has_empty())

    def _oddly_parted(self, ends: Numbers, bounds: Numbers) -> Mask:
        """Marks rows in which ends of names and ends of values do not alternate."""
        counts = np.diff(bounds)
        is_value_end = self._text[ends] == VALUE_END
        odd: Mask = (counts & 1) != 0
        if not odd.any() and is_value_end[1::2].all() and not is_value_end[0::2].any():
            return odd
        rows = np.repeat(np.arange(self._count), counts)
        turns = ((np.arange(len(ends)) - bounds[rows]) & 1) != 0
        odd[rows[turns != is_value_end]] = True
        return odd

    def _unreadable(self) -> Mask:
        """Marks rows that are not valid UTF-8."""
        odd = np.zeros(self._count, np.bool_)
        if self._text.max() < 0x80 or _is_utf8(self._text.tobytes()):
            return odd
        for row in range(self._count):
            odd[row] = not _is_utf8(self._string(row))
        return odd

    def _has_empty(self) -> Mask:
        """Marks pairs with an empty name or value, which a parser drops."""
        is_empty: Mask = (self._name_begins == self._name_ends) | (self._name_ends + 1 == self._value_ends)
        return is_empty

    def _drop(self, is_bad: Mask) -> None:
        """Marks rows that have a bad pair for the reference parser, and removes all their pairs."""
        if not is_bad.any():
            return
        self._odd[self._rows[is_bad]] = True
        keep = ~self._odd[self._rows]
        self._name_begins, self._name_ends = self._name_begins[keep], self._name_ends[keep]
        self._value_ends, self._rows = self._value_ends[keep], self._rows[keep]
        self._bounds = np.searchsorted(self._rows, np.arange(self._count + 1))

    # columns

    def pick(self, name: str) -> Any:
        """Returns the value of property `name` in each row; null where it is absent."""
        wanted = name.encode()
        assert len(wanted) <= MAX_PICKED_NAME_BYTES
        near = np.flatnonzero(self._name_ends - self._name_begins == len(wanted))
        words = self._words(self._name_begins[near]) >> np.uint64(8 * (MAX_PICKED_NAME_BYTES - len(wanted)))
        found = near[words == int.from_bytes(wanted, "big")]
        begins, sizes = self._edges[:-1].copy(), np.zeros(self._count, np.int64)
        missing = np.ones(self._count, np.bool_)
        # Of two pairs with the same name the last one counts, as in a dict.
        rows = self._rows[found]
        begins[rows] = self._name_ends[found] + 1
        sizes[rows] = self._value_ends[found] - self._name_ends[found] - 1
        missing[rows] = False
        column = cut(self._text, begins, sizes, pa.string(), missing)
        return patched(column, self._odd_rows, [pairs.get(name) for pairs in self._odd_pairs])

    def maps(self) -> Any:
        """Returns all pairs of each row as a map."""
        names, values, bounds = self._columns(pa.string())
        column = pa.MapArray.from_arrays(bounds, names, values)
        assert column.type == PAIRS
        return patched(column, self._odd_rows, [list(pairs.items()) for pairs in self._odd_pairs])

    def headers(self) -> Any:
        """Returns all pairs of each row in the form of the headers of Spark's Kafka connector."""
        names, values, bounds = self._columns(pa.binary())
        pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
        column = pa.ListArray.from_arrays(bounds, pairs, type=HEADERS)
        odd = [[{"key": k, "value": v.encode()} for k, v in pairs.items()] for pairs in self._odd_pairs]
        return patched(column, self._odd_rows, odd)

    def _columns(self, kind: pa.DataType) -> tuple[Any, Any, Any]:
        self._drop(self._has_twice())
        names = cut(self._text, self._name_begins, self._name_ends - self._name_begins, pa.string())
        values = cut(self._text, self._name_ends + 1, self._value_ends - self._name_ends - 1, kind)
        return names, values, pa.array(self._bounds.astype(np.int32))

    def _has_twice(self) -> Mask:
        """Marks pairs whose name may occur twice in its row.

        Equal names are always found; different names only by a hash collision, which is rare.
        """
        sizes = self._name_ends - self._name_begins
        first = self._words(self._name_begins) >> (8 * np.maximum(MAX_PICKED_NAME_BYTES - sizes, 0)).astype(
            np.uint64
        )
        last = self._words(np.maximum(self._name_ends - MAX_PICKED_NAME_BYTES, 0))
        last[sizes < MAX_PICKED_NAME_BYTES] = 0
        marks = (first * _MIXER ^ last) * _MIXER + sizes.astype(np.uint64)
        marks = (marks >> np.uint64(24) << np.uint64(24)) | self._rows.astype(np.uint64)
        ordered = np.sort(marks)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        return np.isin(marks, twice) if len(twice) else np.zeros(len(marks), np.bool_)

    def _words(self, positions: Numbers) -> NDArray[np.uint64]:
        """Returns the eight bytes from each position on, as one big-endian number each."""
        view: NDArray[np.uint64] = np.ndarray((len(self._text) - 7,), ">u8", self._text.data, 0, (1,))
        return view[positions].astype(np.uint64)

    # rows that are parsed one by one

    @property
    def _odd_rows(self) -> Numbers:
        return np.flatnonzero(self._odd)

    @property
    def _odd_pairs(self) -> list[dict[str, str]]:
        return [parse(self._string(row)) for row in self._odd_rows]

    def _string(self, row: int) -> bytes:
        return self._text[self._edges[row] + 1 : self._edges[row + 1]].tobytes()


def _gathered(data: Data, begins: Numbers, sizes: Numbers) -> tuple[NDArray[np.uint8], Numbers]:
    """Copies all strings into one buffer; returns it, and the position before each string.

    The byte before each string is the last byte of its length in the record, and not needed: it becomes the
    terminator of the string before it, which lacks one when its last pair is not closed (4.9.1 to 5.1.4).
    """
    count = len(begins)
    if not count:
        return np.zeros(MAX_PICKED_NAME_BYTES, np.uint8), np.zeros(1, np.int64)
    strings = cut(data, begins - 1, sizes + 1, pa.binary())
    _, offsets, contents = strings.buffers()
    edges = np.frombuffer(offsets, np.int32, count + 1).astype(np.int64)
    text = np.zeros(edges[-1] + 1 + MAX_PICKED_NAME_BYTES, np.uint8)
    text[: edges[-1]] = np.frombuffer(contents, np.uint8, edges[-1])
    is_open = (sizes > 0) & (text[edges[1:] - 1] != VALUE_END)
    text[0] = 0
    text[edges[1:]] = np.where(is_open, VALUE_END, 0)
    return text, edges


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
