"""The compiled dispatch of copied records does what Python does, whatever the log holds and its cuts are."""

import random
from collections.abc import Iterator

import pytest
from tests.kit import virtual

from turbopump.compiled import Twins, twins
from turbopump.protocol.names import SCHEDULE_TOPIC
from turbopump.protocol.sysflag import COMMIT, PREPARED, ROLLBACK
from turbopump.store.append import Draft
from turbopump.store.config import StoreConfig
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.store import Store
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock

pytestmark = pytest.mark.skipif(twins() is None, reason="the compiled module was not built")

CONFIG = StoreConfig(
    root_dir="/store",
    commit_log_file_size=1 << 16,
    consume_queue_file_size=2000,
    index_slots=100,
    index_items=5000,
)
V4, V6 = bytes((10, 0, 0, 1, 0, 0, 1, 1)), bytes(range(16)) + bytes((0, 0, 1, 1))
ODD = (
    b"UNIQ_KEY\x01K1\x02KEYS\x01a b\x02TAGS\x01T\x02",
    b"KEYS\x01\xc3\xa4\x02",
    b"TAGS\x01\xe4\xbd\xa0\x02",
    b"TAGS\x01A\x02TAGS\x01B\x02",
    b"broken",
    b"",
    b"UNIQ_KEY\x01" + b"U" * 300 + b"\x02",
    b"DELAY\x013\x02",
    b"KEYS\x01\x02",
)


async def opened(seed: int, compiled: Twins | None) -> Store:
    clock = VirtualClock(start_ms=1_794_732_388_000)
    disk = SimulatedDisk(random.Random(seed), clock)
    store = Store.open(CONFIG, disk, clock, SimulatedWorkers(disk), None, compiled)
    await store.start()
    return store


def drafts(store: Store, chance: random.Random) -> Iterator[Draft]:
    """Yields messages of all kinds, most of them plain."""
    for number in range(chance.randint(50, 300)):
        topic = chance.choice(("T", "T", "U", SCHEDULE_TOPIC, "%RETRY%" + "V" * 130))
        sys_flag = chance.choice((0, 0, 0, 0, 0, PREPARED, ROLLBACK, COMMIT))
        properties = b"UNIQ_KEY\x01%08d\x02TAGS\x01%s\x02" % (number, chance.choice((b"A", b"BB")))
        if chance.random() < 0.2:
            properties = chance.choice(ODD)
        yield Draft(
            store.queues.queue(topic, chance.randrange(3)),
            chance.randbytes(chance.choice((0, 1, 100, 3000))),
            properties,
            chance.randrange(10),
            sys_flag,
            1,
            V6 if chance.random() < 0.05 else V4,
        )


def state(store: Store, arrivals: list[tuple[str, int, int, int]]) -> object:
    """Returns what was derived from the log."""
    dispatcher = store._dispatcher
    queues = {
        (queue.topic, queue.queue_id): (queue.max_offset, queue.next_offset, queue.last_physical, [
            queue.entry(offset) for offset in range(queue.max_offset)
        ])
        for queue in store.queues.every()
    }  # fmt: skip
    dispatcher.put_all_keys()
    assert store.index is not None
    return queues, store.index.end_offset, dispatcher.state(), arrivals


async def copied(log: bytes, seed: int, compiled: Twins | None) -> object:
    """Feeds a log in pieces, dispatching in between, and returns what was derived from it."""
    chance = random.Random(seed)
    store = await opened(seed, compiled)
    store.replica.open()
    store.replica.begin_at(0)
    arrivals: list[tuple[str, int, int, int]] = []

    def arrived(queue: ConsumeQueue, next_offset: int, tags_code: int) -> None:
        arrivals.append((queue.topic, queue.queue_id, next_offset, tags_code))

    if chance.random() < 0.7:
        store.log.on_arrival = arrived
    at = 0
    while at < len(log):
        size = chance.choice((1, 50, 1000, 20_000))
        store.replica.append(memoryview(log)[at : at + size])
        at += size
        while store.replica.dispatch(chance.choice((100, 2000, 100_000))):
            pass
    assert store.replica.dispatched == len(log)
    assert store.replica.read(0, len(log)) == log
    found = state(store, arrivals)
    await store.close()
    return found


@pytest.mark.parametrize("seed", range(25))
@virtual
async def test_a_copied_log_gives_the_same_queues_and_keys_to_both(seed: int) -> None:
    chance = random.Random(seed)
    master = await opened(seed, None)
    for draft in drafts(master, chance):
        master.log.append([draft])
    log = master.replica.read(0, master.log.end)
    await master.close()
    assert await copied(log, seed, twins()) == await copied(log, seed, None)
