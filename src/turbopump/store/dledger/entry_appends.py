"""Appends messages on the leader of a DLedger group: each record becomes the body of an entry.

In: drafts. Out: where each of them is, and entries in `deferred`, which reach queues and index when the group
has committed them. The term, and whether this member may append at all, are known to `append_bodies` alone,
which the driver of the group provides. Nothing here waits.
"""

import struct
from collections.abc import Callable, Sequence
from itertools import takewhile

from turbopump.protocol.checksum import crc32
from turbopump.protocol.dledger.entry import HEAD_SIZE
from turbopump.protocol.errors import MessageIllegal
from turbopump.protocol.record import HEADS, I16
from turbopump.protocol.sysflag import HOSTS_MASK, PREPARED, ROLLBACK, TRANSACTION_MASK
from turbopump.runtime.clock import Clock
from turbopump.store.append import Appended, Appender, Draft, WritableQueues, hosts_of
from turbopump.store.commit_log import CommitLog
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.flags import Flags

AppendBodies = Callable[[Sequence[bytes]], tuple[int, list[int]]]
"""Appends records as entries; returns the index of the first and the offsets of all. Raises Refused."""


class EntryAppender(Appender):
    """Writes records as entries of DLedger's log, while this member leads its group."""

    def __init__(
        self, log: CommitLog, flags: Flags, queues: WritableQueues, clock: Clock, max_message_size: int
    ) -> None:
        super().__init__(log, flags, queues, clock, max_message_size, immediate=False)
        self.append_bodies: AppendBodies | None = None
        """Set while this member leads; without it the flags of the store refuse every append."""
        self.indexes: dict[int, int] = {}
        """Indexes of entries by the log offsets of their records, until their senders were answered."""

    def append(self, drafts: Sequence[Draft], together: bool = False) -> list[Appended]:
        """Appends all drafts and returns where each is, or raises Refused. A batch may cross files."""
        if self._flags.blocked:
            self._refuse()
        assert self.append_bodies is not None, "only a leader is not blocked"
        self._check_entries(drafts)
        now = self._now_ms()
        taken: dict[ConsumeQueue, int] = {}  # next offsets, until the entries are in the log
        queues = [self._queue_of(draft) for draft in drafts]
        offsets = [_take(taken, queue, draft) for queue, draft in zip(queues, drafts, strict=True)]
        try:
            bodies = [
                self._record(draft, queue, offset, now)
                for draft, queue, offset in zip(drafts, queues, offsets, strict=True)
            ]
        except struct.error as error:  # a number does not fit its field
            raise MessageIllegal(f"the message is illegal: {error}") from None
        index, places = self.append_bodies(bodies)
        for queue, next_offset in taken.items():
            queue.next_offset = next_offset
        appended: list[Appended] = []
        for number, (draft, queue, body) in enumerate(zip(drafts, queues, bodies, strict=True)):
            physical = places[number] + HEAD_SIZE
            self.indexes[physical] = index + number
            self._defer(draft, queue, offsets[number], physical, len(body), now)
            appended.append((physical, offsets[number], len(body)))
        self.bytes += sum(map(len, bodies))
        return appended

    def lead(self, append_bodies: AppendBodies) -> None:
        """Lets this member append. Everything that is committed must be in its queues."""
        self.append_bodies = append_bodies

    def follow(self) -> None:
        """Forgets what was appended and is not committed: it may come again from the next leader, or never.

        The queues go on behind what is committed.
        """
        self.append_bodies = None
        for queue in {entry[0] for entry in self.deferred}:
            queue.next_offset = queue.max_offset
        self.deferred.clear()
        self.indexes.clear()

    def answered(self) -> None:
        """Forgets the indexes of committed messages: their senders were told."""
        if not self.deferred:
            self.indexes.clear()
            return
        first = self.deferred[0][2]
        for physical in list(takewhile(lambda offset: offset < first, self.indexes)):
            del self.indexes[physical]

    def _queue_of(self, draft: Draft) -> ConsumeQueue:
        queue = draft.queue
        # The topic was deleted, and perhaps made again, after the draft was made.
        return self._current(queue.topic, queue.queue_id) if queue.is_deleted else queue

    def _record(self, draft: Draft, queue: ConsumeQueue, queue_offset: int, now: int) -> bytes:
        """Returns the record of a draft; its log offset is filled in when its entry has a place."""
        store_host = draft.store_host or self.store_host
        hosts = hosts_of(draft.born_host, store_host)
        body, properties = draft.body, draft.properties
        size = HEADS[hosts].size + len(body) + len(queue.topic_field) + I16.size + len(properties)
        head = HEADS[hosts].pack(
            size, queue.magic, crc32(body) & 0x7FFFFFFF, queue.queue_id, draft.flag, queue_offset, 0,
            draft.sys_flag & ~HOSTS_MASK | hosts, draft.born_timestamp, draft.born_host, now, store_host,
            draft.reconsume_times, draft.prepared_transaction_offset, len(body),
        )  # fmt: skip
        return b"".join((head, body, queue.topic_field, I16.pack(len(properties)), properties))

    def _defer(
        self, draft: Draft, queue: ConsumeQueue, queue_offset: int, physical: int, size: int, now: int
    ) -> None:
        kind = draft.sys_flag & TRANSACTION_MASK
        in_queue = kind not in (PREPARED, ROLLBACK)
        tags_code = draft.tags_code if draft.delay_ms < 0 else now + draft.delay_ms
        keys = None if kind == ROLLBACK else (queue, physical, now, draft.unique_key, draft.keys)
        self.messages += draft.count
        if in_queue:
            queue.put_bytes += size
        self.deferred.append((queue, queue_offset, physical, size, tags_code, in_queue, keys, now))
        for light, light_offset in draft.lights:
            light.next_offset = light_offset + 1
            self.deferred.append((light, light_offset, physical, size, tags_code, True, None, now))

    def _check_entries(self, drafts: Sequence[Draft]) -> None:
        self._check(drafts)
        largest = max(self._size(draft) for draft in drafts)
        if HEAD_SIZE + largest > self._log.largest_record:
            raise MessageIllegal(
                f"the message is larger than a file of DLedger's log ({self._log.file_size} bytes)"
            )


def _take(taken: dict[ConsumeQueue, int], queue: ConsumeQueue, draft: Draft) -> int:
    """Returns the queue offset of a draft and notes the next one; 0 for what is in no queue."""
    if draft.sys_flag & TRANSACTION_MASK in (PREPARED, ROLLBACK):
        return 0
    offset = taken.get(queue, queue.next_offset)
    taken[queue] = offset + draft.count
    return offset
