"""Light queues of new messages: which ones a message is for, and the offset that it gets in each.

In: drafts that are about to be appended. Out: the same drafts, with the queues and with a property that names
the offsets in them, so that the queues can be rebuilt from the log alone. Nothing is refused here: senders
are refused before (`has_capacity_for`), and messages from inside the broker must not get stuck.
"""

import logging
from collections.abc import Sequence

from turbopump.protocol.light import (
    NAMES_MARK,
    OFFSETS_MARK,
    is_good,
    named,
    takes_part,
    with_places,
)
from turbopump.protocol.properties import INNER_MULTI_DISPATCH, MAX_BYTES, find
from turbopump.protocol.sysflag import PREPARED
from turbopump.store.append import Draft
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.queues import ConsumeQueues

log_line = logging.getLogger("turbopump.store")


class LightQueues:
    """Assigns new messages to light queues (LMQ), of which at most `limit` may have messages.

    Each is a directory.
    """

    def __init__(self, queues: ConsumeQueues, limit: int) -> None:
        self._queues = queues
        self._limit = limit

    def has_capacity_for(self, names: list[str]) -> bool:
        """Returns whether all of these light queues may have messages without exceeding the limit."""
        lights = self._queues.lights
        return len(lights) + sum(name not in lights for name in names) <= self._limit

    def stamp(self, drafts: Sequence[Draft]) -> None:
        """Sets light queues and their offsets in drafts. No other message may be appended before these."""
        given: dict[ConsumeQueue, int] = {}
        for draft in drafts:
            if NAMES_MARK in draft.properties or OFFSETS_MARK in draft.properties:
                self._stamp(draft, given)

    def _stamp(self, draft: Draft, given: dict[ConsumeQueue, int]) -> None:
        if not takes_part(draft.queue.topic) or draft.sys_flag & PREPARED:  # the bit of a rollback too
            return  # a waiting message: its names are used when it is delivered
        lights = []
        for name in named(find(draft.properties, INNER_MULTI_DISPATCH) or ""):
            if is_good(name) and self._has_capacity(name):
                queue = self._queues.light(name)
                lights.append((queue, given.get(queue, queue.next_offset)))
        stamped = with_places(draft.properties, [(queue.topic, offset) for queue, offset in lights])
        if len(stamped) > MAX_BYTES:
            log_line.error(
                "Not adding a message of %s to light queues: its properties would exceed %d bytes",
                draft.queue.topic,
                MAX_BYTES,
            )
            return
        draft.properties, draft.lights = stamped, tuple(lights)
        for queue, offset in lights:
            given[queue] = offset + 1
            self._queues.lights.add(queue.topic)

    def _has_capacity(self, name: str) -> bool:
        if self.has_capacity_for([name]):
            return True
        log_line.error(
            "Not adding a message to light queue %s: the limit of %d is reached", name, self._limit
        )
        return False
