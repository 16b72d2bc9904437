"""The property string of a message: name \\x01 value \\x02, repeated.

Releases 4.9.1 to 5.1.4 leave the last \\x02 out. As Apache's reader does, a pair with an empty name or an
empty value is dropped, a value may hold \\x01, and of two pairs with the same name the last counts.
Reading never fails: what is not a pair is skipped, bytes that are not UTF-8 become U+FFFD.
"""

import re
from collections.abc import Mapping
from typing import Final

_INTEGER = re.compile(r"[+-]?[0-9]{1,12}", re.ASCII)

NAME_END: Final = "\x01"
PAIR_END: Final = "\x02"
SEPARATORS: Final = NAME_END + PAIR_END
MAX_BYTES: Final = 32767
"""Greatest size of a packed property string: its length is a signed 16-bit field of the record."""

SECTOR: Final = 512
"""Bytes that a disk writes as a whole or not at all."""

_NULS = bytes(SECTOR)

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
BUYER_ID: Final = "BUYER_ID"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
UNIQUE_KEY: Final = "UNIQ_KEY"
EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
DUP_INFO: Final = "DUP_INFO"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
CLUSTER: Final = "CLUSTER"
MESSAGE_TYPE: Final = "MSG_TYPE"
POP_CK: Final = "POP_CK"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
SHARDING_KEY: Final = "__SHARDINGKEY"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DEL_UNIQUE_KEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
RECORD_CRC: Final = "__CRC32#"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."


def parse(text: str | bytes) -> dict[str, str]:
    """Parses a property string to a dict. About 0.25 µs a pair: on hot paths use `find`."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    pairs: dict[str, str] = {}
    for pair in text.split(PAIR_END):
        name, _, value = pair.partition(NAME_END)
        if name and value:
            pairs[name] = value
    return pairs


def pack(pairs: Mapping[str, str]) -> str:
    """Packs pairs into a string that ends in \\x02. Leaves out pairs that every reader would drop.

    Raises ValueError for a separator inside a name or value, which would be read as other pairs.
    """
    for name, value in pairs.items():
        if NAME_END in name or PAIR_END in name or PAIR_END in value:
            raise ValueError(f"property {name!r} must not contain \\x01 or \\x02")
    return "".join([f"{name}{NAME_END}{value}{PAIR_END}" for name, value in pairs.items() if name and value])


def find(text: str | bytes, name: str) -> str | None:
    """Returns the value of one property, None if absent, without parsing the others: 0.4 µs in 100 bytes."""
    if isinstance(text, bytes):
        return _find_in_bytes(text, name)
    _, found_name, tail = f"\x02{text}".rpartition(f"\x02{name}\x01")
    if not found_name:
        return None
    # An empty pair does not hide an earlier one. This is rare, so only then all pairs are parsed.
    return tail.partition("\x02")[0] or parse(text).get(name)


def append(text: str, name: str, value: str) -> str:
    """Returns the property string with a pair appended; a 4.9 string first gets its missing \\x02."""
    if text and not text.endswith(PAIR_END):
        text += PAIR_END
    return f"{text}{name}{NAME_END}{value}{PAIR_END}"


def without(packed: bytes, mark: bytes) -> bytes:
    """Returns a stored property string without the property whose name and separator are `mark`."""
    at = packed.find(mark)
    if at < 0:
        return packed
    if (at and packed[at - 1 : at] != b"\x02") or packed.find(mark, at + 1) >= 0:
        return b"\x02".join([pair for pair in packed.split(b"\x02") if not pair.startswith(mark)])
    end = packed.find(b"\x02", at)
    return packed[:at] + packed[end + 1 :] if end >= 0 else packed[:at]


def looks_lost(packed: bytes) -> bool:
    """Tells whether a stored string has 512 zeros in a row or ends in a zero: it was probably never written.

    No checksum covers properties. Fewer zeros between other bytes do not count.
    """
    return _NULS in packed or packed.endswith(b"\0")


def number(text: str) -> int | None:
    """Reads an integer of 32 bits as Java does; returns None for other text."""
    if not _INTEGER.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
        return None
    return int(text)


def _find_in_bytes(text: bytes, name: str) -> str | None:
    _, found_name, tail = (b"\x02" + text).rpartition(b"\x02%b\x01" % name.encode())
    if not found_name:
        return None
    return tail.partition(b"\x02")[0].decode("utf-8", "replace") or parse(text).get(name)
