"""Packs send requests faster than `Command`: the fields that all sends to one queue share are packed once.

    head       {"code":310,"extFields":{…,"g":"       by `head_of`, kept by the sender
    the rest   born time, properties, ending (further fields, such as a signature), flag, opaque

In: the fields of a send. Out: a JSON frame that decodes exactly as that of a `Command` with the same fields
(a test compares them). 1.5 µs a frame of 1 KiB, where a Command takes 4.
"""

from collections.abc import Mapping

import msgspec

from turbopump.protocol.codes import VERSION
from turbopump.protocol.frame import HEAD

_json = msgspec.json.Encoder().encode
_MIDDLE = b'},"flag":%d,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":' + (
    b"%d}" % VERSION
)
_FORMAT = b'%b%d","i":%b%b' + _MIDDLE
BORN, PROPERTIES = "g", "i"


def head_of(code: int, fields: Mapping[str, str]) -> bytes:
    """Packs the front of the JSON header of sends, up to the born time, with these fields.

    They must not have born time and properties.
    """
    assert fields
    assert not {BORN, PROPERTIES} & fields.keys()
    return b'{"code":%d,"extFields":%b,"%b":"' % (int(code), _json(fields)[:-1], BORN.encode())


def fields_of(head: bytes) -> dict[str, str]:
    """Returns the fields that a head was packed of."""
    found: dict[str, str] = msgspec.json.decode(head + b'"}}')["extFields"]
    del found[BORN]
    return found


class PackedSend:
    """A send request that is complete except for its `opaque`, which the connection assigns."""

    __slots__ = ("body", "born_ms", "code", "ending", "head", "properties")

    def __init__(self, code: int, head: bytes, born_ms: int, properties: str, body: bytes) -> None:
        self.code = code
        self.head = head
        self.born_ms = born_ms
        self.properties = properties
        self.body = body
        self.ending = b""
        """Further header fields, packed as `,"name":"value"`; they are added when the request is signed."""

    def frame(self, opaque: int, flag: int = 0) -> bytes:
        body = self.body
        header = _FORMAT % (self.head, self.born_ms, _json(self.properties), self.ending, flag, opaque)
        length = len(header)
        return b"".join((HEAD.pack(4 + length + len(body), length), header, body))
