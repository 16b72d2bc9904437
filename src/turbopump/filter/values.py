"""Reads text as numbers and compares numbers as Java does.

The models are `Integer.valueOf`, `Long.valueOf`, `Double.valueOf` and `compareTo`. A property is always text;
the other operand decides how it is read.
"""

import math
import re
from collections.abc import Callable
from typing import Final

from turbopump.filter.tree import Long, Value

_WHOLE: Final = re.compile(r"[+-]?\d+")  # digits of all scripts, as Java reads them
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?=[fFdD]?\Z)")
_HEXADECIMAL: Final = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+(?=[fFdD]?\Z)"
)
_NAMED: Final = {
    sign + name: value * (-1 if sign == "-" else 1)
    for sign in ("", "+", "-")
    for name, value in (("NaN", math.nan), ("Infinity", math.inf))
}
_BLANK: Final = "".join(map(chr, range(33)))
_MAX_WHOLE_LENGTH: Final = 64  # characters; longer ones have leading zeros
_SAFE_DIGITS: Final = 9  # digits that always fit into 32 bits


class Undecidable(Exception):
    """Raised when values cannot be compared: the message does not match, whatever the rest says."""


def as_int(text: bytes) -> int:
    if text.isdigit() and len(text) <= _SAFE_DIGITS:
        return int(text)
    return _whole(text, 2**31)


def as_long(text: bytes) -> Long:
    return Long(_whole(text, 2**63))


def as_double(text: bytes) -> float:
    if len(text) <= _SAFE_DIGITS and text.replace(b".", b"", 1).isdigit():
        return float(text)
    trimmed = text.decode("utf-8", "replace").strip(_BLANK)
    if (named := _NAMED.get(trimmed)) is not None:
        return named
    if found := _DECIMAL.match(trimmed):
        return float(found.group())
    if found := _HEXADECIMAL.match(trimmed):
        return _hexadecimal(found.group())
    raise Undecidable


def as_bool(text: bytes) -> bool:
    return text.lower() == b"true"


def reader_for(number: int | float) -> Callable[[bytes], int | float]:
    """Returns the function that parses text compared with this number: `as_int`, `as_long` or `as_double`."""
    if isinstance(number, float):
        return as_double
    return as_long if isinstance(number, Long) else as_int


def compare(left: Value, right: Value) -> int:
    """Compares two values: negative, 0 or positive; -1 for different kinds, as Apache. Raises Undecidable."""
    if isinstance(left, bytes):
        return _compare_text(left, right)
    if isinstance(right, bytes):
        if isinstance(left, bool):
            raise Undecidable
        assert isinstance(left, (int, float))
        return _compare_numbers(left, reader_for(left)(right))
    if isinstance(left, bool) is not isinstance(right, bool):
        return -1
    assert isinstance(left, (int, float))
    assert isinstance(right, (int, float))
    return _compare_numbers(left, right)


def compare_doubles(left: float, right: float) -> int:
    """Compares doubles as Java, with -1, 0 or 1: -0.0 is below 0.0, and NaN above all."""
    if left != left or right != right:
        return (left != left) - (right != right)
    if left == right == 0.0:
        left, right = math.copysign(1.0, left), math.copysign(1.0, right)
    return (left > right) - (left < right)


def _compare_text(left: bytes, right: Value) -> int:
    if isinstance(right, bytes):
        return (left > right) - (left < right)
    if isinstance(right, bool):
        return as_bool(left) - right
    assert right is not None
    return _compare_numbers(reader_for(right)(left), right)


def _compare_numbers(left: int | float, right: int | float) -> int:
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(float(left), float(right))
    return (left > right) - (left < right)


def _whole(text: bytes, bound: int) -> int:
    digits = text.decode("utf-8", "replace")
    if len(digits) > _MAX_WHOLE_LENGTH or not _WHOLE.fullmatch(digits) or max(digits) > "\uffff":
        raise Undecidable
    number = int(digits)
    if not -bound <= number < bound:
        raise Undecidable
    return number


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf
