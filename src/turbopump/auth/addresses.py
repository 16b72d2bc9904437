"""Address patterns of access control 1.0, the white addresses.

                                  nothing: no address
    *                             every address; also *.*.*.* and *:*:*:*:*:*:*:*
    10.1.2.3                      one address, IPv4 or IPv6
    10.1.2.3,10.1.2.4             a list of them
    10.1.2.{3,4}  2::5:{a,b}      a list of last parts
    10.1.2.*  10.1.*.*  10.*.*.*  any part, in the last three parts of IPv4
    10.1.2.5-9  10.1.3-5.*        a range, in the same parts; both ends belong to it
    2::5:*  2::5:1-200  2::5:1-200:*
                                  the last part of IPv6, and a range before it; hexadecimal

In: a text. Out: an `AddressPattern`, or ConfigError that says what is wrong. Pure: no name is looked up.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from turbopump.auth.policies import address_of
from turbopump.protocol.conf import ConfigError

EVERYTHING = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
MAX_LISTED = 1_000  # addresses of one pattern
MAX_TEXT = 65_536  # characters of one pattern
MAX_PARSED = 16_384  # addresses of peers that are remembered: their connections ask again and again

Parts = tuple[tuple[int, int], ...]
"""For each part of an address, its smallest and its greatest value: 4 parts of IPv4 or 8 of IPv6."""

_V4_MAX, _V6_MAX = 0xFF, 0xFFFF
_V4_PARTS, _V6_PARTS = 4, 8
_DECIMAL = re.compile(r"[0-9]{1,3}", re.ASCII)
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{1,4}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AddressPattern:
    """A set of addresses. Equal texts are equal patterns."""

    text: str = ""
    listed: tuple[Parts, ...] = ()
    is_everything: bool = False

    @classmethod
    def parse(cls, text: str) -> "AddressPattern":
        """Parses a pattern; blank matches no address. Raises ConfigError."""
        text = text.strip()
        if len(text) > MAX_TEXT:
            raise ConfigError(f"an address pattern must have at most {MAX_TEXT} characters, got {len(text)}")
        if not text:
            return NO_ADDRESS
        if text in EVERYTHING:
            return cls(text, is_everything=True)
        addresses = _spelt_out(text)
        if len(addresses) > MAX_LISTED:
            raise ConfigError(f"{_shown(text)} must have at most {MAX_LISTED} addresses")
        return cls(text, tuple(_parts(one, text) for one in addresses))

    def matches(self, address: str) -> bool:
        """Returns whether an IP address is in this set; False for what is no address."""
        if not self.listed:
            return self.is_everything
        values = _values_of(address)
        return any(_within(values, parts) for parts in self.listed)

    def __str__(self) -> str:
        return self.text


NO_ADDRESS = AddressPattern()


@lru_cache(MAX_PARSED)
def _values_of(address: str) -> tuple[int, ...]:
    """Returns the parts of the address of a peer, none for what is no address."""
    found = address_of(address)
    return () if found is None else _values(found)


def _values(address: IPv4Address | IPv6Address) -> tuple[int, ...]:
    packed = address.packed
    if address.version == 4:
        return tuple(packed)
    return tuple(packed[at] << 8 | packed[at + 1] for at in range(0, len(packed), 2))


def _within(values: tuple[int, ...], parts: Parts) -> bool:
    return len(values) == len(parts) and all(
        low <= value <= high for value, (low, high) in zip(values, parts, strict=True)
    )


def _spelt_out(text: str) -> list[str]:
    """Returns the addresses of a list, and of a list of last parts; a pattern without one alone."""
    head, brace, tail = text.partition("{")
    if not brace:
        return [one.strip() for one in text.split(",")]
    if not tail.endswith("}") or not head.endswith((".", ":")) or "," in head:
        raise _bad(text, "{a,b} must be its last part")
    return [head + one.strip() for one in tail[:-1].split(",")]


def _parts(address: str, text: str) -> Parts:
    is_listed = address != text
    if is_listed and ("*" in address or "-" in address):
        raise _bad(text, "a list must have addresses without * and ranges")
    return _v6_parts(address, text) if ":" in address else _v4_parts(address, text)


def _v4_parts(address: str, text: str) -> Parts:
    words = [word.strip() for word in address.split(".")]
    if len(words) != _V4_PARTS:
        raise _bad(text, "an IPv4 address must have four parts")
    if not _DECIMAL.fullmatch(words[0]):
        raise _bad(text, "the first part must be a number from 0 to 255")
    return tuple(_part(word, text, _DECIMAL, 10, _V4_MAX) for word in words)


def _v6_parts(address: str, text: str) -> Parts:
    """Returns the parts of an IPv6 pattern: its open parts are the last ones, so `::` stands before them."""
    if "%" in address:
        raise _bad(text, "an address must have no zone")
    words = [word.strip() for word in address.split(":")]
    count = 2 if words[-1] == "*" and len(words) > 2 and "-" in words[-2] else 1
    is_open = words[-1] == "*" or "-" in words[-1]
    tail = words[len(words) - count :] if is_open else []
    plain = ":".join([*words[: len(words) - len(tail)], *["0"] * len(tail)])
    try:
        values = _values(IPv6Address(plain))
    except AddressValueError as error:
        raise _bad(text, f"{error}; * must be the last part, and a range the last or before it") from None
    opened = [_part(word, text, _HEXADECIMAL, 16, _V6_MAX) for word in tail]
    return tuple((value, value) for value in values[: _V6_PARTS - len(opened)]) + tuple(opened)


def _part(word: str, text: str, digits: re.Pattern[str], base: int, greatest: int) -> tuple[int, int]:
    if word == "*":
        return 0, greatest
    low, minus, high = word.partition("-")
    high = high if minus else low
    if not digits.fullmatch(low) or not digits.fullmatch(high):
        raise _bad(text, f"{_shown(word)} must be a number, a range or *")
    ends = int(low, base), int(high, base)
    if not ends[0] <= ends[1] <= greatest:
        raise _bad(text, f"{word} must be from 0 to {greatest:x}, the smaller end first")
    return ends


def _bad(text: str, reason: str) -> ConfigError:
    return ConfigError(f"the address pattern {_shown(text)} cannot be read: {reason}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}...")
