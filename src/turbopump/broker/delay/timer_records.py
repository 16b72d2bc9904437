"""Makes the records of a timer: as it waits, as it is delivered, as it is put into the wheel again, recalled.

A timed message waits in rmq_sys_wheel_timer, queue 0. REAL_TOPIC and REAL_QID say where it belongs,
TIMER_OUT_MS in which slot of the wheel: the last whole second before its time, as Apache counts. The exact
time is in a property of ours, which consumers never see. A recall is a message too: it
waits in the slot of the one that it recalls, and names it.

Copies name the record that they were made of, as those of delayed messages do (`level_records.py`). Values
in, values out; deciding when a timer fires is the subject of `timers.py`.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from turbopump.broker.config import TimerRules
from turbopump.broker.delay import level_records
from turbopump.protocol import properties
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.errors import MessageIllegal, Refused
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.names import TIMER_TOPIC
from turbopump.protocol.record import Record
from turbopump.store.append import Draft
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.delays import DELIVER_AT
from turbopump.store.dispatch import find
from turbopump.store.timer_log import DEFAULT, RECALL, ROLL, Unit

RECALL_TAG = "_RECALL_TAG_"
RECALL_BODY = b"0"
MAX_DIGITS = 18  # of a time, or of the number of rolls

_LONG = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_OUT_MS, _EXACT, _RECALLED, _ROLLS, _REAL_TOPIC, _UNIQUE_KEY, _ENQUEUED, _DEQUEUED = (
    name.encode() + b"\x01"
    for name in (
        properties.TIMER_OUT_MS,
        DELIVER_AT,
        properties.TIMER_DEL_UNIQUE_KEY,
        properties.TIMER_ROLL_TIMES,
        properties.REAL_TOPIC,
        properties.UNIQUE_KEY,
        properties.TIMER_ENQUEUE_MS,
        properties.TIMER_DEQUEUE_MS,
    )
)
_ADDED_BY_WHEEL = (_EXACT, _ENQUEUED, _DEQUEUED, _ROLLS)


@dataclass(frozen=True, slots=True)
class WaitingTimer:
    """Where a timer goes in the wheel: start of its slot (ms), magic of its unit, delivery time (ms)."""

    slot_ms: int
    magic: int
    exact_ms: int


# into the wheel


def due_ms(pairs: dict[str, str], now_ms: int, rules: TimerRules) -> int | None:
    """Returns the delivery time (ms since 1970) asked for; None: at once. Raises Refused if not allowed.

    By Apache's rules, in their order. Raises Refused for a time that is not allowed.
    """
    if properties.TIMER_OUT_MS in pairs:
        return None  # as Apache: it has been through the wheel
    asked = _asked_for(pairs, now_ms, rules)
    if asked is None:
        return None
    if not rules.enabled:
        remark = "accurate timer message is not enabled, timerWheelEnable is false"
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
    if asked > now_ms + 1000 * rules.max_delay_s:
        raise _illegal(rules)
    if asked > now_ms:
        return asked
    if properties.TIMER_DEL_UNIQUE_KEY in pairs:
        raise _illegal(rules)
    return None


def promised_ms(pairs: dict[str, str], now_ms: int, rules: TimerRules) -> int | None:
    """Returns a committed message's delivery time (ms); None: at once. MessageIllegal while timers are off.

    It was accepted when the message was sent, and is kept whatever the rules are now. Raises MessageIllegal,
    to be retried later, only while the wheel is turned off, since nothing could deliver it.
    """
    asked = None if properties.TIMER_OUT_MS in pairs else _asked_for(pairs, now_ms, rules)
    if asked is None or asked <= now_ms:
        return None
    if not rules.enabled:
        raise MessageIllegal("timerWheelEnable is false, and its time has not come: it goes on waiting")
    return asked


def _asked_for(pairs: dict[str, str], now_ms: int, rules: TimerRules) -> int | None:
    if (seconds := pairs.get(properties.TIMER_DELAY_SEC)) is not None:
        return now_ms + 1000 * _number(seconds, rules)
    if (milliseconds := pairs.get(properties.TIMER_DELAY_MS)) is not None:
        return now_ms + _number(milliseconds, rules)
    if (at := pairs.get(properties.TIMER_DELIVER_MS)) is not None:
        return _number(at, rules)
    return None


def _number(text: str, rules: TimerRules) -> int:
    if not _LONG.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise _illegal(rules)
    return int(text)


def _illegal(rules: TimerRules) -> Refused:
    limit = 1000 * rules.max_delay_s
    return Refused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"timer message illegal, the delay time should not be bigger than the max delay {limit}ms; or if set "
        "del msg, the delay time should be bigger than the current time",
    )


def postpone(pairs: dict[str, str], due_at_ms: int, topic: str, queue_id: int, precision_ms: int) -> bytes:
    """Changes `pairs` to the properties of a waiting timer; returns bytes to append to its stored properties.

    These are the property with the exact time, which consumers never see. `topic` and `queue_id` say where it
    is delivered.
    """
    pairs[properties.TIMER_OUT_MS] = str(slot_before(due_at_ms, precision_ms))
    pairs[properties.REAL_TOPIC] = topic
    pairs[properties.REAL_QUEUE_ID] = str(queue_id)
    return _EXACT + b"%d\x02" % due_at_ms


def slot_before(due_at_ms: int, precision_ms: int) -> int:
    """Returns the start (ms) of the last wheel slot that begins before a time.

    Apache fires a slot when it is over, so never early.
    """
    return (due_at_ms - 1) // precision_ms * precision_ms


def recall(
    pairs: dict[str, str], topic: str, unique_key: str, group: str, due_at_ms: int, now_ms: int
) -> None:
    """Adds to `pairs` the properties of a message that recalls the timer with this unique key."""
    pairs |= {
        properties.TIMER_DEL_UNIQUE_KEY: unique_key,
        properties.REAL_TOPIC: topic,
        properties.BORN_TIMESTAMP: str(now_ms),
        properties.TIMER_DELIVER_MS: str(due_at_ms),
        properties.UNIQUE_KEY: unique_key,
        properties.PRODUCER_GROUP: group,
        properties.TAGS: RECALL_TAG,
    }


# in the wheel


def waiting(record: Record, now_ms: int, rules: TimerRules) -> WaitingTimer | None:
    """Returns the wheel slot and magic for a waiting record; None: it has no delivery time.

    A message that is due later than the wheel reaches gets a nearer slot, from which it rolls.
    """
    out = find(record.properties, _OUT_MS)
    if not out.isdigit() or len(out) > MAX_DIGITS:
        return None
    precision = rules.precision_ms
    slot_ms = int(out) // precision * precision
    exact_ms = slot_ms + precision
    exact = find(record.properties, _EXACT)
    if exact.isdigit() and len(exact) <= MAX_DIGITS:
        exact_ms = int(exact)
        slot_ms = slot_before(exact_ms, precision)  # the length of slots may have changed
    magic = DEFAULT | (RECALL if find(record.properties, _RECALLED) else 0)
    write_ms = now_ms // precision * precision
    window_ms = rules.roll_window_slots * precision
    beyond_ms = slot_ms - write_ms - window_ms
    if beyond_ms < 0:
        return WaitingTimer(slot_ms, magic, exact_ms)
    is_little = beyond_ms < rules.roll_window_slots // 3 * precision
    ahead = rules.roll_window_slots // 2 if is_little else rules.roll_window_slots
    return WaitingTimer(write_ms + ahead * precision, magic | ROLL, exact_ms)


def slot_of(unit: Unit, precision_ms: int) -> int:
    """Returns the start (ms) of the wheel slot in which a unit of the timer log fires.

    The unit may have been written late, or with another slot length.
    """
    slot_ms = unit.slot_ms - unit.slot_ms % precision_ms
    return slot_ms if unit.rolls else max(slot_ms, slot_before(unit.exact_ms, precision_ms))


Recalled = tuple[bytes, bytes]
"""Topic and unique key of a timer that is recalled."""


def recalled_by(record: Record) -> Recalled | None:
    """Returns the timer that this record recalls; None: it is not a recall."""
    key = find(record.properties, _RECALLED)
    return (find(record.properties, _REAL_TOPIC), key) if key else None


def is_recalled(record: Record, recalled: set[Recalled]) -> bool:
    """Returns whether a timer is among those recalled: by a recall in its own topic.

    A sender with a right to one topic must not end the timers of another. Some brokers put the topic before
    the key of a recall.
    """
    if not recalled:
        return False
    topic, key = find(record.properties, _REAL_TOPIC), (record.unique_key or "").encode()
    return (topic, key) in recalled or (topic, topic + b"+" + key) in recalled


def topic_hash(record: Record) -> int:
    """Returns the Java hash of the topic that a waiting timer is delivered to."""
    return _hash(find(record.properties, _REAL_TOPIC))


@lru_cache(maxsize=4096)
def _hash(topic: bytes) -> int:
    return java_hash(topic.decode("utf-8", "replace"))


# out of the wheel


def delivered(record: Record, queue: ConsumeQueue, put_ms: int, now_ms: int) -> Draft:
    """Returns the draft of a timer for consumers. `put_ms`: when it was put into the wheel."""
    return level_records.copy_of(record, queue, _after_the_wheel(record.properties, put_ms, now_ms, b""))


def put_again(record: Record, queue: ConsumeQueue, put_ms: int, now_ms: int) -> Draft:
    """Returns a draft that keeps waiting in the queue of timers in place of `record`.

    Because the message is due later than the wheel reaches, or because its file is about to be deleted.
    """
    assert queue.topic == TIMER_TOPIC
    packed = record.properties
    exact = find(packed, _EXACT)
    kept = _EXACT + exact + b"\x02" if exact else b""
    again = _ROLLS + b"%d\x02" % (_times(record) + 1)
    return level_records.copy_of(record, queue, _after_the_wheel(packed, put_ms, now_ms, kept, again))


def _after_the_wheel(packed: bytes, put_ms: int, now_ms: int, kept: bytes, again: bytes = b"") -> bytes:
    """Returns `packed` without the wheel's properties, plus `kept` and, if they fit, both times and `again`.

    Also those that Apache's brokers add when a message leaves the wheel, and `again`, if they fit.
    """
    for mark in _ADDED_BY_WHEEL:
        packed = properties.without(packed, mark)
    if packed and not packed.endswith(b"\x02"):
        packed += b"\x02"
    packed += kept
    timed = packed + _ENQUEUED + b"%d\x02" % put_ms + _DEQUEUED + b"%d\x02" % now_ms + again
    return timed if len(timed) <= properties.MAX_BYTES else packed


# copies that do not name their original, as Apache's


DELIVERED_MARK = _DEQUEUED
"""Every copy that comes out of the wheel has it."""

Name = tuple[str, bytes, bytes, int]


def name_of_copy(record: Record) -> Name | None:
    """Returns what identifies a copy of a timer made by Apache's broker; None: the record is no such copy.

    Also None for one that cannot be told from others, since it has no unique key.
    """
    key = find(record.properties, _UNIQUE_KEY)
    if (
        not key
        or not find(record.properties, _DEQUEUED)
        or level_records.origin(record.prepared_transaction_offset) is not None
    ):
        return None
    times = _times(record) if record.topic == TIMER_TOPIC else 0
    return record.topic, key, find(record.properties, _OUT_MS), times


def name_of_copy_of(record: Record, rolls: bool) -> Name:
    """Returns the `name_of_copy` of Apache's copy of a waiting timer; `rolls`: the copy is a timer again."""
    key, out = find(record.properties, _UNIQUE_KEY), find(record.properties, _OUT_MS)
    if rolls:
        return TIMER_TOPIC, key, out, _times(record) + 1
    return find(record.properties, _REAL_TOPIC).decode("utf-8", "replace"), key, out, 0


def _times(record: Record) -> int:
    """Returns how often a timer was put into the queue of timers again (TIMER_ROLL_TIMES)."""
    rolls = find(record.properties, _ROLLS)
    return int(rolls) if rolls.isdigit() and len(rolls) < MAX_DIGITS else 0
