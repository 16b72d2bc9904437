"""fastjson's dialect of JSON: integer keys of a map are not quoted, and a key may be an object.

    {0:"10.0.0.1:10911"}      {{"brokerName":"b","queueId":0,"topic":"T"}:5}

In: bytes of a Java peer or of a configuration file, or values to write. `standard` turns the dialect into
JSON that any parser reads: an integer key gets quotes, an object key becomes a string that holds the object's
compact JSON (Java reads that back as well). Unreadable text raises `BrokenBody`. Not accepted, since no known
peer writes them: single quotes, trailing commas, comments, arrays as keys, object keys inside object keys.
"""

import re
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from turbopump.protocol.errors import BrokenBody

MAX_TEXT = 64 * 1024 * 1024
"""Greatest length of text in the dialect, in bytes; standard JSON goes straight to the parser."""

IntKeys: TypeAlias = dict[int, Any]
"""A map whose keys are written unquoted."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|".*', re.DOTALL)  # or a string that does not end
_MARK = b"\x01"  # stands for a string while the rest of the text is changed
_WORD_START = re.compile(rb"(?<![-+.$\w])(?=[-+.$\w]+\s*:)")
_WORD_END = re.compile(rb"(?<=[-+.$\w])(?=\s*:)")
_OBJECT_KEY = re.compile(rb"(\{[^{}]*\})(?=\s*:)")
_to_json = msgspec.json.Encoder().encode


class AsObject:
    """Base of values that are not structs but are written as JSON objects, also as keys."""

    __slots__ = ()

    def to_wire(self) -> dict[str, Any]:
        raise NotImplementedError


def loads(data: bytes, limit: int = MAX_TEXT) -> Any:
    """Reads JSON, standard of any size or dialect up to `limit` bytes; keys are str. Raises BrokenBody."""
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        pass
    try:
        return msgspec.json.decode(standard(data, limit))
    except (ValueError, RecursionError) as error:
        raise BrokenBody(f"unreadable JSON: {error}") from None


def dumps(value: Any) -> bytes:
    """Writes compact JSON: None is left out, int keys are unquoted, a struct as key is an object."""
    out: list[str] = []
    _write(value, out)
    return "".join(out).encode()


def dumps_pretty(value: Any) -> bytes:
    """Writes JSON as in the configuration files of Apache 5.5: TAB indentation, no blank after the colon.

    There is no newline at the end. A tuple stays on its line, as a Java array does; a list has a line for
    each item.
    """
    out: list[str] = []
    _write_pretty(value, out, "\n")
    return "".join(out).encode()


def standard(data: bytes, limit: int = MAX_TEXT) -> bytes:
    """Translates the dialect into standard JSON, without checking that the text is valid or how deep it is.

    Strings are set aside first; then a bare word before a colon is a key, and so is an object before a
    colon. Each step is a pass of the regular-expression engine: 5 MB/s for a table of offsets, 2 MB/s for
    the worst text.
    """
    if len(data) > limit:
        raise BrokenBody(f"non-standard JSON must have at most {limit} bytes, got {len(data)}")
    strings = _STRING.findall(data)
    plain = _STRING.sub(_MARK, data)
    plain = _WORD_END.sub(b'"', _WORD_START.sub(b'"', plain))
    if plain.count(_MARK) != len(strings):
        raise BrokenBody("a control character outside of a string")
    pieces = _OBJECT_KEY.split(plain)
    if len(pieces) > 1:
        plain, strings = _with_object_keys_as_strings(pieces, strings)
    return _fill(plain, strings)


def _fill(plain: bytes, strings: list[bytes]) -> bytes:
    """Returns `plain` with its marks replaced by the strings, in order."""
    out = [b""] * (2 * len(strings) + 1)
    out[0::2] = plain.split(_MARK)
    out[1::2] = strings
    return b"".join(out)


def _with_object_keys_as_strings(pieces: list[bytes], strings: list[bytes]) -> tuple[bytes, list[bytes]]:
    """Turns object keys into strings; returns the text with marks, and the strings for them.

    `pieces`: text and object keys in turn, text first and last.
    """
    kept: list[bytes] = []
    at = 0
    for text, key in zip(pieces[0::2], pieces[1::2], strict=False):
        key_at = at + text.count(_MARK)
        after = key_at + key.count(_MARK)
        kept += strings[at:key_at]
        kept.append(_key_as_string(_fill(key, strings[key_at:after])))
        at = after
    return _MARK.join(pieces[0::2]), kept + strings[at:]


def _key_as_string(key: bytes) -> bytes:
    try:
        return _to_json(_to_json(msgspec.json.decode(key)).decode())
    except (ValueError, OverflowError, RecursionError) as error:
        raise BrokenBody(f"unreadable object key: {error}") from None


def _write(value: Any, out: list[str]) -> None:
    pairs = _pairs(value)
    if pairs is not None:
        mark = "{"
        for key, item in pairs:
            out.append(mark)
            out.append(key)
            _write(item, out)
            mark = ","
        out.append("{}" if mark == "{" else "}")
    elif isinstance(value, list | tuple | set | frozenset):
        mark = "["
        for item in value:
            out.append(mark)
            _write(item, out)
            mark = ","
        out.append("[]" if mark == "[" else "]")
    else:
        out.append(_to_json(value).decode())


def _write_pretty(value: Any, out: list[str], line: str) -> None:
    """Appends the indented JSON of a value to `out`; `line`: newline and indentation of its line."""
    pairs = _pairs(value)
    inner = line + "\t"
    if pairs is not None:
        mark = "{"
        for key, item in pairs:
            out += (mark, inner, key)
            _write_pretty(item, out, inner)
            mark = ","
        out.append("{}" if mark == "{" else line + "}")
    elif isinstance(value, list | set | frozenset):
        mark = "["
        for item in value:
            out += (mark, inner)
            _write_pretty(item, out, inner)
            mark = ","
        out.append("[]" if mark == "[" else line + "]")
    else:
        _write(value, out)


def _pairs(value: Any) -> Iterable[tuple[str, Any]] | None:
    """Returns (key with its colon, item) of a value written as an object; None for other values."""
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return [
            (f'"{wire_name}":', item)
            for wire_name, name in names
            if (item := getattr(value, name)) is not None
        ]
    if isinstance(value, AsObject):
        value = value.to_wire()
    if isinstance(value, dict):
        return [(_key(key), item) for key, item in value.items() if item is not None]
    return None


def _key(key: Any) -> str:
    if isinstance(key, str):
        return _to_json(key).decode() + ":"
    if isinstance(key, int):
        return f"{int(key)}:"
    return dumps(key).decode() + ":"
