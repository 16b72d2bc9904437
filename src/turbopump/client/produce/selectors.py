"""Selectors: functions that choose the queue of a message.

A selector gets the topic's queues, in the order in which every client sees them, and the message, and returns
one of the queues. `by_hash` picks what a Java producer picks with SelectMessageQueueByHash and the same key.
"""

import math
import struct
import uuid
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message, MessageQueue
from turbopump.protocol.hashing import java_hash

Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message], MessageQueue]

_I32_SIGN = 1 << 31
_U32 = 0xFFFFFFFF
_U64 = 0xFFFFFFFFFFFFFFFF


def by_hash(key: object) -> Selector:
    """Returns a selector that always picks the queue that belongs to `key`, by Java's hash of the key.

    The key is text, a whole number, a float, a bool, bytes or a UUID.
    """
    h = abs(hash_of(key))
    return lambda queues, message: queues[h % len(queues)]


def at_random(chance: Random | None = None) -> Selector:
    """Returns a selector that picks any queue, each with the same probability."""
    choose = (chance or Random()).choice
    return lambda queues, message: choose(queues)


def hash_of(key: object) -> int:
    """Returns Java's `hashCode()` of a value, signed 32 bits. InvalidArgument for an unsupported type.

    A whole number is an Integer when it fits in one, else a Long; bytes are hashed as Arrays.hashCode does.
    """
    match key:
        case str():
            return java_hash(key)
        case bool():
            return 1231 if key else 1237
        case int() if -_I32_SIGN <= key < _I32_SIGN:
            return key
        case int() if -(1 << 63) <= key < 1 << 63:
            return _fold(key)
        case uuid.UUID():
            return _fold((key.int >> 64) ^ key.int)
        case float():
            return _fold(struct.unpack(">q", struct.pack(">d", key if key == key else math.nan))[0])
        case bytes():
            return _bytes_hash(key)
    raise InvalidArgument(
        f"by must be text, an integer of 64 bits, a float, bytes or a UUID, got {key!r}: write by=str(key)"
    )


def _fold(value: int) -> int:
    """Folds 64 bits into 32 by exclusive or of both halves, as Java does."""
    value &= _U64
    return _signed(value >> 32 ^ value)


def _bytes_hash(data: bytes) -> int:
    h = 1
    for byte in data:
        h = 31 * h + (byte - 256 if byte > 127 else byte) & _U32
    return _signed(h)


def _signed(value: int) -> int:
    return ((value + _I32_SIGN) & _U32) - _I32_SIGN
