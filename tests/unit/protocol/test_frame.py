import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocol.kit import relaxed

from turbopump.protocol.errors import BrokenFrame
from turbopump.protocol.frame import JSON, MAX_FRAME, ROCKETMQ, Frame, cut, pack

frames = st.tuples(
    st.sampled_from([JSON, ROCKETMQ]), st.binary(min_size=1, max_size=200), st.binary(max_size=200)
)


def cut_all(data: bytes, limit: int = MAX_FRAME) -> tuple[int, list[Frame]]:
    found: list[Frame] = []
    return cut(data, found, limit), found


@given(st.lists(frames, max_size=8), st.binary(max_size=7))
@relaxed
def test_packed_frames_are_cut_again_and_the_rest_is_left(wanted: list[Frame], rest: bytes) -> None:
    data = b"".join(pack(*frame) for frame in wanted)
    unfinished = pack(JSON, b"{}", b"never whole")[: len(rest)]
    assert cut_all(data + unfinished) == (len(data), wanted)


@given(frames, st.data())
@relaxed
def test_a_frame_that_arrives_in_two_pieces_waits_for_the_second(frame: Frame, data: st.DataObject) -> None:
    packed = pack(*frame)
    at = data.draw(st.integers(0, len(packed) - 1))
    assert cut_all(packed[:at]) == (0, [])
    assert cut_all(packed) == (len(packed), [frame])


@given(st.binary(max_size=60))
@relaxed
def test_arbitrary_bytes_give_frames_or_are_broken(data: bytes) -> None:
    try:
        used, found = cut_all(data)
    except BrokenFrame:
        return
    assert used == sum(8 + len(header) + len(body) for _, header, body in found) <= len(data)


def test_the_largest_frame_is_16_mib_with_its_length_field() -> None:
    largest = pack(JSON, b"{}", bytes(MAX_FRAME - 8 - 2))
    assert len(largest) == MAX_FRAME
    assert cut_all(largest)[0] == MAX_FRAME
    with pytest.raises(BrokenFrame, match="length 16777213"):
        cut_all(struct.pack(">iI", MAX_FRAME - 3, 2))


def test_a_limit_of_ones_own_is_kept_on_both_sides() -> None:
    assert cut_all(pack(JSON, b"{}", b"x" * 90), limit=100)[0] == 100
    with pytest.raises(BrokenFrame):
        cut_all(pack(JSON, b"{}", b"x" * 91), limit=100)


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 3])
def test_a_length_below_four_is_broken(length: int) -> None:
    with pytest.raises(BrokenFrame):
        cut_all(struct.pack(">i", length) + b"\0\0\0\1{")
    with pytest.raises(BrokenFrame):
        cut_all(struct.pack(">i", length))  # known from its first four bytes


@pytest.mark.parametrize(
    ("length", "header_length", "broken"), [(4, 0, True), (5, 0, True), (5, 1, False), (5, 2, True)]
)
def test_a_header_has_at_least_a_byte_and_ends_within_its_frame(
    length: int, header_length: int, broken: bool
) -> None:
    data = struct.pack(">iI", length, header_length) + b"x"
    if broken:
        with pytest.raises(BrokenFrame):
            cut_all(data)
    else:
        assert cut_all(data) == (9, [(JSON, b"x", b"")])


def test_a_bad_header_length_shows_before_the_frame_is_whole() -> None:
    with pytest.raises(BrokenFrame, match="header length 100"):
        cut_all(struct.pack(">iI", 10, 100))


@pytest.mark.parametrize("encoding", [2, 7, 255])
def test_an_unknown_encoding_is_broken(encoding: int) -> None:
    with pytest.raises(BrokenFrame, match=f"encoding {encoding}"):
        cut_all(struct.pack(">iI", 6, encoding << 24 | 2) + b"{}")


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b"PROXY TCP4 1.2.3.4"])
def test_other_protocols_are_broken_at_once(data: bytes) -> None:
    with pytest.raises(BrokenFrame):
        cut_all(data)


def test_whole_frames_before_a_broken_one_are_handed_out() -> None:
    found: list[Frame] = []
    with pytest.raises(BrokenFrame):
        cut(pack(JSON, b"{}") + b"\xff\xff\xff\xff\0\0\0\0", found)
    assert found == [(JSON, b"{}", b"")]
