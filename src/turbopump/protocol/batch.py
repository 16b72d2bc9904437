"""The body of a batch send: several messages back to back.

    i32 size (itself included), i32 0, i32 0, i32 flag, i32 length + body, i16 length + properties

Topic and times are in the request. In: a body. Out: (flag, body, properties) of each message, or
`BrokenBody`.
"""

import struct
from collections.abc import Iterable

from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.properties import MAX_BYTES

_HEAD = struct.Struct(">iiiii")
_I16 = struct.Struct(">h")
_MIN_SIZE = _HEAD.size + _I16.size


def split(body: bytes) -> list[tuple[int, bytes, bytes]]:
    """Decodes a batch body to the flag, body and properties of each message. Raises BrokenBody."""
    messages = []
    at = 0
    while at < len(body):
        if at + _MIN_SIZE > len(body):
            raise BrokenBody(f"{len(body) - at} bytes after the last message of a batch")
        size, _, _, flag, body_length = _HEAD.unpack_from(body, at)
        body_at = at + _HEAD.size
        end = at + size
        properties_at = body_at + body_length
        if body_length < 0 or end > len(body) or properties_at + _I16.size > end:
            raise BrokenBody(f"a message of {size} bytes with a body of {body_length} in a batch")
        (properties_length,) = _I16.unpack_from(body, properties_at)
        if properties_length < 0 or properties_at + _I16.size + properties_length != end:
            raise BrokenBody(f"a message of {size} bytes with properties of {properties_length} in a batch")
        messages.append((flag, body[body_at:properties_at], body[properties_at + _I16.size : end]))
        at = end
    return messages


def join(messages: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Encodes messages (flag, body, properties) as a batch body. BrokenBody: properties too long."""
    parts: list[bytes] = []
    for flag, body, properties in messages:
        if len(properties) > MAX_BYTES:
            raise BrokenBody(f"properties of {len(properties)} bytes are too long")
        size = _MIN_SIZE + len(body) + len(properties)
        parts += (_HEAD.pack(size, 0, 0, flag, len(body)), body, _I16.pack(len(properties)), properties)
    return b"".join(parts)
