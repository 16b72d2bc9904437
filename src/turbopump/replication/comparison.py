"""Finds out whether a slave's log is a copy of its master's, before anything is copied.

In: the extents of both logs, and whether the last stretch of the slave's log is the same on the master. Out:
a verdict. `judge` is pure; `LogComparison` asks a master: one of ours for the checksum of the stretch (9711),
any other for its extent (28) and for the slave's last record (33). Copying and setting aside is done
elsewhere.
"""

import zlib
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from turbopump.protocol.bodies import KVTable
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.errors import BrokenBody, Refused
from turbopump.protocol.headers.query import ViewMessageRequest
from turbopump.protocol.headers.replicas import ReplicaCompareRequest, ReplicaCompareResponse
from turbopump.remoting.client import Client

STRETCH = 1 << 20  # bytes before a slave's end that are compared; their checksum takes a millisecond
MAX_STRETCH = 4 << 20  # that one request may ask for
CALL_TIMEOUT_S = 5.0
ASKING_FAILED = (OSError, Refused, BrokenBody, ValueError, KeyError)


class Relation(Enum):
    """How a slave's log relates to its master's: a copy, empty, ahead, different, outdated, incomplete."""

    COPY = "a copy"
    EMPTY = "empty"
    AHEAD = "ahead of its master"
    DIFFERENT = "not a copy"
    OUTDATED = "older than everything that its master still has"
    INCOMPLETE = "without a whole record"


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a log begins and ends."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a comparison: how a slave's log relates to its master's, and where copying goes on."""

    relation: Relation
    start: int
    """Log offset at which copying goes on; for an empty slave 0 may mean the start of the last file."""
    master: Extent
    run: int | None = None
    """A number of the master's process, if it is one of ours."""
    file_size: int | None = None
    """Size of a file of the master's log, if the master is one of ours."""
    wants_signature: bool = False
    """Whether the master has access control, so that the greeting is to be signed."""

    @property
    def may_copy(self) -> bool:
        return self.relation in (Relation.COPY, Relation.EMPTY)


def judge(mine: Extent | None, master: Extent, is_same: bool) -> Relation:
    """Returns the relation of a slave's log to its master's. `mine` None: the slave's log is empty.

    `is_same`: the last stretch of the slave's log, as far as the master has it, is the same there.
    """
    if mine is None:
        return Relation.EMPTY
    if mine.end > master.end:
        return Relation.AHEAD
    if mine.end < master.begin or (mine.begin < mine.end == master.begin):
        return Relation.OUTDATED  # no byte is in both: that it is a copy could not be shown
    return Relation.COPY if is_same else Relation.DIFFERENT


class ComparedLog(Protocol):
    """Interface of a slave's log, as `LogComparison` reads it."""

    @property
    def is_empty(self) -> bool: ...
    @property
    def min_offset(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def last_record(self) -> int:
        """Log offset of the last whole record; -1: none is known."""

    def read(self, begin: int, end: int) -> bytes:
        """Returns the log bytes [begin, end), across files too."""

    def record(self, offset: int) -> bytes | None:
        """Returns the bytes of the record at an offset; None when none is there."""


class CannotCompare(Exception):
    """The master did not answer, or not in a form that can be understood."""


class LogComparison:
    """Compares the log of this broker with that of a master."""

    def __init__(self, client: Client, mine: ComparedLog) -> None:
        self._client = client
        self._mine = mine

    async def compare(self, address: str) -> Verdict:
        """Returns how this log relates to that of the master at `address`. Raises CannotCompare."""
        try:
            found = await self._with_ours(address)
            return found if found is not None else await self._with_apache(address)
        except ASKING_FAILED as error:
            raise CannotCompare(f"the master at {address} cannot be asked: {error}") from error

    async def extent(self, address: str, is_ours: bool) -> Extent:
        """Returns where the log of the master at `address` begins and ends now. Raises CannotCompare."""
        try:
            if not is_ours:
                return await self._apache_extent(address)
            answer = await self._call(address, RequestCode.REPLICA_COMPARE, ReplicaCompareRequest(0, 0))
            if answer.code != ResponseCode.SUCCESS:
                raise ValueError(f"code {answer.code} {answer.remark}")
            theirs = ReplicaCompareResponse.from_ext(answer.ext)
            return Extent(theirs.minOffset, theirs.endOffset)
        except ASKING_FAILED as error:
            raise CannotCompare(f"the master at {address} cannot be asked: {error}") from error

    async def _with_ours(self, address: str) -> Verdict | None:
        """Compares with a Turbopump master, by a checksum of the last stretch; None: it is no such master."""
        mine = self._mine
        end = 0 if mine.is_empty else mine.end
        begin = max(end - STRETCH, 0 if mine.is_empty else mine.min_offset)
        answer = await self._call(address, RequestCode.REPLICA_COMPARE, ReplicaCompareRequest(begin, end))
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise ValueError(f"code {answer.code} {answer.remark}")
        theirs = ReplicaCompareResponse.from_ext(answer.ext)
        master = Extent(theirs.minOffset, theirs.endOffset)
        part = theirs.checkedBegin, theirs.checkedEnd
        is_same = part[1] == end and begin <= part[0] and zlib.crc32(mine.read(*part)) == theirs.checksum
        relation = judge(None if mine.is_empty else Extent(mine.min_offset, end), master, is_same)
        start = master.begin if relation in (Relation.EMPTY, Relation.OUTDATED) else end
        signs = bool(theirs.wantsSignature)
        return Verdict(relation, start, master, theirs.run, theirs.fileSize, signs)

    async def _with_apache(self, address: str) -> Verdict:
        """Compares with any other master: the last whole record must be there, byte for byte."""
        mine = self._mine
        master = await self._apache_extent(address)
        if mine.is_empty:
            return Verdict(Relation.EMPTY, master.begin, master)
        last = mine.last_record
        if last < 0:
            return Verdict(Relation.INCOMPLETE, master.begin, master)
        if last < master.begin:  # the master has deleted the only record to compare
            return Verdict(Relation.OUTDATED, master.begin, master)
        is_same = await self.has_record(address, last, mine.record(last))
        # Its figures were read before the record was asked for: it may have grown since.
        return Verdict(judge(Extent(mine.min_offset, mine.end), master, is_same), mine.end, master)

    async def _apache_extent(self, address: str) -> Extent:
        answer = await self._call(address, RequestCode.GET_BROKER_RUNTIME_INFO, None)
        if answer.code != ResponseCode.SUCCESS:
            raise ValueError(f"code {answer.code} {answer.remark}")
        figures = KVTable.decode(answer.body).table
        begin, end = int(figures["commitLogMinOffset"]), int(figures["commitLogMaxOffset"])
        return Extent(max(begin, 0), end)  # without a file it begins at -1

    async def has_record(self, address: str, offset: int, record: bytes | None) -> bool:
        """Whether the broker at `address` has this very record at a log offset.

        Raises ValueError when it does not say, because it is busy or stops.
        """
        answer = await self._call(address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset))
        if answer.code == ResponseCode.SYSTEM_ERROR:  # "can not find message by the offset"
            return False
        if answer.code != ResponseCode.SUCCESS:
            raise ValueError(f"code {answer.code} {answer.remark}")
        return answer.body == record

    async def _call(
        self, address: str, code: RequestCode, header: ReplicaCompareRequest | ViewMessageRequest | None
    ) -> Command:
        return await self._client.call(address, request(code, header), CALL_TIMEOUT_S)
