"""Reads queue messages that a filter module accepts, filtering one message per turn of the event loop.

In: a queue, an offset, a module. Out: the messages that the module accepts, as the store's reader returns
them. However many such pulls there are, one turn of the loop filters one message with one module, so no other
request waits longer than the fuel of one message lasts.
"""

import asyncio

from turbopump.broker.consume.filter_modules import FilterModule
from turbopump.protocol.errors import BrokenRecord
from turbopump.protocol.record import decode
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.errors import NotInMemory
from turbopump.store.reading import GetResult, GetStatus, QueueReader

MAX_SCANNED = 800  # messages filtered for one pull, as many as other pulls scan
MAX_ANSWER_BYTES = 256 << 10  # as for messages in memory


class ModulePulls:
    """Reads queue messages that a filter module accepts; all pulls together filter one per loop turn."""

    def __init__(self, reader: QueueReader) -> None:
        self._reader = reader
        self._turn = asyncio.Lock()

    async def choose(
        self, queue: ConsumeQueue, offset: int, max_messages: int, module: FilterModule
    ) -> GetResult:
        """Returns messages from queue `offset` on that `module` accepts; raises FilterFailed or OSError.

        The result has the form of a read that was filtered by tags.
        """
        chosen: list[bytes] = []
        size, at = 0, offset
        found = await self._one(queue, at)
        for _ in range(MAX_SCANNED):
            if (
                found.status is not GetStatus.FOUND
                or len(chosen) >= max(max_messages, 1)
                or size >= MAX_ANSWER_BYTES
            ):
                break
            record = found.body
            if await self._wants(module, record):
                chosen.append(record)
                size += len(record)
            at = found.next_offset
            found = await self._one(queue, at)
        if at == offset:
            return found
        status = GetStatus.FOUND if chosen else GetStatus.NO_MATCHED_MESSAGE
        ends = found.min_offset, found.max_offset
        return GetResult(status, at, *ends, [*chosen], len(chosen), size, found.is_old)

    async def _wants(self, module: FilterModule, data: bytes) -> bool:
        """Returns whether `module` accepts one record; True for a record that cannot be decoded.

        Other pulls return such a record too. Afterwards other tasks get a turn of the event loop.
        """
        async with self._turn:
            try:
                record = decode(data)
                return module.matches(record.properties, record.body)
            except BrokenRecord:
                return True
            finally:
                await asyncio.sleep(0)

    async def _one(self, queue: ConsumeQueue, offset: int) -> GetResult:
        try:
            return self._reader.get(queue, offset, 1, may_wait=False)
        except NotInMemory as missing:
            await self._reader.fetch(missing.places)
            return self._reader.get(queue, offset, 1)
