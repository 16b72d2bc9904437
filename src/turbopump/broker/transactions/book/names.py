"""What clients may put into the book of global transactions: names, texts and leases within their bounds."""

from typing import Final

from turbopump.protocol.errors import InvalidParameter
from turbopump.protocol.global_transactions import MAX_TEXT_BYTES

MAX_NAME_BYTES: Final = 64  # of gids and branches: what databases take as part of a transaction's name
MAX_LEASE_MS: Final = 600_000


def check_name(what: str, name: str) -> None:
    """Raises InvalidParameter for a gid or branch that databases would not take as part of a name."""
    plain = name.isascii() and name.isprintable() and not set(name) & set(" ,;'\"\\/")
    if not plain or not 0 < len(name) <= MAX_NAME_BYTES:
        raise InvalidParameter(
            f"a {what} must be 1 to {MAX_NAME_BYTES} ASCII characters without space, comma, quote or slash, "
            f"got {name[:40]!r}"
        )


def check_text(what: str, text: str) -> None:
    """Raises InvalidParameter for a text that is too long to be kept with each transaction."""
    if (size := len(text.encode())) > MAX_TEXT_BYTES:
        raise InvalidParameter(f"the {what} must have at most {MAX_TEXT_BYTES} bytes, got {size}")


def check_owner(owner: str) -> None:
    """Raises InvalidParameter for an owner without a name, or with one that is too long."""
    check_text("owner", owner)
    if not owner:
        raise InvalidParameter("the owner must have a name, got '': a lease belongs to one client")


def checked_lease(lease_ms: int) -> int:
    """Returns the length of a lease. Raises InvalidParameter if it is none, or too long."""
    if not 0 < lease_ms <= MAX_LEASE_MS:
        raise InvalidParameter(f"a lease must be 1 to {MAX_LEASE_MS} ms, got {lease_ms}")
    return lease_ms
