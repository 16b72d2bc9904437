"""A plain store that is switched over to DLedger: what the tests of it share."""

from __future__ import annotations

import asyncio

from tests.unit.store.kit import HandClock
from tests.unit.store.lab import EVER, HOST, Workers, fill, small

from turbopump.protocol import record as codec
from turbopump.runtime.disk import Disk
from turbopump.store.store import Store

SIZES = {"dledger_index_units": 64, "commit_log_file_size": 2048}
PLAIN = small(**SIZES)
SWITCHED = small(**SIZES, dledger_id="n0")
QUEUES = 2


def open_plain(disk: Disk) -> Store:
    return Store.open(PLAIN, disk, HandClock(), Workers())


def open_switched(disk: Disk) -> Store:
    return Store.open(SWITCHED, disk, HandClock(), Workers())


def close(store: Store) -> None:
    asyncio.run(store.close())


def write_plain(disk: Disk, count: int, size: int = 100) -> None:
    """Stores messages 0 … count - 1 in a plain store and stops it."""
    store = open_plain(disk)
    fill(store, count, queues=QUEUES, size=size)
    close(store)


def append(store: Store, numbers: range, term: int = 1) -> None:
    """Appends messages as a leader does, without committing them."""
    store.entries.append([_message(number) for number in numbers], term)
    store.entries.sync()


def commit_all(store: Store) -> None:
    store.entries.commit_to(store.entries.end_index)
    while store.committed.dispatch():
        pass


def _message(number: int) -> bytes:
    place = ("T", number % QUEUES, 0, number // QUEUES, 0, 0, 1, HOST, 1_794_733_741_890 + number, HOST)
    body, properties = b"%06d" % number + bytes(94), f"UNIQ_KEY\1T-{number}\2".encode()
    return codec.encode(codec.Record(*place, body=body, properties=properties))


def numbers(store: Store) -> list[int]:
    """Returns the numbers of all messages, read by queue; checks that each is also found by its key."""
    found = []
    for queue_id in range(QUEUES):
        queue = store.queues.queue("T", queue_id)
        for offset in range(queue.min_offset, queue.max_offset):
            one = codec.decode(store.reader.get(queue, offset, 1).body)
            found.append(int(one.body[:6]))
            by_key = store.queries.query("T", one.unique_key, *EVER, 8).records
            assert one.physical_offset in [codec.decode(data).physical_offset for data in by_key]
            assert one.queue_offset == offset
            assert store.log.look_up(one.physical_offset) == one
    return sorted(found)
