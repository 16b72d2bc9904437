"""Where a group begins in a queue that has just become its own."""

from dataclasses import dataclass

from turbopump.client.message import MessageQueue
from turbopump.client.offsets import Offsets
from turbopump.client.pull import Puller
from turbopump.client.settings import ConsumeFromWhere, ReadingSettings
from turbopump.client.times import past_ms
from turbopump.protocol.names import RETRY_PREFIX

HALF_AN_HOUR_MS = 1_800_000


@dataclass(frozen=True, slots=True)
class Beginning:
    """What was committed wins; the rest is for groups that have committed nothing."""

    offsets: Offsets
    puller: Puller
    settings: ReadingSettings
    started_ms: int

    async def of(self, queue: MessageQueue) -> int:
        """Raises Refused or OSError when it cannot be known now."""
        stored = await self.offsets.query(queue)
        if stored is not None:
            return stored
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        match self.settings.consume_from_where:
            case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
                return 0  # the broker's first answer corrects it
            case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP if not is_retry:
                return await self.puller.offset_at(queue, self._time_ms)
            case ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET if is_retry:
                return 0
            case _:
                return await self.puller.max_offset(queue)

    @property
    def _time_ms(self) -> int:
        asked = self.settings.consume_timestamp
        if asked is None:
            return self.started_ms - HALF_AN_HOUR_MS
        return past_ms(asked, self.started_ms, "consume_timestamp")
