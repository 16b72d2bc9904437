"""A store that is copied and one that copies, by hand: bytes of the one, cut anywhere, for the other."""

import random
from collections.abc import Iterator

from tests.unit.store.lab import draft, fill, new_disk, open_store

from turbopump.protocol.sysflag import PREPARED
from turbopump.store.store import Store


def written(count: int = 60, size: int = 100, **settings: object) -> Store:
    """Returns a master's store with messages of several queues, half messages and tags."""
    store = open_store(new_disk(), **settings)
    fill(store, count, size=size)
    for number in range(5):
        queue = store.queues.queue("U", 0)
        store.log.append([draft(queue, b"tagged", key=f"U-{number}", tag="blue", keys=f"k{number} common")])
        store.log.append([draft(store.queues.queue("H", 0), b"half", sys_flag=PREPARED)])
    return store


def slave_on(disk: object = None, **settings: object) -> Store:
    """Opens a store for copying."""
    store = open_store(disk or new_disk(), **settings)  # type: ignore[arg-type]
    store.replica.open()
    return store


def bytes_of(store: Store, begin: int | None = None, end: int | None = None) -> bytes:
    replica = store.replica
    return replica.read(replica.min_offset if begin is None else begin, replica.end if end is None else end)


def pieces(data: bytes, chance: random.Random, largest: int = 700) -> Iterator[memoryview]:
    """Cuts bytes anywhere."""
    at = 0
    while at < len(data):
        size = chance.randint(1, largest)
        yield memoryview(data)[at : at + size]
        at += size


def copy(master: Store, slave: Store, until: int | None = None, chance: random.Random | None = None) -> None:
    """Copies what the slave lacks, below `until`, and dispatches all of it."""
    replica = slave.replica
    begin = master.replica.min_offset if replica.is_empty else replica.end
    if replica.is_empty:
        replica.begin_at(begin)
    for piece in pieces(bytes_of(master, begin, until), chance or random.Random(1)):
        replica.append(piece)
        while replica.dispatch():
            pass


def queues_of(store: Store) -> dict[tuple[str, int], list[tuple[int, int, int] | None]]:
    """Returns the entries of all queues that have any."""
    return {
        (queue.topic, queue.queue_id): [
            queue.entry(offset) for offset in range(queue.min_offset, queue.max_offset)
        ]
        for queue in store.queues.every()
        if queue.max_offset > queue.min_offset
    }
