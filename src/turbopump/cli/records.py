"""Prints a stored message: as a line, as JSON, or in a format of the user.

Used by `tail` and `store dump`. Raises CommandFailure for an invalid format or condition.
"""

import base64
import json
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from turbopump.cli.failures import USAGE_ERROR, CommandFailure
from turbopump.filter.errors import BadExpression
from turbopump.filter.sql import compile_sql
from turbopump.protocol import properties
from turbopump.protocol.body_text import body_fields, body_text, printable
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.ids import offset_id
from turbopump.protocol.record import Record, body_of

Show = Callable[[Record], str]
Wanted = Callable[[Record], bool]

FIELDS = ("topic", "queue", "offset", "msgId", "offsetMsgId", "stored", "born", "tag", "keys", "properties")
SHOWN = (*FIELDS, "body", "bodyBase64", "size", "time")
"""Names that a format can contain."""
ESCAPES = {r"\n": "\n", r"\t": "\t"}


def show_line(body_limit: int) -> Show:
    """Returns a function that formats a message as one line; `body_limit` 0 for the whole body."""
    return lambda record: line(record, body_limit)


def show_json(body_limit: int) -> Show:
    """Returns a function that formats a message as a JSON object; `bodyCut` marks a truncated body."""
    return lambda record: json.dumps(fields(record, body_limit))


def show_format(text: str, body_limit: int) -> Show:
    r"""Returns a function that fills a message's values into the text for `{queue}`, `{body}` and so on.

    `{properties[name]}` is a property; `\n` is a line end, `\t` a tab. Raises CommandFailure for other names.
    """
    for written, meant in ESCAPES.items():
        text = text.replace(written, meant)
    parts = _checked_parts(text)

    def show(record: Record) -> str:
        values = _values(record, body_limit)
        return "".join(before + (_value(name, values) if name else "") for before, name in parts)

    return show


def line(record: Record, body_limit: int = 0) -> str:
    marks = {"queue": record.queue_id, "offset": record.queue_offset, "tag": record.tags, "keys": record.keys}
    words = [f"{name}={value}" for name, value in marks.items() if value is not None]
    shown = text_of(record, body_limit)
    return printable(f"{moment(record.store_timestamp)} {' '.join(words)} | {shown}")


def fields(record: Record, body_limit: int = 0) -> dict[str, object]:
    """Returns the fields of a message: `body` for text, `bodyBase64` for a body that is not UTF-8."""
    return {
        "topic": record.topic,
        "queue": record.queue_id,
        "offset": record.queue_offset,
        "msgId": record.unique_key,
        "offsetMsgId": offset_id(record.store_host, record.physical_offset),
        "stored": record.store_timestamp,
        "born": record.born_timestamp,
        "tag": record.tags,
        "keys": record.keys,
        "properties": record.property_map(),
        **_body_fields(record, body_limit),
    }


def _body_fields(record: Record, limit: int) -> dict[str, object]:
    try:
        body = body_of(record)
    except BrokenBody as error:
        return {"bodyBase64": base64.b64encode(record.body).decode(), "bodyError": str(error)}
    if not 0 < limit < len(body):
        return {**body_fields(body)}
    # A cut inside a character would turn text into binary data.
    text = body[:limit].decode(errors="ignore") if "body" in body_fields(body) else None
    kept = body[:limit] if text is None else text.encode()
    return {**({"body": text} if text is not None else body_fields(kept)), "bodyCut": len(body)}


def text_of(record: Record, limit: int = 0) -> str:
    """Returns the body in one line, cut to `limit` characters (0: whole) with its size in bytes if cut."""
    try:
        body = body_of(record)
    except BrokenBody as error:
        return f"({len(record.body)} unreadable bytes: {error})"
    # A character has at most 4 bytes: the rest need not be decoded.
    shown = body_text(body[: 4 * limit] if limit else body)
    if not limit or (len(shown) <= limit and len(body) <= 4 * limit):
        return shown
    return f"{shown[:limit]}… (cut: {len(body)} bytes, --body-limit 0 shows all)"


def plain_body(record: Record) -> bytes:
    """Returns the body as it was sent, or as it is stored when it cannot be decompressed."""
    try:
        return body_of(record)
    except BrokenBody:
        return record.body


def moment(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):  # no such year
        return f"{time_ms} ms"


# --- formats ---------------------------------------------------------------------------------------------


def _checked_parts(text: str) -> list[tuple[str, str]]:
    try:
        found = list(string.Formatter().parse(text))
    except ValueError as error:
        raise CommandFailure(
            f"--format {text!r}: {error}; write {{{{ and }}}} for braces", USAGE_ERROR
        ) from None
    parts = []
    for before, name, spec, conversion in found:
        if spec or conversion or not (name is None or _is_known(name)):
            what = f"{name}{'!' + conversion if conversion else ''}{':' + spec if spec else ''}"
            known = ", ".join(SHOWN)
            raise CommandFailure(
                f"--format has no field {{{what}}}; use {known} or properties[NAME]", USAGE_ERROR
            )
        parts.append((before, name or ""))
    return parts


def _is_known(name: str) -> bool:
    return name in SHOWN or bool(_property_in(name))


def _property_in(name: str) -> str:
    return name[len("properties[") : -1] if name.startswith("properties[") and name.endswith("]") else ""


def _values(record: Record, body_limit: int) -> dict[str, object]:
    found = fields(record)
    return found | {
        "body": text_of(record, body_limit),
        "bodyBase64": base64.b64encode(plain_body(record)).decode(),
        "size": len(plain_body(record)),
        "time": moment(record.store_timestamp),
    }


def _value(name: str, values: Mapping[str, object]) -> str:
    own = values["properties"]
    assert isinstance(own, dict)
    value = own.get(_property_in(name)) if _property_in(name) else values[name]
    if value is None:
        return ""
    return printable(json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value))


# --- conditions ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Condition:
    """A SQL92 condition on properties and on `queue`, `offset`, `stored`, `born`, `size` and `body`."""

    text: str

    def predicate(self) -> Wanted:
        try:
            condition = compile_sql(self.text)
        except BadExpression as bad:
            raise CommandFailure(f"--where: {bad}", USAGE_ERROR) from None
        return lambda record: condition.matches(_known_of(record))


def _known_of(record: Record) -> bytes:
    """Returns a message's fields and properties as a property string for the filter; properties win."""
    own = record.property_map()
    known = {
        "queue": str(record.queue_id),
        "offset": str(record.queue_offset),
        "stored": str(record.store_timestamp),
        "born": str(record.born_timestamp),
        "size": str(len(plain_body(record))),
        "body": text_of(record),
    }
    return properties.pack(known | own).encode()
