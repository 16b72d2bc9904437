"""How a delayed message is kept until its time: in SCHEDULE_TOPIC_XXXX, one queue for each delay level.

In: the properties of a message that asks for a delay. Out: the queue in which it waits, and the properties
that bring it back: REAL_TOPIC and REAL_QID. The entry in that queue carries the time of delivery where others
carry the hash of a tag. When it is delivered, and how, is the subject of `delay.py`.
"""

import re
from collections.abc import Callable

from turbopump.protocol import properties
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.errors import Refused
from turbopump.protocol.names import SCHEDULE_TOPIC
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.store import Store

TIMERS = (properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS)

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


class Schedule:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._levels = store.delays
        self.on_postponed: Callable[[], None] = lambda: None
        """Called after a delayed message was appended."""

    def postpone(
        self, pairs: dict[str, str], level: int, topic: str, queue_id: int
    ) -> tuple[ConsumeQueue, int]:
        """Changes the properties to those of a message that waits. Its queue, and its delay in ms."""
        level = min(level, len(self._levels))
        for name in TIMERS:  # the level counts, as in Apache
            pairs.pop(name, None)
        pairs[properties.DELAY] = str(level)
        pairs[properties.REAL_TOPIC] = topic
        pairs[properties.REAL_QUEUE_ID] = str(queue_id)
        return self._store.queue(SCHEDULE_TOPIC, level - 1), self._levels.delay_ms(level)


def delay_level(pairs: dict[str, str]) -> int:
    """What a message asks for: a level from 1 on, or none (0 and below). Levels may be beyond the last."""
    text = pairs.get(properties.DELAY)
    if text is None:
        return 0
    if not _INTEGER.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the delay level is no number: {text[:40]!r}")
    return int(text)
