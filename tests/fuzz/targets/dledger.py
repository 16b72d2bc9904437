"""Bodies of DLedger's requests and answers, and entries as they lie on disk, seeded from captured ones."""

from __future__ import annotations

from collections.abc import Iterator

from tests.compat.dledger import exchanges
from tests.fuzz.targets import Target

from turbopump.protocol.dledger import entry as entries
from turbopump.protocol.dledger.messages import REQUESTS, PushRequestBody, decode_answer, decode_request
from turbopump.protocol.errors import BrokenBody, BrokenRecord

CODES = tuple(REQUESTS)


def bodies(data: bytes) -> None:
    """A body that can be read comes back. The first byte chooses request code and direction."""
    number = data[0] if data else 0
    code = CODES[number % len(CODES)]
    decode = decode_answer if number & 128 else decode_request
    read = decode(code, data[1:])
    assert decode(code, read.encode()) == read


def disk_entries(data: bytes) -> None:
    """An entry that can be read is packed to the bytes it was read from, but for an unknown checksum."""
    read = entries.read_entry(data, 0, len(data))
    packed = entries.pack_entry(read)
    assert packed[:40] == data[:40]
    assert packed[44:] == data[44 : len(packed)]
    assert read.bodyCrc == 0 or packed[40:44] == data[40:44]


def body_seeds() -> Iterator[bytes]:
    seen = set()
    for one in exchanges():
        kind = one.code, one.push_type, one.answer_code
        if kind not in seen:
            seen.add(kind)
            yield bytes((CODES.index(one.code),)) + one.request_body
            yield bytes((CODES.index(one.code) + 128,)) + one.answer_body


def entry_seeds() -> Iterator[bytes]:
    for one in exchanges()[:20]:
        request = decode_request(one.code, one.request_body)
        for entry in request.entries if isinstance(request, PushRequestBody) else ():
            yield entries.pack_entry(entry)
            yield entries.pack_entry(entry)[:40] + bytes(4) + entries.pack_entry(entry)[44:]


TARGETS = {
    "dledger-bodies": Target(bodies, body_seeds, (BrokenBody,), (b'"batchEntry":[', b'"entry":{', b"null")),
    "dledger-entries": Target(
        disk_entries, entry_seeds, (BrokenRecord,), (b"\xff" * 4, b"\0\0\0\1", bytes(8))
    ),
}
