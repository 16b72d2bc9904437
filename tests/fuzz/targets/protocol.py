"""Decoders of `turbopump.protocol`, seeded from captured frames."""

import struct
import zlib
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import msgspec
from tests.compat.wire import captured
from tests.fuzz.targets import Target

from turbopump.broker.transactions.book.book import GlobalBook
from turbopump.broker.transactions.book.changes import (
    GlobalAppended,
    GlobalClaimed,
    GlobalDecided,
    GlobalForgotten,
    GlobalKept,
    GlobalKeptRecords,
    GlobalOpened,
    GlobalResolved,
    read_global_change,
)
from turbopump.broker.transactions.ledger.ledger import BookDecided, BookOpened, read_change
from turbopump.protocol import (
    batch,
    bodies,
    compression,
    conf,
    dialect,
    global_transactions,
    hashing,
    ids,
    ledger,
    names,
    properties,
    proxy_head,
    record,
)
from turbopump.protocol.command import Command, decode, encode
from turbopump.protocol.errors import BrokenBody, BrokenFrame, BrokenRecord, Refused
from turbopump.protocol.frame import JSON, ROCKETMQ, Frame, cut
from turbopump.protocol.headers.send import SEND_DECODER, SEND_V2_DECODER
from turbopump.protocol.headers.table import REQUESTS, RESPONSES
from turbopump.protocol.sysflag import LZ4, ZLIB, ZSTD

RECORD_CODES = {11, 361, 12, 33, 200050}
HEADERS = sorted({*REQUESTS.values(), *RESPONSES.values()}, key=lambda kind: kind.__name__)
EXPANDED = 1 << 20


def _body_kinds() -> list[type[bodies.Body]]:
    kinds = [bodies.Body]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return sorted({*kinds} - {bodies.Body, bodies.DialectBody}, key=lambda kind: kind.__name__)


BODIES = _body_kinds()


# --- what is run -------------------------------------------------------------------------------------


def frames(data: bytes) -> None:
    """A stream in pieces gives the frames of the whole stream."""
    whole: list[Frame] = []
    used = cut(data, whole)
    assert used == sum(8 + len(header) + len(body) for _, header, body in whole) <= len(data)
    half = len(data) // 2
    pieces: list[Frame] = []
    first = cut(data[:half], pieces)
    assert first + cut(data[first:], pieces) == used
    assert pieces == whole
    for frame in whole:
        _command(frame)


def command_json(data: bytes) -> None:
    _command((JSON, data, b""))
    for decoder in (SEND_V2_DECODER, SEND_DECODER):
        try:
            decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue


def command_binary(data: bytes) -> None:
    _command((ROCKETMQ, data, b""))


def _command(frame: Frame) -> Command:
    command = decode(frame)
    again: list[Frame] = []
    packed = encode(command)
    assert cut(packed, again) == len(packed)
    assert decode(again[0]) == msgspec.structs.replace(command, body=again[0][2])
    return command


def header(data: bytes) -> None:
    """The first byte picks a header, the rest are the values of its fields."""
    kind = HEADERS[data[0] % len(HEADERS)] if data else HEADERS[0]
    values = data[1:].decode("utf-8", "replace").split("\x02")
    found = kind.from_ext(dict(zip(kind.__struct_encode_fields__, values, strict=False)))
    assert kind.from_ext(found.to_ext()) == found


def records(data: bytes) -> None:
    size = record.measure(data, 0, len(data), False)
    checked = record.measure(data, 0, len(data), True)
    assert checked in (size, -1)
    assert size <= len(data)
    for found in record.decode_all(data):
        found.property_map()
        assert len(record.encode(found)) == found.size or "�" in found.topic or found.magic == record.MAGIC_V2
        record.body_of(found)


def property_string(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    pairs = properties.parse(data)
    assert properties.parse(text) == pairs
    for name in (*list(pairs)[:3], "TAGS"):
        assert properties.find(text, name) == pairs.get(name)
        assert properties.find(text.encode(), name) == pairs.get(name)
        assert properties.find(properties.without(text.encode(), name.encode() + b"\x01"), name) is None
    assert properties.parse(properties.pack(pairs)) == pairs


def batches(data: bytes) -> None:
    assert len(batch.join(batch.split(data))) == len(data)


def ledger_body(data: bytes) -> None:
    """The first byte picks the kind of body."""
    read = (ledger.read_entry, ledger.read_book, ledger.read_batches, read_change)[data[0] % 4 if data else 0]
    found = read(data[1:])
    assert read(msgspec.json.encode(found)) == found


def json_dialect(data: bytes) -> None:
    value = dialect.loads(data)
    assert dialect.loads(dialect.dumps(value)) == _without_nulls(value)
    assert dialect.loads(dialect.dumps_pretty(value)) == _without_nulls(value)


def body(data: bytes) -> None:
    """The first byte picks the kind of body."""
    kind = BODIES[data[0] % len(BODIES)] if data else BODIES[0]
    found = kind.decode(data[1:])
    assert kind.decode(found.encode()) == found


def registration(data: bytes) -> None:
    """The first byte picks the version, and whether the rest is the stream or what is inside of it."""
    choice = data[0] if data else 0
    version = 513 if choice & 1 else 407
    stream = data[1:] if choice & 2 else zlib.compress(data[1:], 0)
    found = bodies.RegisterBrokerBody.decode_compressed(stream, version)
    again = bodies.RegisterBrokerBody.decode_compressed(found.encode_compressed(version), version)
    topics = again.topicConfigSerializeWrapper.topicConfigTable
    assert topics.keys() == found.topicConfigSerializeWrapper.topicConfigTable.keys()


def compressed(data: bytes) -> None:
    """The first byte picks the kind of compression."""
    kind = (0, ZLIB, LZ4, ZSTD, 0x400)[data[0] % 5] if data else 0
    assert len(compression.decompress(data[1:], kind, EXPANDED)) <= EXPANDED


def texts(data: bytes) -> None:
    """Ids, names and hashes of arbitrary text."""
    text = data.decode("utf-8", "replace")
    half = len(text) // 2
    assert hashing.extend_hash(hashing.java_hash(text[:half]), text[half:]) == hashing.java_hash(text)
    assert 0 <= hashing.index_hash(text) < 1 << 31
    try:
        names.check_topic(text)
        assert len(text) <= 255
    except Refused:
        pass
    ip, port, offset = ids.parse_offset_id(text)
    assert ids.offset_id(ids.pack_host(ip, port), offset) == text.upper() or ip.startswith("::ffff:")


def configuration(data: bytes) -> None:
    conf.parse_properties(data)


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


# --- what it starts from -----------------------------------------------------------------------------


def _commands() -> Iterator[tuple[bytes, Frame, Command, int | None]]:
    for row in captured():
        found: list[Frame] = []
        try:
            cut(row.data, found)
            for frame in found:
                yield row.data, frame, decode(frame), row.asked
        except BrokenFrame:
            continue


def _streams() -> Iterator[bytes]:
    rows = [row.data for row in captured()]
    yield from rows[::40]
    yield b"".join(rows[:3])
    yield from (row.data for row in captured() if "malformed" in row.about and len(row.data) < 200)


def _json_headers() -> Iterator[bytes]:
    yield from _one_each((frame[1], command.code) for _, frame, command, _ in _commands() if frame[0] == JSON)


def _binary_headers() -> Iterator[bytes]:
    yield from _one_each(
        (frame[1], command.code) for _, frame, command, _ in _commands() if frame[0] == ROCKETMQ
    )
    yield encode(Command(200050, remark="r", ext={"topic": "T", "x": ""}, encoding=ROCKETMQ))[8:]


def _one_each(rows: Iterator[tuple[bytes, int]]) -> list[bytes]:
    """One input of each code is enough to start from."""
    return list({code: data for data, code in rows}.values())


def _header_values() -> Iterator[bytes]:
    for _, _, command, asked in _commands():
        kind = RESPONSES.get(asked or 0) if command.is_response else REQUESTS.get(command.code)
        if kind is not None and command.ext:
            values = [command.ext.get(name, "") for name in kind.__struct_encode_fields__]
            yield bytes([HEADERS.index(kind)]) + "\x02".join(values).encode()


def record_bytes() -> Iterator[bytes]:
    for _, _, command, asked in _commands():
        if command.is_response and command.code == 0 and asked in RECORD_CODES and command.body:
            yield command.body
    hosts = [ids.pack_host("10.0.0.1", 1), ids.pack_host("::1", 2)]
    for born in hosts:
        for stored in hosts:
            for topic in ("T", "x" * 200):
                yield record.encode(
                    record.Record(
                        topic, 0, 0, 1, 2, 1, 3, born, 4, stored, 0, 0, zlib.compress(b"b"), b"A\x01b\x02"
                    )
                )
    yield struct.pack(">ii", 100, record.BLANK)


def _property_strings() -> Iterator[bytes]:
    for _, _, command, _ in _commands():
        if command.code in (310, 10) and command.ext and not command.is_response:
            yield (command.ext.get("i") or command.ext.get("properties") or "").encode()


def _batches() -> Iterator[bytes]:
    yield from (command.body for _, _, command, _ in _commands() if command.code == 320 and command.body)
    yield batch.join([(0, b"a", b"A\x01b\x02"), (1, b"", b"")])


def global_body(data: bytes) -> None:
    """The first byte picks the kind of body."""
    kinds = (
        global_transactions.read_transaction,
        global_transactions.read_transactions,
        global_transactions.read_records,
        read_global_change,
    )
    read = kinds[data[0] % 4 if data else 0]
    found = read(data[1:])
    assert read(msgspec.json.encode(found)) == found


def global_book(data: bytes) -> None:
    """Each line is a stored change; snapshots of all transactions make the same book again."""
    book = GlobalBook()
    for line in data.splitlines():
        book.apply(read_global_change(line))
    again = GlobalBook()
    for gid in book.transactions:
        for change in book.snapshot(gid):
            again.apply(read_global_change(msgspec.json.encode(change)))
    assert again.transactions == book.transactions
    assert (
        again.open_count == book.open_count == sum(one.state != "ended" for one in book.transactions.values())
    )
    assert again.next_due() == book.next_due()


def _global_changes() -> Iterator[bytes]:
    kind, record = (
        global_transactions.GlobalKind.XA,
        global_transactions.GlobalRecord("prepared", "icbc"),
    )
    commit, ended = global_transactions.GlobalDecision.COMMIT, global_transactions.GlobalState.ENDED
    changes = [
        GlobalOpened(1, "gid", "bank", kind, "tm", 2, 3, "{}"),
        GlobalClaimed(2, "gid", "other", 2, 9),
        GlobalDecided(2, "gid", "bank", kind, commit, "tm", ("icbc",)),
        GlobalResolved(3, "gid", record),
        GlobalAppended(4, "gid", (record,), 5, ended, "committed"),
        GlobalDecided(4, "other", "bank", kind, commit, "tm", deadline_ms=9),
    ]
    yield b"\n".join(map(msgspec.json.encode, changes))


def _global_bodies() -> Iterator[bytes]:
    kind, record = (
        global_transactions.GlobalKind.TCC,
        global_transactions.GlobalRecord("tried", "debit", "1", 5),
    )
    known = global_transactions.GlobalTransaction("gid", "bank", kind, plan="{}", records=[record])
    changes = [GlobalKept(known), GlobalKeptRecords("gid", 0, (record,)), GlobalForgotten("gid")]
    rows: list[tuple[int, Any]] = [(0, known), (1, [known]), (2, [record]), *((3, one) for one in changes)]
    yield from (bytes((kind,)) + msgspec.json.encode(value) for kind, value in rows)


def _ledger_bodies() -> Iterator[bytes]:
    entry = ledger.LedgerEntry(("a", "b"), ("broker-a",))
    book = ledger.Book("broker-a", "r2", ["r1"], 7, 6, {7: entry}, ["broker-a"])
    changes = [BookOpened("id", "r", "broker-a"), BookDecided("id", 7, entry, 6)]
    rows = [(0, entry), (1, book), (2, [1, 2]), *((3, change) for change in changes)]
    yield from (bytes((kind,)) + msgspec.json.encode(value) for kind, value in rows)


def _json_bodies() -> list[bytes]:
    rows = (
        (command.body, asked or 0) for _, _, command, asked in _commands() if command.body[:1] in (b"{", b"[")
    )
    return _one_each(rows)


def _bodies() -> Iterator[bytes]:
    for data in _json_bodies():
        for number, kind in enumerate(BODIES):
            try:
                found = kind.decode(data)
            except BrokenBody:
                continue
            if found != kind.decode(b"{}"):
                yield bytes([number]) + data


def _registrations() -> Iterator[bytes]:
    for _, _, command, _ in _commands():
        if command.code == 103 and not command.is_response and command.body:
            found = bodies.RegisterBrokerBody.decode(command.body)
            for choice, version in ((0, 407), (1, 513)):
                yield bytes([choice]) + zlib.decompress(found.encode_compressed(version))
                yield bytes([choice | 2]) + found.encode_compressed(version)


def _compressed() -> Iterator[bytes]:
    for number, kind in ((1, ZLIB), (2, LZ4), (3, ZSTD)):
        for data in (b"", b"hello" * 50, bytes(2 * EXPANDED)):
            yield bytes([number]) + compression.compress(data, kind)


JSON_WORDS = (
    *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"null", b"true", b"-1", b"1e999", b"9" * 25, b"\xff"),
    *(b'{"":1}', b"{0:1}", b"{{}:1}", b"\\u0001", b"\\ud83d", b'"code"', b'"extFields"', b'"opaque"'),
)
PROPERTY_WORDS = (b"\x01", b"\x02", b"TAGS\x01", b"KEYS\x01", b"UNIQ_KEY\x01", b"\x02\x02", b"\xc3")


def proxy_heads(data: bytes) -> None:
    """A head is read the same whatever follows it, and as nothing while its end has not come."""
    if not proxy_head.may_be_head(data):
        return
    head = proxy_head.read_head(data)
    if head is None:
        return
    assert 0 < head.size <= len(data)
    assert proxy_head.read_head(data[: head.size] + b"more") == head
    for at in (head.size // 2, head.size - 1):
        assert at == 0 or proxy_head.read_head(data[:at]) is None
    if head.client is not None:
        ip_address(head.client[0])
        assert 0 <= head.client[1] <= 65_535


def _proxy_heads() -> Iterator[bytes]:
    yield b"PROXY TCP4 10.1.2.3 10.0.0.5 51234 10911\r\n\0\0\0\x10"
    yield b"PROXY TCP6 2001:db8::7 ::1 0 65535\r\n"
    yield b"PROXY UNKNOWN\r\n"
    four = bytes((10, 1, 2, 3, 10, 0, 0, 5, 0, 1, 0, 2))
    yield proxy_head.SIGNATURE + b"\x21\x11\x00\x0c" + four
    yield proxy_head.SIGNATURE + b"\x21\x11\x00\x10" + four + b"\x03\x00\x01a"
    yield proxy_head.SIGNATURE + b"\x21\x21\x00\x24" + bytes(36)
    yield proxy_head.SIGNATURE + b"\x20\x00\x00\x00"


TARGETS = {
    "proxy-heads": Target(
        proxy_heads,
        _proxy_heads,
        (BrokenFrame,),
        (proxy_head.SIGNATURE, b"TCP4", b"TCP6", b"UNKNOWN", b"\r\n"),
    ),
    "frames": Target(frames, _streams, (BrokenFrame,)),
    "command-json": Target(command_json, _json_headers, (BrokenFrame,), JSON_WORDS),
    "command-binary": Target(command_binary, _binary_headers, (BrokenFrame,)),
    "header": Target(header, _header_values, (Refused,), (b"\x02", b"true", b"-1", b"null", b"9" * 20)),
    "record": Target(records, record_bytes, (BrokenRecord, BrokenBody)),
    "properties": Target(property_string, _property_strings, (), PROPERTY_WORDS),
    "batch": Target(batches, _batches, (BrokenBody,)),
    "ledger": Target(ledger_body, _ledger_bodies, (BrokenBody,), JSON_WORDS),
    "global-book": Target(global_book, _global_changes, (BrokenBody,), JSON_WORDS),
    "global-transactions": Target(global_body, _global_bodies, (BrokenBody,), JSON_WORDS),
    "dialect": Target(json_dialect, _json_bodies, (BrokenBody,), JSON_WORDS),
    "body": Target(body, _bodies, (BrokenBody,), JSON_WORDS),
    "registration": Target(registration, _registrations, (BrokenBody,), JSON_WORDS),
    "compression": Target(compressed, _compressed, (BrokenBody,)),
    "texts": Target(texts, _property_strings, (Refused,), (b"7F000001000078BF00000000000009E9", b"%RETRY%")),
    "configuration": Target(
        configuration, lambda: [b"a=b\n#c\nlong \\\n  line=x\\u0041\n"], (conf.ConfigError,)
    ),
}
