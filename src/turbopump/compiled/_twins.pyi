from array import array
from collections.abc import Callable
from mmap import mmap
from typing import Any

class PlainSends:
    def __new__(
        cls,
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
    ) -> PlainSends: ...
    def take(
        self, data: bytes, born_host: bytes, arrivals: list[tuple[Any, int, int]] | None, /
    ) -> tuple[int, bytes, list[Any]] | None: ...

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
