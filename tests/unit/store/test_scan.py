import random

from hypothesis import given
from hypothesis import strategies as st
from tests.properties import examples
from tests.unit.store.lab import HOST, HOST_V6

from turbopump.protocol import properties as props
from turbopump.protocol.record import Record, encode
from turbopump.store.dispatch import KEYS, TAGS, UNIQUE_KEY, Found, find
from turbopump.store.scan import BLANK, NO_RECORD, scan, unusual

START = 1 << 33
CRC_AT = 8


def some_log(chance: random.Random) -> bytearray:
    log = bytearray()
    for number in range(chance.randrange(1, 5)):
        topic = chance.choice(("T", "%RETRY%" + "g" * 140))
        log += encode(
            Record(
                topic, number, 0, number, START + len(log), chance.choice((0, 4, 8, 12)), 1,
                chance.choice((HOST, HOST_V6)), 2, chance.choice((HOST, HOST_V6)),
                body=bytes(chance.randrange(40)), properties=b"TAGS\x01a\x02",
            )
        )  # fmt: skip
    return log


def slowly(log: bytearray, check_crc: bool) -> tuple[list[Found], int, int]:
    """The same as `scan`, every record by the way of the unusual ones."""
    position, found = 0, []
    while True:
        one = unusual(log, START, position, len(log), check_crc)
        if isinstance(one, int):
            return found, position, one
        found.append(one)
        position += one[4]


@examples(150)
@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    st.booleans(),
)
def test_both_ways_come_to_the_same_verdict_whatever_the_bytes(seed, changes, check_crc):
    log = some_log(random.Random(seed))
    for position, value in changes:
        log[position % len(log)] = value
    log += bytes(seed % 200)
    found: list[Found] = []
    position, ended_by = scan(log, START, 0, len(log), check_crc, found.append)
    readable = [(one[0].decode("utf-8", "replace").encode(), *one[1:]) for one in found]
    assert (readable, position, ended_by) == slowly(log, check_crc)


def test_an_empty_body_has_no_checksum_that_could_be_wrong():
    one = Record("T", 0, 0, 0, START, 0, 1, HOST, 2, HOST, body=b"", properties=b"TAGS\x01a\x02")
    log = bytearray(encode(one))
    log[CRC_AT : CRC_AT + 4] = b"\1\2\3\4"
    found: list[Found] = []
    assert scan(log, START, 0, len(log), True, found.append)[0] == len(log)
    assert found == slowly(log, True)[0]


def test_a_blank_ends_a_file_and_zeros_or_a_short_rest_are_no_record():
    log = some_log(random.Random(3))
    size = len(log)
    blank = (100).to_bytes(4, "big") + (0xCBD43194).to_bytes(4, "big")
    for tail, verdict in (
        (blank + bytes(92), BLANK),
        (blank, BLANK),
        (bytes(100), NO_RECORD),
        (b"\1" * 5, NO_RECORD),
        (b"", NO_RECORD),
    ):
        whole = log + tail
        assert scan(whole, START, 0, len(whole), True, lambda found: None) == (size, verdict)


@given(st.text(alphabet="ABTAGSKEYUNIQ_\x01\x02é", max_size=60))
def test_properties_are_found_as_the_codec_finds_them(text):
    data = text.encode()
    for mark, name in ((TAGS, "TAGS"), (KEYS, "KEYS"), (UNIQUE_KEY, "UNIQ_KEY")):
        assert find(data, mark).decode() == (props.find(data, name) or "")
