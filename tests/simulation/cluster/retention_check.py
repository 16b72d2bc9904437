"""Judges what retention deleted, and gives the rest of the checker a log in which nothing is missing. Pure.

A message may be gone when a master has deleted its file by its own rules: the file had expired, and it was
not the last one. Such messages are put back at the beginning of the log of the end, so that every other check
treats them as if they were still there. A file that was deleted against the rules is not put back: its
messages are lost writes.

    deleted early          a broker deleted a file that had not expired, a slave one that its master had
    wrong first offset     a reader of deleted messages was not sent to the first one that is there
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from tests.simulation.cluster.history import (
    BeganLate,
    Cut,
    Deleted,
    Fault,
    FirstRead,
    History,
    Moved,
    PairEnd,
    Stored,
)

TOPIC = "T"
Found = tuple[str, str]
"""Name of an anomaly, and its text."""


class RetentionCheck:
    """What retention did to one pair."""

    def __init__(self, history: History, end: PairEnd) -> None:
        events = [one for one in history.events if getattr(one, "pair", None) == end.pair]
        self._end = end
        self._cuts = [one for one in events if isinstance(one, Cut)]
        self._faults = [one for one in events if isinstance(one, Fault)]
        self._deleted = [one for one in events if isinstance(one, Deleted)]
        self._first_reads = [one for one in events if isinstance(one, FirstRead)]
        self._late = [one for one in events if isinstance(one, BeganLate)]
        self._legal = [one for one in self._deleted if one.is_master and not self._is_early(one)]
        kept = {one.offset: (deleted, one) for deleted in self._legal for one in self._still_valid(deleted)}
        kept = {offset: found for offset, found in sorted(kept.items()) if offset < end.log_begin}
        self._expired = [one for _, one in kept.values()]
        self._expired_at: dict[tuple[int, int], float] = {}
        for deleted in self._legal:
            for one in deleted.records:
                if one.topic == TOPIC:
                    self._expired_at.setdefault((one.queue_id, one.queue_offset), deleted.at)
        self.expired = frozenset(one.name for one in self._expired if one.topic == TOPIC)
        """Names of messages of the topic that retention has deleted: readers may have missed them."""
        self.rewritten_and_lost = frozenset(
            one.name for deleted, one in kept.values() if self._has_lost_copies(deleted)
        )
        """Names of deleted messages whose copies, if they were waiting, were cut from the log later."""

    @property
    def is_used(self) -> bool:
        """Whether a file was deleted, or was to be: messages that wait may be at two places."""
        return bool(self._deleted) or self._end.rewrites

    @property
    def end(self) -> PairEnd:
        """The end as it would be if nothing had been deleted."""
        end, readable = self._end, dict(self._end.readable)
        for queue_id, names in end.readable.items():
            gone = [one for one in self._expired if one.topic == TOPIC and one.queue_id == queue_id]
            readable[queue_id] = (*(one.name for one in gone), *names)
        return replace(end, log=(*self._expired, *end.log), readable=readable)

    def run(self) -> Iterator[Found]:
        return chain(self._deletions(), self._slaves(), self._first_messages())

    def allows(self, moved: Moved) -> bool:
        """Whether a reader was sent forward over messages that had been deleted by then, and no others."""
        offsets = range(moved.before, moved.after)
        gone = (self._expired_at.get((moved.queue_id, offset)) for offset in offsets)
        return all(at is not None and at <= moved.at for at in gone)

    def _deletions(self) -> Iterator[Found]:
        for one in self._deleted:
            what = f"{one.node} deleted {one.begin} to {one.end} at {one.at:.3f}"
            if one.end > one.log_end:
                yield "deleted early", f"{what}: its log ends at {one.log_end}"
            elif self._is_early(one):
                yield "deleted early", f"{what}: it was {one.idle_ms} ms old, not {one.reserved_ms}"
            elif not one.is_master and not self._had_master_deleted(one):
                yield "deleted early", f"{what}: its master's log began at {one.master_begin}"

    def _is_early(self, one: Deleted) -> bool:
        return one.idle_ms < one.reserved_ms or one.end > one.log_end

    def _had_master_deleted(self, one: Deleted) -> bool:
        """Whether the master had deleted it; while the master changes, a former one may have."""
        if one.end <= one.master_begin:
            return True
        # The leadership of a group may move at any time, and the logs of all leaders are one.
        return (self._end.is_group or self._is_fault(one.at)) and any(
            other.end >= one.end and other.at <= one.at for other in self._legal
        )

    def _is_fault(self, at: float) -> bool:
        return any(fault.begin <= at < fault.until for fault in self._faults)

    def _slaves(self) -> Iterator[Found]:
        """Checks that no slave lacks files that its master has, unless a former master had deleted them."""
        now, begin = float("inf"), self._end.log_begin
        last = (BeganLate(now, self._end.pair, one.node, one.begin, begin) for one in self._end.slaves)
        # A slave that is about to lose its master, or has a new one, still speaks of the former.
        settled = (one for one in self._late if not self._is_fault(one.at))
        for one in (*settled, *last):
            if one.begin > max(one.master_begin, self._deleted_by(one.at)):
                yield (
                    "not a copy",
                    f"the log of {one.node} begins at {one.begin}, its master's at {one.master_begin}",
                )

    def _deleted_by(self, at: float) -> int:
        """Returns up to where masters had deleted the log that the pair has at a time."""
        valid = (one for one in self._legal if one.at <= at and next(self._still_valid(one), None))
        return max((one.end for one in valid), default=0)

    def had_deleted(self, offset: int, by: float) -> bool:
        """Whether a broker had deleted an expired file with this log offset by then."""
        files = (one for one in self._deleted if one.at <= by and not self._is_early(one))
        return any(one.begin <= offset < one.end for one in files)

    def _first_messages(self) -> Iterator[Found]:
        for one in self._first_reads:
            if not one.low <= one.found <= one.high:
                yield (
                    "wrong first offset",
                    f"queue {one.queue_id} of {one.node} began at {one.low}, then {one.high}; a reader of "
                    f"offset 0 got {one.found} at {one.at:.3f}",
                )

    def _still_valid(self, deleted: Deleted) -> Iterator[Stored]:
        """Yields the messages of a deleted file that no later cut took from the log of the pair.

        A promoted slave may have more of the log than is known to be common with that of a lost disk.
        """
        cuts = (max(cut.end, cut.adopted) for cut in self._cuts if cut.at >= deleted.at)
        end = min(cuts, default=deleted.end)
        return (one for one in deleted.records if one.offset < end)

    def _has_lost_copies(self, deleted: Deleted) -> bool:
        return any(cut.at >= deleted.at and cut.end < deleted.log_end for cut in self._cuts)
