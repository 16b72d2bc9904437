"""Reads files that a user passes to a command."""

from typing import TypeVar

from turbopump.admin.command import CommandFailed
from turbopump.protocol import bodies
from turbopump.protocol.errors import BrokenBody
from turbopump.runtime.disk import Disk

T = TypeVar("T")


def listed(disk: Disk, path: str, kind: type[T]) -> list[T]:
    """Returns the items of a file's JSON array. Raises CommandFailed if empty or malformed; OSError."""
    try:
        found: list[T] = bodies.decode(list[kind], disk.read(path))  # type: ignore[valid-type]
    except BrokenBody as error:
        raise CommandFailed(f"{path}: {error}") from None
    if not found:
        raise CommandFailed(f"{path}: the list must not be empty")
    return found
