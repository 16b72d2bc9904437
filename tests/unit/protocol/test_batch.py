import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocol.kit import readable, relaxed

from turbopump.protocol.batch import join, split
from turbopump.protocol.errors import BrokenBody

i32 = st.integers(-(1 << 31), (1 << 31) - 1)


@given(st.lists(st.tuples(i32, st.binary(max_size=50), st.binary(max_size=50)), max_size=6))
@relaxed
def test_batches_come_back(messages: list[tuple[int, bytes, bytes]]) -> None:
    assert split(join(messages)) == messages


@given(st.binary(max_size=80))
@relaxed
def test_arbitrary_bytes_are_a_batch_or_broken(data: bytes) -> None:
    with contextlib.suppress(BrokenBody):
        assert len(join(split(data))) == len(data)


def test_captured_batches_are_written_again_byte_for_byte() -> None:
    seen = 0
    for row, _, command in readable():
        if row.by_java and command.code == 320 and not command.is_response:
            messages = split(command.body)
            assert join(messages) == command.body
            assert all(b"UNIQ_KEY" in properties for _, _, properties in messages)
            seen += 1
    assert seen


def one(size: int = 0, body_length: int = 2, properties_length: int = 1) -> bytes:
    data = (
        struct.pack(">iiiii", 25, 0, 0, 0, body_length) + b"hi" + struct.pack(">h", properties_length) + b"p"
    )
    return struct.pack(">i", size) + data[4:] if size else data


def test_a_message_has_22_bytes_of_its_own() -> None:
    assert split(one()) == [(0, b"hi", b"p")]
    assert split(join([(0, b"", b"")])) == [(0, b"", b"")]
    assert len(join([(0, b"", b"")])) == 22


@pytest.mark.parametrize(
    "data",
    [
        one()[:-1],
        one() + b"x",
        one(size=24),
        one(size=26),
        one(size=-1),
        one(size=1 << 30),
        one(body_length=-1),
        one(body_length=3),
        one(body_length=1 << 30),
        one(properties_length=0),
        one(properties_length=-1),
        one(properties_length=2),
        b"\0" * 22,
    ],
)
def test_a_batch_that_does_not_add_up_is_broken(data: bytes) -> None:
    with pytest.raises(BrokenBody):
        split(data)


@pytest.mark.parametrize(("length", "fits"), [(32767, True), (32768, False)])
def test_properties_in_a_batch_have_at_most_32767_bytes(length: int, fits: bool) -> None:
    messages = [(0, b"", b"x" * length)]
    if fits:
        assert split(join(messages)) == messages
    else:
        with pytest.raises(BrokenBody):
            join(messages)
