"""Decides what a query reads next, without Spark.

In: a query, snapshots of the brokers. Out: offsets and ranges. A stream is asked repeatedly; everything
before the `start` of such a call has been processed, so that is the progress of the group.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from turbopump.client.message import MessageQueue
from turbopump.pipelines.options import LATEST
from turbopump.pipelines.source import proofs
from turbopump.pipelines.source.offsets import (
    BadOffsets,
    Ends,
    Positions,
    Range,
    beyond,
    check_order,
    check_topics,
    count_between,
    cut_short,
    document_of,
    earliest,
    is_due,
    latest,
    limited,
    listed,
    losses,
    lost,
    missing_brokers,
    named,
    ranges,
    resolved,
    split,
    target,
)
from turbopump.pipelines.source.proofs import ProvenOffsets, full_document, offsets_of
from turbopump.pipelines.source.settings import Bound, SourceQuery
from turbopump.pipelines.source.snapshot import ClusterSnapshot

log = logging.getLogger(__name__)

Document = Mapping[str, Any]

MAX_CLOCK_SKEW_MS = 60_000
"""A queue whose messages are older than the query by at most this counts as new."""


class ClusterView(Protocol):
    """Interface by which a plan asks the brokers for queues, offsets and marks of records."""

    def snapshot(self, known: Iterable[MessageQueue] = (), is_whole: bool = False) -> ClusterSnapshot:
        """Returns the state of the queues and brokers at this moment.

        `known` queues are included also when the topic no longer has them. `is_whole`: brokers that should be
        there are looked for, and waited for a moment.
        """

    def offsets_at(
        self, times_ms: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, Ends]
    ) -> Mapping[MessageQueue, int | None]: ...

    def marks(self, at: Positions) -> Mapping[MessageQueue, str | None]:
        """Returns a mark (id and store time) of the record at each offset; None where there is no record.

        A queue whose broker does not answer is left out.
        """

    def resumed(
        self, marks: Mapping[MessageQueue, str | None], ends: Mapping[MessageQueue, Ends]
    ) -> Mapping[MessageQueue, int]:
        """Returns the offset at which to continue in each queue that is no longer the one that was read."""

    def commit(self, positions: Positions) -> None: ...


def complete_snapshot(query: SourceQuery, cluster: ClusterView) -> ClusterSnapshot:
    """Returns a snapshot to begin a query with. Raises MissingBrokers unless missing ones are allowed.

    Raises BadOffsets when a named topic does not exist.
    """
    snapshot = cluster.snapshot(is_whole=True)
    missing = dict(snapshot.missing)
    for queue in _named(query):
        if queue.broker not in missing and queue not in snapshot.ends and snapshot.away([queue]):
            missing[queue.broker] = "is not registered with the name server"
    if missing and not query.allows_missing:
        raise missing_brokers(missing, query.topics)
    for name, why in missing.items():
        log.warning("Broker %s %s; reading %s without it (allowMissingBrokers)", name, why, query.topics)
    if not missing:
        _check_there(query, snapshot)
    return snapshot


def _named(query: SourceQuery) -> set[MessageQueue]:
    """Returns the queues that the query's options name one by one."""
    found = set(query.topics.assigned[1]) if query.topics.assigned is not None else set()
    for bound in (query.start, query.end):
        found |= set(bound.offsets) if not isinstance(bound.offsets, str) else set()
        found |= set(bound.times_ms or ())
    return found


def _check_there(query: SourceQuery, snapshot: ClusterSnapshot) -> None:
    there = {queue.topic for queue in snapshot.ends}
    if nowhere := [topic for topic in query.topics.names() if topic not in there]:
        raise BadOffsets(
            f"no available broker has topic {', '.join(nowhere)}, or the queues of it that are wanted: "
            "check the name, or create it (mqadmin updateTopic)"
        )
    if query.topics.assigned is None:
        return
    everywhere, exactly = query.topics.assigned
    numbers = {(queue.topic, queue.id) for queue in snapshot.ends}
    unknown = [
        f"queue {one} of {topic}"
        for topic, ids in everywhere.items()
        for one in sorted(ids)
        if (topic, one) not in numbers
    ]
    unknown += [named(queue) for queue in sorted(exactly) if queue not in snapshot.ends]
    if unknown:
        raise BadOffsets(f"option assign names queues that do not exist: {', '.join(unknown)}")


# --- a batch ---------------------------------------------------------------------------------------------


def batch_ranges(query: SourceQuery, cluster: ClusterView) -> list[Range]:
    """Returns the ranges that a batch reads, one per task. Raises DataLost, BadOffsets, MissingBrokers."""
    snapshot = complete_snapshot(query, cluster)
    ends = snapshot.ends
    start = _there(place(query.start, snapshot, cluster), ends)
    end = _there(place(query.end, snapshot, cluster), ends)
    problems = losses(start, ends) if query.start.offsets != "earliest" else []
    _report_losses(problems + cut_short(end, ends), query)
    if _is_by_offset(query.start) and _is_by_offset(query.end):
        check_order(start, end)
    within = {queue: min(max(offset, ends[queue].low), ends[queue].high) for queue, offset in start.items()}
    capped = {queue: min(offset, ends[queue].high) for queue, offset in end.items()}
    return split(ranges(within, capped), query.min_parts, query.max_records)


def _there(positions: Positions, ends: Mapping[MessageQueue, Ends]) -> dict[MessageQueue, int]:
    return {queue: offset for queue, offset in positions.items() if queue in ends}


def _is_by_offset(bound: Bound) -> bool:
    return not isinstance(bound.offsets, str) and bound.time_ms is None and bound.times_ms is None


def place(bound: Bound, snapshot: ClusterSnapshot, cluster: ClusterView) -> dict[MessageQueue, int]:
    """Returns the offset that the bound means in each queue now.

    Queues of missing brokers keep the offsets given for them.
    """
    ends = snapshot.ends
    if bound.time_ms is not None or bound.times_ms is not None:
        return _place_by_time(bound, snapshot, cluster)
    if bound.offsets == "earliest":
        return earliest(ends)
    if bound.offsets == "latest":
        return latest(ends)
    assert not isinstance(bound.offsets, str)
    away = set(snapshot.away(bound.offsets)) - ends.keys()
    given = {queue: offset for queue, offset in bound.offsets.items() if queue not in away}
    kept = {queue: bound.offsets[queue] for queue in away if bound.offsets[queue] >= 0}
    return {**(resolved(given, ends) if given or ends else {}), **kept}


def _place_by_time(bound: Bound, snapshot: ClusterSnapshot, cluster: ClusterView) -> dict[MessageQueue, int]:
    ends = snapshot.ends
    if bound.times_ms is not None:
        away = set(snapshot.away(bound.times_ms)) - ends.keys()
        times = {queue: time_ms for queue, time_ms in bound.times_ms.items() if queue not in away}
    else:
        times = dict.fromkeys(ends, bound.time_ms or 0)
    if missing := sorted(ends.keys() ^ times.keys()):
        raise BadOffsets(f"times must be given for exactly the queues that are read: see {listed(missing)}")
    found = cluster.offsets_at(times, ends)
    none = sorted(queue for queue, offset in found.items() if offset is None)
    if none and not bound.or_latest:
        raise BadOffsets(
            f"no message of {listed(none)} was stored at that time or later: choose an earlier one, or set "
            "startingOffsetsByTimestampStrategy to latest"
        )
    return {queue: ends[queue].high if offset is None else offset for queue, offset in found.items()}


# --- a stream --------------------------------------------------------------------------------------------


@dataclass
class StreamPlan:
    """The plan of one stream: where it begins, and the end of each micro-batch."""

    query: SourceQuery
    cluster: ClusterView
    now: Callable[[], float]
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    _initial: Document | None = field(default=None, init=False)
    _goal: dict[MessageQueue, int] | None = field(default=None, init=False)
    """Where a query ends that reads only what is stored now."""
    _latest: dict[MessageQueue, int] = field(default_factory=dict, init=False)
    _began: float | None = field(default=None, init=False)
    _committed: dict[MessageQueue, int] = field(default_factory=dict, init=False)
    _planned: Document | None = field(default=None, init=False)
    """The end of the last micro-batch that this run planned."""
    _proved: bool = field(default=False, init=False)
    """Whether all queues were compared with the checkpoint once."""
    _away: frozenset[str] = field(default=frozenset(), init=False)
    _warned: set[str] = field(default_factory=set, init=False)
    """Warnings that were logged."""

    def initial(self) -> Document:
        """Returns the offsets where the stream begins; later calls return the same document."""
        if self._initial is None:
            snapshot = complete_snapshot(self.query, self.cluster)
            positions = place(self.query.start, snapshot, self.cluster)
            began = ProvenOffsets(
                positions,
                self._marks_of(positions, snapshot),
                _clusters(positions, snapshot),
                self._since_ms(),
                frozenset(snapshot.missing),
            )
            self._initial = full_document(began)
        return self._initial

    def _marks_of(self, positions: Positions, snapshot: ClusterSnapshot) -> dict[MessageQueue, str]:
        asked = _before(positions, snapshot.ends)
        found = self.cluster.marks(asked)
        if silent := asked.keys() - found.keys():
            why = {queue.broker: "does not answer" for queue in silent}
            raise missing_brokers(why, self.query.topics)
        return {queue: mark for queue, mark in found.items() if mark is not None}

    def _since_ms(self) -> int | None:
        """Returns the store time (ms) from which on messages of later queues are read; None: read all."""
        bound, now_ms = self.query.start, self.now_ms()
        if bound.time_ms is not None:
            return min(bound.time_ms, now_ms)
        if bound.times_ms is not None:
            return min([*bound.times_ms.values(), now_ms])
        if isinstance(bound.offsets, str):
            return now_ms if bound.offsets == "latest" else None
        return now_ms if LATEST in bound.offsets.values() else None

    def fix_goal(self) -> None:
        """Fixes the end of the stream: where the queues end now, or the query's end time.

        Raises MissingBrokers, whose messages belong to the goal.
        """
        snapshot = self.cluster.snapshot(is_whole=True)
        if snapshot.missing and not self.query.allows_missing:
            raise missing_brokers(snapshot.missing, self.query.topics)
        end = self.query.end
        self._goal = latest(snapshot.ends) if end.time_ms is None else place(end, snapshot, self.cluster)

    def next(self, start_document: Document, max_messages: int | None) -> Document:
        """Returns the end of the micro-batch after `start_document`, or that itself if nothing is to do."""
        before = offsets_of(start_document)
        start = before.positions
        snapshot = self.cluster.snapshot(start)
        unwanted = [queue for queue in start if not self.query.topics.wants(queue)]
        check_topics(start, unwanted, self.query.topics)
        self._commit(start, snapshot)
        away = [queue for queue in snapshot.away(start) if queue not in unwanted]
        found, silent = self._proofs(before, snapshot, {*away, *unwanted})
        away += silent
        self._check_away(start, away)
        moved = self._moved(before, snapshot, found, away, unwanted)
        self._latest = {**{queue: start[queue] for queue in away}, **latest(snapshot.ends)}
        end = target(start, snapshot.ends, away, {**self._first(before, snapshot), **moved})
        if self._goal is not None:
            end = self._within_goal(start, end, snapshot.ends)
        elif self.query.end.time_ms is not None:
            raise BadOffsets(
                "endingTimestamp needs a stream that ends: trigger(availableNow=True), or a batch"
            )
        elif not self._is_due(start, end, is_moved=bool(moved)):
            return start_document
        end = limited(start, end, max_messages) if max_messages is not None else end
        self._planned = self._document(start_document, before, end, snapshot, moved)
        return self._planned

    def _proofs(
        self, before: ProvenOffsets, snapshot: ClusterSnapshot, left_out: set[MessageQueue]
    ) -> tuple[dict[MessageQueue, str | None], list[MessageQueue]]:
        """Returns marks of the records before the positions, and the queues whose broker did not answer.

        Of all queues at first, and later of those that have new messages.
        """
        asked = {
            queue: offset
            for queue, offset in proofs.provable(before, snapshot.ends).items()
            if queue not in left_out and (not self._proved or snapshot.ends[queue].high > offset + 1)
        }
        found = dict(self.cluster.marks(asked)) if asked else {}
        silent = sorted(asked.keys() - found.keys())
        self._proved |= not silent
        return found, silent

    def _check_away(self, start: Positions, away: list[MessageQueue]) -> None:
        """Warns once about brokers that are away. Raises MissingBrokers if the goal needs their messages."""
        names = frozenset(queue.broker for queue in away)
        if self._goal is not None and not self.query.allows_missing:
            goal = self._goal
            short = {queue.broker for queue in away if queue not in goal or start[queue] < goal[queue]}
            if short:
                why = dict.fromkeys(short, "is missing or does not answer")
                raise missing_brokers(why, self.query.topics)
        if names - self._away:
            log.warning(
                "Brokers %s are missing or do not answer; %d queues are not read until they are back",
                ", ".join(sorted(names)),
                len(away),
            )
        self._away = names

    def _moved(
        self,
        before: ProvenOffsets,
        snapshot: ClusterSnapshot,
        found: Mapping[MessageQueue, str | None],
        away: list[MessageQueue],
        unwanted: list[MessageQueue],
    ) -> dict[MessageQueue, int]:
        """Returns offsets at which replaced queues continue. Raises DataLost where nothing may be lost."""
        start = before.positions
        replaced = proofs.replaced(before, found)
        clusters = proofs.moved_clusters(before, snapshot.clusters, found)
        problems = losses(start, snapshot.ends, away, unwanted)
        self._report_losses([*problems, *proofs.replacements(before, replaced, clusters)])
        elsewhere = {queue for queue in start if queue.broker in clusters and queue in snapshot.ends}
        others = {*replaced, *elsewhere, *beyond(start, snapshot.ends)} - {*away, *unwanted}
        marks = {queue: None if queue in elsewhere else before.marks.get(queue) for queue in others}
        found_again = self.cluster.resumed(marks, snapshot.ends) if marks else {}
        return {queue: min(offset, start[queue]) for queue, offset in found_again.items()}

    def _first(self, before: ProvenOffsets, snapshot: ClusterSnapshot) -> dict[MessageQueue, int]:
        """Returns the offset at which each new queue begins, if it is not the earliest.

        A query that began with the latest message, or by time, must not read the history of a broker that was
        missing then.
        """
        new = [queue for queue in snapshot.ends if queue not in before.positions]
        if before.since_ms is None or not new:
            return {}
        old = {queue for queue in new if queue.broker in before.missing} | self._older(
            [queue for queue in new if queue.broker not in before.missing],
            before.since_ms - MAX_CLOCK_SKEW_MS,
            snapshot.ends,
        )
        found = (
            self.cluster.offsets_at(dict.fromkeys(sorted(old), before.since_ms), snapshot.ends) if old else {}
        )
        return {
            queue: snapshot.ends[queue].high if offset is None else offset for queue, offset in found.items()
        }

    def _older(
        self, queues: list[MessageQueue], time_ms: int, ends: Mapping[MessageQueue, Ends]
    ) -> set[MessageQueue]:
        """Returns those of the queues that have a message stored before `time_ms`."""
        found = self.cluster.offsets_at(dict.fromkeys(queues, time_ms), ends) if queues else {}
        return {
            queue
            for queue, offset in found.items()
            if (ends[queue].high if offset is None else offset) > ends[queue].low
        }

    def _document(
        self,
        start_document: Document,
        before: ProvenOffsets,
        end: dict[MessageQueue, int],
        snapshot: ClusterSnapshot,
        moved: Positions,
    ) -> Document:
        """Returns the end of a micro-batch with its proofs; `start_document` if nothing is to be read.

        A queue whose broker does not give the record stands still.
        """
        start = before.positions
        if end == start and not moved:
            return start_document
        kept = {
            queue: mark
            for queue, mark in before.marks.items()
            if queue in end and end[queue] == start[queue] and queue not in moved
        }
        asked = _before({queue: end[queue] for queue in end if queue not in kept}, snapshot.ends)
        found = dict(self.cluster.marks(asked)) if asked else {}
        for queue in asked.keys() - found.keys():
            if queue in start and queue not in moved:
                end[queue] = start[queue]
                found[queue] = before.marks.get(queue)
        if end == start and not moved:
            return start_document
        marks = {**kept, **{queue: mark for queue, mark in found.items() if mark is not None}}
        clusters = {**before.clusters, **_clusters(end, snapshot)}
        return full_document(ProvenOffsets(end, marks, clusters, before.since_ms, before.missing))

    def _within_goal(
        self, start: Positions, end: Positions, ends: Mapping[MessageQueue, Ends]
    ) -> dict[MessageQueue, int]:
        """Returns the end positions of a micro-batch, limited to the goal of the stream.

        Queues that appeared after the goal was fixed are left to the next run. Queues of the checkpoint that
        the goal does not have, since the topic was shrunk, are read to their end.
        """
        assert self._goal is not None
        goal = self._goal
        for queue in start.keys() & ends.keys():
            goal.setdefault(queue, ends[queue].high)
        return {
            queue: min(offset, max(goal.get(queue, 0), start[queue])) if queue in start else offset
            for queue, offset in end.items()
            if queue in start or queue in goal
        }

    def _is_due(self, start: Positions, end: Positions, is_moved: bool) -> bool:
        now = self.now()
        if self._began is None:
            self._began = now
        waited_s = now - self._began
        minimum = self.query.min_offsets
        is_new = bool(end.keys() - start.keys()) or is_moved
        waiting = count_between(start, end)
        if (
            minimum is not None
            and not is_new
            and not is_due(waiting, minimum, waited_s, self.query.max_delay_s)
        ):
            return False
        self._began = now
        return True

    def _commit(self, start: Positions, snapshot: ClusterSnapshot) -> None:
        """Commits `start` as the group's offsets: everything before it has been processed.

        Spark asks for more when the batch before has ended.
        """
        if self.query.group is None:
            return
        away = set(snapshot.away(start))
        news = {
            queue: offset
            for queue, offset in start.items()
            if queue not in away and queue in snapshot.ends and self._committed.get(queue) != offset
        }
        if news:
            self.cluster.commit(news)
            self._committed |= news

    def latest(self) -> Document:
        """Returns the ends of the queues in the last snapshot as a document, for Spark's progress."""
        return document_of(self._latest)

    def ranges(self, start_document: Document, end_document: Document) -> list[Range]:
        """Returns the ranges of a micro-batch, one per task."""
        start, end = offsets_of(start_document), offsets_of(end_document)
        if end_document != self._planned:
            self._check_repeated(start, end)
        wanted = ranges(start.positions, end.positions)
        return split(wanted, self.query.min_parts, self.query.max_records)

    def _check_repeated(self, start: ProvenOffsets, end: ProvenOffsets) -> None:
        """Raises DataLost, or warns, if queues of a batch that a former run planned were replaced since."""
        snapshot = self.cluster.snapshot(end.positions)
        for one in (start, end):
            asked = proofs.provable(one, snapshot.ends)
            found = self.cluster.marks(asked) if asked else {}
            moved = proofs.moved_clusters(one, snapshot.clusters, found)
            self._report_losses(proofs.replacements(one, proofs.replaced(one, found), moved))

    def _report_losses(self, problems: list[str]) -> None:
        """Raises DataLost for problems, or logs each once where losses are allowed; else does nothing."""
        _report_losses([one for one in problems if one not in self._warned], self.query)
        self._warned.update(problems)


def _before(positions: Positions, ends: Mapping[MessageQueue, Ends]) -> dict[MessageQueue, int]:
    """Returns the offset of the record before each position, for queues that still have that record."""
    return {
        queue: offset - 1
        for queue, offset in positions.items()
        if queue in ends and ends[queue].low < offset <= ends[queue].high
    }


def _clusters(positions: Positions, snapshot: ClusterSnapshot) -> dict[str, str]:
    names = {queue.broker for queue in positions}
    return {name: cluster for name, cluster in snapshot.clusters.items() if name in names}


def _report_losses(problems: list[str], query: SourceQuery) -> None:
    if problems and query.fails_on_loss:
        raise lost(problems)
    for sentence in problems:
        log.warning("%s; continuing, as failOnDataLoss is false", sentence)
