"""Sends, packed faster than a `Command`: what all sends to one queue have in common is packed once.

    head       {"code":310,"extFields":{…,"g":"       by `head_of`, kept by the sender
    the rest   time of birth, properties, flag, opaque

Comes in: the fields of a send. Goes out: a JSON frame that reads exactly as the one of a `Command` with the
same fields (there is a test for that). 1.5 µs a frame of 1 KiB, where a Command takes 4.
"""

from collections.abc import Mapping

import msgspec

from turbopump.protocol.codes import VERSION
from turbopump.protocol.frame import HEAD

_json = msgspec.json.Encoder().encode
_MIDDLE = b'},"flag":%d,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":' + (
    b"%d}" % VERSION
)
_FORMAT = b'%b%d","i":%b' + _MIDDLE
BORN, PROPERTIES = "g", "i"


def head_of(code: int, fields: Mapping[str, str]) -> bytes:
    """The header of sends with these fields, up to the time of birth; born and properties are not in it."""
    assert fields
    assert not {BORN, PROPERTIES} & fields.keys()
    return b'{"code":%d,"extFields":%b,"%b":"' % (int(code), _json(fields)[:-1], BORN.encode())


class Draft:
    """A send that lacks nothing but its number, which the connection gives it."""

    __slots__ = ("body", "born_ms", "code", "head", "properties")

    def __init__(self, code: int, head: bytes, born_ms: int, properties: str, body: bytes) -> None:
        self.code = code
        self.head = head
        self.born_ms = born_ms
        self.properties = properties
        self.body = body

    def frame(self, opaque: int, flag: int = 0) -> bytes:
        body = self.body
        header = _FORMAT % (self.head, self.born_ms, _json(self.properties), flag, opaque)
        length = len(header)
        return b"".join((HEAD.pack(4 + length + len(body), length), header, body))
