"""Java's string hash, which RocketMQ uses for tags in consume queues and keys in index files.

h = 31*h + code unit over UTF-16 code units, in 32 bits. It is computed for every message (key of the index,
tag), so the loop runs inside `int()`: a code unit c is 31*q + r, both q and r are digits of base 31, hence
the hash of a text is int(all r, 31) + 31 * int(all q, 31). For 40 ASCII characters on CPython 3.11: 0.8 µs;
sum(map(mul, …)) over a table of powers 2.6 µs; the plain loop 3.2 µs.
"""

_MASK = 0xFFFFFFFF
_SIGN = 0x80000000
_DIGITS = b"0123456789abcdefghijklmnopqrstu"
_LOW = bytes(_DIGITS[c % 31] for c in range(256))
_HIGH = bytes(_DIGITS[c // 31] for c in range(256))
_CHUNK = 512  # int() is quadratic and refuses more digits than sys.get_int_max_str_digits(), never below 640
_POWERS = tuple(pow(31, n, 1 << 32) for n in range(_CHUNK + 1))


def java_hash(text: str) -> int:
    """Returns Java's String.hashCode(): signed, 32 bits."""
    if text.isascii() and 0 < len(text) <= _CHUNK:
        units = text.encode()
        h = int(units.translate(_LOW), 31) + 31 * int(units.translate(_HIGH), 31)
        return ((h + _SIGN) & _MASK) - _SIGN
    return _extend_wide(0, text)


def extend_hash(prefix_hash: int, text: str) -> int:
    """Returns the hash of prefix + text, from the hash of the prefix."""
    if text.isascii() and 0 < len(text) <= _CHUNK:
        units = text.encode()
        h = int(units.translate(_LOW), 31) + 31 * int(units.translate(_HIGH), 31)
        return ((prefix_hash * _POWERS[len(units)] + h + _SIGN) & _MASK) - _SIGN
    return _extend_wide(prefix_hash, text)


def index_hash(text: str) -> int:
    """Returns the absolute value of `java_hash`, as index files hold it; 0 for -2^31."""
    h = java_hash(text)
    return 0 if h == -_SIGN else abs(h)


def _extend_wide(prefix_hash: int, text: str) -> int:
    """Returns the hash of prefix + text, from the hash of the prefix, for any text; hashes it in pieces.

    The high and the low bytes of its code units are hashed apart, then joined.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    high, low = units[0::2], units[1::2]
    h = prefix_hash
    for at in range(0, len(low), _CHUNK):
        high_part, low_part = high[at : at + _CHUNK], low[at : at + _CHUNK]
        h = (h * _POWERS[len(low_part)] + 256 * _polynomial(high_part) + _polynomial(low_part)) & _MASK
    return ((h + _SIGN) & _MASK) - _SIGN


def _polynomial(units: bytes) -> int:
    return int(units.translate(_LOW), 31) + 31 * int(units.translate(_HIGH), 31)
