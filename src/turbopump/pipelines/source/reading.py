"""What a task and a plan do with brokers, without Spark: rows of a range, and looks.

In: a query and a range. Out: Arrow batches, in the order of offsets. For any thread but an event loop's.
"""

import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from turbopump.client.message import MessageQueue
from turbopump.pipelines.source.brokers import Brokers, Seen, asked, shared
from turbopump.pipelines.source.offsets import Ends, Positions, Range, lost, named
from turbopump.pipelines.source.pulling import Reading, parts_of
from turbopump.pipelines.source.rows import rows_of
from turbopump.pipelines.source.settings import Query
from turbopump.protocol.errors import Refused

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass
class Eyes:
    """Looks at the brokers for a plan."""

    query: Query

    def look(self, known: Iterable[MessageQueue] = (), is_whole: bool = False) -> Seen:
        """Brokers that should be there get the same time to come back as servers to answer."""
        query, queues = self.query, list(known)
        expected = query.expected if is_whole else ()
        for left in reversed(range(query.tries)):
            seen = self._ask(lambda brokers: brokers.look(query.topics, queues, is_whole, expected))
            if not (is_whole and seen.missing and left) or query.allows_missing:
                break
            log.warning("Brokers %s are looked for again in %s s", ", ".join(seen.missing), query.pause_s)
            time.sleep(query.pause_s)
        return seen

    def offsets_at(
        self, times_ms: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, Ends]
    ) -> Mapping[MessageQueue, int | None]:
        return self._ask(lambda brokers: brokers.offsets_at(times_ms, ends))

    def marks(self, at: Positions) -> Mapping[MessageQueue, str | None]:
        return self._ask(lambda brokers: brokers.marks(at))

    def resumed(
        self, marks: Mapping[MessageQueue, str | None], ends: Mapping[MessageQueue, Ends]
    ) -> Mapping[MessageQueue, int]:
        return self._ask(lambda brokers: brokers.resumed(marks, ends))

    def commit(self, positions: Positions) -> None:
        """As well as it goes: it is for who watches the group."""
        group = self.query.group
        assert group is not None
        try:
            asked(self.query.access, lambda brokers: brokers.commit(group, positions), 1, 0.0)
        except (OSError, Refused) as error:
            log.warning("Group %s is not told how far it is: %s", group, error)

    def _ask(self, ask: Callable[[Brokers], Coroutine[Any, Any, T]]) -> T:
        return asked(self.query.access, ask, self.query.tries, self.query.pause_s)


def read(wanted: Range, query: Query) -> Iterator[pa.RecordBatch]:
    """The rows of one task."""
    if not wanted.size:
        return
    brokers = shared(query.access)
    lose = partial(_lose, wanted, query)
    for part in parts_of(lambda: _reading(brokers, wanted, query)):
        yield from rows_of(part, wanted, query.schema, query.filter, lose)


def _reading(brokers: Brokers, wanted: Range, query: Query) -> Reading:
    return Reading(
        brokers.pulls,
        brokers.routes.doubt,
        wanted,
        query.filter,
        query.pull_count,
        query.patience_s,
        query.fails_on_loss,
    )


def _lose(wanted: Range, query: Query, start: int, end: int) -> None:
    told = f"messages {start} to {end - 1} of {named(wanted.queue)} are missing between others"
    if query.fails_on_loss:
        raise lost([told])
    log.warning("%s; going on without them, as failOnDataLoss is false", told)
