"""Light queues, as messages are written: which ones a message is for, and the offset it gets in each.

In: drafts about to be appended. Out: the same drafts, with the queues and with the property that says which
offsets they have there, so that the queues can be made again from the log alone. Nothing here is refused:
senders are told before (`room_for`), and what comes from inside the broker must not get stuck.
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
from turbopump.store.append import LIGHT, Draft
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.queues import ConsumeQueues

log_line = logging.getLogger("turbopump.store")


class LightQueues:
    """At most `limit` of them have messages; each is a directory."""

    def __init__(self, queues: ConsumeQueues, limit: int) -> None:
        self._queues = queues
        self._limit = limit

    def room_for(self, names: list[str]) -> bool:
        """Whether there may be as many queues as these make necessary."""
        lights = self._queues.lights
        return len(lights) + sum(name not in lights for name in names) <= self._limit

    def stamp(self, drafts: Sequence[Draft]) -> None:
        """Just before they are appended: nothing else may come in between."""
        given: dict[ConsumeQueue, int] = {}
        for draft in drafts:
            if NAMES_MARK in draft.properties or OFFSETS_MARK in draft.properties:
                self._stamp(draft, given)

    def _stamp(self, draft: Draft, given: dict[ConsumeQueue, int]) -> None:
        if not takes_part(draft.queue.topic) or draft.sys_flag & PREPARED:  # the bit of a rollback too
            return  # it waits; the names stay for when it does not wait any more
        lights = []
        for name in named(find(draft.properties, INNER_MULTI_DISPATCH) or ""):
            if is_good(name) and self._has_room(name):
                queue = self._queues.light(name)
                lights.append((queue, given.get(queue, queue.next_offset)))
        stamped = with_places(draft.properties, [(queue.topic, offset) for queue, offset in lights])
        if len(stamped) > MAX_BYTES:
            log_line.error("a message of %s has no room for its light queues", draft.queue.topic)
            return
        draft.properties, draft.lights = stamped, tuple(lights)
        draft.sys_flag |= LIGHT
        for queue, offset in lights:
            given[queue] = offset + 1
            self._queues.lights.add(queue.topic)

    def _has_room(self, name: str) -> bool:
        if self.room_for([name]):
            return True
        log_line.error("there are %d light queues already: a message is not put into %s", self._limit, name)
        return False
