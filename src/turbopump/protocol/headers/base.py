"""Base of typed headers: decodes them from ext fields and encodes them.

Every field is text on the wire. Reading is as lenient as Java's: unknown fields are ignored, an optional
field whose text cannot be read counts as absent, a flag is set by "true" in any case. (Java reads "1" as
false, we as true: C++ clients mean that.) A required field that is absent or unreadable raises
`SystemFailure` naming the field; a Java server answers with code 1 too.
"""

from typing import Annotated, Any, Self

import msgspec

from turbopump.protocol.errors import SystemFailure

I32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
I64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Header(msgspec.Struct, gc=False):
    """Base of headers. Fields have their wire spelling; those without a default are required."""

    @classmethod
    def from_ext(cls, ext: dict[str, str] | None) -> Self:
        try:
            return msgspec.convert(ext or {}, cls, strict=False)
        except msgspec.ValidationError:
            return _read_leniently(cls, ext or {})  # type: ignore[no-any-return]

    def to_ext(self) -> dict[str, str]:
        ext = {}
        for attribute, wire_name in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = getattr(self, attribute)
            if value is not None:
                ext[wire_name] = _text(value)
        return ext


def _text(value: str | int | bool) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)


def _read_leniently(cls: type[Any], ext: dict[str, str]) -> Any:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(cls):
        raw = ext.get(field.encode_name)
        if raw is not None:
            try:
                values[field.name] = _read_field(raw, field.type)
                continue
            except ValueError:
                if field.required:
                    raise SystemFailure(f"the field {field.encode_name} cannot be {raw[:40]!r}") from None
        if field.required:
            raise SystemFailure(f"the field {field.encode_name} is missing")
    return cls(**values)


def _read_field(raw: str, kind: Any) -> Any:
    if kind in (bool, bool | None):
        return raw.strip().lower() in ("true", "1")
    if kind in (str, str | None):
        return raw
    return msgspec.convert(int(raw) if len(raw) < 24 else raw, kind, strict=False)
