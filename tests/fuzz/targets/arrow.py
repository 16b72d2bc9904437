"""Records to Arrow, compared with the codec for single records: the same rows, or the same refusal.

Without PyArrow (extra `arrow`) there is no such target.
"""

import zlib
from collections.abc import Iterator

from tests.fuzz.targets import Target
from tests.fuzz.targets.protocol import PROPERTY_WORDS, record_bytes
from tests.unit.pipelines.reference import expected, expected_for_kafka

from turbopump.protocol import batch, ids, inner, record
from turbopump.protocol.errors import BrokenRecord

try:
    import numpy as np

    from turbopump.pipelines.decode import BatchTooLarge, batches, decode, starts_in
    from turbopump.pipelines.inner_batches import has_inner_batches, unpack
    from turbopump.pipelines.record_positions import locate
    from turbopump.pipelines.schema import COLUMNS, KAFKA_COLUMNS, Schema

    HAS_ARROW = True
except ModuleNotFoundError:
    HAS_ARROW = False

ROWS_PER_BATCH = 3  # few, so that an input has several batches


def arrow(data: bytes) -> None:
    starts = starts_in(data)
    wanted, refused = _one_by_one(data, starts)
    _same_places(data, starts)
    try:
        found = decode(data, starts, Schema(COLUMNS), broker="b")
    except BrokenRecord:
        assert refused, "the codec reads what was refused"
        raise
    assert not refused, "the codec refuses what was read"
    _same_rows([found], [expected(one, "b") for one in wanted])
    parts = batches(data, locate(data, starts), Schema(KAFKA_COLUMNS), None, ROWS_PER_BATCH)
    _same_rows(parts, [expected_for_kafka(one) for one in wanted])
    if has_inner_batches(locate(data, starts)):
        _same_messages(data, starts, wanted)


def _one_by_one(data: bytes, starts: "np.ndarray") -> tuple[list[record.Record], bool]:
    try:
        return [record.decode(data, int(start)) for start in starts], False
    except BrokenRecord:
        return [], True


def _same_places(data: bytes, starts: "np.ndarray") -> None:
    """Checks at every position that both find a whole record or neither does."""
    tried = sorted({0, 1, len(data) // 2, len(data), *(int(at) + 1 for at in starts), *map(int, starts)})
    whole = locate(data, np.array(tried, np.int64)).is_whole
    for at, is_whole in zip(tried, whole, strict=True):
        _, refused = _one_by_one(data, np.array([at]))
        assert bool(is_whole) != refused, f"at {at}"


def _same_messages(data: bytes, starts: "np.ndarray", wanted: list[record.Record]) -> None:
    """Compares inner batches, whose messages are not separate records in the log."""
    apart, begins = unpack(data, starts)
    messages = [record.encode(message) for one in wanted for message in inner.messages_of(one)]
    assert apart == b"".join(messages)
    rows = [expected(record.decode(message), "b") for message in messages]
    _same_rows(batches(apart, locate(apart, begins), Schema(COLUMNS), "b", ROWS_PER_BATCH), rows)


def _same_rows(parts: "Iterator[object] | list[object]", wanted: list[dict[str, object]]) -> None:
    rows: list[dict[str, object]] = []
    for part in parts:
        part.validate(full=True)  # type: ignore[attr-defined]
        rows += part.to_pylist()  # type: ignore[attr-defined]
    assert rows == wanted


def _seeds() -> Iterator[bytes]:
    whole = list(record_bytes())
    yield from whole[::8]
    yield from whole[-9:]
    host = ids.pack_host("10.0.0.1", 1)
    texts = [
        b"TAGS\x01a\x02KEYS\x01k l\x02UNIQ_KEY\x01U\x02",
        b"a\x01b",
        b"a\x01\x02\x01b\x02",
        "名\x01é\x02".encode(),
    ]
    plain = [
        record.Record("T", 0, 0, n, n, 0, 3, host, 4, host, 0, 0, b"x" * n, texts[n % 4]) for n in range(5)
    ]
    yield b"".join(map(record.encode, plain))
    packed = record.Record("T", 0, 0, 5, 6, 1, 3, host, 4, host, 0, 0, zlib.compress(b"b"), texts[0])
    yield b"".join(map(record.encode, [plain[0], packed, plain[1]]))
    body = batch.join([(0, b"m", texts[0]), (1, b"", b"")])
    many = record.Record("T", 0, 0, 7, 8, inner.FLAGS, 3, host, 4, host, 0, 0, body, b"INNER_NUM\x012\x02")
    yield b"".join(map(record.encode, [plain[2], many]))


TARGETS: dict[str, Target] = {}
if HAS_ARROW:
    TARGETS["arrow"] = Target(arrow, _seeds, (BrokenRecord, BatchTooLarge), PROPERTY_WORDS, taste=200)
