"""Converts values of another JSON type that Apache's JSON reader accepts for a field.

In: a decoded JSON document and the type of the body. Out: the document with such values replaced by those
that msgspec accepts for that type: an enum's ordinal by its name, `"5"` or `5.7` by 5, 7 by `"7"`, 1 by true,
one object by a list of one. What Apache's reader refuses stays unchanged, so that msgspec refuses it with its
path.

The rules are fastjson's (4.x) and fastjson2's (5.x), as observed on their servers; where the two differ, a
value that either accepts is accepted. Only bodies that msgspec refuses at first come here, so usual clients
pay nothing for it.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

NAMES = "names"
MAX_DIGITS = 400
"""Greatest length of text that is read as a number."""

ABSENT: Any = object()
"""Marks a field that counts as not sent and gets its default."""

_Repair: TypeAlias = Callable[[Any], Any]

_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?\Z")
_NOTHING = ("", "null")
_BOOLEANS = {
    "true": True,
    "1": True,
    "y": True,
    "t": True,
    "false": False,
    "0": False,
    "n": False,
    "f": False,
}


def java_enum(*names: str) -> msgspec.Meta:
    """Returns msgspec metadata for text that is an enum in Java; `names` in the order of their ordinals.

    ConsumeType = Annotated[str, java_enum("CONSUME_ACTIVELY", "CONSUME_PASSIVELY")]
    """
    return msgspec.Meta(pattern=rf"^(?:{'|'.join(names)})\Z", extra={NAMES: names})


def repaired(kind: Any, value: Any) -> Any:
    """Returns a decoded document with its values converted to types that msgspec accepts for `kind`."""
    return _repair_of(kind)(value)


@cache
def _repair_of(kind: Any) -> _Repair:
    return _compiled(inspect.type_info(kind))


def _compiled(info: inspect.Type) -> _Repair:
    if isinstance(info, inspect.Metadata):
        names = (info.extra or {}).get(NAMES)
        return _enum(names) if names is not None else _compiled(info.type)
    if isinstance(info, inspect.UnionType):
        return _optional(info)
    if isinstance(info, inspect.StructType):
        return _struct(info)
    if isinstance(info, inspect.ListType):
        return _list(info)
    if isinstance(info, inspect.DictType):
        return _map(info)
    return _SCALARS.get(type(info), _as_it_is)


def _as_it_is(value: Any) -> Any:
    return value


def _optional(info: inspect.UnionType) -> _Repair:
    """Returns a converter for a field that may be null; a field of several types stays unchanged.

    There is one such field, in an answer.
    """
    others = [one for one in info.types if not isinstance(one, inspect.NoneType)]
    if len(others) != 1:
        return _as_it_is
    repair = _compiled(others[0])
    return lambda value: None if value is None else repair(value)


def _struct(info: inspect.StructType) -> _Repair:
    """Returns a converter for a struct: it drops unknown fields, and nulls of fields that cannot be null."""
    fields = {field.encode_name: _field(field.type) for field in info.fields}

    def repair(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        found = {}
        for name, item in value.items():
            read = fields.get(name)
            if read is None:
                continue
            item = read(item)
            if item is not ABSENT:
                found[name] = item
        return found

    return repair


def _field(info: inspect.Type) -> _Repair:
    read = _compiled(info)
    if isinstance(info, inspect.UnionType | inspect.AnyType):
        return read
    return lambda value: ABSENT if value is None else read(value)


def _list(info: inspect.ListType) -> _Repair:
    """Returns a converter for a list: a lone value becomes a list of one; nulls among scalars are dropped."""
    read = _compiled(info.item_type)
    holds_scalars = _is_scalar(info.item_type)

    def repair(value: Any) -> Any:
        if isinstance(value, str | int | float if holds_scalars else dict):
            value = [value]
        if not isinstance(value, list):
            return value
        items = [read(item) for item in value]
        return [item for item in items if item is not ABSENT] if holds_scalars else items

    return repair


def _map(info: inspect.DictType) -> _Repair:
    """Returns a converter for a map's values, not its keys; drops null values where values are scalars.

    Nulls among objects are refused later.
    """
    read = _compiled(info.value_type)
    holds_scalars = _is_scalar(info.value_type)

    def repair(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        items = {key: read(item) for key, item in value.items()}
        return {key: item for key, item in items.items() if item is not ABSENT} if holds_scalars else items

    return repair


def _is_scalar(info: inspect.Type) -> bool:
    return isinstance(info, inspect.Metadata) or type(info) in _SCALARS


def _enum(names: tuple[str, ...]) -> _Repair:
    """Returns a converter for an enum, from a name in any case, with or without underscores, or an ordinal.

    An unknown name counts as null.
    """
    folded = {name.replace("_", "").lower(): name for name in names}

    def repair(value: Any) -> Any:
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value[:MAX_DIGITS])
        if isinstance(value, str):
            return folded.get(value.replace("_", "").lower(), ABSENT)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
            return names[value]
        return ABSENT if value is None else value

    return repair


def _integer(value: Any) -> Any:
    if isinstance(value, str):
        return _integer_of_text(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and abs(value) < 1 << 64:  # not infinite, and not NaN
        return int(value)
    return ABSENT if value is None else value


def _integer_of_text(text: str) -> Any:
    if text in _NOTHING:
        return ABSENT
    digits = text.replace(",", "")
    if len(digits) > MAX_DIGITS or not _NUMBER.match(digits):
        return text
    return int(digits.partition(".")[0])


def _float(value: Any) -> Any:
    return ABSENT if value is None or value in _NOTHING else value


def _boolean(value: Any) -> Any:
    """Converts text or a number to a boolean, if Java would; of numbers only 1 is true. Null is ABSENT."""
    if isinstance(value, str):
        return ABSENT if value in _NOTHING else _BOOLEANS.get(value.lower(), value)
    if isinstance(value, int | float):
        return value == 1
    return ABSENT if value is None else value


def _text(value: Any) -> Any:
    """Returns text unchanged and any other value as the text of its JSON; null is ABSENT."""
    if isinstance(value, str):
        return value
    return ABSENT if value is None else msgspec.json.encode(value).decode()


_SCALARS: dict[type[Any], _Repair] = {
    inspect.IntType: _integer,
    inspect.FloatType: _float,
    inspect.BoolType: _boolean,
    inspect.StrType: _text,
}
