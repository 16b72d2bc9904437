"""Asks the brokers what a plan needs to know, by blocking calls, repeated while servers do not answer.

In: a query and what the plan needs to know. Out: snapshots, offsets and marks. For any thread other than an
event loop's.
"""

import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from turbopump.client.message import MessageQueue
from turbopump.pipelines.source.broker_client import BrokerClient, ask_with_retries
from turbopump.pipelines.source.offsets import Ends, Positions
from turbopump.pipelines.source.settings import SourceQuery
from turbopump.pipelines.source.snapshot import ClusterSnapshot
from turbopump.protocol.errors import Refused

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass
class BlockingClusterView:
    """Answers what `plan.py` asks about queues and brokers, by blocking calls with retries."""

    query: SourceQuery

    def snapshot(self, known: Iterable[MessageQueue] = (), is_whole: bool = False) -> ClusterSnapshot:
        """Returns the queues and brokers now; if `is_whole`, first waits some time for missing brokers.

        Missing brokers get the same time to come back as servers to answer; if `allows_missing`, no time.
        """
        query, queues = self.query, list(known)
        expected = query.expected if is_whole else ()
        for left in reversed(range(query.tries)):
            snapshot = self._ask(lambda brokers: brokers.snapshot(query.topics, queues, is_whole, expected))
            if not (is_whole and snapshot.missing and left) or query.allows_missing:
                break
            log.warning(
                "Brokers %s are missing; retrying in %s s", ", ".join(snapshot.missing), query.pause_s
            )
            time.sleep(query.pause_s)
        return snapshot

    def offsets_at(
        self, times_ms: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, Ends]
    ) -> Mapping[MessageQueue, int | None]:
        """Returns for each queue the offset of the first message stored at its time or later; None: none."""
        return self._ask(lambda brokers: brokers.offsets_at(times_ms, ends))

    def marks(self, at: Positions) -> Mapping[MessageQueue, str | None]:
        """Returns a mark (id, store time) of each record, None if there is none; omits silent brokers."""
        return self._ask(lambda brokers: brokers.marks(at))

    def resumed(
        self, marks: Mapping[MessageQueue, str | None], ends: Mapping[MessageQueue, Ends]
    ) -> Mapping[MessageQueue, int]:
        """Returns where replaced queues continue: at the first message, or the first newer than the mark."""
        return self._ask(lambda brokers: brokers.resumed(marks, ends))

    def commit(self, positions: Positions) -> None:
        """Commits the positions as the query's group's offsets, for tools; a failure is only logged."""
        group = self.query.group
        assert group is not None
        try:
            ask_with_retries(self.query.access, lambda brokers: brokers.commit(group, positions), 1, 0.0)
        except (OSError, Refused) as error:
            log.warning("Cannot commit the offsets of group %s: %s", group, error)

    def _ask(self, ask: Callable[[BrokerClient], Coroutine[Any, Any, T]]) -> T:
        return ask_with_retries(self.query.access, ask, self.query.tries, self.query.pause_s)
