"""Compiles a tree to a function of a message's property string, which returns True, False or None (unknown).

The function raises `Undecidable` where Apache's evaluation fails: the whole expression has no value then. A
condition is unknown when a property is missing. AND is False as soon as an operand is False, OR is True as
soon as one is True; otherwise both are unknown if an operand is. Operands are evaluated from the left, as far
as needed.

Each node becomes one closure, bound to its constants. The most frequent condition, a property compared with a
constant, has special closures, which search the property in the bytes of the message and decode nothing else.
"""

import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from turbopump.filter.tree import (
    And,
    Comparison,
    Constant,
    InList,
    Long,
    Negation,
    Node,
    Not,
    Or,
    Property,
    PropertyCondition,
    TextMatch,
    Value,
)
from turbopump.filter.values import (
    Undecidable,
    as_double,
    compare,
    compare_doubles,
    reader_for,
)
from turbopump.protocol import properties

__all__ = ["Undecidable", "condition"]

Truth: TypeAlias = bool | None
Condition: TypeAlias = Callable[[bytes], Truth]
Operand: TypeAlias = Callable[[bytes], Value]
Texts: TypeAlias = Callable[[bytes], bytes | None]

SIGNS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}
MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
HOLDS: Final[dict[str, Callable[[bytes, bytes], bool]]] = {
    "CONTAINS": bytes.__contains__,
    "STARTSWITH": bytes.startswith,
    "ENDSWITH": bytes.endswith,
}


def condition(node: Node) -> Condition:
    match node:
        case And(
            (
                Comparison(">=", Property(name), Constant(low)),
                Comparison("<=", Property(same), Constant(high)),
            )
        ) if name == same and type(low) is type(high) and isinstance(low, (int, float)):
            return _between(_property(name), low, high)
        case And(parts):
            return _all(tuple(map(condition, parts)))
        case Or(parts):
            return _any(tuple(map(condition, parts)))
        case Not(of):
            return _not(condition(of))
        case Comparison(sign, left, right):
            return _compared(sign, left, right)
        case InList(name, texts, negated):
            return _one_of(_property(name), texts, negated)
        case TextMatch(word, of, text, negated):
            return _holds(_operand(of), HOLDS[word], text, negated)
        case PropertyCondition(name):
            return _flag(_property(name))
        case Constant(value):
            assert value is None or isinstance(value, bool)
            return lambda message: value
    raise AssertionError(node)


def _operand(node: Node) -> Operand:
    match node:
        case Property(name):
            return _property(name)
        case Constant(value):
            return lambda message: value
        case Negation(of):
            return _negative(_operand(of))
    return condition(node)


# --- truth ---------------------------------------------------------------------------------------------


def _all(parts: tuple[Condition, ...]) -> Condition:
    def conjunction(message: bytes) -> Truth:
        result: Truth = True
        for part in parts:
            truth = part(message)
            if truth is False:
                return False
            if truth is None:
                result = None
        return result

    return conjunction


def _any(parts: tuple[Condition, ...]) -> Condition:
    def disjunction(message: bytes) -> Truth:
        result: Truth = False
        for part in parts:
            truth = part(message)
            if truth:
                return True
            if truth is None:
                result = None
        return result

    return disjunction


def _not(of: Condition) -> Condition:
    def negation(message: bytes) -> Truth:
        truth = of(message)
        return None if truth is None else not truth

    return negation


def _flag(find: Texts) -> Condition:
    return lambda message: None if find(message) is None else False


# --- texts ---------------------------------------------------------------------------------------------


def _property(name: str) -> Texts:
    """Returns a function that finds a property's value in a property string; the function's None: absent.

    The last of several counts, and a pair without a value is absent.
    """
    first = name.encode() + b"\x01"
    later, size = b"\x02" + first, len(first)

    def find(message: bytes) -> bytes | None:
        at = message.rfind(later)
        if at >= 0:
            begin = at + size + 1
        elif message.startswith(first):
            begin = size
        else:
            return None
        end = message.find(b"\x02", begin)
        value = message[begin:end] if end >= 0 else message[begin:]
        return value or _earlier(message, name)

    return find


def _earlier(message: bytes, name: str) -> bytes | None:
    found = properties.find(message, name)
    return None if found is None else found.encode()


def _one_of(find: Texts, texts: frozenset[bytes], negated: bool) -> Condition:
    def membership(message: bytes) -> Truth:
        text = find(message)
        return None if text is None else (text in texts) is not negated

    return membership


def _holds(
    operand: Operand, holds: Callable[[bytes, bytes], bool], searched: bytes, negated: bool
) -> Condition:
    """Compiles CONTAINS, STARTSWITH or ENDSWITH; False, also with NOT, for non-text or an empty search.

    It is never unknown.
    """
    if not searched:
        return lambda message: False

    def part(message: bytes) -> Truth:
        text = operand(message)
        return isinstance(text, bytes) and holds(text, searched) is not negated

    return part


# --- comparisons ---------------------------------------------------------------------------------------


def _compared(sign: str, left: Node, right: Node) -> Condition:
    match left, right:
        case Property(name), Constant(None):
            return _missing(_property(name))
        case Property(name), Constant(int() | float() as number) if not isinstance(number, bool):
            return _number(_property(name), sign, number)
        case Property(name), Constant(bytes() as text):
            return _text(_property(name), text)
        case (Constant(int() | float() as number), Property(name)) if sign != "=" and not isinstance(
            number, bool
        ):
            return _number(_property(name), MIRRORED[sign], number)
    if sign == "=":
        return _equal(_operand(left), _operand(right))
    return _ordered(_operand(left), _operand(right), SIGNS[sign])


def _number(find: Texts, sign: str, number: int | float) -> Condition:
    """Compiles a comparison of a property with a number; a property NaN is above all numbers.

    The number is neither NaN nor -0.0.
    """
    holds, read = SIGNS[sign], reader_for(number)
    above = sign in (">", ">=")

    def comparison(message: bytes) -> Truth:
        text = find(message)
        if text is None:
            return None
        value = read(text)
        return holds(value, number) if value == value else above

    return comparison


def _missing(find: Texts) -> Condition:
    return lambda message: find(message) is None


def _between(find: Texts, low: Any, high: Any) -> Condition:
    """Compiles BETWEEN for a property and two numbers: finds the property once. NaN is above `high`."""
    read = reader_for(low)

    def comparison(message: bytes) -> Truth:
        text = find(message)
        return None if text is None else low <= read(text) <= high

    return comparison


def _text(find: Texts, constant: bytes) -> Condition:
    def equality(message: bytes) -> Truth:
        text = find(message)
        return None if text is None else text == constant

    return equality


def _equal(left: Operand, right: Operand) -> Condition:
    def equality(message: bytes) -> Truth:
        first, second = left(message), right(message)
        if first is None:
            return True if second is None else None
        return second is not None and compare(first, second) == 0

    return equality


def _ordered(left: Operand, right: Operand, holds: Callable[[Any, Any], bool]) -> Condition:
    def comparison(message: bytes) -> Truth:
        first = left(message)
        if first is None:
            return None
        second = right(message)
        if second is None:
            return None
        if isinstance(first, bytes) and isinstance(second, bytes):
            return holds(compare_doubles(as_double(first), as_double(second)), 0)
        return holds(compare(first, second), 0)

    return comparison


def _negative(operand: Operand) -> Operand:
    """Compiles the minus sign: the negative of a number; None (missing) for other values, also properties."""

    def negative(message: bytes) -> Value:
        value = operand(message)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return Long(-value) if isinstance(value, Long) else -value

    return negative
