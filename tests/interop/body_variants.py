"""Variants of a JSON body: each value once in every other form that a client might write it in.

In: a whole body as Java writes it. Out: its bytes by name, the body itself first. A variant is named by the
path of the value and the form, `consumerDataSet.0.consumeType as its ordinal`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, TypeAlias

WHOLE = "as Java writes it"
NUMBER = 70_001  # stands for a name where a number is sent for text
ABSENT: Any = object()

Path: TypeAlias = tuple[str | int, ...]

# Ordinals of the values that the bodies use; where an enum ends, no ordinal follows.
ENUMS = {
    "CONSUME_FROM_FIRST_OFFSET": 4,
    "CONSUME_PASSIVELY": 1,
    "CLUSTERING": 1,
    "MULTI_TAG": 1,
    "EXPONENTIAL": 0,
    "PULL": 0,
}
BEYOND_EVERY_ENUM = 99


def variants(body: dict[str, Any]) -> dict[str, bytes]:
    found = {WHOLE: _bytes(body)}
    for path, value in _values(body):
        where = ".".join(map(str, path))
        for form, other in _forms(value):
            found[f"{where} {form}"] = _bytes(_with(body, path, other))
    return {**found, **_others(body)}


def _others(body: dict[str, Any]) -> dict[str, bytes]:
    return {
        "with unknown fields": _bytes({**body, "zz": {"a": [1, None, {"b": 2}]}, "zzz": "z"}),
        "no fields": b"{}",
        "null": b"null",
        "a list": b"[]",
        "no bytes": b"",
        "half of it": _bytes(body)[: len(_bytes(body)) // 2],
    }


def _values(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value in the body, whatever holds others too."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _values(item, (*path, name))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _values(item, (*path, index))


def _forms(value: Any) -> Iterator[tuple[str, Any]]:
    yield "missing", ABSENT
    yield "null", None
    if isinstance(value, bool):
        yield from _of_boolean(value)
    elif isinstance(value, int):
        yield from _of_number(value)
    elif isinstance(value, str) and value in ENUMS:
        yield from _of_enum(value)
    elif isinstance(value, str):
        yield from (("a number", NUMBER), ("true", True), ("with a fraction", 1.5), ("empty", ""))
    elif isinstance(value, list):
        yield "as its only value", value[0]
    else:
        yield from (("replaced by a number", 5), ("replaced by a text", "x"))


def _of_boolean(value: bool) -> Iterator[tuple[str, Any]]:
    text = "true" if value else "false"
    yield from (("as text", text), ("in capitals", text.upper()), ("as number", int(value)))
    yield from (("as digit", str(int(value))), ("empty", ""), ("a word", "maybe"), ("a list", [value]))


def _of_number(value: int) -> Iterator[tuple[str, Any]]:
    yield from (
        ("as text", str(value)),
        ("with a fraction", value + 0.5),
        ("as text with a sign", f"+{value}"),
    )
    yield from (("true", True), ("empty", ""), ("a word", "x"), ("an object", {}), ("too large", 1 << 70))


def _of_enum(value: str) -> Iterator[tuple[str, Any]]:
    ordinal = ENUMS[value]
    yield from (("as its ordinal", ordinal), ("as its ordinal in text", str(ordinal)))
    yield from (("in small letters", value.lower()), ("of an unknown name", "NEVER_HEARD_OF"))
    yield from (("empty", ""), ("beyond the last ordinal", BEYOND_EVERY_ENUM), ("true", True))


def _with(body: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(body)
    holder: Any = changed
    for step in path[:-1]:
        holder = holder[step]
    if value is ABSENT:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return changed


def _bytes(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
