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

class Groups:
    def __new__(
        cls,
        *,
        log: Any,
        flags: Any,
        appender: Any,
        keys: list[Any],
        dirty: dict[Any, None],
        now_ms: Callable[[], int],
    ) -> Groups: ...
    def batch(
        self,
        body: bytes,
        queue: Any,
        sys_flag: int,
        reconsume_times: int,
        born_timestamp: int,
        born_host: bytes,
        not_plain: tuple[bytes, ...],
        largest: int,
        id_front: bytes,
        arrivals: list[tuple[Any, int, int]] | None,
        /,
    ) -> tuple[str, int, int] | None: ...
    def halves(
        self,
        body: bytes,
        queue: Any,
        added: bytes,
        born_timestamp: int,
        born_host: bytes,
        not_plain: tuple[bytes, ...],
        most: int,
        largest: int,
        most_properties: int,
        ask: Callable[[bytes, bytes], tuple[str, int]],
        arrivals: list[tuple[Any, int, int]] | None,
        /,
    ) -> tuple[int, list[int], list[str], int] | None: ...
    def commit(
        self,
        halves: list[Any],
        file: Any,
        base: int,
        op_queue: Any,
        op_properties: bytes,
        op_key: bytes,
        op_code: int,
        waiting: tuple[bytes, ...],
        ask: Callable[[bytes, bytes], Any],
        arrivals: list[tuple[Any, int, int]] | None,
        /,
    ) -> tuple[list[int], list[Any]] | None: ...

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
