"""Addresses of servers as text: `host:port`, and lists such as `a:9876;b:9876`.

In: text of an option, a command line, a variable, a file or a route. Out: its parts. In lists, `;` is what
Apache writes and what our pages show; `,` is accepted as well, since no address contains one. Nothing here
resolves a name or opens a socket.
"""

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
    """Splits `host:port`; removes brackets around an IPv6 host. Raises ValueError for a bad host or port."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or not _is_host(host):
        raise ValueError(f"an address must be host:port, got {address!r}")
    if int(port) > MAX_PORT:
        raise ValueError(f"an address must be host:port with a port of at most {MAX_PORT}, got {address!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(host: str, port: int) -> str:
    """Returns `host:port`, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def has_host_and_port(text: str) -> bool:
    """Tells whether `text` has a host and, after the last colon, a port from 1 to 65535."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) <= MAX_PORT


def _is_host(host: str) -> bool:
    # For other names the resolver raises UnicodeError, which is no OSError and does not name the host.
    if host.isascii():
        return not host or all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False
