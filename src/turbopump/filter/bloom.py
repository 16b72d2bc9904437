"""The Bloom filter over `group#topic` that assigns bits of a message's bit map to groups, as in Apache.

A bit map in the extension of a consume queue has, for every group whose expression matches a message, that
group's bits. If a group's bits are not all set, the message does not match; if they are, they may be those of
other groups, and the expression decides.
"""

import math
from dataclasses import dataclass

_MASK = 2**64 - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """Sizes of a Bloom filter, by number of groups and error in percent; computes the bits of a group."""

    error_percent: int = 20
    groups: int = 32

    @property
    def bits_per_group(self) -> int:
        return math.ceil(math.log(self.error_percent / 100) / math.log(0.5))

    @property
    def size(self) -> int:
        """Size in bits, a multiple of 8."""
        log2 = math.log(1 / (self.error_percent / 100)) / math.log(2)
        bits = math.ceil(self.groups * log2 * (math.log(math.e) / math.log(2)))
        return (bits + 7) // 8 * 8

    def positions(self, group: str, topic: str) -> tuple[int, ...]:
        return self.positions_of(f"{group}#{topic}")

    def positions_of(self, text: str) -> tuple[int, ...]:
        hashed = murmur3(text.encode())
        low, high = hashed & 0xFFFFFFFF, hashed >> 32
        found = []
        for turn in range(1, self.bits_per_group + 1):
            combined = (low + turn * high) & 0xFFFFFFFF
            if combined & 0x80000000:
                combined ^= 0xFFFFFFFF
            found.append(combined % self.size)
        return tuple(found)


def mask(positions: tuple[int, ...]) -> int:
    """Returns the bit map with these bits as an integer: bit p of byte p/8, the first byte lowest."""
    bits = 0
    for position in positions:
        bits |= 1 << position
    return bits


def murmur3(data: bytes) -> int:
    """Returns the first 64 bits of MurmurHash3 x64-128 with seed 0."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        h1 ^= _mix(int.from_bytes(data[at : at + 8], "little"), _C1, 31, _C2)
        h1 = (_rotated(h1, 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 ^= _mix(int.from_bytes(data[at + 8 : at + 16], "little"), _C2, 33, _C1)
        h2 = (_rotated(h2, 31) + h1) * 5 + 0x38495AB5 & _MASK
    h1 ^= _mix(int.from_bytes(data[whole : whole + 8], "little"), _C1, 31, _C2)
    h2 ^= _mix(int.from_bytes(data[whole + 8 :], "little"), _C2, 33, _C1)
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _final(h1) + _final(h2) & _MASK


def _mix(k: int, first: int, turn: int, second: int) -> int:
    return _rotated(k * first & _MASK, turn) * second & _MASK


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK


def _final(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return h ^ h >> 33
