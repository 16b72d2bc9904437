"""Appends with compiled code: many plain sends of a read event, or several other messages, in one call.

The twins write to the log, the queues and the list of keys by themselves (`compiled/appending.c` reads the
attributes by name); what follows an append, the waiting pulls and the index, is done here. They exist only
where a message is readable as soon as it is appended: with ASYNC_FLUSH and without the transient pool.
"""

from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from turbopump.compiled import Arrivals, GroupAppender, PlainSends, Rules, Taken, Twins
from turbopump.runtime.clock import Clock
from turbopump.store.append import Appender
from turbopump.store.commit_log import CommitLog
from turbopump.store.dispatch import Dispatcher
from turbopump.store.flags import Flags
from turbopump.store.queues import ConsumeQueues

T = TypeVar("T")


class CompiledAppends:
    """Creates the compiled appenders of a store; wakes pulls and the index after their appends."""

    def __init__(
        self,
        twins: Twins | None,
        log: CommitLog,
        flags: Flags,
        appender: Appender,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        clock: Clock,
    ) -> None:
        self._twins = twins
        self._dispatcher = dispatcher
        self._parts: dict[str, Any] = {
            "log": log,
            "flags": flags,
            "appender": appender,
            "keys": appender.keys,
            "dirty": queues.dirty,
            "now_ms": clock.now_ms,
        }

    def plain_sends(self, **rules: Unpack[Rules]) -> PlainSends | None:
        """Returns the compiled appender of plain sends, for `append_plain`; None without compiled code."""
        return None if self._twins is None else self._twins.plain_sends(**self._parts, **rules)

    def groups(self) -> GroupAppender | None:
        """Returns the compiled appender of several messages, for `append_group`; None: no compiled code."""
        return None if self._twins is None else self._twins.groups(**self._parts)

    def append_plain(self, sends: PlainSends, data: bytes, born_host: bytes) -> Taken | None:
        """Appends the plain sends at the front of a read event's bytes, wakes pulls; None: appended none."""
        return self.append_group(lambda arrivals: sends.take(data, born_host, arrivals))

    def append_group(self, take: Callable[[Arrivals | None], T | None]) -> T | None:
        """Calls `take`, which appends messages or returns None, wakes waiting pulls, returns its result."""
        dispatcher = self._dispatcher
        arrived = dispatcher.on_arrival
        arrivals: Arrivals | None = None if arrived is None else []
        taken = take(arrivals)
        if taken is not None:
            if arrived is not None and arrivals is not None:
                for queue, next_offset, tags_code in arrivals:
                    arrived(queue, next_offset, tags_code)
            dispatcher.keys_waiting()
            if dispatcher.on_growth is not None:
                dispatcher.on_growth()
        return taken
