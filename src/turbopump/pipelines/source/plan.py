"""What a query reads next: the thinking of the readers, without Spark.

In: a query, looks at the brokers. Out: offsets and ranges. A stream asks again and again; everything before
the `start` that it is asked with has been processed, so that is what the group has done.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from turbopump.client.message import MessageQueue
from turbopump.pipelines.source.offsets import (
    BadOffsets,
    Ends,
    Positions,
    Range,
    check_topics,
    count_between,
    document_of,
    earliest,
    is_worth_it,
    latest,
    limited,
    listed,
    losses,
    lost,
    positions_of,
    ranges,
    resolved,
    split,
    target,
)
from turbopump.pipelines.source.settings import Bound, Query

log = logging.getLogger(__name__)

Document = Mapping[str, Any]


class Seen(Protocol):
    """A look at the brokers."""

    @property
    def ends(self) -> Mapping[MessageQueue, Ends]: ...

    def away(self, queues: Any) -> list[MessageQueue]: ...


class Sight(Protocol):
    """Who looks."""

    def look(self, is_first: bool = False) -> Seen:
        """`is_first`: a topic that was named must be there."""

    def offsets_at(
        self, times_ms: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, Ends]
    ) -> Mapping[MessageQueue, int | None]: ...

    def commit(self, positions: Positions) -> None: ...


# --- a batch ---------------------------------------------------------------------------------------------


def batch_ranges(query: Query, sight: Sight) -> list[Range]:
    ends = sight.look(is_first=True).ends
    start = place(query.start, ends, sight)
    end = place(query.end, ends, sight)
    told = losses(start, ends) if query.start.offsets != "earliest" else []
    _judge(told, query)
    within = {queue: min(max(offset, ends[queue].low), ends[queue].high) for queue, offset in start.items()}
    capped = {queue: min(offset, ends[queue].high) for queue, offset in end.items()}
    return split(ranges(within, capped), query.least_parts, query.most_records)


def place(bound: Bound, ends: Mapping[MessageQueue, Ends], sight: Sight) -> dict[MessageQueue, int]:
    """Where the bound lies in each queue, now."""
    if bound.time_ms is not None or bound.times_ms is not None:
        return _place_by_time(bound, ends, sight)
    if bound.offsets == "earliest":
        return earliest(ends)
    if bound.offsets == "latest":
        return latest(ends)
    assert not isinstance(bound.offsets, str)
    return resolved(bound.offsets, ends)


def _place_by_time(bound: Bound, ends: Mapping[MessageQueue, Ends], sight: Sight) -> dict[MessageQueue, int]:
    times = bound.times_ms if bound.times_ms is not None else dict.fromkeys(ends, bound.time_ms or 0)
    if missing := sorted(ends.keys() ^ times.keys()):
        raise BadOffsets(f"times are to be given for exactly the queues that are read: see {listed(missing)}")
    found = sight.offsets_at(times, ends)
    none = sorted(queue for queue, offset in found.items() if offset is None)
    if none and not bound.or_latest:
        raise BadOffsets(
            f"no message of {listed(none)} was stored at that time or later: choose an earlier one, or set "
            "startingOffsetsByTimestampStrategy to latest"
        )
    return {queue: ends[queue].high if offset is None else offset for queue, offset in found.items()}


# --- a stream --------------------------------------------------------------------------------------------


@dataclass
class Stream:
    query: Query
    sight: Sight
    now: Callable[[], float]
    _initial: Document | None = field(default=None, init=False)
    _goal: dict[MessageQueue, int] | None = field(default=None, init=False)
    """Where a query that reads what is there now ends."""
    _latest: dict[MessageQueue, int] = field(default_factory=dict, init=False)
    _began: float | None = field(default=None, init=False)
    _committed: dict[MessageQueue, int] = field(default_factory=dict, init=False)

    def initial(self) -> Document:
        """Asked for twice by Spark: the same is said twice."""
        if self._initial is None:
            ends = self.sight.look(is_first=True).ends
            self._initial = document_of(place(self.query.start, ends, self.sight))
        return self._initial

    def fix_goal(self) -> None:
        self._goal = latest(self.sight.look().ends)

    def next(self, start_document: Document, most: int | None) -> Document:
        """How far the micro-batch after `start` goes; `start` itself: there is nothing to do."""
        start = positions_of(dict(start_document)) if start_document else {}
        seen = self.sight.look()
        unwanted = [queue for queue in start if not self.query.topics.wants(queue)]
        check_topics(start, unwanted, self.query.topics)
        self._commit(start, seen)
        away = [queue for queue in seen.away(start) if queue not in unwanted]
        _judge(losses(start, seen.ends, away, unwanted), self.query)
        self._latest = {**{queue: start[queue] for queue in away}, **latest(seen.ends)}
        end = target(start, seen.ends, away)
        if self._goal is not None:
            end = self._within_goal(start, end)
        elif not self._is_worth_it(start, end):
            return document_of(start)
        return document_of(limited(start, end, most) if most is not None else end)

    def _within_goal(self, start: Positions, end: Positions) -> dict[MessageQueue, int]:
        """Queues that appeared after the goal was fixed are for the next run."""
        assert self._goal is not None
        goal = self._goal
        return {
            queue: min(offset, max(goal.get(queue, 0), start.get(queue, 0))) if queue in start else offset
            for queue, offset in end.items()
            if queue in start or queue in goal
        }

    def _is_worth_it(self, start: Positions, end: Positions) -> bool:
        now = self.now()
        if self._began is None:
            self._began = now
        waited_s = now - self._began
        least = self.query.least
        is_new = bool(end.keys() - start.keys())
        waiting = count_between(start, end)
        if (
            least is not None
            and not is_new
            and not is_worth_it(waiting, least, waited_s, self.query.longest_delay_s)
        ):
            return False
        self._began = now
        return True

    def _commit(self, start: Positions, seen: Seen) -> None:
        """What lies before `start` is done: Spark asks for more when the batch before has ended."""
        if self.query.group is None:
            return
        away = set(seen.away(start))
        news = {
            queue: offset
            for queue, offset in start.items()
            if queue not in away and queue in seen.ends and self._committed.get(queue) != offset
        }
        if news:
            self.sight.commit(news)
            self._committed |= news

    def latest(self) -> Document:
        """For progress: where the queues ended when last looked at."""
        return document_of(self._latest)

    def ranges(self, start_document: Document, end_document: Document) -> list[Range]:
        start = positions_of(dict(start_document)) if start_document else {}
        end = positions_of(dict(end_document)) if end_document else {}
        return split(ranges(start, end), self.query.least_parts, self.query.most_records)


def _judge(told: list[str], query: Query) -> None:
    if told and query.fails_on_loss:
        raise lost(told)
    for sentence in told:
        log.warning("%s; going on, as failOnDataLoss is false", sentence)
