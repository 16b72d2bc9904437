"""Request modes of groups (PULL or POP, by topic): the table, its file, the request of slaves for it (402).

In: modes that tools set (401), the file of an Apache broker whose store was taken over, or the table of a
master. Out: the same table, for slaves and for an Apache broker that opens the store later. What consumers
are served is decided in `assignment.py`: always PULL.
"""

import logging
from collections.abc import Callable

import msgspec

from turbopump.protocol.bodies import MessageRequestModeTable, SetMessageRequestModeRequestBody
from turbopump.protocol.codes import RequestCode
from turbopump.remoting.router import Answer, Request, Route, Routes

log = logging.getLogger(__name__)

FILE = "messageRequestMode.json"
PULL = "PULL"


class RequestModes:
    """Table of the modes that were set, by topic and group; its file is messageRequestMode.json."""

    def __init__(self) -> None:
        self._table = MessageRequestModeTable()
        self.on_change: Callable[[], None] = lambda: None

    def routes(self) -> Routes:
        return {RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: Route(None, self.all)}

    def all(self, request: Request[None]) -> Answer:
        """Answers a slave with the modes of all groups."""
        return Answer(body=self._table.encode())

    def put(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Stores the mode of a group on a topic."""
        groups = self._table.messageRequestModeMap.setdefault(mode.topic, {})
        if groups.get(mode.consumerGroup) != mode:
            groups[mode.consumerGroup] = mode
            self.on_change()

    def load(self, data: bytes) -> int:
        """Replaces the table by a messageRequestMode.json; returns its number of topics."""
        self._table = MessageRequestModeTable.decode(data)
        rows = [mode for groups in self._table.messageRequestModeMap.values() for mode in groups.values()]
        if popping := [f"{mode.consumerGroup} on {mode.topic}" for mode in rows if mode.mode != PULL]:
            log.warning(
                "%d groups are set to POP, which is not supported: served in pull mode (%s)",
                *(len(popping), ", ".join(popping[:3])),
            )
        return len(self._table.messageRequestModeMap)

    def dump(self) -> bytes:
        return msgspec.json.format(self._table.encode(), indent=1)
