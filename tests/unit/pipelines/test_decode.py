"""Records into Arrow: what comes out is what the client's decoder reads, row by row, whatever the bytes."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pipelines.reference import expected, expected_for_kafka

from turbopump.pipelines import decode as module
from turbopump.pipelines.decode import batches, decode, starts_in
from turbopump.pipelines.record_positions import locate
from turbopump.pipelines.schema import COLUMNS, KAFKA_COLUMNS, Schema, schema_of
from turbopump.protocol import record as codec
from turbopump.protocol.compression import compress
from turbopump.protocol.errors import BrokenRecord
from turbopump.protocol.ids import pack_host
from turbopump.protocol.record import BLANK, BLANK_HEAD, Record
from turbopump.protocol.sysflag import COMPRESSED, LZ4, ZLIB, ZSTD

ALL = Schema(COLUMNS)
KAFKA = Schema(KAFKA_COLUMNS)
V4 = pack_host("10.1.2.3", 10911)
V6 = pack_host("2001:db8::1", 10911)


def record(**changes: object) -> Record:
    plain = {
        "topic": "T", "queue_id": 1, "flag": 2, "queue_offset": 3, "physical_offset": 4, "sys_flag": 0,
        "born_timestamp": 1_700_000_000_123, "born_host": V4, "store_timestamp": 1_700_000_000_456,
        "store_host": V4, "body": b"body", "properties": b"TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01U1\x02",
    }  # fmt: skip
    return Record(**{**plain, **changes})


def stored(records: list[Record]) -> bytes:
    return b"".join(codec.encode(one) for one in records)


def rows(data: bytes, schema: Schema = ALL, broker: str | None = None) -> list[dict]:
    batch = decode(data, starts_in(data), schema, broker=broker)
    assert batch.schema == schema.arrow
    batch.validate(full=True)
    return batch.to_pylist()


def check(data: bytes) -> None:
    found = [codec.decode(data, int(start)) for start in starts_in(data)]
    assert rows(data, broker="b") == [expected(one, "b") for one in found]
    assert rows(data, KAFKA) == [expected_for_kafka(one) for one in found]


# any record

I32, I64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TIMES = st.one_of(I64, st.integers(0, 2 * 10**12))
NAMES = st.sampled_from(
    ["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "a", "TAGSX", "a-name-of-more-than-eight-1", "名"]
)
VALUES = st.one_of(
    st.text(max_size=12), st.sampled_from(["true", "x y", " x", "  ", "\x01", "a\x01b", "\x00"])
)
WELL_FORMED = st.lists(st.tuples(NAMES, VALUES), max_size=6).map(
    lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode("utf-8", "replace")
)
PROPERTIES = st.one_of(
    WELL_FORMED,
    WELL_FORMED.map(lambda text: text + b"\x02"),
    st.binary(max_size=40),
    st.lists(
        st.sampled_from([b"\x01", b"\x02", b"TAGS", b"KEYS", b"a", b"\xff", b"\xe5", b"\x00"]), max_size=12
    ).map(b"".join),
)
BODIES = st.one_of(
    st.tuples(st.just(0), st.binary(max_size=40)),
    st.binary(max_size=40).map(lambda body: (COMPRESSED | ZLIB, compress(body))),
    st.binary(max_size=40).map(lambda body: (COMPRESSED, compress(body))),
    st.binary(max_size=40).map(lambda body: (COMPRESSED | LZ4, compress(body, LZ4))),
    st.binary(max_size=40).map(lambda body: (COMPRESSED | ZSTD, compress(body, ZSTD))),
    st.tuples(st.sampled_from([COMPRESSED, COMPRESSED | ZSTD, COMPRESSED | 0x700]), st.binary(max_size=9)),
)
HOSTS = st.one_of(
    st.just(V4), st.just(V6), st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20)
)
RECORDS = st.builds(
    lambda body, **others: Record(sys_flag=body[0], body=body[1], **others),
    BODIES,
    topic=st.one_of(st.just("T"), st.text(max_size=30), st.just("%RETRY%" + "g" * 200)),
    queue_id=I32,
    flag=I32,
    queue_offset=I64,
    physical_offset=I64,
    born_timestamp=TIMES,
    born_host=HOSTS,
    store_timestamp=TIMES,
    store_host=HOSTS,
    reconsume_times=I32,
    properties=PROPERTIES,
)


@given(st.lists(RECORDS, max_size=8))
def test_columns_are_what_the_clients_decoder_reads_row_by_row(records):
    check(stored(records))


@given(st.lists(PROPERTIES, min_size=1, max_size=12))
def test_properties_of_any_shape_are_read_as_the_client_reads_them(strings):
    check(stored([record(properties=text) for text in strings]))


@given(st.binary(max_size=400), st.lists(RECORDS, max_size=2), st.integers(0, 400))
def test_bytes_that_are_no_records_are_refused_and_never_read_beyond(noise, records, at):
    data = bytearray(stored(records))
    data[at : at + len(noise)] = noise
    starts = np.arange(len(data), dtype=np.int64)
    for start, is_whole in zip(starts, locate(data, starts).is_whole, strict=True):
        try:
            codec.decode(data, int(start))
        except BrokenRecord:
            assert not is_whole
        else:
            assert is_whole


# single things


def test_a_record_as_a_row():
    (row,) = rows(stored([record()]), schema_of(), "broker-a")
    assert (row["topic"], row["brokerName"], row["queueId"], row["queueOffset"]) == ("T", "broker-a", 1, 3)
    assert (row["msgId"], row["tags"], row["keys"], row["body"]) == ("U1", "a", "k1 k2", b"body")
    assert row["storeTimestamp"] == datetime(2023, 11, 14, 22, 13, 20, 456000, UTC)


def test_no_records_make_a_batch_without_rows():
    assert rows(b"") == rows(b"", KAFKA) == []


def test_only_what_is_asked_for_is_read(monkeypatch):
    monkeypatch.setitem(module.READ, "properties", None)
    assert rows(stored([record()]), schema_of(["queueOffset"])) == [{"queueOffset": 3}]


def test_a_string_whose_last_pair_is_open_takes_the_short_way(monkeypatch):
    monkeypatch.setattr("turbopump.pipelines.property_columns.parse", None)
    data = stored([record(properties=b"TAGS\x01a\x02UNIQ_KEY\x01U"), record(properties=b""), record()])
    assert [row["properties"] for row in rows(data)] == [
        [("TAGS", "a"), ("UNIQ_KEY", "U")],
        [],
        [("TAGS", "a"), ("KEYS", "k1 k2"), ("UNIQ_KEY", "U1")],
    ]


def test_text_beyond_ascii_takes_the_short_way(monkeypatch):
    monkeypatch.setattr("turbopump.pipelines.property_columns.parse", None)
    (row,) = rows(stored([record(properties="TAGS\x01订单\x02".encode())]))
    assert row["tags"] == "订单"


def test_times_that_no_calendar_has_are_null():
    born = [row["bornTimestamp"] for row in rows(stored([record(born_timestamp=2**62), record()]))]
    assert born[0] is None
    assert born[1] is not None


def test_a_compressed_body_that_cannot_be_read_is_null_and_its_neighbours_are_not():
    data = stored(
        [record(), record(sys_flag=COMPRESSED, body=b"?"), record(sys_flag=COMPRESSED, body=compress(b"c"))]
    )
    assert [row["body"] for row in rows(data)] == [b"body", None, b"c"]


def test_bodies_that_would_make_a_batch_too_large_come_in_more_batches(monkeypatch):
    monkeypatch.setattr(module, "MAX_EXPANDED_BATCH", 5000)
    data = stored([record(sys_flag=COMPRESSED, body=compress(bytes([n]) * 2000)) for n in range(7)])
    found = list(batches(data, locate(data, starts_in(data)), schema_of(["body"]), None, 100))
    assert [body[0] for batch in found for body in batch.column(0).to_pylist()] == list(range(7))
    assert max(batch.num_rows for batch in found) == 2
    monkeypatch.setattr(module, "MAX_EXPANDED_BATCH", 500)
    found = list(batches(data, locate(data, starts_in(data)), schema_of(["body"]), None, 100))
    assert [batch.num_rows for batch in found] == [1] * 7


def test_a_body_of_four_mebibytes():
    (row,) = rows(stored([record(body=bytes(4 << 20))]), schema_of(["body"]))
    assert row["body"] == bytes(4 << 20)


def test_a_walk_passes_over_the_blank_that_ends_a_file_and_stops_at_what_is_torn():
    one, blank = codec.encode(record()), BLANK_HEAD.pack(20, BLANK) + bytes(12)
    assert starts_in(one + blank + one).tolist() == [0, len(one) + 20]
    assert starts_in(one + one[:-1]).tolist() == [0]
    assert starts_in(one + bytes(500)).tolist() == [0]
    assert starts_in(one + BLANK_HEAD.pack(0, BLANK) + one).tolist() == [0]
    assert starts_in(one + one, len(one)).tolist() == [len(one)]
    assert starts_in(one + one, end=len(one) + 1).tolist() == [0]


def test_a_record_that_is_not_whole_is_refused():
    data = codec.encode(record())
    with pytest.raises(BrokenRecord, match="no complete record at byte 1"):
        decode(data, np.array([1]), ALL)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind):
    data = stored([record()] * 3)
    assert decode(kind(data), starts_in(kind(data)), ALL) == decode(data, starts_in(data), ALL)


def test_every_column_of_the_schema_can_be_read():
    assert {column.name for column in (*COLUMNS, *KAFKA_COLUMNS)} == set(module.READ)
    assert pa.RecordBatch.from_pylist([], ALL.arrow).schema == ALL.arrow
