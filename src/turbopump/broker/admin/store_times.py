"""Reads store times of many messages together, in a thread because old ones come from the disk."""

from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.times import MessageTimes

NONE = -1


class StoreTimes:
    """Reads store times of many messages at once: `find` all messages, then `read`, then look up each."""

    def __init__(self, source: MessageTimes) -> None:
        self._source = source
        self._times = {NONE: NONE}

    def find(self, queue: ConsumeQueue, offset: int) -> int:
        """Marks a message for `read`; returns its log offset, or -1 if the queue has none at `offset`."""
        entry = queue.entry(offset)
        position = NONE if entry is None else entry[0]
        self._times[position] = NONE
        return position

    async def read(self) -> None:
        wanted = sorted(position for position in self._times if position != NONE)
        self._times |= await self._source.read(wanted)

    def __getitem__(self, position: int) -> int:
        """Returns the store time in ms of the message at a log offset; -1 if there is no such message."""
        return self._times[position]
