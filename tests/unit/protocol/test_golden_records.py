"""Records inside captured answers: read, measured, written again."""

import pytest
from tests.unit.protocol.kit import readable

from turbopump.protocol import ids, properties
from turbopump.protocol.record import MAGIC_V1, Record, crc31, decode_all, encode, measure

HOLDING = {11, 361, 12, 33, 200050, 200052}


def records() -> list[tuple[bytes, Record]]:
    found = []
    for row, _, command in readable():
        pushed = not command.is_response and command.code in (39, 309)
        if command.body and (pushed or (command.is_response and command.code == 0 and row.asked in HOLDING)):
            at = 0
            for record in decode_all(command.body):
                found.append((command.body[at : at + record.size], record))
                at += record.size
    return found


def test_records_in_answers_are_written_again_byte_for_byte() -> None:
    found = records()
    assert len(found) > 100
    for data, record in found:
        assert encode(record) == data
        assert record.magic == MAGIC_V1


def test_records_in_answers_measure_and_check() -> None:
    for data, record in records():
        assert measure(data, 0, len(data), True) == len(data) == record.size
        assert record.body_crc == crc31(record.body)
        assert measure(data, 0, len(data) - 1, False) == -1


def test_fields_of_records_in_answers_make_sense() -> None:
    for _, record in records():
        assert ids.unpack_host(record.store_host) == ("127.0.0.1", 30911)
        assert ids.unpack_host(record.born_host)[0] in ("127.0.0.1", "10.1.2.3")
        pairs = record.property_map()
        assert record.unique_key == pairs.get("UNIQ_KEY")
        assert record.tags == pairs.get("TAGS")
        assert record.keys == pairs.get("KEYS")


def test_property_strings_of_all_releases_are_read() -> None:
    with_end = without_end = 0
    for _, record in records():
        if record.properties:
            ended = record.properties.endswith(b"\x02")
            with_end += ended
            without_end += not ended
            packed = properties.pack(record.property_map()).encode()
            assert len(packed) == len(record.properties) + (not ended) or b"WAIT" in record.properties
    assert with_end
    assert without_end


def test_offset_ids_in_send_answers_name_the_broker() -> None:
    seen = 0
    for row, _, command in readable():
        if row.by_java and command.is_response and command.code == 0 and row.asked in (10, 310):
            assert command.ext is not None
            message_id = command.ext["msgId"]
            host, port, offset = ids.parse_offset_id(message_id)
            assert (host, port) == ("127.0.0.1", 30911)
            assert ids.offset_id(ids.pack_host(host, port), offset) == message_id
            seen += 1
    assert seen > 50


@pytest.mark.parametrize("cut", [1, 8, 88, 90])
def test_a_record_cut_short_is_none(cut: int) -> None:
    data, _ = records()[0]
    assert measure(data[:cut], 0, cut, False) == -1
