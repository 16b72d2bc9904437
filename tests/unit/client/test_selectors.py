import uuid

import pytest

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message, MessageQueue
from turbopump.client.produce.selectors import at_random, by_hash, hash_of
from turbopump.runtime.chance import Chance

QUEUES = tuple(MessageQueue("t", "a", number) for number in range(8))
MESSAGE = Message("t", b"x")

JAVA = [
    ("", 0),
    ("A-1", 64 * 961 + 31 * 45 + 49 + 961),
    ("polygenelubricants", -(1 << 31)),
    ("größe", None),
    (7, 7),
    (-7, -7),
    ((1 << 31) - 1, (1 << 31) - 1),
    (1 << 31, -(1 << 31)),
    ((1 << 32) + 5, 4),
    (-(1 << 40), -(1 << 40) & 0xFFFFFFFF ^ (-(1 << 40) >> 32) & 0xFFFFFFFF),
    (True, 1231),
    (False, 1237),
    (1.5, 1073217536),
    (0.0, 0),
    (-0.0, -(1 << 31)),
    (uuid.UUID("00000000-0000-0001-0000-000000000002"), 3),
    (b"", 1),
    (b"\x01\xff", 31 * 32 - 1),
]
"""Values and what their hashCode() is in Java (bytes: Arrays.hashCode)."""


@pytest.mark.parametrize(("key", "expected"), [pair for pair in JAVA if pair[1] is not None])
def test_keys_hash_as_in_java(key: object, expected: int) -> None:
    assert hash_of(key) == ((expected + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def test_a_negative_hash_takes_the_absolute_value_of_the_remainder() -> None:
    assert by_hash("polygenelubricants")(QUEUES[:7], MESSAGE).id == (1 << 31) % 7
    assert by_hash(-5)(QUEUES, MESSAGE).id == 5
    assert by_hash(-13)(QUEUES, MESSAGE).id == 5


def test_what_has_no_hash_in_java_is_refused_with_advice() -> None:
    for key in (object(), ("a", 1), 1 << 64, None):
        with pytest.raises(InvalidArgument, match="str"):
            by_hash(key)


def test_chance_reaches_every_queue() -> None:
    select = at_random(Chance(1))
    assert {select(QUEUES, MESSAGE) for _ in range(100)} == set(QUEUES)
