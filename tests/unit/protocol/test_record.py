import struct
from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocol.kit import relaxed

from turbopump.protocol import record as records
from turbopump.protocol.compression import compress
from turbopump.protocol.errors import BrokenRecord
from turbopump.protocol.ids import pack_host
from turbopump.protocol.record import (
    BLANK,
    HEAD_V4,
    HEADS,
    MAGIC_V1,
    MAGIC_V2,
    Record,
    body_of,
    crc31,
    decode,
    decode_all,
    encode,
    measure,
)
from turbopump.protocol.sysflag import BORN_V6, COMPRESSED, LZ4, STORE_V6, ZLIB, ZSTD

i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
host = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
topics = st.text(st.characters(codec="utf-8"), max_size=300)
some_records = st.builds(
    Record,
    topics,
    queue_id=i32,
    flag=i32,
    queue_offset=i64,
    physical_offset=i64,
    sys_flag=i32,
    born_timestamp=i64,
    born_host=host,
    store_timestamp=i64,
    store_host=host,
    reconsume_times=i32,
    prepared_transaction_offset=i64,
    body=st.binary(max_size=300),
    properties=st.binary(max_size=300),
)

V4 = pack_host("10.0.0.1", 10911)
V6 = pack_host("2001:db8::1", 10911)


def plain(**changes: object) -> Record:
    record = Record(
        topic="T",
        queue_id=1,
        flag=0,
        queue_offset=7,
        physical_offset=1234,
        sys_flag=0,
        born_timestamp=1,
        born_host=V4,
        store_timestamp=2,
        store_host=V4,
        body=b"hello",
        properties=b"TAGS\x01A\x02",
    )
    return msgspec.structs.replace(record, **changes)


@given(some_records)
@relaxed
def test_records_come_back_in_every_shape(record: Record) -> None:
    data = encode(record)
    found = decode(data)
    assert encode(found) == data
    assert measure(data, 0, len(data), True) == len(data) == found.size
    v6 = (BORN_V6 if len(record.born_host) == 20 else 0) | (STORE_V6 if len(record.store_host) == 20 else 0)
    assert found.sys_flag & (BORN_V6 | STORE_V6) == v6
    assert found.magic == (MAGIC_V1 if len(record.topic.encode()) <= 127 else MAGIC_V2)
    for field in ("topic", "body", "properties", "born_host", "store_host", "queue_offset", "flag"):
        assert getattr(found, field) == getattr(record, field)


@given(st.lists(some_records, max_size=4))
@relaxed
def test_records_back_to_back_are_read_in_order(wanted: list[Record]) -> None:
    data = b"".join(map(encode, wanted))
    assert [encode(record) for record in decode_all(data)] == list(map(encode, wanted))


@given(st.lists(some_records, min_size=1, max_size=3), st.data())
@relaxed
def test_many_at_once_are_read_as_one_by_one_also_when_a_byte_is_wrong(
    wanted: list[Record], data: st.DataObject
) -> None:
    text = bytearray(b"".join(map(encode, wanted)))
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.sampled_from((text[at], 0, 1, 127, 128, 255)))
    assert _until_broken(decode_all(bytes(text))) == _until_broken(_one_by_one(bytes(text)))


def _one_by_one(data: bytes) -> Iterator[Record]:
    at = 0
    while at < len(data):
        record = decode(data, at)
        yield record
        at += record.size


def _until_broken(records: Iterator[Record]) -> list[Record | None]:
    found: list[Record | None] = []
    try:
        for record in records:
            found += [record]
    except BrokenRecord:
        found.append(None)
    return found


@given(st.binary(max_size=200))
@relaxed
def test_arbitrary_bytes_are_broken(data: bytes) -> None:
    with pytest.raises(BrokenRecord):
        decode(data)


@given(some_records, st.data())
@relaxed
def test_a_flipped_byte_never_reads_beyond_the_record(record: Record, data: st.DataObject) -> None:
    packed = bytearray(encode(record))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    size = measure(packed, 0, len(packed), False)
    assert size in (-1, 0, len(packed))
    if size > 0:
        decode(bytes(packed))


def test_the_layout_is_apaches() -> None:
    data = encode(plain())
    assert len(data) == 91 + 5 + 1 + 7
    assert struct.unpack_from(">ii", data) == (len(data), MAGIC_V1)
    assert MAGIC_V1 & 0xFFFFFFFF == 0xDAA320A7
    assert MAGIC_V2 & 0xFFFFFFFF == 0xDAA320AB
    assert BLANK & 0xFFFFFFFF == 0xCBD43194
    assert struct.unpack_from(">q", data, 28) == (1234,)
    assert data[64:72] == V4
    assert HEAD_V4.size == 88
    assert [head.size for head in HEADS.values()] == [88, 100, 100, 112]


def test_the_crc_is_positive() -> None:
    assert crc31(b"hello") == 0x3610A686 & 0x7FFFFFFF
    assert 0 <= crc31(b"\xff" * 100) < 1 << 31


def test_a_changed_body_fails_its_crc_only_when_asked() -> None:
    data = bytearray(encode(plain()))
    data[88] ^= 1
    assert measure(data, 0, len(data), False) == len(data)
    assert measure(data, 0, len(data), True) == -1


def test_an_empty_body_is_not_checked_against_its_crc() -> None:
    data = bytearray(encode(plain(body=b"")))
    data[8:12] = b"\0\0\0\1"
    assert measure(data, 0, len(data), True) == len(data)


@pytest.mark.parametrize("length", [127, 128])
def test_a_topic_over_127_bytes_needs_the_second_magic(length: int) -> None:
    data = encode(plain(topic="x" * length))
    assert decode(data).magic == (MAGIC_V1 if length == 127 else MAGIC_V2)
    assert decode(data).topic == "x" * length


def test_a_topic_length_byte_is_signed() -> None:
    data = bytearray(encode(plain(topic="x" * 127, properties=b"")))
    data[93] = 0x80
    assert measure(data, 0, len(data), False) == -1


@pytest.mark.parametrize(("length", "fits"), [(32767, True), (32768, False)])
def test_properties_have_at_most_32767_bytes(length: int, fits: bool) -> None:
    if fits:
        data = encode(plain(properties=b"x" * length))
        assert decode(data).properties == b"x" * length
    else:
        with pytest.raises(BrokenRecord):
            encode(plain(properties=b"x" * length))


def test_a_negative_properties_length_is_broken() -> None:
    data = bytearray(encode(plain(properties=b"")))
    data[-2:] = b"\xff\xff"
    assert measure(data, 0, len(data), False) == -1


@pytest.mark.parametrize("length", [-1, 6, 1 << 30])
def test_a_body_length_that_does_not_fit_is_broken(length: int) -> None:
    data = bytearray(encode(plain()))
    struct.pack_into(">i", data, 84, length)
    assert measure(data, 0, len(data), True) == -1


@pytest.mark.parametrize("size", [-1, 0, 90, 105, 1 << 30])
def test_a_size_that_is_not_the_sum_is_broken(size: int) -> None:
    data = bytearray(encode(plain())) + bytes(10)
    struct.pack_into(">i", data, 0, size)
    assert measure(data, 0, len(data), False) == -1


def test_a_blank_measures_zero_and_does_not_decode() -> None:
    blank = struct.pack(">ii", 100, BLANK)
    assert measure(blank, 0, 8, True) == 0
    assert measure(blank, 0, 7, True) == -1
    with pytest.raises(BrokenRecord):
        decode(blank)


def test_zeros_are_no_record() -> None:
    assert measure(bytes(200), 0, 200, True) == -1


def test_the_limit_is_the_end_though_the_buffer_goes_on() -> None:
    data = encode(plain())
    both = data + data
    assert measure(both, 0, len(data), True) == len(data)
    assert measure(both, 0, len(data) - 1, True) == -1
    assert measure(both, len(data), len(both), True) == len(data)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind: Callable[[bytes], bytes]) -> None:
    data = encode(plain())
    assert measure(kind(b"xx" + data), 2, 2 + len(data), True) == len(data)
    assert encode(decode(kind(b"xx" + data), 2)) == data


def test_a_measured_buffer_can_still_be_resized() -> None:
    data = bytearray(encode(plain()))
    measure(data, 0, len(data), True)
    data += b"more"  # BufferError if a view of it were still around


def test_a_topic_that_is_no_utf8_is_still_readable() -> None:
    data = encode(plain(topic="xx")).replace(b"\x02xx", b"\x02\xff\xfe")
    assert measure(data, 0, len(data), True) == len(data)
    assert decode(data).topic == "��"


def test_a_field_out_of_range_is_refused() -> None:
    with pytest.raises(BrokenRecord):
        encode(plain(sys_flag=1 << 40))


def test_properties_are_found_without_parsing_all() -> None:
    record = plain(properties=b"UNIQ_KEY\x01U1\x02KEYS\x01k1 k2\x02TAGS\x01A")
    assert (record.unique_key, record.keys, record.tags) == ("U1", "k1 k2", "A")
    assert record.property_map() == {"UNIQ_KEY": "U1", "KEYS": "k1 k2", "TAGS": "A"}
    assert plain(properties=b"").tags is None


@pytest.mark.parametrize("flag", [COMPRESSED, COMPRESSED | ZLIB, COMPRESSED | LZ4, COMPRESSED | ZSTD])
def test_a_compressed_body_is_given_as_its_sender_had_it(flag: int) -> None:
    record = plain(body=compress(b"hello" * 100, flag & 0x700 or ZLIB), sys_flag=flag)
    assert body_of(record) == b"hello" * 100
    assert body_of(plain(body=b"as it is")) == b"as it is"


def test_the_public_head_packs_what_encode_packs() -> None:
    data = encode(plain())
    head = HEAD_V4.unpack_from(data)
    assert records.PACK_HEAD(*head) == data[:88]
