"""What is kept of a TCC branch and of a saga, so that any process of the group can go on with it."""

from typing import Self, TypeVar

import msgspec

from turbopump.protocol.errors import BrokenBody

T = TypeVar("T")


class TccRegistration(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who takes part in a TCC transaction by a branch, and with which input."""

    participant: str
    input: str = ""

    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def read(cls, text: str) -> Self:
        """Decodes a registration. Raises BrokenBody."""
        return _read(text, cls)


class SagaOpening(msgspec.Struct, frozen=True, omit_defaults=True):
    """The plan of a saga: which one, in which version, and its input."""

    saga: str
    version: int
    input: str = ""

    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def read(cls, text: str) -> Self:
        """Decodes a plan. Raises BrokenBody."""
        return _read(text, cls)


def _read(text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise BrokenBody(f"the history of a global transaction cannot be read: {error}") from None
