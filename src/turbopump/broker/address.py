"""Chooses the address that clients are told to connect to.

In: the configuration and a function that asks the machine. Out: one address, and a warning when clients
elsewhere could not use it. The one function that touches the network stack is at the end.
"""

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
ANYWHERE = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class AdvertisedAddress:
    """The address that clients connect to, and a warning if clients on other machines cannot use it."""

    address: str
    warning: str = ""


def advertised(configured: str, bound_to: str, primary: Callable[[], str | None]) -> AdvertisedAddress:
    """Returns the address for clients: `configured`, else `bound_to`, else `primary()`, else 127.0.0.1.

    `configured` is brokerIP1, `bound_to` the address the broker listens on; each is empty when not set. A
    `bound_to` of 0.0.0.0 or :: counts as not set.
    """
    if configured:
        return _judged(configured, "brokerIP1 says so")
    if bound_to not in ANYWHERE:
        return _judged(bound_to, "the broker listens there only")
    found = primary()
    if found is None:
        return _judged(LOOPBACK, "this machine has no other address; set brokerIP1 once it has one")
    return _judged(found, "it is this machine's primary address; set brokerIP1 to change that")


def _judged(address: str, reason: str) -> AdvertisedAddress:
    if not _is_loopback(address):
        return AdvertisedAddress(address)
    warning = f"clients are told to connect to {address} ({reason}): those on other machines cannot"
    return AdvertisedAddress(address, warning)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def primary_local_address() -> str | None:
    """Returns this machine's source address for packets to other machines; None: it has no route to them.

    Connecting a datagram socket sends nothing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation: only the routing table is asked
        except OSError:
            return None
        address: str = probe.getsockname()[0]
    return None if address in ANYWHERE else address
