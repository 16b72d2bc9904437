"""The head that a proxy puts before a connection, in both versions, whole and in pieces."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.protocol.errors import BrokenFrame
from turbopump.protocol.proxy_head import (
    MAX_LINE,
    MAX_MORE,
    SIGNATURE,
    ProxyHead,
    may_be_head,
    read_head,
)


def binary(family: int, addresses: bytes, command: int = 0x21, more: int | None = None) -> bytes:
    return (
        SIGNATURE + struct.pack(">BBH", command, family, len(addresses) if more is None else more) + addresses
    )


V4 = bytes((10, 1, 2, 3, 10, 0, 0, 5)) + struct.pack(">HH", 51234, 10911)
V6 = bytes.fromhex("20010db8" + "00" * 11 + "07" + "00" * 15 + "01") + struct.pack(">HH", 1, 2)
MAPPED = bytes(10) + b"\xff\xff" + bytes((10, 1, 2, 3)) + bytes(16) + struct.pack(">HH", 7, 8)
HEADS = [
    (b"PROXY TCP4 10.1.2.3 10.0.0.5 51234 10911\r\n", ("10.1.2.3", 51234)),
    (b"PROXY TCP6 2001:db8::7 ::1 0 65535\r\n", ("2001:db8::7", 0)),
    (b"PROXY TCP6 ::ffff:10.1.2.3 ::1 5 6\r\n", ("10.1.2.3", 5)),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", None),
    (binary(0x11, V4), ("10.1.2.3", 51234)),
    (binary(0x11, V4 + b"\x03\x00\x04abcd"), ("10.1.2.3", 51234)),
    (binary(0x21, V6), ("2001:db8::7", 1)),
    (binary(0x21, MAPPED), ("10.1.2.3", 7)),
    (binary(0x00, b""), None),
    (binary(0x11, V4, command=0x20), None),
    (binary(0x00, bytes(MAX_MORE)), None),
]


@pytest.mark.parametrize(("data", "client"), HEADS)
def test_a_head_names_the_client_and_ends_before_its_first_byte(
    data: bytes, client: tuple[str, int] | None
) -> None:
    assert read_head(data + b"\0\0\0\x10rest") == ProxyHead(len(data), client)
    for at in range(len(data)):
        assert may_be_head(data[:at])
        assert at == 0 or read_head(data[:at]) is None


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"PROXY " + b"x" * MAX_LINE, "must end within 107 bytes"),
        (b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n", "must name TCP4 or TCP6"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", "must name TCP4 or TCP6"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n", "must name TCP4 or TCP6"),
        (b"PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n", "must name TCP4 or TCP6"),
        (b"PROXY TCP4 ::1 ::1 1 2\r\n", "addresses of its kind"),
        (b"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n", "addresses of its kind"),
        (b"PROXY TCP4 1.2.3.4\xff 1.2.3.4 1 2\r\n", "addresses of its kind"),
        (b"PROXY TCP4 01.2.3.4 1.2.3.4 1 2\r\n", "addresses of its kind"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n", "ports up to 65535"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 -1 2\r\n", "ports up to 65535"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n", None),
        (b"\r\n\r\n\0\r\nQUIX\n" + bytes(4), "version 2"),
        (binary(0x11, V4, command=0x11), "version 2"),
        (binary(0x11, V4, command=0x22), "version 2"),
        (binary(0x12, V4), "addresses of TCP"),
        (binary(0x31, bytes(216)), "addresses of TCP"),
        (binary(0x21, V4), "addresses of TCP"),
        (binary(0x11, V4[:-1]), "addresses of TCP"),
        (binary(0x11, b"", more=MAX_MORE + 1), "at most 4096 bytes"),
    ],
)
def test_what_is_no_head_is_refused(data: bytes, why: str | None) -> None:
    if why is None:
        assert read_head(data) is None  # its end has not come
        return
    with pytest.raises(BrokenFrame, match=why):
        read_head(data)


@pytest.mark.parametrize("data", [b"\0\0\1\2", b"\x16\x03\x01", b"GET / HTTP/1.1", b"PROXX", b"\r\n\r\n\1"])
def test_no_frame_and_no_tls_record_begins_as_a_head_does(data: bytes) -> None:
    assert not may_be_head(data)


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    for start in (b"", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21\x11"):
        try:
            head = read_head(start + data)
        except BrokenFrame:
            continue
        assert head is None or head.size <= len(start + data)
