"""Committed offsets on their way to slaves, a moment after the commit.

In: the notice that a committed offset has moved. Out: rows of the offsets as they are a tenth of a second
later, many commits together. The whole table follows when it is saved. It was read before that, so that what
has moved since the table before it is sent once more behind it. Resets, clones and deletions travel with the
whole table.
"""

import asyncio
from collections.abc import Callable
from itertools import islice

import msgspec

from turbopump.broker.groups.offsets import NONE, CommittedOffsets, Place
from turbopump.protocol.errors import BrokenBody

FILE = "consumerOffset.moved"
"""Name of the rows on the connection to a slave; no file. A slave of an older version ignores it."""
GATHERED_S = 0.1
ROWS_PER_TURN = 2000  # encoded at once: about a millisecond

Row = tuple[str, str, int, int]
_rows = msgspec.json.Decoder(list[Row])


class MovedOffsets:
    """Gathers committed offsets that have moved, and pushes them to the slaves of this master."""

    def __init__(
        self,
        offsets: CommittedOffsets,
        push: Callable[[str, bytes], None],
        may_push: Callable[[str], bool],
    ) -> None:
        """`may_push` tells whether no slave has rows unsent, which new ones would replace."""
        self._offsets = offsets
        self._push = push
        self._may_push = may_push
        self._unsent: dict[Place, None] = {}
        self._since_table: dict[Place, None] = {}  # moved since the whole table was pushed last
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, has_slaves: bool) -> None:
        """Has commits noted while slaves are connected; forgets those that are noted when none is left."""
        self._offsets.on_move = self._moved if has_slaves else None
        if not has_slaves:
            self._unsent.clear()
            self._since_table.clear()
            self._stop()

    def table_pushed(self) -> None:
        """Sends everything again that has moved since the whole table before, behind the present one."""
        self._unsent |= self._since_table
        self._since_table.clear()
        if self._unsent:
            self._stop()
            self._send()

    def close(self) -> None:
        """Sends what has moved to the slaves that are connected, and notes nothing any more."""
        if self._unsent:
            self._send()
        self.follow(False)

    def _moved(self, place: Place) -> None:
        self._unsent[place] = self._since_table[place] = None
        if self._timer is None:
            self._send_later()

    def _send_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(GATHERED_S, self._send)

    def _send(self) -> None:
        self._timer = None
        if self._may_push(FILE):
            places = list(islice(self._unsent, ROWS_PER_TURN))
            rows = [(*place, offset) for place in places if (offset := self._offsets.query(*place)) != NONE]
            for place in places:
                del self._unsent[place]
            self._push(FILE, msgspec.json.encode(rows))
        if self._unsent:
            self._send_later()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def rows_of(contents: bytes) -> list[Row]:
    """Returns the offsets (group, topic, queue, offset) that a master has sent. Raises BrokenBody."""
    try:
        return _rows.decode(contents)
    except msgspec.DecodeError as error:
        raise BrokenBody(f"not rows of moved offsets: {error}") from None
