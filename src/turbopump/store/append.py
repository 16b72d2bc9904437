"""Appends messages: writes their records to the log and their entries to the queues, many in one pass.

In: drafts. Out: where each of them is. The loop in `Appender._write` is the hottest of the server, about 2 us
for a message of 1 KiB, of which the checksum takes a third (`benchmarks/micro.py`); rare messages (IPv6,
transactions, delayed messages, long topics) go through `_write_unusual`. Nothing here waits, and nothing is
written when anything is refused.

    ASYNC_FLUSH             an entry is in its queue when `append` returns
    SYNC_FLUSH, pool        entries wait in `deferred` until their part of the log is synced, or committed
"""

import struct
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import msgspec

from turbopump.protocol.checksum import crc32
from turbopump.protocol.errors import MessageIllegal
from turbopump.protocol.properties import MAX_BYTES
from turbopump.protocol.record import HEADS, I16, MAGIC_V1, PACK_HEAD
from turbopump.protocol.sysflag import (
    BORN_V6,
    HOSTS_MASK,
    INNER_BATCH,
    PREPARED,
    ROLLBACK,
    STORE_V6,
    TRANSACTION_MASK,
)
from turbopump.runtime.clock import Clock
from turbopump.store.commit_log import CommitLog
from turbopump.store.consume_queue import ENTRY, ConsumeQueue
from turbopump.store.flags import Flags, Reason

IPV4_HOST = 8
IPV6_HOST = 20
HOSTS_V6 = 24  # bytes that two IPv6 hosts add to a record
RETRY_ROOM_S = 1.0
RARE = TRANSACTION_MASK | HOSTS_MASK | INNER_BATCH  # bits of the sys flag that need `_write_unusual`

Appended = tuple[int, int, int]
"""Log offset, queue offset, size of the record."""

Keys = tuple[ConsumeQueue, int, int, str, str]
"""Keys of a message for the index: queue, log offset, store time, unique key, keys separated by spaces."""


class Draft(msgspec.Struct, gc=False):
    """A message to be stored. The store adds offsets, store time, store host and checksum."""

    queue: ConsumeQueue
    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    tags_code: int = 0
    unique_key: str = ""
    keys: str = ""
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    store_host: bytes | None = None  # of a message that was stored before, e.g. a delayed one
    delay_ms: int = -1  # delayed: the entry carries the delivery time instead of a tag code
    count: int = 1  # messages in the record: more than one in an inner batch
    lights: tuple[tuple[ConsumeQueue, int], ...] = ()  # further queues and offsets: see `light_queues.py`


Deferred = tuple[ConsumeQueue, int, int, int, int, bool, Keys | None, int]
"""A message that readers may not see yet: queue, queue offset, log offset, size, tag code, whether it gets an
entry, its keys for the index, store time.
"""


class WritableQueues(Protocol):
    """Protocol: the part of the consume queues that `Appender` uses."""

    dirty: dict[ConsumeQueue, None]

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue: ...


class Appender:
    """Writes records to the commit log and entries to the consume queues."""

    def __init__(
        self,
        log: CommitLog,
        flags: Flags,
        queues: WritableQueues,
        clock: Clock,
        max_message_size: int,
        immediate: bool,
    ) -> None:
        # 127.0.0.1:10911, until the broker sets its address.
        self.store_host = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
        self.keys: list[Keys] = []  # not in the index yet
        self.deferred: deque[Deferred] = deque()
        self.last_record = -1
        self.last_timestamp = 0
        self.messages = 0  # appended since the start, by the compiled twins too
        self.bytes = 0
        self._log = log
        self._flags = flags
        self._dirty = queues.dirty
        self._current = queues.queue
        self._now_ms = clock.now_ms
        self._monotonic = clock.monotonic
        self._max_message_size = max_message_size
        self._always_legal = min(max_message_size, MAX_BYTES)  # a record up to this size breaks no rule
        self._immediate = immediate
        self._retry_room_at = 0.0

    def append(self, drafts: Sequence[Draft], together: bool = False) -> list[Appended]:
        """Appends all drafts and returns where each is, or raises Refused; `together`: in one log file."""
        if self._flags.blocked:
            self._refuse()
        # A single draft, half of all calls when clients send one by one, saves 0.6 us this way.
        if len(drafts) == 1:
            [draft] = drafts
            total = largest = draft.queue.fixed_size + len(draft.body) + len(draft.properties)
            sizes = [total]
        else:
            sizes = [draft.queue.fixed_size + len(draft.body) + len(draft.properties) for draft in drafts]
            total, largest = sum(sizes), max(sizes)
        if largest > self._always_legal:
            self._check(drafts)
        log = self._log
        # `sizes` count IPv4 hosts; with this much space the rare IPv6 hosts fit as well.
        end = log.position + total + HOSTS_V6 * len(sizes)
        if end > log.limit:
            return self._across_files(drafts, together)
        if end > log.touched:
            log.touch(end)
        return self._write(drafts, sizes)

    def _write(self, drafts: Sequence[Draft], sizes: list[int]) -> list[Appended]:
        """Writes records and queue entries of drafts that fit the current file; `sizes` assume IPv4 hosts."""
        # Everything the loop needs is a local: attributes are looked up once per call, not per message.
        log = self._log
        base, position, buffer, store_host = log.base, log.position, log.buffer, self.store_host
        # -1 equals no length: with an IPv6 store host every message is unusual.
        usual_host = IPV4_HOST if len(store_host) == IPV4_HOST else -1
        join, pack_head, pack_short, pack_entry = b"".join, PACK_HEAD, I16.pack, ENTRY.pack
        immediate, dirty, add_keys, defer = (
            self._immediate,
            self._dirty,
            self.keys.append,
            self.deferred.append,
        )
        now = self._now_ms()
        began = position
        appended: list[Appended] = []
        add = appended.append
        try:
            for draft, size in zip(drafts, sizes):  # noqa: B905 - `strict` costs 0.2 us a call
                queue = draft.queue
                sys_flag = draft.sys_flag
                born_host = draft.born_host
                host = draft.store_host or store_host
                if (
                    sys_flag & RARE
                    or draft.lights
                    or len(born_host) != usual_host
                    or len(host) != usual_host
                    or not queue.is_plain
                ):
                    # The other method works on `log.position`, this loop on a local copy of it.
                    log.position = position
                    add(self._write_unusual(draft, now))
                    position = log.position
                    continue
                body = draft.body
                properties = draft.properties
                physical = base + position
                queue_offset = queue.next_offset
                end = position + size
                buffer[position:end] = join(
                    (
                        pack_head(
                            size, MAGIC_V1, crc32(body) & 0x7FFFFFFF, queue.queue_id, draft.flag,
                            queue_offset, physical, sys_flag, draft.born_timestamp, born_host, now,
                            host, draft.reconsume_times, draft.prepared_transaction_offset, len(body),
                        ),
                        body,
                        queue.topic_field,
                        pack_short(len(properties)),
                        properties,
                    )
                )  # fmt: skip
                position = end
                queue.next_offset = queue_offset + 1
                queue.put_bytes += size
                keys = (queue, physical, now, draft.unique_key, draft.keys)
                if immediate:
                    tail = queue.tail
                    # Only the first waiting entry has to announce its queue.
                    if not tail:
                        dirty[queue] = None
                    tail += pack_entry(physical, size, draft.tags_code)
                    queue.last_physical = physical
                    add_keys(keys)
                else:
                    defer((queue, queue_offset, physical, size, draft.tags_code, True, keys, now))
                add((physical, queue_offset, size))
        except struct.error as error:
            # A number does not fit its field. The records before this one stay, whole and in their queues.
            raise MessageIllegal(f"the message is illegal: {error}") from None
        finally:
            # Also after an exception: records that are written must count.
            log.position = position
            if appended:
                self.last_record, self.last_timestamp = appended[-1][0], now
                self.messages += len(appended)
                self.bytes += position - began
        return appended

    def _write_unusual(self, draft: Draft, now: int) -> Appended:
        """Writes one record of any kind: IPv6 hosts, long topic, transaction, delayed message."""
        log, queue = self._log, draft.queue
        if queue.is_deleted:
            # The topic was deleted, and perhaps made again, after the draft was made.
            queue = self._current(queue.topic, queue.queue_id)
        store_host = draft.store_host or self.store_host
        hosts = hosts_of(draft.born_host, store_host)
        sys_flag = draft.sys_flag & ~HOSTS_MASK | hosts
        kind = sys_flag & TRANSACTION_MASK
        in_queue = kind not in (PREPARED, ROLLBACK)
        queue_offset = queue.next_offset if in_queue else 0
        physical = log.base + log.position
        size = self._size(draft)
        end = log.position + size
        log.buffer[log.position : end] = b"".join(
            (
                HEADS[hosts].pack(
                    size, queue.magic, crc32(draft.body) & 0x7FFFFFFF, queue.queue_id, draft.flag,
                    queue_offset, physical, sys_flag, draft.born_timestamp, draft.born_host, now, store_host,
                    draft.reconsume_times, draft.prepared_transaction_offset, len(draft.body),
                ),
                draft.body,
                queue.topic_field,
                I16.pack(len(draft.properties)),
                draft.properties,
            )
        )  # fmt: skip
        log.position = end
        if in_queue:
            queue.next_offset = queue_offset + draft.count
            self.messages += draft.count - 1  # `_write` counts records
            queue.put_bytes += size
        tags_code = draft.tags_code if draft.delay_ms < 0 else now + draft.delay_ms
        keys = None if kind == ROLLBACK else (queue, physical, now, draft.unique_key, draft.keys)
        put = self.reveal if self._immediate else self.deferred.append
        put((queue, queue_offset, physical, size, tags_code, in_queue, keys, now))
        for light, light_offset in draft.lights:
            light.next_offset = light_offset + 1
            put((light, light_offset, physical, size, tags_code, True, None, now))
        return physical, queue_offset, size

    def reveal(self, entry: Deferred) -> None:
        """Makes a message visible to readers: adds its queue entry and queues its keys for the index."""
        queue, queue_offset, physical, size, tags_code, in_queue, keys, _ = entry
        if in_queue:
            queue.put(queue_offset, physical, size, tags_code)
        if keys is not None:
            self.keys.append(keys)

    # rare cases

    def _across_files(self, drafts: Sequence[Draft], together: bool) -> list[Appended]:
        """Appends drafts that do not fit into the current log file, or when there is no file yet."""
        log = self._log
        sizes = [self._size(draft) for draft in drafts]
        groups = [len(sizes)] if together else [1] * len(sizes)
        if max(sum(sizes) if together else max(sizes), 0) > log.largest_record:
            raise MessageIllegal(f"the message is larger than a commit log file ({log.file_size} bytes)")
        # All files are made before the first record is written: afterwards nothing can fail.
        self._make_files(sizes, together)
        appended: list[Appended] = []
        at = 0
        for count in groups:
            if log.position + sum(sizes[at : at + count]) > log.limit:
                log.roll()
            appended += self._write(drafts[at : at + count], sizes[at : at + count])
            at += count
        if log.is_pool_empty:
            self._flags.set(Reason.POOL_EMPTY)
        return appended

    def _make_files(self, sizes: list[int], together: bool) -> None:
        try:
            self._log.reserve(sizes, together)
        except OSError as error:
            self._retry_room_at = self._monotonic() + RETRY_ROOM_S
            self._flags.set(Reason.NO_ROOM, str(error))
            raise self._flags.refusal() from None

    def _refuse(self) -> None:
        """Raises Refused while writing is blocked; but once a second lets a write try again after NO_ROOM."""
        if self._flags.first is not Reason.NO_ROOM or self._monotonic() < self._retry_room_at:
            raise self._flags.refusal()
        self._flags.clear(Reason.NO_ROOM)
        if self._flags.blocked:
            raise self._flags.refusal()

    def _check(self, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            most = self._max_message_size if draft.store_host is None else self._log.largest_record
            if len(draft.body) > most or len(draft.properties) > MAX_BYTES:
                raise MessageIllegal(
                    "the message is illegal, maybe msg body or properties length not matched. "
                    f"msg body length limit {self._max_message_size}B, msg properties length limit 32KB."
                )

    def _size(self, draft: Draft) -> int:
        head = HEADS[hosts_of(draft.born_host, draft.store_host or self.store_host)]
        beyond_head = draft.queue.fixed_size - HEADS[0].size
        return head.size + beyond_head + len(draft.body) + len(draft.properties)


def hosts_of(born_host: bytes, store_host: bytes) -> int:
    """Returns the bits of the sys flag that say which of the two hosts of a record have IPv6 addresses."""
    return (BORN_V6 if len(born_host) == IPV6_HOST else 0) | (STORE_V6 if len(store_host) == IPV6_HOST else 0)
