"""Works through the bytes that a slave has copied and not dispatched yet, a turn of the loop at a time.

In: the notice that bytes were copied. Out: queues, index and waiting pulls that follow the log, whether a
master is connected or not: what was copied before it died has to be readable. A disk that is full is tried
again; bytes that are no record end it.
"""

import asyncio
import logging
from collections.abc import Callable

from turbopump.store.replica_log import NotACopy, ReplicaLog

log = logging.getLogger(__name__)

RETRY_S = 1.0  # after a write of queues or index that failed


class Backlog:
    """Puts copied records into queues and index, in turns of the loop; tries again after a failure."""

    def __init__(self, replica: ReplicaLog) -> None:
        self.on_turn: Callable[[], None] = lambda: None
        """Called after each turn."""
        self.not_a_copy: NotACopy | None = None
        """Where the copied bytes cease to be a log; None: they are one."""
        self.trouble = ""
        """Why nothing can be dispatched at the moment."""
        self._replica = replica
        self._next: asyncio.Handle | None = None

    @property
    def size(self) -> int:
        """Bytes that were copied and not dispatched."""
        return self._replica.end - self._replica.dispatched

    def work(self) -> None:
        """Dispatches for one turn, unless a turn is due anyway; later turns follow by themselves."""
        if self._next is None and self.not_a_copy is None:
            self._turn()

    def _turn(self) -> None:
        self._next = None
        loop = asyncio.get_running_loop()
        try:
            has_more = self._replica.dispatch()
        except NotACopy as error:
            self.not_a_copy = error
        except Exception as error:  # a full disk, or a defect: the records stay, and are tried again
            self._note(error)
            self._next = loop.call_later(RETRY_S, self._turn)
        else:
            if self.trouble:
                log.info("Copied messages reach queues and index again")
            self.trouble = ""
            if has_more:
                self._next = loop.call_soon(self._turn)
        self.on_turn()

    def _note(self, error: Exception) -> None:
        if not self.trouble:
            words = "Copied messages cannot be put into queues and index; retrying every %d s"
            log.error(words, RETRY_S, exc_info=error)
        self.trouble = f"copied messages cannot be put into queues and index: {error!r}"

    def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
