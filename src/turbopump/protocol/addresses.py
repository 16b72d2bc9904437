"""Addresses of servers as text: `host:port`, and lists such as `a:9876;b:9876`.

In: text of an option, a command line, a variable, a file or a route. Out: its parts. In lists, `;` is what
Apache writes and what our pages show; `,` is accepted as well, since no address contains one. Nothing here
resolves a name or opens a socket.
"""

import ipaddress
import re

MASTER_ID = 0
"""Broker id of the master among the addresses of one broker name; slaves have greater ids."""

FAST_PORT_STEP, HA_PORT_STEP = -2, 1  # from the main port of a broker to its fast and its replication port

MAX_PORT = 65_535

_SEPARATOR = re.compile("[;,]")


def split_list(text: str) -> tuple[str, ...]:
    """Splits addresses at `;` and `,`; strips blanks and leaves out empty parts. Does not check the parts."""
    return tuple(part.strip() for part in _SEPARATOR.split(text) if part.strip())


def split_address(address: str) -> tuple[str, int]:
    """Splits `host:port`; removes brackets around an IPv6 host. Raises ValueError for a bad host or port.

    The brackets may be missing, as in routes and settings of Apache: the last colon is before the port.
    """
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        is_host = _is_ipv6(host)
    else:
        is_host = _is_ipv6(host) if ":" in host else _is_name(host)
    if not is_host or not port.isascii() or not port.isdecimal():
        raise ValueError(f"an address must be host:port, got {address!r}")
    if int(port) > MAX_PORT:
        raise ValueError(f"an address must be host:port with a port of at most {MAX_PORT}, got {address!r}")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """Returns `host:port`, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def has_host_and_port(text: str) -> bool:
    """Tells whether `text` has a host and, after the last colon, a port from 1 to 65535."""
    try:
        return split_address(text)[1] > 0
    except ValueError:
        return False


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _is_name(host: str) -> bool:
    # For other names the resolver raises UnicodeError, which is no OSError and does not name the host.
    if host.isascii():
        return all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False
