"""Makes and reads the records of a transaction: half, renewed, expired and committed ones, and op records.

    half        RMQ_SYS_TRANS_HALF_TOPIC, queue 0; REAL_TOPIC and REAL_QID say where the message belongs
    renewed     the same once more, with TRAN_PREPARED_QUEUE_OFFSET: the root's place in that queue
    expired     TRANS_CHECK_MAX_TIME_TOPIC, queue 0
    committed   the real topic; its field for a prepared transaction is the log offset of the half message
    op          RMQ_SYS_TRANS_OP_HALF_TOPIC, queue 0: its body names a half record that is no longer open

An op record has Apache's form of 4.9, which 5.x reads too, and holds the decision in a property of ours; one
that ends a transaction is found in the index by the root's queue offset. Copies other than commits name their
original as a negative number, as copies of delayed messages do: after a crash, the log shows which steps were
taken although their op record is missing.
"""

import re
from typing import Final

from turbopump.broker.delay.level_records import TIMERS, copied
from turbopump.broker.transactions.halves import HalfDecision
from turbopump.broker.transactions.ledger.stamps import STAMP
from turbopump.protocol import properties
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.record import Record
from turbopump.protocol.sysflag import COMMIT, TRANSACTION_MASK, with_transaction_type
from turbopump.store.append import Draft
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.dispatch import find

DECISION: Final = "TURBOPUMP_DECISION"
"""A property of op records, ours alone."""

DONE_TAG: Final = "d"
DONE_CODE: Final = java_hash(DONE_TAG)
ADDED_LATER: Final = 256  # bytes of properties that a renewed copy has more than the half message
FORGED: Final = (properties.TRANSACTION_PREPARED_QUEUE_OFFSET, properties.TRANSACTION_CHECK_TIMES, *STAMP)
"""Properties of a half message that only a broker may set."""

_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
WAITING: Final = tuple(name.encode() for name in (properties.REAL_TOPIC, properties.REAL_QUEUE_ID, *STAMP))
"""Properties that a half message of a ledger has only while it waits."""
_WAITING = frozenset(WAITING)
TIMES: Final = tuple(name.encode() for name in (properties.DELAY, *TIMERS))
"""Properties that set when a message is delivered."""
_TIMES = tuple(name + b"\x01" for name in TIMES)
_NAMES_OF_TIMES = (properties.DELAY, *TIMERS, properties.TIMER_OUT_MS)
_WAITING_WITH_TIMES = _WAITING | {name.encode() for name in _NAMES_OF_TIMES}
_TAGS, _UNIQUE_KEY, _KEYS = (
    name.encode() + b"\x01" for name in (properties.TAGS, properties.UNIQUE_KEY, properties.KEYS)
)
_OP_PROPERTIES = {
    decision.value: properties.pack(
        {properties.TAGS: DONE_TAG, properties.WAIT: "true", DECISION: decision.value}
    ).encode()
    for decision in HalfDecision
}


OP_KEY: Final = b"half-"
OP_COMMIT_FRONT: Final = _OP_PROPERTIES[HalfDecision.COMMIT.value] + _KEYS + OP_KEY
"""The properties of an op record for a commit, up to the root and the separator."""


def is_half(pairs: dict[str, str], level: int, reconsume_times: int) -> bool:
    """Returns whether a send with these properties and delay level is a half message.

    A retry is none, though clients before 4.6.1 mark it as one.
    """
    is_retry = reconsume_times > 0 and level > 0
    return pairs.get(properties.TRANSACTION_PREPARED) == "true" and not is_retry


def prepare(pairs: dict[str, str], topic: str, queue_id: int, unique_key: str) -> None:
    """Changes `pairs` to the properties of a half message; a commit sends it to this topic and queue."""
    for name in FORGED:
        pairs.pop(name, None)
    pairs[properties.REAL_TOPIC] = topic
    pairs[properties.REAL_QUEUE_ID] = str(queue_id)
    pairs[properties.TRANSACTION_ID] = unique_key


def root(record: Record) -> int:
    """Returns the root of a half record: the queue offset of its transaction's first half record."""
    named = named_root(record)
    return record.queue_offset if named is None else named


def named_root(record: Record) -> int | None:
    """Returns the root that a copy of a half record names; None: a first record, or Apache made the copy."""
    return number(properties.find(record.properties, properties.TRANSACTION_PREPARED_QUEUE_OFFSET))


def asked(record: Record) -> int:
    """Returns how often producers were asked about a half record (TRANSACTION_CHECK_TIMES)."""
    return number(properties.find(record.properties, properties.TRANSACTION_CHECK_TIMES)) or 0


def number(text: str | None) -> int | None:
    """Returns the text as a number of at most 18 digits; None: it is not one."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


# copies of a half record


def renewed(record: Record, queue: ConsumeQueue, times: int) -> Draft:
    """Returns a copy of a half record that keeps waiting, after producers were asked `times` times."""
    pairs = _pairs(record) | {properties.TRANSACTION_CHECK_TIMES: str(times)}
    return _copy(record, queue, pairs, ~record.physical_offset)


def resumed(record: Record, queue: ConsumeQueue) -> Draft:
    """Returns a copy of an expired half record that waits again, as if no producer had been asked."""
    pairs = record.property_map() | {properties.TRANSACTION_CHECK_TIMES: "0"}
    return _copy(record, queue, pairs, ~record.physical_offset)


def expired(record: Record, queue: ConsumeQueue) -> Draft:
    """Returns the copy of a half record for TRANS_CHECK_MAX_TIME_TOPIC, where an operator can resume it."""
    return _copy(record, queue, _pairs(record), ~record.physical_offset)


def committed(record: Record, pairs: dict[str, str], queue: ConsumeQueue) -> Draft:
    """Returns the message for consumers of a half record. `pairs` are its properties, from `real_pairs`."""
    draft = _copy(record, queue, pairs, record.physical_offset)
    draft.sys_flag = with_transaction_type(record.sys_flag, COMMIT)
    return draft


def real_pairs(record: Record) -> dict[str, str]:
    """Returns the properties of a half record without those that it has only while it waits."""
    pairs = record.property_map()
    for name in (properties.REAL_TOPIC, properties.REAL_QUEUE_ID, *STAMP):
        pairs.pop(name, None)
    return pairs


def is_commit_of(half: Record, message: Record) -> bool:
    """Returns whether `message`, found by the half record's unique key, is its committed message."""
    is_committed = message.sys_flag & TRANSACTION_MASK == COMMIT
    return is_committed and message.born_timestamp == half.born_timestamp


def committed_of_ledger(
    record: Record, queue: ConsumeQueue, times: dict[str, str] | None = None, exact: bytes = b""
) -> Draft:
    """Returns the message for consumers, or for a waiting queue, of a half record that a ledger committed.

    `times`, `exact`: the new time properties of a delayed message. All else stays byte for byte as it was
    sent, so it fits.
    """
    left_out = _WAITING if times is None else _WAITING_WITH_TIMES
    packed = b"\x02".join(
        [pair for pair in record.properties.split(b"\x02") if pair.partition(b"\x01")[0] not in left_out]
    )
    if times is not None:
        packed += properties.pack(times).encode() + exact
    tag = find(packed, _TAGS)
    return Draft(
        queue=queue,
        body=record.body,
        properties=packed,
        flag=record.flag,
        sys_flag=with_transaction_type(record.sys_flag, COMMIT),
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        tags_code=java_hash(tag.decode("utf-8", "replace")) if tag else 0,
        unique_key=find(packed, _UNIQUE_KEY).decode("utf-8", "replace"),
        keys=find(packed, _KEYS).decode("utf-8", "replace"),
        prepared_transaction_offset=record.physical_offset,
        store_host=record.store_host,
    )


def times(record: Record) -> dict[str, str]:
    """Returns the delay and timer properties of a half record; mostly none."""
    if not any(find(record.properties, mark) for mark in _TIMES):
        return {}
    pairs = record.property_map()
    return {name: pairs[name] for name in _NAMES_OF_TIMES if name in pairs}


def in_check(record: Record, topic: str, queue_id: int) -> Record:
    """Returns a half record as a check request shows it: its real topic and queue, but unchanged offsets."""
    return Record(
        topic,
        queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        record.sys_flag & ~TRANSACTION_MASK,
        record.born_timestamp,
        record.born_host,
        record.store_timestamp,
        record.store_host,
        record.reconsume_times,
        0,
        record.body,
        properties.pack(record.property_map() | {properties.WAIT: "false"}).encode(),
    )


def _pairs(record: Record) -> dict[str, str]:
    return record.property_map() | {properties.TRANSACTION_PREPARED_QUEUE_OFFSET: str(root(record))}


def _copy(record: Record, queue: ConsumeQueue, pairs: dict[str, str], origin: int) -> Draft:
    draft = copied(record, queue, pairs)
    draft.prepared_transaction_offset = origin
    draft.store_host = record.store_host
    return draft


# op records


def op(queue: ConsumeQueue, half: int, root: int, decision: HalfDecision, now_ms: int, host: bytes) -> Draft:
    """Returns the op record that closes the half record at queue offset `half`, for the reason `decision`."""
    packed, key = _OP_PROPERTIES[decision.value], ""
    if decision is not HalfDecision.RENEWED:
        key = op_key(root)
        packed += _KEYS + key.encode() + b"\x02"
    return Draft(
        queue=queue,
        body=b"%d" % half,
        properties=packed,
        flag=0,
        sys_flag=0,
        born_timestamp=now_ms,
        born_host=host,
        tags_code=DONE_CODE,
        keys=key,
    )


def op_key(root: int) -> str:
    return f"{OP_KEY.decode()}{root}"


def named_by(record: Record) -> list[int]:
    """Returns the queue offsets of the half records that an op record closes.

    One as in 4.9, or several with commas as in 5.x.
    """
    parts = record.body.decode("ascii", "replace").split(",")
    return [place for part in parts if (place := number(part.strip())) is not None]


def decision_of(record: Record) -> HalfDecision | None:
    """Returns the decision in an op record; None: Apache's broker wrote it, for a commit or a rollback."""
    text = properties.find(record.properties, DECISION)
    return HalfDecision(text) if text in {one.value for one in HalfDecision} else None
