"""Hosts in records, and the two kinds of message id that contain them.

    host              4 or 16 bytes of address, i32 port
    offset message id hex of host + i64 commit-log offset: 32 characters (IPv4) or 56 (IPv6)
    unique key        hex of address, i16 pid, i32 salt, i32 ms since the start of the month, i16 counter

The caller passes the clock.
"""

import ipaddress
import itertools
import struct
import time
from collections.abc import Callable

from turbopump.protocol.errors import BrokenRecord, SystemFailure

_PORT = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_HEX = tuple(f"{byte:02X}" for byte in range(256))


def pack_host(ip: str, port: int) -> bytes:
    """Packs address and port: 8 bytes for IPv4 (also mapped into IPv6), 20 for IPv6. Raises ValueError."""
    return _packed_address(ip) + _PORT.pack(port)


def unpack_host(host: bytes) -> tuple[str, int]:
    if len(host) not in (8, 20):
        raise BrokenRecord(f"a host must have 8 or 20 bytes, got {len(host)}")
    return str(ipaddress.ip_address(host[:-4])), _PORT.unpack_from(host, len(host) - 4)[0]


def host_text(host: bytes) -> str:
    """Returns `ip:port` as Apache writes it, without brackets. Raises BrokenRecord."""
    ip, port = unpack_host(host)
    return f"{ip}:{port}"


def offset_id(host: bytes, offset: int) -> str:
    """Returns the offset message id, by which a broker finds a message: hex of host and log offset."""
    return (host + _OFFSET.pack(offset)).hex().upper()


def parse_offset_id(text: str) -> tuple[str, int, int]:
    """Parses an offset message id to (ip, port, commit-log offset). Raises SystemFailure."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(data) not in (16, 28) or len(text) != 2 * len(data):
        raise SystemFailure(f"illegal message id {text[:64]!r}")
    ip, port = unpack_host(data[:-8])
    return ip, port, _OFFSET.unpack_from(data, len(data) - 8)[0]


class UniqueIds:
    """Makes unique keys as Apache's clients do, so that their tools can read the born time in them.

    `salt` distinguishes processes that share address and pid (as in containers): pass 32 random bits.
    """

    def __init__(self, ip: str, pid: int, clock_ms: Callable[[], int], salt: int = 0) -> None:
        self._prefix = (
            (_packed_address(ip) + struct.pack(">HI", pid & 0xFFFF, salt & 0xFFFFFFFF)).hex().upper()
        )
        self._clock_ms = clock_ms
        self._numbers = itertools.count(1)  # `next` of it is safe between threads
        self._month_start, self._month_end = _month_around(now := clock_ms())
        self._begin(now)

    def next(self) -> str:
        """Returns the next key: 0.5 µs. The part before the counter changes once per millisecond."""
        now = self._clock_ms()
        if now != self._moment:
            self._begin(now)
        number = next(self._numbers)
        return self._front + _HEX[number >> 8 & 0xFF] + _HEX[number & 0xFF]

    def _begin(self, now: int) -> None:
        if now >= self._month_end:
            self._month_start, self._month_end = _month_around(now)
        # The clock may have been set back over the start of the month.
        age_ms = max(0, now - self._month_start)
        self._front = f"{self._prefix}{age_ms & 0xFFFFFFFF:08X}"
        self._moment = now


def _packed_address(ip: str) -> bytes:
    address = ipaddress.ip_address(ip.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.packed


def _month_around(now_ms: int) -> tuple[int, int]:
    """Returns start and end (ms) of the month in local time, which Apache's tools assume in an id."""
    now = time.localtime(now_ms / 1000)
    start = time.mktime((now.tm_year, now.tm_mon, 1, 0, 0, 0, 0, 0, -1))
    end = time.mktime((now.tm_year, now.tm_mon + 1, 1, 0, 0, 0, 0, 0, -1))
    return int(start * 1000), int(end * 1000)
