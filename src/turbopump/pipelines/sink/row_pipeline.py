"""Sends the rows of a task in pieces: the next piece is packed while the one before it is being sent.

In: Arrow batches, and a coroutine function that sends packed rows. Out: the number of rows that were sent.
What sending means (batch sends, half messages) is the caller's.
"""

from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any

from turbopump.client import background
from turbopump.pipelines.sink.rows import MessageRows, pieces, rows_of
from turbopump.protocol.ids import UniqueIds
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock

COUNTER_DIGITS = 4  # at the end of a unique key

Send = Callable[[MessageRows, int], Coroutine[Any, Any, None]]
"""Sends packed rows; the number is that of the rows before them in the task."""


def send_all(batches: Iterable[Any], topic: str | None, key_prefix: Callable[[], str], send: Send) -> int:
    """Packs and sends all rows, and returns their number. A failure cancels the send that is in progress."""
    count = 0
    under_way: Future[None] | None = None
    try:
        for batch in batches:
            for piece in pieces(batch):
                rows = rows_of(piece, topic, key_prefix(), count)
                if under_way is not None:
                    under_way.result()
                under_way = background.submit(send(rows, count))
                count += len(rows)
        if under_way is not None:
            under_way.result()
    except BaseException:
        if under_way is not None:
            under_way.cancel()
        raise
    return count


def new_key_prefix(clock: Clock, chance: Chance) -> str:
    """Returns the beginning of unique keys that no other process makes; a counter is appended per row."""
    ids = UniqueIds("127.0.0.1", chance.getrandbits(16), clock.now_ms, chance.getrandbits(32))
    return ids.next()[:-COUNTER_DIGITS]
