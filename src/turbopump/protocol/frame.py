"""Cuts a byte stream into frames, and packs frames into bytes.

    i32 length        = 4 + header + body, does not count itself
    u8  encoding      0 JSON, 1 ROCKETMQ binary
    u24 header length
    header, body

In: the bytes of a read event. Out: `(encoding, header, body)` tuples, which `command` decodes. Headers are
not decoded here. A frame that can never become valid raises `BrokenFrame` as soon as its first bytes show it,
so a hostile length never makes the caller wait or allocate.
"""

import struct
from typing import TypeAlias

from turbopump.protocol.errors import BrokenFrame

JSON = 0
ROCKETMQ = 1
MAX_FRAME = 16_777_216
"""Bytes of the largest frame, its length field included."""

Frame: TypeAlias = tuple[int, bytes, bytes]
"""(encoding, header, body)"""

HEAD = struct.Struct(">iI")
_LENGTH = struct.Struct(">i")
_HEADER_LENGTH = 0xFFFFFF


def cut(data: bytes, frames: list[Frame], limit: int = MAX_FRAME, at: int = 0) -> int:
    """Appends whole frames of `data` from `at` on to `frames`; returns where they end. Raises BrokenFrame.

    Called for every read event: 0.5 µs a frame, most of it the two slices and the tuple.
    """
    end = len(data)
    largest = limit - 4
    unpack = HEAD.unpack_from
    while end - at >= 8:
        length, mark = unpack(data, at)
        encoding = JSON
        header_length = mark  # the top byte of the mark is 0 in a JSON frame
        if mark > _HEADER_LENGTH:
            encoding, header_length = mark >> 24, mark & _HEADER_LENGTH
        if not 0 < header_length <= length - 4 or length > largest or encoding > ROCKETMQ:
            raise BrokenFrame(_complaint(length, mark, largest))
        after = at + 4 + length
        if after > end:
            return at
        body_at = at + 8 + header_length
        frames.append((encoding, data[at + 8 : body_at], data[body_at:after]))
        at = after
    if end - at >= 4:
        (length,) = _LENGTH.unpack_from(data, at)
        if not 4 <= length <= largest:
            raise BrokenFrame(_complaint(length, 0, largest))
    return at


def pack(encoding: int, header: bytes, body: bytes = b"") -> bytes:
    """Packs one frame. The caller checks the limit; a header of 16 MiB or more cannot be encoded."""
    return prefix(encoding, header, len(body)) + header + body


def prefix(encoding: int, header: bytes, body_length: int) -> bytes:
    """Returns the 8 bytes before the header: frame length, encoding and header length."""
    header_length = len(header)
    assert header_length <= _HEADER_LENGTH, "a header longer than its length field"
    return HEAD.pack(4 + header_length + body_length, encoding << 24 | header_length)


def _complaint(length: int, mark: int, largest: int) -> str:
    if not 4 <= length <= largest:
        return f"frame length {length} is not within 4 and {largest}"
    if mark >> 24 > ROCKETMQ:
        return f"unknown header encoding {mark >> 24}"
    return f"header length {mark & _HEADER_LENGTH} does not fit a frame of length {length}"
