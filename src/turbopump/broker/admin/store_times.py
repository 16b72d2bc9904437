"""Store times of many messages, read together in a thread because old ones come from the disk."""

from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.times import MessageTimes

NONE = -1


class StoreTimes:
    """Store times of messages: first `find` all messages, then `read`, then look up each."""

    def __init__(self, source: MessageTimes) -> None:
        self._source = source
        self._times = {NONE: NONE}

    def find(self, queue: ConsumeQueue, offset: int) -> int:
        """Returns where the message is in the log; -1 when there is none."""
        entry = queue.entry(offset)
        position = NONE if entry is None else entry[0]
        self._times[position] = NONE
        return position

    async def read(self) -> None:
        wanted = sorted(position for position in self._times if position != NONE)
        self._times |= await self._source.read(wanted)

    def __getitem__(self, position: int) -> int:
        """Returns the store time in milliseconds; -1 when there is no such message (any more)."""
        return self._times[position]
