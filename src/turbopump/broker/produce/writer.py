"""Appends messages to the log, and records how long it took until they were safe.

In: drafts of records. Out: where each of them is stored. All parts of a broker that store messages append
through the one writer. The content of a message and its answer never belong here.
"""

from collections.abc import Callable
from typing import TypeVar

from turbopump.broker.acknowledgement import Acknowledgement, Safety
from turbopump.broker.log import Log
from turbopump.broker.metrics.traffic import Traffic
from turbopump.compiled import Arrivals
from turbopump.protocol.errors import Refused
from turbopump.runtime.clock import Clock
from turbopump.store.append import Appended, Draft
from turbopump.store.compiled_appends import CompiledAppends
from turbopump.store.consume_queue import ConsumeQueue

T = TypeVar("T")


class MessageWriter:
    """Appends the messages of all parts of the broker to the log, and records how long that took."""

    def __init__(
        self,
        log: Log,
        compiled: CompiledAppends,
        acknowledgement: Acknowledgement,
        traffic: Traffic,
        clock: Clock,
    ) -> None:
        self.acknowledgement = acknowledgement
        self.traffic = traffic
        self.monotonic = clock.monotonic
        self._log = log
        self._compiled = compiled

    def append(self, drafts: list[Draft], together: bool = False) -> list[Appended]:
        """Appends all drafts, or none and raises Refused; records the time only if they are safe at once.

        `together`: in one file of the log, as a batch. When messages are not safe at once, the caller records
        how long it took (`took_since`).
        """
        began = self.monotonic()
        try:
            appended = self._log.append(drafts, together)
        except Refused:
            self.traffic.put_failures += len(drafts)
            raise
        if self.acknowledgement.immediate is not None:
            self.took_since(began, drafts)
        if together and (others := sum(draft.count for draft in drafts) - 1):
            self.traffic.together[drafts[0].queue] += others
        return appended

    def append_counted(self, drafts: list[Draft]) -> list[Appended]:
        """Appends all drafts, or none and raises Refused, and records the time until they are safe."""
        began = self.monotonic()
        appended = self.append(drafts)
        acknowledgement = self.acknowledgement
        if acknowledgement.immediate is None:
            offset, _, size = appended[-1]

            def took(safety: Safety) -> None:
                self.took_since(began, drafts)

            acknowledgement.when_safe(offset + size, took)
        return appended

    def append_group(
        self, take: Callable[[Arrivals | None], T | None], queues: Callable[[T], list[ConsumeQueue]]
    ) -> T | None:
        """Appends many messages in one compiled step by `take`; returns its result. None: nothing was stored.

        `queues` returns the queue of each message, from that result.
        """
        began = self.monotonic()
        taken = self._compiled.append_group(take)
        if taken is not None:
            self.traffic.took(int((self.monotonic() - began) * 1000), queues(taken))
        return taken

    def took_since(self, began: float, drafts: list[Draft]) -> None:
        """Records the time since `began` (monotonic seconds) as how long it took to store these drafts."""
        self.traffic.took(int((self.monotonic() - began) * 1000), [draft.queue for draft in drafts])
