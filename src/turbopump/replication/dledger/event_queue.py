"""Events for a node, in the order in which they came."""

import asyncio
from collections import deque

from turbopump.raft import Appended, Event, Synced


class EventQueue:
    """What has happened and was not taken in by the node yet. Of one consumer."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._has_events = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._events)

    def post(self, event: Event) -> None:
        self._events.append(event)
        self._has_events.set()

    def post_first(self, event: Event) -> None:
        """Puts an event before all others: what a step's own effects have caused."""
        self._events.appendleft(event)
        self._has_events.set()

    def post_once(self, event: Appended | Synced) -> None:
        """Posts that the log has grown or is safe, unless that is the newest event: the node looks itself."""
        if not self._events or type(self._events[-1]) is not type(event):
            self.post(event)

    def take(self) -> Event:
        """Removes and returns the first event. There must be one."""
        return self._events.popleft()

    async def wait(self) -> None:
        """Returns when there is an event."""
        if not self._events:
            self._has_events.clear()
            await self._has_events.wait()

    def clear(self) -> None:
        self._events.clear()
