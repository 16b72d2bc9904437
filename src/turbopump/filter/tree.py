"""Nodes of a parsed expression. Built by the parser, compiled by `evaluate.py`."""

from dataclasses import dataclass
from typing import TypeAlias


class Long(int):
    """An integer of more than 32 bits. Text compared with it is read as 64 bits too."""


Value: TypeAlias = "bytes | bool | int | Long | float | None"
"""A constant; text is UTF-8 bytes, as in messages."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, text, TRUE, FALSE or NULL."""

    value: Value


@dataclass(frozen=True, slots=True)
class Property:
    """The value of a property of the message."""

    name: str


@dataclass(frozen=True, slots=True)
class Negation:
    """The negative of a number: a minus sign before a value."""

    of: "Node"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison by one of < <= > >= and =."""

    sign: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class InList:
    """A property compared with a list of texts: IN."""

    name: str
    texts: frozenset[bytes]
    negated: bool


@dataclass(frozen=True, slots=True)
class TextMatch:
    """A search for a text in a value: CONTAINS, STARTSWITH or ENDSWITH."""

    word: str
    of: "Node"
    text: bytes
    negated: bool


@dataclass(frozen=True, slots=True)
class PropertyCondition:
    """A property used as a condition: never true, since all properties are text."""

    name: str


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a condition."""

    of: "Node"


@dataclass(frozen=True, slots=True)
class And:
    """A conjunction of conditions: true when all parts are."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """A disjunction of conditions: true when any part is."""

    parts: tuple["Node", ...]


Node: TypeAlias = (
    Constant | Property | Negation | Comparison | InList | TextMatch | PropertyCondition | Not | And | Or
)
