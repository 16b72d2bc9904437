"""The bytes of the replication (HA) port: reports of a slave, and parts of the log from its master.

Apache's form, without a handshake. A slave reports how far its log reaches: first to say where it wants to go
on, then to acknowledge. A master sends parts of its log; an empty part is a heartbeat.

    slave -> master    i64 end of the slave's log
    master -> slave    i64 offset of the part | i32 length | the bytes

Between two nodes of ours, once they have agreed to by a request on the main port, the slave opens with a
greeting instead, and its reports say as well how much of its log is on its disk. The master also sends
tables of its configuration directory, as parts at offset TABLE.

    greeting           i64 GREETING | i64 run of the master | i64 start | i64 broker id
    report             i64 end of the slave's log | i64 end of what is on its disk
    table              i64 TABLE | i32 length | u8 length of the name | name | contents

A master with access control says in the agreement that it wants a signature. Then the greeting begins with
SIGNED_GREETING, the master answers it with a challenge that it has made for this connection, and the slave
proves that it has the secret of a user (`auth.peer_proof`) before it reports anything.

    challenge          i64 CHALLENGE | i32 32 | 32 random bytes
    proof              u8 length of the user's name | name | 32 bytes

GREETING is negative: no log ends there, so a master cannot take it for a report of Apache's form. An Apache
master that gets one by mistake takes the last number for the slave's end; the slave refuses what it sends
unless it continues its log.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from turbopump.protocol.errors import BrokenFrame

REPORT = struct.Struct(">q")
DISK_REPORT = struct.Struct(">qq")
PART = struct.Struct(">qi")
GREETING_FORM = struct.Struct(">qqqq")

GREETING = -0x5450_4841_0000_0001  # "TPHA", version 1
SIGNED_GREETING = GREETING - 1  # version 2
TABLE = -1
CHALLENGE = -2
CHALLENGE_SIZE = PROOF_SIZE = 32
MAX_USER_NAME = 255  # bytes
MAX_PART = (4 << 20) - PART.size  # Apache's slave has a buffer of 4 MiB for a part and its head
MAX_TABLE = 256 << 20  # the largest file of a configuration directory that is loaded at start, too
MAX_TABLE_NAME = 255


@dataclass(frozen=True, slots=True)
class Greeting:
    """First message of a Turbopump slave: the master process it compared its log with, start, broker id."""

    run: int
    start: int
    broker_id: int
    is_signed: bool = False
    """Whether a proof follows, once the master has sent a challenge."""


@dataclass(frozen=True, slots=True)
class GreetingProof:
    """The user whose secret a slave has, and what it made with this secret of greeting and challenge."""

    user: str
    proof: bytes


@dataclass(frozen=True, slots=True)
class Challenge:
    """Random bytes that a master has made for one connection; a slave signs them with its greeting."""

    nonce: bytes


@dataclass(frozen=True, slots=True)
class Report:
    """How far a slave's log reaches. `synced`: how much of it is on disk; -1: the slave does not say."""

    end: int
    synced: int = -1


@dataclass(frozen=True, slots=True)
class SentPart:
    """The head of a part of the log: `size` bytes from log offset `offset` on follow it."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of the master's configuration directory."""

    name: str
    contents: bytes


def encode_report(end: int) -> bytes:
    """Returns the report of a slave in Apache's form."""
    return REPORT.pack(end)


def encode_disk_report(end: int, synced: int) -> bytes:
    """Returns a slave's report in our form, used after a greeting: end of its log, end of what is synced."""
    return DISK_REPORT.pack(end, synced)


def encode_greeting(greeting: Greeting) -> bytes:
    first = SIGNED_GREETING if greeting.is_signed else GREETING
    return GREETING_FORM.pack(first, greeting.run, greeting.start, greeting.broker_id)


def encode_challenge(nonce: bytes) -> bytes:
    """Returns a master's challenge as a part."""
    assert len(nonce) == CHALLENGE_SIZE
    return PART.pack(CHALLENGE, CHALLENGE_SIZE) + nonce


def encode_proof(proof: GreetingProof) -> bytes:
    """Returns a slave's answer to a challenge. Raises ValueError for a name beyond its limit."""
    name = proof.user.encode()
    if not 0 < len(name) <= MAX_USER_NAME:
        raise ValueError(f"the name of a user must have 1 to {MAX_USER_NAME} bytes, got {len(name)}")
    assert len(proof.proof) == PROOF_SIZE
    return b"".join((bytes((len(name),)), name, proof.proof))


def encode_part_head(offset: int, size: int) -> bytes:
    """Returns the head of a part of the log; `size` 0 makes it a heartbeat."""
    return PART.pack(offset, size)


def encode_table(name: str, contents: bytes) -> bytes:
    """Returns a table as a part. Raises ValueError for a name or contents beyond their limits."""
    packed = name.encode()
    size = 1 + len(packed) + len(contents)
    if not 0 < len(packed) <= MAX_TABLE_NAME or size > MAX_TABLE:
        raise ValueError(f"the table {name!r} of {len(contents)} bytes is too large to be sent")
    return b"".join((PART.pack(TABLE, size), bytes((len(packed),)), packed, contents))


class ReportReader:
    """Cuts what a slave sends into a greeting, if there is one, its proof if it is signed, and reports."""

    def __init__(self) -> None:
        self.greeting: Greeting | None = None
        self.proof: GreetingProof | None = None
        """Of a signed greeting, once it has come."""
        self._buffer = b""
        self._began = False

    def feed(self, data: bytes) -> Report | None:
        """Takes received bytes; returns the last whole report in them, None without one.

        Raises BrokenFrame for an offset that no log can have.
        """
        self._buffer += data
        if not self._began and not self._begin():
            return None
        form = REPORT if self.greeting is None else DISK_REPORT
        whole = len(self._buffer) // form.size * form.size
        if not whole:
            return None
        numbers = struct.unpack(f">{whole // REPORT.size}q", self._buffer[:whole])
        self._buffer = self._buffer[whole:]
        if min(numbers) < 0:  # of all reports: how the stream was cut must make no difference
            raise BrokenFrame(f"a slave reported a negative offset: {min(numbers)}")
        return Report(*numbers[-(form.size // REPORT.size) :])

    def _begin(self) -> bool:
        """Reads the greeting and its proof, if there are any; returns whether reports follow now."""
        if self.greeting is None:
            if len(self._buffer) < REPORT.size:
                return False
            first = REPORT.unpack_from(self._buffer)[0]
            if first in (GREETING, SIGNED_GREETING) and not self._read_greeting(first):
                return False
        self._began = self.greeting is None or not self.greeting.is_signed or self._read_proof()
        return self._began

    def _read_greeting(self, first: int) -> bool:
        if len(self._buffer) < GREETING_FORM.size:
            return False
        _, run, start, broker_id = GREETING_FORM.unpack_from(self._buffer)
        if start < 0 or broker_id < 0:
            raise BrokenFrame(f"a greeting must name an offset and a broker id, got {start}, {broker_id}")
        self.greeting = Greeting(run, start, broker_id, is_signed=first == SIGNED_GREETING)
        self._buffer = self._buffer[GREETING_FORM.size :]
        return True

    def _read_proof(self) -> bool:
        if not self._buffer:
            return False
        end = 1 + self._buffer[0]
        if len(self._buffer) < end + PROOF_SIZE:
            return False
        try:
            name = self._buffer[1:end].decode()
        except UnicodeDecodeError:
            name = ""
        if not name:
            raise BrokenFrame("a signed greeting must name a user")
        self.proof = GreetingProof(name, self._buffer[end : end + PROOF_SIZE])
        self._buffer = self._buffer[end + PROOF_SIZE :]
        return True


class PartReader:
    """Cuts what a master sends into heads of parts, their bytes as they come, tables, and a challenge.

    The bytes of a part are handed on before the part is complete, as views of what was received: a slave
    copies them into its log once, and keeps nothing else.
    """

    def __init__(self, takes_tables: bool = False, max_part: int = MAX_PART) -> None:
        self._takes_tables = takes_tables
        self._max_part = max_part
        self._head = b""
        self._left = 0  # bytes of the current part that are still to come
        self._table: bytearray | None = None
        self._is_challenge = False

    def feed(self, data: bytes) -> Iterator[SentPart | memoryview | TableFile | Challenge]:
        """Takes received bytes; yields what is in them. Raises BrokenFrame for an impossible head."""
        view = memoryview(data)
        while view:
            if not self._left:
                wanted = PART.size - len(self._head)
                self._head += bytes(view[:wanted])
                view = view[wanted:]
                if len(self._head) == PART.size:
                    yield from self._begin()
                continue
            piece, view = view[: self._left], view[self._left :]
            self._left -= len(piece)
            if self._table is None:
                yield piece
                continue
            self._table += piece
            if not self._left:
                whole, self._table = bytes(self._table), None
                yield Challenge(whole) if self._is_challenge else _table_of(whole)

    def _begin(self) -> Iterator[SentPart]:
        offset, size = PART.unpack(self._head)
        self._head = b""
        if offset == TABLE and self._takes_tables:
            if not 0 < size <= MAX_TABLE:
                raise BrokenFrame(
                    f"the master sent a table of {size} bytes, at most {MAX_TABLE} are possible"
                )
            self._table, self._is_challenge = bytearray(), False
        elif offset == CHALLENGE and self._takes_tables:
            if size != CHALLENGE_SIZE:
                raise BrokenFrame(f"a challenge must have {CHALLENGE_SIZE} bytes, got {size}")
            self._table, self._is_challenge = bytearray(), True
        elif offset < 0 or not 0 <= size <= self._max_part:
            raise BrokenFrame(f"the master sent an impossible part: offset {offset}, {size} bytes")
        else:
            yield SentPart(offset, size)
        self._left = size


def _table_of(body: bytes) -> TableFile:
    end = 1 + body[0]
    try:
        name = body[1:end].decode("ascii")
    except UnicodeDecodeError:
        name = ""
    if not name or len(body) < end or name.startswith(".") or "/" in name:
        raise BrokenFrame("the master sent a table with an impossible name")
    return TableFile(name, body[end:])
