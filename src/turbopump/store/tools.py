"""Tools for operators: check a store, rebuild its queues and index, read its records, copy it.

    verify(directory)     a generator of Progress that returns a VerifyReport; reads only
    rebuild(directory)    a generator of Progress that returns a Rebuilt; the store must not be in use
    dump(directory)       the records of the log, one by one; reads only
    backup(directory, to) a generator of Progress that returns a Copied; reads only, also beside a broker
    run(generator)        runs one of them to its end and returns its value

Sizes of files are taken from the files themselves, so that the same call works for stores of any
configuration, ours or Apache's.
"""

from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

from turbopump.protocol.record import Record, decode
from turbopump.runtime.disk import Disk, SystemDisk
from turbopump.store.backup import Copied, backup
from turbopump.store.dledger.entry_walk import store_parts
from turbopump.store.pieces import Kind
from turbopump.store.rebuild import Rebuilt, rebuild
from turbopump.store.verify import Progress, TopicCount, VerifyReport, verify
from turbopump.store.walk import walk

__all__ = [
    "Copied",
    "Progress",
    "Rebuilt",
    "TopicCount",
    "VerifyReport",
    "backup",
    "dump",
    "rebuild",
    "run",
    "verify",
]

R = TypeVar("R")


def run(steps: Generator[Progress, None, R], on_progress: Callable[[Progress], None] | None = None) -> R:
    """Runs a tool to its end, passes its progress to a function, and returns its value."""
    while True:
        try:
            progress = next(steps)
        except StopIteration as end:
            result: R = end.value
            return result
        if on_progress is not None:
            on_progress(progress)


def dump(
    directory: str,
    topic: str | None = None,
    queue_id: int | None = None,
    begin: int = 0,
    end: int | None = None,
    queue_begin: int = 0,
    queue_end: int | None = None,
    count: int | None = None,
    disk: Disk | None = None,
    log_dir: str = "",
) -> Iterator[Record]:
    """Yields the selected records of a store's log in log order; skips damaged parts.

    The parameters select a topic, a queue, log offsets in [begin, end), queue offsets in [queue_begin,
    queue_end), and the first `count` of these.
    """
    disk = disk or SystemDisk()
    parts = [part for part in store_parts(directory, disk, log_dir) if part.end > begin]
    left = count if count is not None else -1
    for piece in walk(parts, disk):
        if left == 0 or (end is not None and piece.offset >= end):
            return
        fields = piece.fields
        if piece.kind is not Kind.RECORD or fields is None or piece.offset < begin:
            continue
        if (
            (topic is None or fields.topic == topic)
            and (queue_id is None or fields.queue_id == queue_id)
            and queue_begin <= fields.queue_offset
            and (queue_end is None or fields.queue_offset < queue_end)
        ):
            left -= 1
            yield decode(piece.buffer, piece.position)
