"""Errors that are planted into the code, each by a small patch, and the anomalies by which they show.

`hunt` runs worlds until the checker has found one. A checker that finds nothing proves nothing.

    python -m tests.simulation.cluster.bugs "offsets beyond the end"
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any
from unittest import mock

from tests.simulation.cluster import retention_bugs
from tests.simulation.cluster.world import ClusterWorld, Features

from turbopump.broker.consume.pull import PullHandler
from turbopump.broker.consume.reused_offsets import ReusedOffsets
from turbopump.broker.consume.slave_reused_offsets import SlaveReusedOffsets
from turbopump.broker.delay import timer_records
from turbopump.broker.delay.levels import DelayedMessages
from turbopump.broker.delay.timers import TimedMessages
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.replicas.acknowledgement import ReplicaAcknowledgement
from turbopump.broker.replicas.slave_broker import SlaveBroker
from turbopump.broker.replicas.slave_commits import SlaveCommits
from turbopump.broker.topics import TopicTable
from turbopump.broker.transactions.ledger.ledger import LedgerBooks
from turbopump.replication import comparison
from turbopump.replication.comparison import Relation
from turbopump.replication.copies import Copies, CopyCount
from turbopump.replication.progress import CopyState
from turbopump.replication.slave_connection import SlaveConnection
from turbopump.store.commit_log import ZEROS, CommitLog
from turbopump.store.delays import DelayHistory
from turbopump.store.dispatch import Dispatcher
from turbopump.store.flush import Durability, Flusher
from turbopump.store.reading import GetResult, GetStatus, QueueReader
from turbopump.store.replica_log import ReplicaLog
from turbopump.testing.loop import run_virtual

Plant = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Bug:
    """A planted error, the anomalies that show it, and within how many worlds one of them must be found.

    With a `feature`, only worlds that have it are tried: no other can show the error.
    """

    name: str
    plant: Plant
    shows_as: tuple[str, ...]
    within: int
    feature: str = ""

    def seeds(self) -> Iterator[int]:
        """Yields the seeds of the worlds to try."""
        every = (seed for seed in count() if not self.feature or getattr(Features.of(seed), self.feature))
        return islice(every, self.within)


def hunt(bug: Bug, world: Callable[[int], Any] = ClusterWorld) -> int | None:
    """Returns how many worlds it took to find the bug; None: it was not found."""
    with bug.plant():
        for tried, seed in enumerate(bug.seeds(), 1):
            with contextlib.suppress(Exception):  # what a broken broker raises is no verdict of the checker
                found = run_virtual(world(seed).run())
                if any(one.name in bug.shows_as for one in found):
                    return tried
    return None


def _replaced(owner: object, name: str, by: Any) -> Plant:
    return lambda: mock.patch.object(owner, name, by)


def _nothing(*_: Any, **__: Any) -> None:
    """Replaces a function that must not be left out."""


def _acknowledge_at_once(
    self: Copies, end: int, needed: int, deadline: float, done: Callable[[CopyCount], None]
) -> None:
    done(CopyCount(needed, 0, True))


@contextlib.contextmanager
def _count_slaves_ahead() -> Iterator[None]:
    """Takes a slave that is ahead for a copy, and believes its reports, as Apache does."""
    judge = comparison.judge

    def lenient(*args: Any) -> Relation:
        found = judge(*args)
        return Relation.COPY if found is Relation.AHEAD else found

    def begin_anywhere(self: SlaveConnection, offset: int) -> bool:
        self.next_offset = offset
        return True

    with (
        mock.patch.object(comparison, "judge", lenient),
        mock.patch.object(SlaveConnection, "_begin_at", begin_anywhere),
        mock.patch.object(SlaveConnection, "_reported", SlaveConnection._count),
    ):
        yield


@contextlib.contextmanager
def _keep_the_highest() -> Iterator[None]:
    """Counts the highest report that ever came, also when that slave is gone, or the log is shorter now."""
    reported, highest = Copies.reported, [-1]

    def note(self: Copies, slave: Any, received: int, synced: int = -1) -> None:
        highest[0] = max(highest[0], received)
        reported(self, slave, received, synced)

    def count(self: Copies, end: int, needed: int) -> CopyCount:
        copies = 2 if highest[0] >= end else 1
        return CopyCount(copies, 0, copies >= needed)

    with mock.patch.object(Copies, "reported", note), mock.patch.object(Copies, "count", count):
        yield


@contextlib.contextmanager
def _append_later() -> Iterator[None]:
    """Counts bytes as copied that are appended half a second later."""
    append, late = ReplicaLog.append, dict[ReplicaLog, list[bytes]]()

    def appended(self: ReplicaLog) -> None:
        for data in late.pop(self, []):
            append(self, memoryview(data))

    def keep(self: ReplicaLog, data: memoryview) -> None:
        if self not in late:
            asyncio.get_running_loop().call_later(0.5, appended, self)
        late.setdefault(self, []).append(bytes(data))

    def end(self: ReplicaLog) -> int:
        return self._log.end + sum(map(len, late.get(self, ())))

    with mock.patch.object(ReplicaLog, "append", keep), mock.patch.object(ReplicaLog, "end", property(end)):
        yield


def _clear_in_memory(self: CommitLog, mapped: Any, begin: int, end: int) -> None:
    mapped.buffer[begin:end] = ZEROS[: end - begin]


@contextlib.contextmanager
def _copied_delays_are_over() -> Iterator[None]:
    """Forgets the delay of messages that a slave copied."""
    dispatch, delay_ms, copying = Dispatcher.dispatch_copied, DelayHistory.delay_ms, [False]

    def dispatch_copied(self: Dispatcher, found: Any) -> None:
        copying[0] = True
        dispatch(self, found)
        copying[0] = False

    def no_delay(self: DelayHistory, level: int, offset: int) -> int:
        return 0 if copying[0] else delay_ms(self, level, offset)

    with (
        mock.patch.object(Dispatcher, "dispatch_copied", dispatch_copied),
        mock.patch.object(DelayHistory, "delay_ms", no_delay),
    ):
        yield


async def _forget_what_was_delivered(self: DelayedMessages) -> None:
    """Replaces the reading of the log for copies of delayed messages."""


@contextlib.contextmanager
def _synced_at_once() -> Iterator[None]:
    """Says that a message is on the disk when it is in memory; syncs come later, by themselves."""

    def durable(self: Flusher, offset: int, done: Callable[[Durability], None]) -> None:
        done(Durability.DISK)

    with mock.patch.object(Flusher, "durable", durable), mock.patch.object(Flusher, "want", _nothing):
        yield


@contextlib.contextmanager
def _copied_timers_are_over() -> Iterator[None]:
    """Takes the timers that a promoted slave finds in its log for due ones."""
    put, waiting, copied = TimedMessages._put, timer_records.waiting, [False]

    def take(self: TimedMessages, at: int, size: int, slots: Any) -> None:
        copied[0] = at < self._opened_at
        put(self, at, size, slots)

    def due_now(record: Any, now_ms: int, rules: Any) -> Any:
        found = waiting(record, now_ms, rules)
        if found is None or not copied[0]:
            return found
        return replace(found, slot_ms=now_ms // rules.precision_ms * rules.precision_ms, exact_ms=now_ms)

    with (
        mock.patch.object(TimedMessages, "_put", take),
        mock.patch.object(timer_records, "waiting", due_now),
    ):
        yield


@contextlib.contextmanager
def _decide_again() -> Iterator[None]:
    """Lets the last decision of a batch count, not the first."""
    decide = LedgerBooks.decide

    def decide_anew(self: LedgerBooks, id: str, batch: int, run: str, entry: Any) -> Any:
        book = self.book(id)
        book.decided.pop(batch, None)
        book.highest = min(book.highest, batch - 1)
        return decide(self, id, batch, run, entry)

    with mock.patch.object(LedgerBooks, "decide", decide_anew):
        yield


@contextlib.contextmanager
def _lead_beyond_the_end() -> Iterator[None]:
    """Has a slave lead readers over a message that it does not have yet."""
    get = QueueReader.get

    def beyond(self: QueueReader, queue: Any, offset: int, *args: Any, **options: Any) -> Any:
        found = get(self, queue, offset, *args, **options)
        if self.keeps_offsets and offset == queue.max_offset > 0:
            found.next_offset = offset + 1
        return found

    with mock.patch.object(QueueReader, "get", beyond):
        yield


async def _drop_commit(self: SlaveCommits, master: str, place: Any, offset: int) -> bool:
    self._pending.pop(place, None)
    return False


@contextlib.contextmanager
def _send_back_now_and_then() -> Iterator[None]:
    """Sends every twentieth pull two messages back."""
    redirect, pulls = PullHandler._redirect, count(1)

    def back(self: PullHandler, pull: Any) -> GetResult | None:
        if pull.offset > 2 and next(pulls) % 20 == 0:
            ends = pull.queue.min_offset, pull.queue.max_offset
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, pull.offset - 2, *ends)
        return redirect(self, pull)

    with mock.patch.object(PullHandler, "_redirect", back):
        yield


def _first_message(self: PullHandler, pull: Any) -> int:
    return int(pull.queue.min_offset)


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_: value


BUGS = (
    Bug(
        "acknowledge before the slave has it",
        _replaced(Copies, "wait", _acknowledge_at_once),
        ("receipt",),
        10,
    ),
    Bug("a highest acknowledgement that never falls", _keep_the_highest, ("receipt",), 20),
    Bug("count a slave that is ahead", _count_slaves_ahead, ("receipt", "not a copy"), 60),
    Bug("acknowledge without appending", _append_later, ("receipt",), 20),
    Bug(
        "take other records for a copy",
        _replaced(comparison, "judge", _always(Relation.COPY)),
        ("not a copy", "receipt"),
        60,
    ),
    Bug(
        "truncation only in memory",
        _replaced(CommitLog, "_clear", _clear_in_memory),
        ("resurrected", "inconsistent offsets"),
        200,
    ),
    Bug(
        "forgotten offsets on the slave",
        _replaced(SlaveBroker, "_take_offsets", _nothing),
        ("lost commit",),
        100,
    ),
    Bug("forgotten topics on the slave", _replaced(TopicTable, "copy", _nothing), ("lost topic",), 60),
    Bug("promote an incomplete copy", _replaced(CopyState, "missing", _always("")), ("lost write",), 100),
    Bug("delayed messages delivered early", _copied_delays_are_over, ("early",), 60),
    Bug(
        "delayed messages delivered twice",
        _replaced(DelayedMessages, "_look_back", _forget_what_was_delivered),
        ("duplicate",),
        30,
    ),
    Bug(
        "a wait without a deadline",
        _replaced(ReplicaAcknowledgement, "_expire", _nothing),
        ("no answer",),
        200,
    ),
    Bug(
        "offsets given a second time",
        _replaced(ReusedOffsets, "is_void", _always(False)),
        ("skipped poll",),
        150,
    ),
    Bug(
        "void offsets at a slave",
        _replaced(SlaveReusedOffsets, "_is_judged", _always(False)),
        ("skipped poll",),
        300,
        "slave_reads",
    ),
    Bug("readers sent back without a reason", _send_back_now_and_then, ("non-monotonic poll",), 20),
    Bug(
        "readers sent back further than what they have committed",
        _replaced(PullHandler, "_last_safe", _first_message),
        ("non-monotonic poll",),
        60,
    ),
    Bug(
        "offsets beyond the end",
        _replaced(CommittedOffsets, "clamp", _always(0)),
        ("offset beyond end", "lost commit"),
        60,
    ),
    Bug("timers fired early after a promotion", _copied_timers_are_over, ("early",), 60),
    Bug("a batch decided twice", _decide_again, ("decided twice",), 30),
    Bug("a slave that leads readers beyond what it has", _lead_beyond_the_end, ("skipped poll",), 20),
    Bug(
        "commits at the slave lost when the master returns",
        _replaced(SlaveCommits, "_bring", _drop_commit),
        ("lost slave commit",),
        60,
    ),
    Bug(
        "acknowledge before the disk has it",
        _synced_at_once,
        ("lost write",),
        10,
    ),
    Bug(
        "a slave that deletes files before its master",
        retention_bugs.slave_deletes_by_its_own_clock,
        ("deleted early",),
        60,
        "retention",
    ),
    Bug("one file deleted too many", retention_bugs.one_file_too_many, ("lost write",), 60, "retention"),
    Bug(
        "an empty slave that begins at the last file",
        retention_bugs.begin_at_the_last_file,
        ("not a copy",),
        60,
        "retention",
    ),
    Bug(
        "readers of deleted messages sent to the end",
        retention_bugs.readers_sent_to_the_end,
        ("wrong first offset", "skipped poll", "non-monotonic poll"),
        60,
        "retention",
    ),
    Bug(
        "delayed messages deleted with their file",
        retention_bugs.delayed_messages_go_with_their_file,
        ("lost write",),
        60,
        "retention",
    ),
)
"""All planted bugs."""


def main(name: str, bugs: tuple[Bug, ...] = BUGS, world: Callable[[int], Any] = ClusterWorld) -> int:
    """Plants the bug of this name and prints how many worlds it took to find; returns the exit status."""
    [bug] = [bug for bug in bugs if bug.name == name]
    found = hunt(bug, world)
    print(
        f"{bug.name}: " + (f"{bug.within} worlds have not shown it" if found is None else f"{found} worlds")
    )
    return found is None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
