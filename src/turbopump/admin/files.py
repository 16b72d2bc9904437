"""Files that an operator hands to a command."""

from typing import TypeVar

from turbopump.admin.command import Failed
from turbopump.protocol import bodies
from turbopump.protocol.errors import BrokenBody
from turbopump.runtime.disk import Disk

T = TypeVar("T")


def listed(disk: Disk, path: str, kind: type[T]) -> list[T]:
    """The items of a JSON array. Raises Failed for a file without any, OSError for none at all."""
    try:
        found: list[T] = bodies.decode(list[kind], disk.read(path))  # type: ignore[valid-type]
    except BrokenBody as error:
        raise Failed(f"{path}: {error}") from None
    if not found:
        raise Failed(f"{path}: an empty list")
    return found
