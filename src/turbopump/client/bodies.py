"""JSON bodies: encodes and decodes plain values, dataclasses, msgspec structs and pydantic models.

A pydantic model is recognised by its two methods, so that only programs which use pydantic need it.
"""

from typing import Any, TypeVar, cast

import msgspec

from turbopump.client.errors import UnreadableMessage

T = TypeVar("T")


def to_json(value: object) -> bytes:
    """Encodes a value as JSON. Raises TypeError for a value that JSON cannot represent."""
    if hasattr(type(value), "model_dump_json"):
        return cast(Any, value).model_dump_json().encode()  # type: ignore[no-any-return]
    return msgspec.json.encode(value)


def from_json(body: bytes, kind: type[T] | None = None) -> T:
    """Decodes a JSON body, as `kind` if given. Raises UnreadableMessage, which names the wrong field."""
    try:
        if kind is not None and hasattr(kind, "model_validate_json"):
            return cast(Any, kind).model_validate_json(body)  # type: ignore[no-any-return]
        return msgspec.json.decode(body, type=kind or cast(type[T], Any))
    except ValueError as error:  # both libraries' errors are ValueErrors
        named = getattr(kind, "__name__", kind)
        asked = f"{named}" if kind is not None else "JSON"
        raise UnreadableMessage(f"the body must be {asked}: {error}") from None
