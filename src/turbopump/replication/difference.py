"""Finds the first place at which two logs differ, for operators.

In: two logs, of brokers of ours or of a store directory, that can be asked for checksums; or a store
directory and any broker that can be asked for records. Out: the first offset at which they differ. Two logs
that differ somewhere are taken to differ from there on, as records carry their offset and their time: that
lets the place be found by bisection, with some tens of requests however long the logs are. `is_whole`
compares every byte instead, which finds damage in the middle too. Reads only.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from turbopump.protocol.bodies import KVTable
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.headers.query import ViewMessageRequest
from turbopump.protocol.headers.replicas import ReplicaCompareRequest, ReplicaCompareResponse
from turbopump.remoting.client import Client
from turbopump.replication.comparison import CALL_TIMEOUT_S, MAX_STRETCH, CannotCompare, Extent
from turbopump.store.stopped_log import StoppedLog


class CheckedLog(Protocol):
    """A log that can be asked for checksums."""

    async def extent(self) -> Extent: ...

    async def checksum(self, begin: int, end: int) -> int:
        """Returns the CRC-32 of at most MAX_STRETCH bytes. Raises CannotCompare."""


class DirectoryLog:
    """The log of a stopped store."""

    def __init__(self, log: StoppedLog) -> None:
        self.log = log

    async def extent(self) -> Extent:
        return Extent(self.log.min_offset, self.log.end)

    async def checksum(self, begin: int, end: int) -> int:
        return zlib.crc32(self.log.read(begin, end))


class BrokerLog:
    """The log of a running broker, asked over the network."""

    def __init__(self, client: Client, address: str) -> None:
        self._client = client
        self._address = address

    async def is_ours(self) -> bool:
        """Whether the broker can be asked for checksums. Raises CannotCompare when it does not answer."""
        answer = await self._ask(RequestCode.REPLICA_COMPARE, ReplicaCompareRequest(0, 0))
        return answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    async def extent(self) -> Extent:
        answer = await self._ask(RequestCode.GET_BROKER_RUNTIME_INFO, None)
        self._check(answer)
        try:
            figures = KVTable.decode(answer.body).table
            return Extent(int(figures["commitLogMinOffset"]), int(figures["commitLogMaxOffset"]))
        except (KeyError, ValueError) as error:
            raise CannotCompare(f"{self._address} does not say where its log ends: {error}") from error

    async def checksum(self, begin: int, end: int) -> int:
        answer = await self._ask(RequestCode.REPLICA_COMPARE, ReplicaCompareRequest(begin, end))
        self._check(answer)
        found = ReplicaCompareResponse.from_ext(answer.ext)
        if (found.checkedBegin, found.checkedEnd) != (begin, end):
            raise CannotCompare(
                f"{self._address} has the log from {found.minOffset} to {found.endOffset} now, not all of "
                f"{begin} to {end}. Compare again"
            )
        return found.checksum

    async def record(self, offset: int) -> bytes | None:
        """Returns the bytes of the record at an offset; None when none is there."""
        answer = await self._ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset))
        return answer.body if answer.code == ResponseCode.SUCCESS else None

    def _check(self, answer: Command) -> None:
        if answer.code != ResponseCode.SUCCESS:
            raise CannotCompare(f"{self._address} answers code {answer.code}: {answer.remark}")

    async def _ask(
        self, code: RequestCode, header: ReplicaCompareRequest | ViewMessageRequest | None
    ) -> Command:
        try:
            return await self._client.call(self._address, request(code, header), CALL_TIMEOUT_S)
        except OSError as error:
            raise CannotCompare(f"{self._address} does not answer: {error}") from error


async def first_difference(one: CheckedLog, other: CheckedLog, is_whole: bool = False) -> int | None:
    """Returns where two logs first differ, by bisection, if `is_whole` by every byte; None: nowhere.

    Two logs are compared as far as both reach.
    Raises CannotCompare when they have no part in common.
    """
    common = shared(await one.extent(), await other.extent())

    async def is_same(begin: int, end: int) -> bool:
        checksums = await asyncio.gather(one.checksum(begin, end), other.checksum(begin, end))
        return checksums[0] == checksums[1]

    stretches = range(common.begin, common.end, MAX_STRETCH)

    async def is_same_stretch(number: int) -> bool:
        begin = stretches[number]
        return await is_same(begin, min(begin + MAX_STRETCH, common.end))

    if is_whole:
        number = 0
        while number < len(stretches) and await is_same_stretch(number):
            number += 1
    else:
        number = await _first_false(0, len(stretches), is_same_stretch)
    if number == len(stretches):
        return None
    begin = stretches[number]
    end = min(begin + MAX_STRETCH, common.end)
    # How many bytes of the stretch can be the same: all of them are not.
    return await _first_false(begin, end - 1, lambda last: is_same(begin, last + 1))


async def first_foreign_record(log: StoppedLog, broker: BrokerLog) -> int | None:
    """Returns the offset of the first record of a stopped log that a broker lacks at this place, or None.

    Asks for whole records, which every broker serves, and so works with Apache's. None: it has them all.
    """
    common = shared(Extent(log.min_offset, log.end), await broker.extent())

    async def has(offset: int, size: int) -> bool:
        return await broker.record(offset) == log.read(offset, offset + size)

    # Each file begins with a record: the file is found by the first record of each, then the record in it.
    starts = [start for start in log.starts if common.begin <= start < common.end]

    async def has_first(number: int) -> bool:
        for offset, size in log.records(starts[number]):
            return await has(offset, size)
        return True

    file = await _first_false(0, len(starts), has_first)
    begin = starts[file - 1] if file else common.begin
    end = starts[file] if file < len(starts) else common.end
    records = [found for found in log.records(begin) if begin <= found[0] < end]
    number = await _first_false(0, len(records), lambda at: has(*records[at]))
    if number < len(records):
        return records[number][0]
    return end if end < common.end else None


def shared(one: Extent, other: Extent) -> Extent:
    """Returns the part that two logs have in common. Raises CannotCompare when there is none."""
    both = Extent(max(one.begin, other.begin), min(one.end, other.end))
    if both.begin > both.end:
        raise CannotCompare(
            f"the logs have no part in common: one reaches from {one.begin} to {one.end}, the other from "
            f"{other.begin} to {other.end}"
        )
    return both


async def _first_false(low: int, high: int, holds: Callable[[int], Awaitable[bool]]) -> int:
    """Returns by bisection the first number in [low, high) for which `holds` is false; `high` without one."""
    while low < high:
        middle = (low + high) // 2
        if await holds(middle):
            low = middle + 1
        else:
            high = middle
    return low
