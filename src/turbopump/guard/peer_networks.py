"""The network of a peer for limits by address: the address itself, or the /64 of an IPv6 address.

Who has one address of a /64 has all of them.
"""

from functools import lru_cache
from ipaddress import IPv6Network

from turbopump.auth.policies import address_of

HOST_BITS = 64
MAX_REMEMBERED = 16_384  # addresses, about 3 MB: their connections ask again and again


@lru_cache(MAX_REMEMBERED)
def network_of(address: str) -> str:
    """Returns the network of an address as text; a text that is no address counts by itself."""
    found = address_of(address)
    if found is None:
        return address
    if found.version == 4:
        return str(found)
    return str(IPv6Network((int(found) >> HOST_BITS << HOST_BITS, HOST_BITS)))
