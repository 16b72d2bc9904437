"""What an expression consists of. Built by the parser, read by `evaluate.py`."""

from dataclasses import dataclass
from typing import TypeAlias


class Long(int):
    """A whole number that was written beyond 32 bits. A text that is compared with it may be as long."""


Value: TypeAlias = "bytes | bool | int | Long | float | None"
"""Texts are kept in UTF-8, as messages have them."""


@dataclass(frozen=True, slots=True)
class Constant:
    value: Value


@dataclass(frozen=True, slots=True)
class Property:
    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    of: "Node"


@dataclass(frozen=True, slots=True)
class Compared:
    """By one of < <= > >= and =."""

    sign: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class OneOf:
    name: str
    texts: frozenset[bytes]
    negated: bool


@dataclass(frozen=True, slots=True)
class Holds:
    """CONTAINS, STARTSWITH and ENDSWITH."""

    word: str
    of: "Node"
    text: bytes
    negated: bool


@dataclass(frozen=True, slots=True)
class Flag:
    """A property where a truth value is wanted: never true, since all properties are texts."""

    name: str


@dataclass(frozen=True, slots=True)
class Not:
    of: "Node"


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Any:
    parts: tuple["Node", ...]


Node: TypeAlias = Constant | Property | Negative | Compared | OneOf | Holds | Flag | Not | All | Any
