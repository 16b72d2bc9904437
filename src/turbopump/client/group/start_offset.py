"""The offset at which a group begins in a queue that was just assigned.

A committed offset is used; the rest is about a group that has committed nothing there. A broker answers 0
while the queue's first message is young. Apache's 5.x answers nothing for an empty queue, and a message may
arrive before the next request: a consumer that then begins at the end has skipped it for ever. So the end is
used only if the broker, asked again after it, still knows no offset: then the messages before it are old
ones.

| the queue is | a new group begins, with LAST_OFFSET |
|---|---|
| new or empty, of a new topic or a topic that has got more queues | at its first message |
| young: its first message is in the broker's memory | at its first message, as every client does |
| old | at its end: no history is read |
| of the group's retry topic | at its first message, whatever is set: it holds what the group sent back |
"""

from dataclasses import dataclass

from turbopump.client.group.offsets import OffsetStore
from turbopump.client.message import MessageQueue
from turbopump.client.pull.puller import Puller
from turbopump.client.settings import ConsumeFromWhere, ReadingSettings
from turbopump.client.times import start_ms
from turbopump.protocol.names import RETRY_PREFIX

HALF_AN_HOUR_MS = 1_800_000


@dataclass(frozen=True, slots=True)
class StartOffset:
    """Finds the offset at which a consumer begins to read an assigned queue (see the module)."""

    offsets: OffsetStore
    puller: Puller
    settings: ReadingSettings
    started_ms: int

    async def of(self, queue: MessageQueue) -> int:
        """Returns a queue's committed offset, else where `consume_from_where` says that a group begins.

        Raises Refused or OSError when it cannot be determined now.
        """
        stored = await self.offsets.query(queue)
        if stored is not None:
            return stored
        if queue.topic.startswith(RETRY_PREFIX):
            return 0
        match self.settings.consume_from_where:
            case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
                return 0  # the broker's first answer corrects it
            case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
                return await self.puller.offset_at(queue, self._time_ms)
            case _:
                return await self._end_of(queue)

    async def _end_of(self, queue: MessageQueue) -> int:
        """Reads the queue's end, asks the store again; returns the store's offset, or without one the end.

        The store has one then if the messages before the end are the young beginning of the queue.
        """
        end = await self.puller.max_offset(queue)
        stored = await self.offsets.query(queue) if end else None
        return end if stored is None else stored

    @property
    def _time_ms(self) -> int:
        asked = self.settings.consume_timestamp
        if asked is None:
            return self.started_ms - HALF_AN_HOUR_MS
        return start_ms(asked, self.started_ms, "consume_timestamp")
