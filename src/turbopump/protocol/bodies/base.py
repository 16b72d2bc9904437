"""Base of bodies: decoding and encoding, queues as values and as keys, defaults that are written."""

from functools import total_ordering
from typing import Any, Self, TypeVar

import msgspec

from turbopump.protocol import dialect
from turbopump.protocol.bodies.lenient import repaired
from turbopump.protocol.display import html_of, short_repr
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.headers.base import I32

MAX_DIALECT_BYTES = 4 * 1024 * 1024
"""Greatest size of a body in the dialect; for standard JSON the frame is the only limit."""

T = TypeVar("T")


def decode(kind: type[T], data: bytes) -> T:
    """Decodes a JSON body, standard or in fastjson's dialect, to a struct `kind`. Raises BrokenBody."""
    decoder = _decoder(kind)
    try:
        return decoder.decode(data)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        data = dialect.standard(data, MAX_DIALECT_BYTES)
    try:
        return decoder.decode(data)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        pass  # perhaps values of other JSON types, which Java's reader accepts
    try:
        return decoder.decode(to_json(repaired(kind, msgspec.json.decode(data))))  # type: ignore[no-any-return]
    except (ValueError, OverflowError, RecursionError) as error:
        raise BrokenBody(f"no {kind.__name__}: {error}") from None


class Body(msgspec.Struct, omit_defaults=True, repr_omit_defaults=True):
    """Base of bodies in standard JSON. None is left out; defaults from a factory are written."""

    __repr__ = short_repr
    _repr_html_ = html_of

    @classmethod
    def decode(cls, data: bytes) -> Self:
        return decode(cls, data)

    def encode(self) -> bytes:
        return to_json(self)


class DialectBody(Body):
    """Base of bodies with integer or queue keys in a map, which are written in fastjson's dialect."""

    def encode(self) -> bytes:
        return dialect.dumps(self)


@total_ordering
class WireQueue(dialect.AsObject):
    """One queue of a topic on a broker. Also a key of maps, where Java writes the object itself."""

    __slots__ = ("brokerName", "queueId", "topic")

    def __init__(self, brokerName: str, queueId: int, topic: str) -> None:  # noqa: N803
        self.brokerName = brokerName
        self.queueId = queueId
        self.topic = topic

    def __repr__(self) -> str:
        return f"WireQueue({self.brokerName!r}, {self.queueId}, {self.topic!r})"

    def __hash__(self) -> int:
        return hash((self.topic, self.brokerName, self.queueId))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WireQueue) and self._order() == other._order()

    def __lt__(self, other: "WireQueue") -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[str, str, int]:
        return self.topic, self.brokerName, self.queueId

    def to_wire(self) -> dict[str, Any]:
        return {"brokerName": self.brokerName, "queueId": self.queueId, "topic": self.topic}


class _QueueFields(msgspec.Struct):
    brokerName: str = ""
    queueId: I32 = 0
    topic: str = ""


def always(value: Any) -> Any:
    """Declares a field default that is written even when the field has this value."""
    return msgspec.field(default_factory=lambda: value)


def empty_list() -> Any:
    return msgspec.field(default_factory=lambda: [])


def empty_map() -> Any:
    return msgspec.field(default_factory=lambda: {})


def new(kind: Any) -> Any:
    return msgspec.field(default_factory=lambda: kind())


# --- reading and writing -----------------------------------------------------------------------------


def _write_custom(value: Any) -> Any:
    if isinstance(value, WireQueue):
        return value.to_wire()
    raise NotImplementedError(type(value))


def _read_custom(kind: type[Any], value: Any) -> Any:
    """Converts an object, or its text where it is a map key, to a WireQueue; a decoding hook of msgspec.

    The text may have an older form.
    """
    if kind is not WireQueue:
        raise NotImplementedError(kind)
    if isinstance(value, str):
        value = msgspec.json.decode(value)
    fields = msgspec.convert(repaired(_QueueFields, value), _QueueFields, strict=False)
    return WireQueue(fields.brokerName, fields.queueId, fields.topic)


to_json = msgspec.json.Encoder(enc_hook=_write_custom).encode


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = msgspec.json.Decoder(kind, strict=False, dec_hook=_read_custom)
    return found
