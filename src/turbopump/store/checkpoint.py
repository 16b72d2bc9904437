"""The checkpoint: how far the derived files are known to be complete and on the medium.

    0   store time of the last record synced             32  confirmed log offset (controller mode)
    8   store time of the last record in its queue       40  log offset of that record
    16  store time of the last record in the index       rest zero, to Apache
    24  master's flushed offset (slaves)

Apache's recovery starts at the beginning of a file that these times allow. Ours can start at a record: after
the fields there is a note, ignored by Apache, with the offset below which log, queues and index are complete.
Its checksum covers the fields too, so that it is valid only until another program writes the checkpoint.

    256 "TURBOPMP" | i64 complete below | i64 last record below | i64 index end | i32 queues | u32 checksum
"""

import os
import struct
import zlib
from dataclasses import dataclass, replace

from turbopump.runtime.disk import Disk

SIZE = 4096
FIELDS = struct.Struct(">qqqqqq")
NOTE_AT = 256  # in the sector of the fields: a crash leaves both old or both new
NOTE = struct.Struct(">8sqqqi")
SEAL = struct.Struct(">I")
MARK = b"TURBOPMP"


@dataclass(frozen=True, slots=True)
class CheckpointNote:
    """The part of a checkpoint that only Turbopump writes: the log offset below which all is complete."""

    complete: int  # log, queues and index have everything below this offset, on the medium
    last_record: int  # the record that ends there
    index_end: int  # offset of the last message in the index
    queues: int  # how many there were on disk


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Contents of the file `checkpoint`: store times (ms) and log offsets up to which files are synced."""

    log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed: int = 0
    confirmed: int = 0
    queue_offset: int = 0
    note: CheckpointNote | None = None


def load(disk: Disk, path: str) -> Checkpoint:
    """Reads the checkpoint file; a missing or short one counts as all zeros: everything is read again."""
    data = disk.read(path) if disk.exists(path) else b""
    if len(data) < FIELDS.size:
        return Checkpoint()
    return replace(Checkpoint(*FIELDS.unpack_from(data)), note=_note(data))


def pack(checkpoint: Checkpoint) -> bytes:
    data = bytearray(SIZE)
    FIELDS.pack_into(
        data,
        0,
        checkpoint.log_timestamp,
        checkpoint.queue_timestamp,
        checkpoint.index_timestamp,
        checkpoint.master_flushed,
        checkpoint.confirmed,
        checkpoint.queue_offset,
    )
    if (note := checkpoint.note) is not None:
        NOTE.pack_into(data, NOTE_AT, MARK, note.complete, note.last_record, note.index_end, note.queues)
        SEAL.pack_into(data, NOTE_AT + NOTE.size, _checksum(data))
    return bytes(data)


def save(disk: Disk, path: str, checkpoint: Checkpoint) -> None:
    """Writes and syncs the checkpoint in place: after a crash either the old or the new one is valid."""
    is_new = not disk.exists(path)
    file = disk.open_plain(path, create=True, size=SIZE)
    try:
        file.write_at(0, pack(checkpoint))
        file.sync()
    finally:
        file.close()
    if is_new:
        disk.sync_dir(os.path.dirname(path))


def _note(data: bytes) -> CheckpointNote | None:
    if len(data) < NOTE_AT + NOTE.size + SEAL.size:
        return None
    mark, *values = NOTE.unpack_from(data, NOTE_AT)
    (seal,) = SEAL.unpack_from(data, NOTE_AT + NOTE.size)
    return CheckpointNote(*values) if mark == MARK and seal == _checksum(data) else None


def _checksum(data: bytes | bytearray) -> int:
    return zlib.crc32(data[NOTE_AT : NOTE_AT + NOTE.size], zlib.crc32(data[: FIELDS.size]))
