r"""The head that a proxy puts before a connection: the PROXY protocol of HAProxy, versions 1 and 2.

    version 1    PROXY TCP4 10.1.2.3 10.0.0.5 51234 10911\r\n        at most 107 bytes; also TCP6, UNKNOWN
    version 2    12 bytes of signature | u8 version 2, command | u8 family, protocol | u16 length
                 | source, destination, ports | more fields, which are skipped

In: the first bytes of a connection. Out: the address of the client behind the proxy. Whether a peer may say
that it is a proxy is not known here; nobody else's head must be read.
"""

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from turbopump.protocol.errors import BrokenFrame

LINE_START = b"PROXY "
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
MAX_LINE = 107  # with its end, as the protocol says
MAX_MORE = 4096  # bytes behind the 16 of version 2: addresses, and fields such as a certificate's name

_FIXED = struct.Struct(">12sBBH")
_LOCAL, _PROXIED = 0x20, 0x21
_UNKNOWN, _TCP4, _TCP6 = 0x00, 0x11, 0x21
_ADDRESSES = {_TCP4: struct.Struct(">4s4sHH"), _TCP6: struct.Struct(">16s16sHH")}


@dataclass(frozen=True, slots=True)
class ProxyHead:
    """A whole head: its size, and the client's address and port; None: the proxy speaks for itself."""

    size: int
    client: tuple[str, int] | None


def may_be_head(data: bytes) -> bool:
    """Returns whether the first bytes of a connection may begin a head. No frame and no TLS record does."""
    return any(start.startswith(data[: len(start)]) for start in (LINE_START, SIGNATURE))


def read_head(data: bytes) -> ProxyHead | None:
    """Returns the head at the front of a connection's first bytes; None: the rest of it has not come.

    Raises BrokenFrame for one that breaks the protocol, or is too long.
    """
    if data[:1] == SIGNATURE[:1]:
        return _read_binary(data)
    end = data.find(b"\r\n", 0, MAX_LINE)
    if end < 0:
        if len(data) >= MAX_LINE:
            raise BrokenFrame(f"a PROXY line must end within {MAX_LINE} bytes")
        return None
    return ProxyHead(end + 2, _client_of(data[:end]))


def _client_of(line: bytes) -> tuple[str, int] | None:
    words = line.split(b" ")
    if words[:2] == [b"PROXY", b"UNKNOWN"]:
        return None
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise BrokenFrame(f"a PROXY line must name TCP4 or TCP6, two addresses and two ports, got {line!r}")
    kind = IPv4Address if words[1] == b"TCP4" else IPv6Address
    try:
        source, _ = (kind(word.decode("ascii")) for word in words[2:4])
    except ValueError:
        raise BrokenFrame(f"a PROXY line must have addresses of its kind, got {line!r}") from None
    source_port, _ = (_port(word, line) for word in words[4:6])
    return _text(source), source_port


def _port(word: bytes, line: bytes) -> int:
    if not (word.isdigit() and len(word) <= 5 and int(word) <= 65_535):
        raise BrokenFrame(f"a PROXY line must have ports up to 65535, got {line!r}")
    return int(word)


def _read_binary(data: bytes) -> ProxyHead | None:
    if len(data) < _FIXED.size:
        return None
    signature, command, family, more = _FIXED.unpack_from(data)
    if signature != SIGNATURE or command not in (_LOCAL, _PROXIED):
        raise BrokenFrame(f"a PROXY head must have version 2 and a known command, got {command:#x}")
    if more > MAX_MORE:
        raise BrokenFrame(f"a PROXY head must have at most {MAX_MORE} bytes, got {more}")
    size = _FIXED.size + more
    if len(data) < size:
        return None
    if command == _LOCAL or family == _UNKNOWN:
        return ProxyHead(size, None)
    form = _ADDRESSES.get(family)
    if form is None or more < form.size:
        raise BrokenFrame(f"a PROXY head must have addresses of TCP, got family {family:#x}, {more} bytes")
    source, _, port, _ = form.unpack_from(data, _FIXED.size)
    return ProxyHead(size, (_text(IPv4Address(source) if family == _TCP4 else IPv6Address(source)), port))


def _text(address: IPv4Address | IPv6Address) -> str:
    """Returns an address as peers are named elsewhere: IPv4 in IPv6 notation as IPv4."""
    return str(address.ipv4_mapped or address) if isinstance(address, IPv6Address) else str(address)
