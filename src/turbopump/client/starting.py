"""Where a group begins in a queue that has just become its own."""

from dataclasses import dataclass

from turbopump.client.message import MessageQueue
from turbopump.client.pull import Puller
from turbopump.client.push.offsets import Offsets
from turbopump.client.settings import ConsumeFromWhere
from turbopump.protocol.names import RETRY_PREFIX


@dataclass(frozen=True, slots=True)
class Beginning:
    """What was committed wins; the rest is for groups that have committed nothing."""

    offsets: Offsets
    puller: Puller
    where: ConsumeFromWhere
    time_ms: int

    async def of(self, queue: MessageQueue) -> int:
        """Raises Refused or OSError when it cannot be known now."""
        stored = await self.offsets.query(queue)
        if stored is not None:
            return stored
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        match self.where:
            case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
                return 0  # the broker's first answer corrects it
            case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP if not is_retry:
                return await self.puller.offset_at(queue, self.time_ms)
            case ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET if is_retry:
                return 0
            case _:
                return await self.puller.max_offset(queue)
