"""Tables of the leader as records of the log: what their bodies hold, and pieces of large ones.

In: name and contents of a table, as its file has them. Out: bodies of records, and back. A body is a line of
JSON and then a piece of the compressed contents. Which table means what is not known here.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from turbopump.protocol.dledger.entry import HEAD_SIZE
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.names import TABLE_TOPIC
from turbopump.protocol.record import HEADS, I16, MAGIC_V1
from turbopump.protocol.sysflag import ROLLBACK

MAX_PIECE = 512 << 10  # bytes of one record: an entry is pushed as a whole
MAX_TABLE = 256 << 20  # bytes of one table; a record that promises more is damaged
FIRST_TAG = "first"
"""Tag of the first record of all tables, with which a new leader and each new file of the log begin."""
NO_HOST = bytes(8)


class TableHead(msgspec.Struct):
    """First line of a body: which table, which piece of it, and who wrote it."""

    table: str
    piece: int
    pieces: int
    term: int
    address: str
    """Address of the leader for clients, which followers ask and send consumers to."""
    begin: int = 0
    """Log offset at which the leader's log begins: followers delete nothing behind it."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the leader: the name of its file, and the contents."""

    name: str
    contents: bytes


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Who writes tables: the leader's term and address, and where its log begins."""

    term: int
    address: str
    begin: int


def bodies(table: Table, writer: TableWriter) -> Iterator[bytes]:
    """Yields the bodies of the records that carry a table."""
    data = zlib.compress(table.contents, 1)
    starts = range(0, max(len(data), 1), MAX_PIECE)
    for number, start in enumerate(starts):
        head = TableHead(table.name, number, len(starts), writer.term, writer.address, writer.begin)
        yield msgspec.json.encode(head) + b"\n" + data[start : start + MAX_PIECE]


@dataclass(slots=True)
class TablePieces:
    """Puts the pieces of tables together, in the order of the log."""

    _pieces: list[bytes] = field(default_factory=list)
    _head: TableHead | None = None

    def take(self, body: bytes) -> tuple[TableHead, Table | None]:
        """Takes the body of the next record; returns its head, and the table if this was its last piece.

        Raises BrokenBody when it is none. Pieces of a table whose leader stopped on the way are dropped.
        """
        line, _, data = body.partition(b"\n")
        try:
            head = msgspec.json.decode(line, type=TableHead)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BrokenBody(f"no table of a DLedger leader: {error}") from None
        if head.piece == 0:
            self._pieces = []
        elif self._head is None or (head.table, head.term) != (self._head.table, self._head.term):
            self._head = None
            return head, None
        elif len(self._pieces) != head.piece:
            return head, None
        self._head = head
        self._pieces.append(data)
        if len(self._pieces) < head.pieces:
            return head, None
        packed, self._pieces, self._head = b"".join(self._pieces), [], None
        return head, Table(head.table, _unpacked(packed))


def _unpacked(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        contents = unpacker.decompress(packed, MAX_TABLE)
    except zlib.error as error:
        raise BrokenBody(f"a table of a DLedger leader cannot be unpacked: {error}") from None
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise BrokenBody(f"a table of a DLedger leader must have at most {MAX_TABLE} bytes")
    return contents


def no_op_record(now_ms: int) -> bytes:
    """Returns the record that a new leader appends first: in no queue, since it has the flag of a rollback.

    Every broker of 4.9 passes over it. Its log offset is filled in by the log.
    """
    topic = TABLE_TOPIC.encode()
    topic_field = bytes((len(topic),)) + topic
    size = HEADS[0].size + len(topic_field) + I16.size
    head = HEADS[0].pack(
        size, MAGIC_V1, 0, 0, 0, 0, HEAD_SIZE, ROLLBACK, now_ms, NO_HOST, now_ms, NO_HOST, 0, 0, 0
    )
    return head + topic_field + I16.pack(0)
