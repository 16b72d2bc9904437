import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocol.kit import readable, relaxed

from turbopump.protocol.errors import BrokenRecord, SystemFailure
from turbopump.protocol.ids import UniqueIds, offset_id, pack_host, parse_offset_id, unpack_host

addresses = st.ip_addresses().map(str)
ports = st.integers(0, 65535)


@given(addresses, ports)
@relaxed
def test_hosts_come_back(ip: str, port: int) -> None:
    host = pack_host(ip, port)
    assert len(host) == (20 if ":" in ip and "." not in ip and not ip.startswith("::ffff:") else 8)
    assert pack_host(*unpack_host(host)) == host


@given(addresses, ports, st.integers(-(1 << 63), (1 << 63) - 1))
@relaxed
def test_offset_ids_come_back(ip: str, port: int, offset: int) -> None:
    text = offset_id(pack_host(ip, port), offset)
    assert len(text) in (32, 56)
    found_ip, found_port, found_offset = parse_offset_id(text)
    assert (pack_host(found_ip, found_port), found_offset) == (pack_host(ip, port), offset)
    assert parse_offset_id(text.lower()) == parse_offset_id(text)


def test_an_offset_id_is_apaches() -> None:
    assert offset_id(pack_host("127.0.0.1", 30911), 0x9E9) == "7F000001000078BF00000000000009E9"


@pytest.mark.parametrize(
    "text", ["", "x", "7F", "7F000001000078BF00000000000009E", "Z" * 32, "0" * 34, "0 " * 16]
)
def test_what_is_no_offset_id_is_refused(text: str) -> None:
    with pytest.raises(SystemFailure, match="illegal message id"):
        parse_offset_id(text)


def test_a_mapped_address_is_ipv4_and_a_scope_is_dropped() -> None:
    assert pack_host("::ffff:10.0.0.1", 1) == pack_host("10.0.0.1", 1)
    assert pack_host("fe80::1%eth0", 1) == pack_host("fe80::1", 1)


@pytest.mark.parametrize("size", [0, 7, 9, 19, 21])
def test_a_host_of_another_size_is_broken(size: int) -> None:
    with pytest.raises(BrokenRecord):
        unpack_host(bytes(size))


def ticking(*times: int) -> Iterator[int]:
    yield from times
    while True:
        yield times[-1]


def test_unique_ids_hold_address_pid_salt_and_birth_time() -> None:
    month = int(time.mktime((2026, 11, 1, 0, 0, 0, 0, 0, -1)) * 1000)
    ids = UniqueIds("127.0.0.1", 0x12345, lambda: month + 0x1234, salt=0xDEADBEEF)
    assert ids.next() == "7F000001" + "2345" + "DEADBEEF" + "00001234" + "0001"
    assert ids.next().endswith("0002")
    assert len(UniqueIds("::1", 1, lambda: month).next()) == 56


def test_unique_ids_are_unique_within_a_millisecond() -> None:
    ids = UniqueIds("127.0.0.1", 1, lambda: 1_000_000)
    assert len({ids.next() for _ in range(65536)}) == 65536


def test_unique_ids_count_from_the_new_month_once_it_begins() -> None:
    november = int(time.mktime((2026, 11, 30, 23, 59, 59, 0, 0, -1)) * 1000)
    december = int(time.mktime((2026, 12, 1, 0, 0, 0, 0, 0, -1)) * 1000)
    times = ticking(november, november, december + 5, november)
    ids = UniqueIds("127.0.0.1", 1, lambda: next(times))
    assert ids.next()[20:28] == f"{30 * 86400_000 - 1000:08X}"
    assert ids.next()[20:28] == "00000005"
    assert ids.next()[20:28] == "00000000"  # the clock was set back


def test_a_unique_id_reads_as_java_reads_one() -> None:
    """Layout held against captured keys: same length, and the birth time lies in the month of the capture."""
    for row, _, command in readable():
        key = (command.ext or {}).get("transactionId", "")
        if row.by_java and row.file.startswith("client-") and len(key) == 32:
            birth = int(key[20:28], 16)
            assert 0 <= birth < 31 * 86400_000
