"""Derives from the log: entries of queues, keys of the index, and wake-ups of waiting pulls.

In: what `append.py` just wrote (nothing is read again), or a record found by recovery. A record may come
twice: queues and index know what they have. Keys wait in a list and are hashed and put in slices, since no
request depends on them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import cast

from turbopump.compiled import Arrivals, Twins
from turbopump.protocol import properties as props
from turbopump.protocol.hashing import extend_hash, java_hash
from turbopump.protocol.light import OFFSETS_MARK as LIGHT_OFFSETS
from turbopump.protocol.light import QUEUE_ID as LIGHT_QUEUE
from turbopump.protocol.light import places, takes_part
from turbopump.protocol.names import SCHEDULE_TOPIC
from turbopump.protocol.sysflag import PREPARED, ROLLBACK, TRANSACTION_MASK
from turbopump.runtime.disk import Buffer
from turbopump.store.append import Appender, Keys
from turbopump.store.commit_log import CommitLog
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.delays import DELIVER_AT, DelayHistory
from turbopump.store.index import Index
from turbopump.store.index_file import LAST_TIME
from turbopump.store.queue_files import is_directory_name
from turbopump.store.queues import ConsumeQueues

KEYS_PER_TURN = 512  # messages whose keys are put in one turn of the loop: about 1 ms
PAUSE_S = 0.005
NO_ROOM_PAUSE_S = 1.0  # on a full disk: the keys are hashed again each time
MAX_BACKLOG = 100_000  # messages whose keys may wait; beyond, each append puts some itself
MAX_KEYS_PER_APPEND = 1 << 16  # one append adds no more; after a start on a full disk more may wait

log_line = logging.getLogger("turbopump.store")

Arrival = Callable[[ConsumeQueue, int, int], None]

MAX_TAG_CODES = 4096
UNIQUE_KEY, KEYS, TAGS, DELAY, DELIVERY_TIME = (
    name.encode() + b"\x01" for name in (props.UNIQUE_KEY, props.KEYS, props.TAGS, props.DELAY, DELIVER_AT)
)
NOT_PLAIN = (LIGHT_OFFSETS.rstrip(b"\x01"),)
"""Properties of records that `dispatch_copied` handles."""
MAX_DIGITS = 15  # of a time or a level; longer ones are damage
PAIR_END = 2

Found = tuple[bytes, int, int, int, int, int, int, bytes]
"""Fields of a record that are dispatched: topic, queue id, queue offset, log offset, size, sys flag, store
time, properties.
"""


class Dispatcher:
    """Derives queue entries and index keys from records of the log, and wakes waiting pulls."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        appender: Appender,
        index: Index | None,
        delays: DelayHistory,
        twins: Twins | None = None,
    ) -> None:
        self.on_arrival: Arrival | None = None
        self.on_growth: Callable[[], None] | None = None
        """Called after each append, for those that copy the log."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.copied_from: int | None = None
        """On a slave: offset from which on copied bytes are not dispatched yet; None on a master."""
        self._log = log
        self._queues = queues
        self._appender = appender
        self._index = index
        self._delays = delays
        self._twins = twins
        self._scheduled = False
        self._last_record = -1
        self._last_timestamp = 0
        self._time_of_keys = 1  # never 0: a file of the index that begins at 0 has no times
        self._named: dict[tuple[bytes, int], ConsumeQueue] = {}
        self._tag_codes: dict[bytes, int] = {}

    @property
    def dispatched(self) -> int:
        """Log offset below which every record is in its queue (perhaps in memory only)."""
        if self.copied_from is not None:
            return self.copied_from
        deferred = self._appender.deferred
        return deferred[0][2] if deferred else self._log.end

    def state(self) -> tuple[int, int, int]:
        """Returns the dispatched offset, the last record below it (-1: none) and that record's store time."""
        if self._appender.deferred or self._last_record > self._appender.last_record:
            return self.dispatched, self._last_record, self._last_timestamp
        return self.dispatched, self._appender.last_record, self._appender.last_timestamp

    def continue_after(self, last_record: int, timestamp: int) -> None:
        """Sets the last dispatched record and its store time, after recovery dispatched all up to it."""
        self._named.clear()
        self._tag_codes.clear()
        self._last_record, self._last_timestamp = last_record, timestamp

    def start_after_cut(self) -> None:
        """Forgets the last dispatched record, which may have been cut; `state` names none until an append.

        Queues are looked up again: they may have been removed with all of their records.
        """
        self._named.clear()
        if self.copied_from is not None:
            self.copied_from = self._log.end
        self._appender.last_record, self._appender.last_timestamp = -1, 0
        self._last_record, self._last_timestamp = -1, 0

    def advance(self, until: int) -> None:
        """Makes the log visible up to `until`: deferred entries go to their queues, pulls are woken."""
        deferred, reveal, arrived = self._appender.deferred, self._appender.reveal, self.on_arrival
        revealed = []
        while deferred and deferred[0][2] + deferred[0][3] <= until:
            entry = deferred.popleft()
            reveal(entry)
            revealed.append(entry)
            self._last_record, self._last_timestamp = entry[2], entry[7]
        if arrived is not None:
            for queue, queue_offset, _, _, tags_code, in_queue, _, _ in revealed:
                if in_queue:
                    arrived(queue, queue_offset + 1, tags_code)
        if revealed:
            self.keys_waiting()

    # the index

    def keys_waiting(self) -> None:
        """Schedules putting the waiting keys into the index; puts some at once when too many wait.

        Called after each append.
        """
        waiting = self._appender.keys
        if self._index is None:
            waiting.clear()
        elif len(waiting) > MAX_BACKLOG:
            with contextlib.suppress(OSError):  # a full disk: `upkeep.py` notices and blocks writing
                self.put_keys(min(max(KEYS_PER_TURN, len(waiting) - MAX_BACKLOG), MAX_KEYS_PER_APPEND))
        else:
            self._schedule(PAUSE_S)

    def _schedule(self, seconds: float) -> None:
        if not self._scheduled and self.loop is not None:
            self._scheduled = True
            self.loop.call_later(seconds, self._put_slice)

    def put_keys(self, limit: int) -> None:
        """Indexes the waiting keys of up to `limit` messages. Raises OSError; the keys then keep waiting."""
        waiting = self._appender.keys
        if self._index is None or not waiting:
            return
        done = self._index.put_keys(self._twins.put_keys, waiting, limit) if self._twins else 0
        self._index.put_many(hashed(waiting[done:limit]))
        del waiting[:limit]

    def put_all_keys(self) -> None:
        while self._appender.keys and self._index is not None:
            self.put_keys(8 * KEYS_PER_TURN)

    @property
    def indexed(self) -> int:
        """Log offset below which the keys of every record are in the index."""
        waiting = self._appender.keys
        return min(waiting[0][1], self.dispatched) if waiting else self.dispatched

    def _put_slice(self) -> None:
        self._scheduled = False
        waiting = self._appender.keys
        pause_s = PAUSE_S
        try:
            self.put_keys(max(KEYS_PER_TURN, len(waiting) // 64))
        except OSError:  # a full disk: see `keys_waiting`
            pause_s = NO_ROOM_PAUSE_S
        if waiting:
            self._schedule(pause_s)

    # from the bytes of a record

    def dispatch_plain(self, buffer: Buffer, start: int, position: int, limit: int, check_crc: bool) -> int:
        """Dispatches plain copied records from `position` on, in C; returns the position behind the last.

        `dispatch_copied` takes the record there. `start` is the log offset of the buffer's first byte. Does
        nothing without compiled code or without an index. 1 us a record.
        """
        if self._twins is None or self._index is None:
            return position
        arrivals: Arrivals | None = None if self.on_arrival is None else []
        position, last, timestamp = self._twins.dispatch_copied(
            *(buffer, start, position, limit, check_crc),
            *(self._named, self._queues.dirty, self._appender.keys, arrivals, NOT_PLAIN),
        )
        if last >= 0:
            self._last_record, self._last_timestamp = last, timestamp
            self._time_of_keys = timestamp
        for queue, next_offset, tags_code in arrivals or ():
            if self.on_arrival is not None:
                self.on_arrival(queue, next_offset, tags_code)
        return position

    def dispatch_copied(self, found: Found) -> None:
        """Dispatches one record that a slave copied, and wakes the pulls that wait for it."""
        whole = self.dispatch(found, with_entry=True, with_keys=True)
        if not whole:  # the copy of the log begins with this record of its queue
            self.dispatch_after_gap(found)
        topic, queue_id, queue_offset, physical, _, sys_flag, store_timestamp, properties = found
        self._last_record, self._last_timestamp = physical, store_timestamp
        arrived, queue = self.on_arrival, self._named.get((topic, queue_id))
        if arrived is None or queue is None or sys_flag & PREPARED:
            return
        tags_code = self._tags_code(queue, properties, store_timestamp, physical)
        arrived(queue, queue_offset + 1, tags_code)
        for light, light_offset in self._lights(found) if LIGHT_OFFSETS in properties else ():
            arrived(light, light_offset + 1, tags_code)

    def dispatch(self, found: Found, with_entry: bool, with_keys: bool) -> bool:
        """Adds a record's queue entry and index keys; returns False if its queue lacks entries before it.

        Takes 2 us.
        """
        topic, queue_id, queue_offset, physical, size, sys_flag, store_timestamp, properties = found
        queue = self._named.get((topic, queue_id)) or self._queue_of(topic, queue_id)
        if queue is None:
            return True
        kind = sys_flag & TRANSACTION_MASK
        whole = True
        if with_entry and kind not in (PREPARED, ROLLBACK):
            tags_code = self._tags_code(queue, properties, store_timestamp, physical)
            whole = queue.put(queue_offset, physical, size, tags_code)
            if LIGHT_OFFSETS in properties:
                whole = self._put_lights(found, tags_code) and whole
        if with_keys and self._index is not None and kind != ROLLBACK:
            unique_key = text_of(find(properties, UNIQUE_KEY))
            keys = text_of(find(properties, KEYS))
            waiting = self._appender.keys
            if (
                0 < store_timestamp <= LAST_TIME
            ):  # no checksum guards it: a damaged one is replaced by the last
                self._time_of_keys = store_timestamp
            waiting.append((queue, physical, self._time_of_keys, unique_key, keys))
            if len(waiting) >= 8 * KEYS_PER_TURN:
                self.put_all_keys()
        return whole

    def _put_lights(self, found: Found, tags_code: int) -> bool:
        """Adds a record to its light queues. Returns False when one of them lacks entries before it."""
        whole = True
        for queue, queue_offset in self._lights(found):
            whole = queue.put(queue_offset, found[3], found[4], tags_code) and whole
        return whole

    def _lights(self, found: Found) -> list[tuple[ConsumeQueue, int]]:
        if not takes_part(text_of(found[0])):
            return []
        found_in = places(found[7])
        self._queues.lights.update(name for name, _ in found_in)
        return [(self._queues.known(name, LIGHT_QUEUE), queue_offset) for name, queue_offset in found_in]

    def dispatch_after_gap(self, found: Found) -> None:
        """Adds a record's queue entry after blank entries for the messages before it that are in no log."""
        for light, light_offset in self._lights(found):
            if light_offset - light.max_offset <= light.max_gap:
                light.skip_to(light_offset)
        topic, queue_id, queue_offset, *rest = found
        queue = self._named[topic, queue_id]
        if queue_offset - queue.max_offset > queue.max_gap:
            # No checksum guards the offset either. As in Apache, the entry goes to the end of the queue.
            log_line.error(
                "Record at %d has queue offset %d, far beyond the end of %s/%d; appending it to the queue",
                found[3],
                queue_offset,
                queue.topic,
                queue_id,
            )
            found = cast(Found, (topic, queue_id, queue.max_offset, *rest))
        queue.skip_to(found[2])
        self.dispatch(found, with_entry=True, with_keys=False)

    def _queue_of(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        """Returns the queue of a record; None, logged as an error, for an impossible topic or queue id.

        No checksum guards these two fields.
        """
        name = topic.decode("utf-8", "replace")
        if queue_id < 0 or not is_directory_name(name):
            log_line.error("Skipping a record of an impossible queue: %d of topic %r", queue_id, name)
            return None
        queue = self._named[topic, queue_id] = self._queues.known(name, queue_id)
        return queue

    def _tags_code(self, queue: ConsumeQueue, properties: bytes, store_timestamp: int, physical: int) -> int:
        if queue.topic == SCHEDULE_TOPIC:
            if deliver_at := _number(find(properties, DELIVERY_TIME)):
                return deliver_at
            if level := _number(find(properties, DELAY)):
                return store_timestamp + self._delays.delay_ms(level, physical)
        tag = find(properties, TAGS)
        if not tag:
            return 0
        code = self._tag_codes.get(tag)
        if code is None:
            if len(self._tag_codes) >= MAX_TAG_CODES:
                self._tag_codes.clear()
            code = self._tag_codes[tag] = java_hash(text_of(tag))
        return code


def hashed(waiting: list[Keys]) -> list[tuple[int, int, int]]:
    """Returns index entries (log offset, store time, key hash) for the unique key, then the other keys."""
    entries = []
    for queue, physical, store_timestamp, unique_key, keys in waiting:
        if unique_key:
            entries.append((physical, store_timestamp, _absolute(extend_hash(queue.topic_hash, unique_key))))
        if keys:
            for key in keys.split(" "):
                if key:
                    code = _absolute(extend_hash(queue.topic_hash, key))
                    entries.append((physical, store_timestamp, code))
    return entries


def _absolute(code: int) -> int:
    return 0 if code == -(2**31) else abs(code)


def find(properties: bytes, mark: bytes) -> bytes:
    """Returns the value of the property whose name and separator are `mark`; empty when there is none."""
    at = properties.find(mark)
    if at < 0:
        return b""
    if (at and properties[at - 1] != PAIR_END) or properties.find(mark, at + 1) >= 0:
        # The mark occurs twice, or inside another property's value.
        found = props.find(properties, mark[:-1].decode())
        return found.encode() if found else b""
    begin = at + len(mark)
    end = properties.find(b"\x02", begin)
    return properties[begin:end] if end >= 0 else properties[begin:]


def _number(value: bytes) -> int:
    """Parses a decimal number of at most 15 digits; returns 0 for any other value."""
    return int(value) if value.isdigit() and len(value) <= MAX_DIGITS else 0


def text_of(value: bytes) -> str:
    return value.decode("utf-8", "replace")
