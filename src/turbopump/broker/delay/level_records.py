"""Makes the records of a delayed message: as it waits, is delivered, or is rewritten to keep waiting.

A delayed message waits in SCHEDULE_TOPIC_XXXX, in the queue of its level. REAL_TOPIC and REAL_QID say where
it belongs, and its entry in the queue carries the time of delivery where others carry the hash of a tag. The
copy that is delivered has the same properties, as Apache's has.

Both kinds of copy name the record that they were made of, in the field that a committed transaction uses for
its half message: as a negative number, since the transactions' are positive. After a crash this tells which
messages were delivered. Apache writes 0 there, and no client reads it. Deciding when a message is due is the
subject of `levels.py`.
"""

from collections.abc import Callable
from functools import lru_cache

from turbopump.broker.produce.kinds import IncomingMessage, Placement
from turbopump.broker.storage import Storage
from turbopump.broker.topics import TopicTable, is_valid
from turbopump.protocol import properties
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.errors import Refused
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from turbopump.protocol.record import Record
from turbopump.store.append import Appended, Draft
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.delays import DELIVER_AT
from turbopump.store.dispatch import find

TIMERS = (properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS)

_REAL_TOPIC, _REAL_QUEUE_ID, _TAGS, _UNIQUE_KEY, _KEYS, _DELIVER_AT = (
    name.encode() + b"\x01"
    for name in (
        properties.REAL_TOPIC,
        properties.REAL_QUEUE_ID,
        properties.TAGS,
        properties.UNIQUE_KEY,
        properties.KEYS,
        DELIVER_AT,
    )
)


class DelaySchedule:
    """The `WaitingKind` of messages with a delay level, which wait in SCHEDULE_TOPIC_XXXX."""

    topic = SCHEDULE_TOPIC
    properties = frozenset({properties.DELAY})

    def __init__(self, store: Storage) -> None:
        self._store = store
        self._levels = store.delays
        self.on_postponed: Callable[[ConsumeQueue], None] = lambda queue: None
        """Called after a delayed message was appended to this queue."""

    def claim(self, message: IncomingMessage) -> Placement | None:
        return self.claim_committed(message.pairs, message.topic, message.queue_id, is_promised=False)

    def claim_committed(
        self, pairs: dict[str, str], topic: str, queue_id: int, is_promised: bool
    ) -> Placement | None:
        level = delay_level(pairs)
        if level <= 0:
            return None
        queue, delay_ms = self.postpone(pairs, level, topic, queue_id)
        # The level that is applied, perhaps not the one that was asked for.
        return Placement(queue, delay_ms, fields={"delayLevel": str(queue.queue_id + 1)})

    def stored(self, draft: Draft, appended: Appended) -> None:
        self.on_postponed(draft.queue)

    def batch_refusal(self, pairs: dict[str, str]) -> str | None:
        if delay_level(pairs) <= 0:
            return None
        return "a message of a batch cannot be delayed; send it alone"

    def postpone(
        self, pairs: dict[str, str], level: int, topic: str, queue_id: int
    ) -> tuple[ConsumeQueue, int]:
        """Changes `pairs` to the properties of a waiting message; returns its waiting queue and delay in ms.

        `topic` and `queue_id` say where it is delivered later. A level beyond the last one counts as the
        last.
        """
        level = min(level, len(self._levels))
        # The level counts, as in Apache, and a sender cannot set the time of delivery itself.
        for name in (*TIMERS, DELIVER_AT):
            pairs.pop(name, None)
        pairs[properties.DELAY] = str(level)
        pairs[properties.REAL_TOPIC] = topic
        pairs[properties.REAL_QUEUE_ID] = str(queue_id)
        return self._store.queues.queue(SCHEDULE_TOPIC, level - 1), self._levels.delay_ms(level)


def delay_level(pairs: dict[str, str]) -> int:
    """Returns the delay level in the properties; 0 or less: none. Raises Refused if it is not a number.

    May be beyond the last level.
    """
    text = pairs.get(properties.DELAY)
    if text is None:
        return 0
    level = properties.number(text)
    if level is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the delay level must be a number, got {text[:40]!r}")
    return level


def destination(record: Record, topics: TopicTable) -> tuple[str, int] | None:
    """Returns the topic and queue id that a delayed or half message names; None: it names no valid ones.

    See `place_named` for what is valid.
    """
    packed = record.properties
    return place_named(find(packed, _REAL_TOPIC), find(packed, _REAL_QUEUE_ID), topics)


def place_named(topic_name: bytes, queue: bytes, topics: TopicTable) -> tuple[str, int] | None:
    """Returns the topic and queue id in the values of REAL_TOPIC and REAL_QID; None: they are not valid.

    The topic need not exist. A queue id beyond its read queues wraps around. The topics of half messages are
    invalid.
    """
    found = _place(topic_name, queue)
    if found is None:
        return None
    name, queue_id = found
    topic = topics.find(name)
    if name in (HALF_TOPIC, OP_HALF_TOPIC) or (topic is None and not is_valid(name)):
        return None
    if topic is not None and queue_id >= topic.read_queues > 0:
        # The topic has fewer queues now: no consumer would see the message in its own.
        queue_id %= topic.read_queues
    return name, queue_id


@lru_cache(maxsize=4096)
def _place(topic: bytes, queue_id: bytes) -> tuple[str, int] | None:
    number = properties.number(queue_id.decode("ascii", "replace"))
    if not topic or number is None or number < 0:
        return None
    return topic.decode("utf-8", "replace"), number


def delivered(record: Record, queue: ConsumeQueue) -> Draft:
    """Returns the draft of a delayed message for consumers: its properties except TURBOPUMP_DELIVER_AT."""
    return copy_of(record, queue, properties.without(record.properties, _DELIVER_AT))


def copy_of(record: Record, queue: ConsumeQueue, packed: bytes) -> Draft:
    """Returns a draft of `record` for `queue` with `packed` properties that names `record` as its original.

    By its prepared transaction offset; see `origin`.
    """
    return _copy(record, queue, packed, _tags_code(find(packed, _TAGS)))


def rewritten(record: Record, queue: ConsumeQueue, due_ms: int) -> Draft:
    """Returns a draft that keeps waiting in `queue` in place of `record`, whose file is about to be deleted.

    Its time of delivery is in the queue entry, and in a property in case the queue has to be rebuilt. If the
    property does not fit, rebuilding the queue makes the message late.
    """
    packed = record.properties
    if not find(packed, _DELIVER_AT):
        end = b"" if packed.endswith(b"\x02") else b"\x02"
        timed = packed + end + _DELIVER_AT + b"%d\x02" % due_ms
        packed = timed if len(timed) <= properties.MAX_BYTES else packed
    return _copy(record, queue, packed, due_ms)


def origin(named: int) -> int | None:
    """Returns the physical offset of a copy's original, from its prepared transaction offset; None: no copy.

    That of a copy is negative; that of a committed transaction is not.
    """
    return ~named if named < 0 else None


def copied(record: Record, queue: ConsumeQueue, pairs: dict[str, str]) -> Draft:
    """Returns a draft of `record` for another queue with other properties, without a reference to `record`.

    All else is unchanged, except the store host and the reference to the original: a caller that wants to
    keep them sets them.
    """
    tag = pairs.get(properties.TAGS)
    return Draft(
        queue=queue,
        body=record.body,
        properties=properties.pack(pairs).encode(),
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        tags_code=java_hash(tag) if tag else 0,
        unique_key=pairs.get(properties.UNIQUE_KEY, ""),
        keys=pairs.get(properties.KEYS, ""),
        reconsume_times=record.reconsume_times,
    )


def _copy(record: Record, queue: ConsumeQueue, packed: bytes, tags_code: int) -> Draft:
    return Draft(
        queue=queue,
        body=record.body,
        properties=packed,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        tags_code=tags_code,
        unique_key=find(packed, _UNIQUE_KEY).decode("utf-8", "replace"),
        keys=find(packed, _KEYS).decode("utf-8", "replace"),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=~record.physical_offset,
        store_host=record.store_host,
    )


@lru_cache(maxsize=4096)
def _tags_code(tag: bytes) -> int:
    return java_hash(tag.decode("utf-8", "replace")) if tag else 0
