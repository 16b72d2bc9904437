"""`OpenTransactions`: each change is appended to the log first, then applied to the open half records.

In: half messages that were stored, and decisions about them. Out: the message in its topic, the copy that
goes on waiting, the copy that has expired, each with the op record that closes the old half record, in one
append. The copy comes first: a crash between the two is found at the next start (`recovery.py`), and
the op record is written then. So no transaction is lost, and none ends twice.

The progress, before which everything is closed, is kept as the offsets of the group CID_RMQ_SYS_TRANS, as
Apache does, and never saved before the records that it rests on are on the medium.
"""

import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from turbopump.broker.delay.level_records import destination, place_named
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.produce.kinds import Placement, WaitingKinds
from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.storage import Storage
from turbopump.broker.topics import TopicTable
from turbopump.broker.transactions import records as forms
from turbopump.broker.transactions.halves import (
    NEVER_MS,
    CheckRules,
    HalfDecision,
    OpenHalf,
    OpenHalves,
    immunity_ms,
)
from turbopump.broker.transactions.ledger.stamps import LedgerStamp, StampedHalves, stamp_of
from turbopump.compiled import Arrivals, GroupAppender
from turbopump.protocol import properties
from turbopump.protocol.errors import SystemFailure
from turbopump.protocol.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from turbopump.protocol.record import Record
from turbopump.runtime.clock import Clock
from turbopump.store.append import Appended, Draft
from turbopump.store.consume_queue import ConsumeQueue

log = logging.getLogger(__name__)

GROUP = "CID_RMQ_SYS_TRANS"
QUEUE = 0
MAX_DECISIONS = 65_536  # the latest; the index has all others


Committed = tuple[list[int], list[ConsumeQueue]]
"""Born times and queues of messages that were committed together."""


class OpenTransactions:
    """The open transactions: opens, renews, expires and ends them, in the log and then in memory."""

    def __init__(
        self,
        store: Storage,
        topics: TopicTable,
        offsets: CommittedOffsets,
        kinds: WaitingKinds,
        writer: MessageWriter,
        rules: Callable[[], CheckRules],
        clock: Clock,
    ) -> None:
        """Starts without open transactions. `kinds`: the kinds that a committed message can be of."""
        self.halves = OpenHalves()
        self.stamps = StampedHalves()
        self.on_ended: Callable[[str, HalfDecision, int, int], None] | None = None
        """Called with a topic, how messages of it ended, their age in milliseconds, and their number."""
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._kinds = kinds
        self._writer = writer
        self._append = writer.append_counted
        self._rules = rules
        self._clock = clock
        self._groups = store.compiled.groups() if writer.acknowledgement.immediate is not None else None
        self._decided: dict[int, HalfDecision] = {}  # by root, the latest

    @property
    def half_queue(self) -> ConsumeQueue:
        return self._store.queues.queue(HALF_TOPIC, QUEUE)

    @property
    def op_queue(self) -> ConsumeQueue:
        return self._store.queues.queue(OP_HALF_TOPIC, QUEUE)

    def prepared(self, draft: Draft, appended: Appended) -> None:
        """Adds a half message of a producer, which was just appended, to the open ones."""
        at, offset, _ = appended
        wish = properties.find(draft.properties, properties.CHECK_IMMUNITY_TIME_IN_SECONDS)
        due_ms = self._due_ms(draft.born_timestamp, wish)
        self.halves.add(OpenHalf(offset, at, due_ms, offset, topic_of(draft.properties)))

    def stamped(self, stamp: LedgerStamp, first: int, places: Sequence[int], topics: Sequence[str]) -> None:
        """Adds half messages of a ledger, which were just appended, to the open ones.

        `first` is the queue offset of the first; `places` are their physical offsets, `topics` their topics.
        """
        self.halves.add_stamped(first, places, topics)
        self.stamps.add(stamp, range(first, first + len(places)))

    def found(self, record: Record) -> OpenHalf:
        """Returns a half record of the store as an `OpenHalf`; adds that of a ledger to `stamps`."""
        stamp, topic = stamp_of(record.properties), topic_of(record.properties)
        if stamp is not None:
            root = forms.root(record)
            self.stamps.add(stamp, [root])
            return OpenHalf(record.queue_offset, record.physical_offset, NEVER_MS, root, topic)
        wish = properties.find(record.properties, properties.CHECK_IMMUNITY_TIME_IN_SECONDS)
        due_ms = self._due_ms(min(record.born_timestamp, record.store_timestamp), wish)
        return OpenHalf(record.queue_offset, record.physical_offset, due_ms, forms.root(record), topic)

    def _due_ms(self, born_ms: int, wish: str | None) -> int:
        """Returns when (ms since 1970) producers may be asked about a half message born at `born_ms`.

        A producer's clock that is ahead does not delay it. `wish` is the immunity that the message asks for.
        """
        return min(born_ms, self._clock.now_ms()) + immunity_ms(wish, self._rules().timeout_ms)

    # changes

    def settle(self, record: Record, half: OpenHalf | None, decision: HalfDecision) -> Appended:
        """Commits or rolls back the transaction of a half record. Returns where its op record was stored.

        No `half`: the transaction had expired. Raises Refused, and then nothing has changed.
        """
        root = forms.root(record) if half is None else half.root
        drafts = [self._op(record.queue_offset, root, decision)]
        if decision is HalfDecision.COMMIT:
            drafts.insert(0, self._committed(record))
        appended = self._append(drafts)
        if half is not None:
            self.halves.close(half)
        self._remember(root, decision)
        self._notify(record, decision)
        self._kinds.stored(drafts, appended)
        return appended[-1]

    def settle_all(self, ended: Sequence[tuple[Record, OpenHalf, HalfDecision]]) -> None:
        """Commits or rolls back half messages as a ledger decided, in one append. Raises Refused.

        A delay counts from now on.
        """
        drafts: list[Draft] = []
        for record, half, decision in ended:
            if decision is HalfDecision.COMMIT:
                drafts.append(self._committed_of_ledger(record))
            drafts.append(self._op(half.offset, half.root, decision))
        appended = self._append(drafts)
        self.halves.close_all([half for _, half, _ in ended])
        for record, _, decision in ended:
            self._notify(record, decision)
        self._kinds.stored(drafts, appended)

    def commit_together(self, halves: list[OpenHalf]) -> bool:
        """Commits plain half messages of a ledger in one compiled step. False: nothing was committed."""
        groups = self._groups
        if groups is None or not halves:
            return False
        done = self._writer.append_group(
            lambda arrivals: self._commit(groups, halves, arrivals), self._queues
        )
        if done is None:
            return False
        born, _ = done
        self.halves.close_all(halves)
        if self.on_ended is not None:
            now_ms = self._clock.now_ms()
            for (topic, born_ms), count in Counter(zip([half.topic for half in halves], born)).items():  # noqa: B905
                self.on_ended(topic, HalfDecision.COMMIT, now_ms - born_ms, count)
        return True

    def _commit(
        self, groups: GroupAppender, halves: list[OpenHalf], arrivals: Arrivals | None
    ) -> Committed | None:
        found = self._store.log.locate(halves[0].at)
        if found is None:
            return None
        file, position = found
        return groups.commit(
            halves,
            file,
            halves[0].at - position,
            self.op_queue,
            forms.OP_COMMIT_FRONT,
            forms.OP_KEY,
            forms.DONE_CODE,
            forms.WAITING,
            forms.TIMES,
            self._queue_at,
            arrivals,
        )

    def _queues(self, committed: Committed) -> list[ConsumeQueue]:
        """Returns the queue of each record that `commit_together` appended: messages, then op records."""
        _, queues = committed
        return [*queues, *[self.op_queue] * len(queues)]

    def _queue_at(self, topic: bytes, queue_id: bytes) -> ConsumeQueue | None:
        place = place_named(topic, queue_id, self._topics)
        return None if place is None else self._store.queues.queue(*place)

    def renew(self, half: OpenHalf, record: Record, times: int) -> tuple[OpenHalf, Record]:
        """Replaces an open half record by an appended copy with check count `times`; returns that copy.

        As the open half record and as the stored record. Raises Refused.
        """
        copy = forms.renewed(record, self.half_queue, times)
        at, offset, _ = self._append([copy, self._op(half.offset, half.root, HalfDecision.RENEWED)])[0]
        return self.halves.renew(half, offset, at), _stored(copy, at, offset, self._clock.now_ms())

    def rewrite(self, half: OpenHalf, record: Record) -> None:
        """Replaces an open half record by a copy before its file is deleted; works on a full disk too."""
        copy = forms.renewed(record, self.half_queue, forms.asked(record))
        at, offset, _ = self._store.log.rewrite(
            [copy, self._op(half.offset, half.root, HalfDecision.RENEWED)]
        )[0]
        self.halves.renew(half, offset, at)

    def expire(self, half: OpenHalf, record: Record | None) -> None:
        """Closes a half record about which no producer is asked any more; a late decision still counts.

        A copy goes to TRANS_CHECK_MAX_TIME_TOPIC, unless `record` is None: it cannot be read.
        """
        drafts = [self._op(half.offset, half.root, HalfDecision.EXPIRED)]
        if record is not None:
            # Created with the first transaction that expires, as in Apache.
            self._topics.for_group(CHECK_MAX_TIME_TOPIC, 1, purpose="for transactions that were given up")
            drafts.insert(0, forms.expired(record, self._store.queues.queue(CHECK_MAX_TIME_TOPIC, QUEUE)))
        self._append(drafts)
        self.halves.close(half)

    def resume(self, record: Record) -> None:
        """Appends a copy of an expired half record to the half queue, where it waits and is checked again."""
        copy = forms.resumed(record, self.half_queue)
        at, offset, _ = self._append([copy])[0]
        self.halves.add(self.found(_stored(copy, at, offset, self._clock.now_ms())))

    def close(self, closed: Sequence[tuple[OpenHalf, HalfDecision]]) -> None:
        """Writes the op records that a crash, or Apache's broker, left out, and closes these half records."""
        self._append([self._op(half.offset, half.root, decision) for half, decision in closed])
        for half, decision in closed:
            if self.halves.is_open(half):
                self.halves.close(half)
            if decision.is_final:
                self._remember(half.root, decision)

    def decision(self, root: int) -> HalfDecision | None:
        """Returns how the transaction with this root ended, if among the latest decisions; None: unknown."""
        return self._decided.get(root)

    def _remember(self, root: int, decision: HalfDecision) -> None:
        self._decided[root] = decision
        if len(self._decided) > MAX_DECISIONS:
            del self._decided[next(iter(self._decided))]

    def _notify(self, record: Record, decision: HalfDecision) -> None:
        if self.on_ended is not None:
            age_ms = self._clock.now_ms() - record.born_timestamp
            self.on_ended(topic_of(record.properties), decision, age_ms, 1)

    def _op(self, offset: int, root: int, decision: HalfDecision) -> Draft:
        now_ms, host = self._clock.now_ms(), self._store.log.store_host
        return forms.op(self.op_queue, offset, root, decision, now_ms, host)

    def _committed_of_ledger(self, record: Record) -> Draft:
        topic, queue_id = self._place(record)
        times = forms.times(record)
        if not times:
            return forms.committed_of_ledger(record, self._store.queues.queue(topic, queue_id))
        placement = self._placement(times, topic, queue_id, is_promised=True)
        draft = forms.committed_of_ledger(record, placement.queue, times, placement.suffix)
        draft.delay_ms = placement.delay_ms
        return draft

    def _committed(self, record: Record) -> Draft:
        pairs = forms.real_pairs(record)
        placement = self._placement(pairs, *self._place(record), is_promised=False)
        draft = forms.committed(record, pairs, placement.queue)
        draft.delay_ms = placement.delay_ms
        draft.properties += placement.suffix
        return draft

    def _placement(self, pairs: dict[str, str], topic: str, queue_id: int, is_promised: bool) -> Placement:
        """Returns where a committed message goes: to its queue, or to one where a delay or timer waits."""
        placement = self._kinds.claim_committed(pairs, topic, queue_id, is_promised)
        return Placement(self._store.queues.queue(topic, queue_id)) if placement is None else placement

    def _place(self, record: Record) -> tuple[str, int]:
        place = self.target(record)
        if place is None:
            raise SystemFailure("the half message names no topic and queue")
        return place

    def target(self, record: Record) -> tuple[str, int] | None:
        """Returns the topic and queue id that a half record names; None: it names no valid ones."""
        return destination(record, self._topics)

    # progress

    def progress(self) -> tuple[int, int]:
        """Returns the offsets of the half and the op queue from which on a start has to read.

        Before them no half record is open, and no op record names an open one. An op record follows the half
        record that it names, so the first open one gives both.
        """
        first = self.halves.first
        if first is None:
            return self.half_queue.max_offset, self.op_queue.max_offset
        return first.offset, self.op_queue.first_at_or_after(first.at)

    async def save_progress(self) -> None:
        """Commits `progress` as the offsets of CID_RMQ_SYS_TRANS, once the log is on disk."""
        half, op = self.progress()
        if self.saved_progress() == (half, op):
            return
        if await self._writer.acknowledgement.on_disk(self._store.log.end):
            self._offsets.commit(GROUP, HALF_TOPIC, QUEUE, half)
            self._offsets.commit(GROUP, OP_HALF_TOPIC, QUEUE, op)

    def saved_progress(self) -> tuple[int, int]:
        """Returns the saved queue offsets of the half and the op queue; -1: never saved."""
        half = self._offsets.query(GROUP, HALF_TOPIC, QUEUE)
        return half, self._offsets.query(GROUP, OP_HALF_TOPIC, QUEUE)


def topic_of(packed: bytes) -> str:
    """Returns the topic that a half message will go to, from its packed properties; an interned string."""
    return sys.intern(properties.find(packed, properties.REAL_TOPIC) or "")


def _stored(draft: Draft, at: int, offset: int, now_ms: int) -> Record:
    """Returns `draft` as the record that was stored at physical offset `at` and queue offset `offset`."""
    return Record(
        draft.queue.topic,
        draft.queue.queue_id,
        draft.flag,
        offset,
        at,
        draft.sys_flag,
        draft.born_timestamp,
        draft.born_host,
        now_ms,
        draft.store_host or b"",
        draft.reconsume_times,
        draft.prepared_transaction_offset,
        draft.body,
        draft.properties,
    )
