"""Pulls through a filter module: message by message, with a turn for everybody else after each.

In: a queue, an offset, a module. Out: the messages that the module wants, as a reader of the store gives
them. However many such pulls there are, in one turn of the loop one message is put to one module: nobody else
waits for more than the fuel of one.
"""

import asyncio

from turbopump.broker.consume.filter_modules import FilterModule
from turbopump.protocol.errors import BrokenRecord
from turbopump.protocol.record import decode
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.errors import NotInMemory
from turbopump.store.reading import GetResult, GetStatus, QueueReader

MAX_SCANNED = 800  # messages put to a module for one pull, as many as other pulls look at
MAX_ANSWER_BYTES = 256 << 10  # of one answer, as for messages in memory


class ModulePulls:
    def __init__(self, reader: QueueReader) -> None:
        self._reader = reader
        self._turn = asyncio.Lock()

    async def choose(
        self, queue: ConsumeQueue, offset: int, max_messages: int, module: FilterModule
    ) -> GetResult:
        """Raises FilterFailed, or OSError. The result is as if the others had been filtered by tags."""
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
        return GetResult(status, at, found.min_offset, found.max_offset, [*chosen], len(chosen), size)

    async def _wants(self, module: FilterModule, data: bytes) -> bool:
        """A record that cannot be read is handed out as it is, as by other pulls."""
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
