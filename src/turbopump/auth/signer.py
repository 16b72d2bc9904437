"""Signs requests with one pair of credentials: the `sign` of a remoting client, called before each encoding.

In: a request, whose fields and body do not change any more. Out: the same request with AccessKey,
SecurityToken and Signature. A packed send has most of its fields in a packed head that it shares with others
of its queue; their values are taken from the head once and kept.
"""

from dataclasses import dataclass

import msgspec

from turbopump.auth.signature import (
    SIGNATURE,
    Credentials,
    keyed,
    signature_of,
    values_in_order,
)
from turbopump.protocol.command import Command
from turbopump.protocol.frame import JSON
from turbopump.protocol.packed_send import BORN, PROPERTIES, PackedSend, fields_of

MAX_HEADS = 4096  # one per queue and kind of send, about 500 bytes each; with more, all are made again

_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class HeadValues:
    """Values of a packed head in the order in which they are signed, around those that each send has."""

    before_born: bytes
    before_properties: bytes
    rest: bytes


class Signer:
    """Adds identity and signature to requests, in place. Its text names the access key alone."""

    __slots__ = ("_credentials", "_ending", "_heads", "_key", "_own")

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._own = credentials.fields()
        # Kept here, so that no signature looks for it: 2.8 of 6.7 µs for 1 KiB.
        self._key = keyed(credentials.secret_key)
        packed = b"".join(b',"%b":%b' % (name.encode(), _json(value)) for name, value in self._own.items())
        self._ending = packed.replace(b"%", b"%%") + b',"' + SIGNATURE.encode() + b'":"%b"'
        self._heads: dict[bytes, HeadValues] = {}

    def __repr__(self) -> str:
        return f"Signer({self._credentials.access_key!r})"

    @property
    def credentials(self) -> Credentials:
        return self._credentials

    def __call__(self, request: Command | PackedSend) -> None:
        if isinstance(request, PackedSend):
            values = self._heads.get(request.head) or self._values_of(request.head)
            content = b"".join(
                (
                    values.before_born,
                    b"%d" % request.born_ms,
                    values.before_properties,
                    request.properties.encode(),
                    values.rest,
                    request.body,
                )
            )
            request.ending = self._ending % signature_of(content, self._key)
            return
        # Servers read an empty value of a binary header as null, and sign that as the text `null`.
        ext = {
            name: value for name, value in (request.ext or {}).items() if value or request.encoding == JSON
        }
        ext.update(self._own)
        ext.pop(SIGNATURE, None)
        content = values_in_order(ext).encode() + request.body
        ext[SIGNATURE] = signature_of(content, self._key).decode()
        request.ext = ext

    def _values_of(self, head: bytes) -> HeadValues:
        fields = fields_of(head) | self._own
        parts = {
            BORN: {name: value for name, value in fields.items() if name < BORN},
            PROPERTIES: {name: value for name, value in fields.items() if BORN < name < PROPERTIES},
            "": {name: value for name, value in fields.items() if name > PROPERTIES},
        }
        values = HeadValues(*(values_in_order(part).encode() for part in parts.values()))
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        self._heads[head] = values
        return values
