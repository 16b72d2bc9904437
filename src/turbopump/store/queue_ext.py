"""Extension files of consume queues, as Apache writes them with `enableConsumeQueueExt`. Only read here.

An entry's tag code at or below -2^31-1 is then an address: -2^63 plus the position, in the queue's extension
files, of

    i16 size | i64 tag code | i64 store time | i16 length + filter bit map

We write tag codes into the entries themselves; Apache accepts both in one queue.
"""

import os
import struct

from turbopump.runtime.disk import Disk
from turbopump.store.segment import file_name

UNIT = struct.Struct(">hqqh")
HIGHEST_ADDRESS = -(2**31) - 1
ADDRESS_BASE = -(2**63)


def is_address(tags_code: int) -> bool:
    return tags_code <= HIGHEST_ADDRESS


class Extension:
    """The extension files of one queue."""

    def __init__(self, directory: str, file_size: int, disk: Disk) -> None:
        self._directory = directory
        self._file_size = file_size
        self._disk = disk

    def tags_code(self, address: int) -> int | None:
        position = address - ADDRESS_BASE
        at = position % self._file_size
        path = os.path.join(self._directory, file_name(position - at))
        try:
            file = self._disk.open_plain(path)
        except OSError:
            return None
        try:
            found = file.read_at(at, UNIT.size)
        finally:
            file.close()
        if len(found) < UNIT.size:
            return None
        size, tags_code, _, bits = UNIT.unpack(found)
        return tags_code if size == UNIT.size + bits else None
