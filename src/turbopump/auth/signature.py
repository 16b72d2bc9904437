"""Signatures of requests: what is signed, with which key, and whether a received signature is right.

    content      the values of all ext fields but `Signature`, in the order of their names, then the body
    Signature    base64 of HMAC-SHA1(secret, content), 28 characters

AccessKey and, if there is one, SecurityToken are ext fields and so part of the content. Code, opaque, names
of fields and their boundaries are not signed: whoever can read a connection can send a request again, or its
fields under another code. Only TLS prevents that.
"""

import base64
import hmac
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from turbopump.protocol.command import Command
from turbopump.protocol.frame import JSON

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
ZONE_FIELDS = ("__ZONE_NAME", "__ZONE_MODE")

LEFT_OUT: tuple[Collection[str], ...] = (
    (),
    (UNIQUE_KEY_QUERY,),  # of clients up to 4.9.3, which add it after they have signed
    (SECURITY_TOKEN,),  # of Go's client
    ZONE_FIELDS,  # added after the signature by clients that know their zone
)
"""Fields that some client sends without signing them; each set is tried until the signature is right."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Name and secret with which a client signs its requests. Neither secret is part of its text."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def fields(self) -> dict[str, str]:
        """Returns the ext fields that say who signs: AccessKey, and SecurityToken if there is one."""
        token = {SECURITY_TOKEN: self.security_token} if self.security_token else {}
        return {ACCESS_KEY: self.access_key, **token}

    def signed(self, ext: Mapping[str, str] | None, body: bytes) -> dict[str, str]:
        """Returns ext fields with AccessKey, SecurityToken and Signature, replacing those that were there."""
        fields = {name: value for name, value in (ext or {}).items() if name != SIGNATURE} | self.fields()
        fields[SIGNATURE] = sign(fields, body, self.secret_key)
        return fields


def sign(fields: Mapping[str, str], body: bytes, secret: str) -> str:
    """Returns the signature of ext fields and body; a field `Signature` among them does not count."""
    return _signature(_content(fields, body, (SIGNATURE,)), secret)


def is_signed_by(command: Command, secrets: Iterable[str]) -> bool:
    """Returns whether a request has a signature made with one of the secrets, in any accepted variant."""
    ext = command.ext or {}
    given = ext.get(SIGNATURE)
    if given is None:
        return False
    secrets = tuple(secrets)
    for content in _contents(command, ext):
        for secret in secrets:
            if hmac.compare_digest(_signature(content, secret).encode(), given.encode()):
                return True
    return False


def _contents(command: Command, ext: Mapping[str, str]) -> Iterator[bytes]:
    """Yields the contents that clients sign for such a request, the usual one first, each once.

    An empty value of a binary header is null to Java's servers, which add the text `null` for it, and nothing
    to those who sign.
    """
    empty = [name for name, value in ext.items() if value == ""] if command.encoding != JSON else []
    for left_out in LEFT_OUT:
        if left_out and not any(name in ext for name in left_out):
            continue
        yield _content(ext, command.body, (SIGNATURE, *left_out))
        if empty:
            yield _content({**ext, **dict.fromkeys(empty, "null")}, command.body, (SIGNATURE, *left_out))


def _content(fields: Mapping[str, str], body: bytes, without: Collection[str]) -> bytes:
    return values_in_order(fields, without).encode() + body


def values_in_order(fields: Mapping[str, str], without: Collection[str] = ()) -> str:
    """Returns the values of fields, joined in the order of their names: the signed text of a header."""
    names = sorted(fields, key=_utf16) if not "".join(fields).isascii() else sorted(fields)
    return "".join([fields[name] for name in names if name not in without])


def _utf16(name: str) -> bytes:
    """Returns a sort key: Java orders texts by UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


def _signature(content: bytes, secret: str) -> str:
    return base64.b64encode(hmac.digest(secret.encode(), content, "sha1")).decode()
