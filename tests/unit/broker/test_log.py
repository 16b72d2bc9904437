"""The store's log as the broker's seam `Log`: append, end, committed end, read, cut."""

import asyncio
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.store.lab import draft, new_disk, open_store, small

from turbopump.broker.log import Log
from turbopump.broker.storage import Storage
from turbopump.protocol.errors import ServiceNotAvailable
from turbopump.protocol.record import decode_all
from turbopump.store.store import Store
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock
from turbopump.testing.simulated_files import Survival

KINDS: list[dict[str, Any]] = [
    {"flush_disk_type": "ASYNC_FLUSH"},
    {"flush_disk_type": "SYNC_FLUSH"},
    {"flush_disk_type": "ASYNC_FLUSH", "transient_pool": True},
]


def opened(disk: SimulatedDisk, kind: dict[str, Any]) -> Store:
    disk.clock = VirtualClock()
    return Store.open(small(**kind), disk, disk.clock, SimulatedWorkers(disk))


def fill(store: Store, count: int, topic: str = "T") -> list[int]:
    """Appends messages to two queues; returns where their records begin."""
    log: Log = store.log
    places = []
    for number in range(count):
        queue = store.queues.queue(topic, number % 2)
        body = b"%d" % number + b"x" * 300
        places.append(log.append([draft(queue, body, key=f"key-{number}")])[0][0])
    return places


def found(store: Store) -> list[int]:
    """The numbers of the messages that readers see."""
    numbers = []
    for queue in store.queues.of("T"):
        offset = 0
        while (got := store.reader.get(queue, offset, 32)).count:
            numbers += [int(record.body.rstrip(b"x")) for record in decode_all(got.body)]
            offset = got.next_offset
    return sorted(numbers)


def by_key(store: Store, number: int) -> int:
    return len(store.queries.query("T", f"key-{number}", 0, 1 << 62, 9).records)


def test_the_store_offers_what_the_broker_asks_of_a_log() -> None:
    storage: Storage = open_store(new_disk())
    log: Log = storage.log
    assert (log.min_offset, log.end, log.committed) == (0, 0, 0)
    ((offset, _, size),) = log.append([draft(storage.queues.queue("T", 0), b"body")])
    assert (offset, log.end, log.committed) == (0, size, size)
    record = log.look_up(offset)
    assert record is not None
    assert record.body == b"body"
    data = log.read(offset, size)
    assert data is not None
    assert b"body" in data
    assert log.look_up(offset + 1) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept", [0, 1, 7, 10, 19, 20])
@virtual
async def test_a_log_that_is_cut_ends_there_and_goes_on_from_there(kind: dict[str, Any], kept: int) -> None:
    store = opened(new_disk(), kind)
    await store.start()
    places = fill(store, 20)
    await store.flusher.wait_durable(store.log.end)
    end = [*places, store.log.end][kept]
    assert by_key(store, 19) == 1
    await store.log.cut(end)
    assert (store.log.end, store.log.committed, store.log.synced) == (end, end, end)
    assert found(store) == list(range(kept))
    assert [by_key(store, number) for number in range(20)] == [1] * kept + [0] * (20 - kept)
    queue = store.queues.queue("T", 0)
    ((offset, queue_offset, _),) = store.log.append([draft(queue, b"77", key="key-77")])
    await store.flusher.wait_durable(store.log.end)
    assert (offset >= end, queue_offset) == (True, (kept + 1) // 2)
    assert found(store) == [*range(kept), 77]
    assert by_key(store, 77) == 1
    await store.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("appends", [False, True])
@virtual
async def test_what_was_cut_does_not_come_back(kind: dict[str, Any], crashes: bool, appends: bool) -> None:
    disk = new_disk()
    store = opened(disk, kind)
    await store.start()
    places = fill(store, 20)
    await store.upkeep.take_checkpoint()
    await store.log.cut(places[12])
    if appends:
        store.log.append([draft(store.queues.queue("T", 0), b"77")])
        await store.flusher.wait_durable(store.log.end)
    if crashes:
        disk = disk.crash(Survival.LOST)
    else:
        await store.close()
    again = opened(disk, kind)
    assert found(again) == [*range(12), *([77] if appends else [])]
    assert by_key(again, 11) == 1
    assert by_key(again, 12) == 0


@virtual
async def test_a_log_is_not_cut_while_its_disk_cannot_be_synced() -> None:
    disk = new_disk()
    store = opened(disk, KINDS[1])
    await store.start()
    places = fill(store, 4)
    await store.flusher.wait_durable(store.log.end)
    disk.sync_failure = 1.0
    fill(store, 1)
    with pytest.raises(ServiceNotAvailable, match="sync of the commit log failed"):
        await store.log.cut(places[2])
    disk.sync_failure = 0.0
    await asyncio.sleep(1)
    assert len(found(store)) == 5
    await store.close()
