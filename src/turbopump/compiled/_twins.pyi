"""Types of the compiled module: constructors of the classes described in `__init__.py`, and a loop."""

from array import array
from collections.abc import Callable
from mmap import mmap
from typing import Any

from turbopump import compiled

def PlainSends(  # noqa: N802 - a class; only its constructor is typed here
    *,
    log: Any,
    flags: Any,
    appender: Any,
    keys: list[Any],
    dirty: dict[Any, None],
    now_ms: Callable[[], int],
    targets: dict[str, list[Any]],
    not_plain: tuple[bytes, ...],
    added: bytes,
    hurried: tuple[bytes, ...],
    waited: tuple[bytes, ...],
    max_message_size: int,
    max_frame: int,
) -> compiled.PlainSends: ...
def Groups(  # noqa: N802
    *,
    log: Any,
    flags: Any,
    appender: Any,
    keys: list[Any],
    dirty: dict[Any, None],
    now_ms: Callable[[], int],
) -> compiled.GroupAppender: ...
def put_keys(
    waiting: list[tuple[Any, int, int, str, str]],
    most: int,
    slots: array[int],
    map: mmap | bytearray,
    items_at: int,
    begin_timestamp: int,
    count: int,
    limit: int,
    used: int,
    end_timestamp: int,
    end_offset: int,
    repeat_offset: int,
    /,
) -> tuple[int, int, int, int, int]: ...
def signed_send(
    data: bytes, at: int, max_frame: int, /
) -> tuple[int, str, bytes, str, bytes, int] | None: ...
def dispatch_copied(
    buffer: mmap | bytearray,
    start: int,
    position: int,
    limit: int,
    check_crc: bool,
    named: dict[tuple[bytes, int], Any],
    dirty: dict[Any, None],
    keys: list[Any],
    arrivals: compiled.Arrivals | None,
    not_plain: tuple[bytes, ...],
    /,
) -> tuple[int, int, int]: ...
