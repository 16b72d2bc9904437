"""A small store to try things on: tiny files, a disk in memory, a check that all parts agree with the log."""

import json
import lzma
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tests.unit.store.kit import STORES, HandClock

from turbopump.protocol.hashing import java_hash
from turbopump.protocol.record import Record, decode, measure
from turbopump.protocol.sysflag import PREPARED
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk
from turbopump.store.append import Draft
from turbopump.store.config import StoreConfig
from turbopump.store.consume_queue import BLANK_SIZE, ConsumeQueue
from turbopump.store.store import Store
from turbopump.testing.disk import SimulatedDisk

T = TypeVar("T")

ROOT = "/store"
HOST = bytes((10, 0, 0, 7, 0, 0, 0x13, 0x88))
HOST_V6 = bytes(range(16)) + bytes((0, 0, 0x13, 0x88))
EVER = (0, 1 << 62)


class Workers:
    """Does the work at once."""

    async def run(self, work: Callable[..., T], *args: object) -> T:
        return work(*args)

    urgent = run


def small(**settings: Any) -> StoreConfig:
    sizes = {
        "root_dir": ROOT,
        "commit_log_file_size": 4096,
        "consume_queue_file_size": 200,
        "index_slots": 16,
        "index_items": 64,
    }
    return StoreConfig(**{**sizes, **settings})


def new_disk(seed: int = 1) -> SimulatedDisk:
    return SimulatedDisk(random.Random(seed), HandClock())


def open_store(disk: Disk, clock: Clock | None = None, **settings: Any) -> Store:
    return Store.open(small(**settings), disk, clock or HandClock(), Workers())


def draft(queue: ConsumeQueue, body: bytes = b"hello", key: str = "", tag: str = "", **fields: Any) -> Draft:
    properties = f"UNIQ_KEY\x01{key}\x02" if key else ""
    if tag:
        properties += f"TAGS\x01{tag}\x02"
    if "keys" in fields:
        properties += f"KEYS\x01{fields['keys']}\x02"
    values = {
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "born_host": HOST,
        "tags_code": java_hash(tag) if tag else 0,
        "unique_key": key,
    }
    return Draft(queue, body, properties.encode(), **{**values, **fields})


def fill(
    store: Store, count: int, topic: str = "T", queues: int = 2, size: int = 100, start: int = 0
) -> None:
    """Messages 0, 1, 2 … in turn over the queues of a topic, each with its number in body and key."""
    for number in range(start, start + count):
        queue = store.queues.queue(topic, number % queues)
        body = b"%06d" % number + bytes(size - 6)
        store.log.append([draft(queue, body, key=f"{topic}-{number}")])


def records(store: Store) -> Iterator[Record]:
    """The log, read from its first byte to its end without help of the store."""
    size = store.commit_log.file_size
    for start in store.commit_log.files.starts:
        buffer = store.commit_log.files.mapped(start).buffer
        position = 0
        while start + position < store.log.committed:
            found = measure(buffer, position, size, True)
            if found == 0:
                break
            assert found > 0, f"no record at {start + position}, the log ends at {store.log.committed}"
            record = decode(buffer, position)
            assert record.physical_offset == start + position
            yield record
            position += found


def numbers(store: Store) -> list[int]:
    """The numbers that `fill` put, in the order of the log."""
    return [int(record.body[:6]) for record in records(store)]


def check(store: Store) -> list[Record]:
    """Every record of the log is in its queue and in the index, and nothing else is."""
    seen: dict[tuple[str, int], list[Record]] = defaultdict(list)
    everything = list(records(store))
    for record in everything:
        if not record.sys_flag & PREPARED:
            seen[record.topic, record.queue_id].append(record)
    for (topic, queue_id), expected in seen.items():
        queue = store.queues.find(topic, queue_id)
        assert queue is not None, f"{topic}/{queue_id} is missing"
        offsets = [record.queue_offset for record in expected]
        assert offsets == list(range(queue.min_offset, queue.max_offset)), f"{topic}/{queue_id}"
        assert queue.next_offset == queue.max_offset
        for record in expected:
            entry = queue.entry(record.queue_offset)
            assert entry is not None
            assert entry[:2] == (record.physical_offset, record.size)
    for queue in store.queues.every():
        if (queue.topic, queue.queue_id) not in seen:
            assert queue.min_offset == queue.max_offset
        for offset in range(queue.min_offset):
            entry = queue.entry(offset)
            assert entry is None or entry[0] < store.log.min_offset or entry[1] == BLANK_SIZE
    for record in everything:
        if record.unique_key is not None and store.index is not None:
            found = store.queries.query(record.topic, record.unique_key, *EVER, 64)
            assert record.physical_offset in [decode(data).physical_offset for data in found.records]
    return everything


def expected_of(name: str) -> dict[str, Any]:
    """What Apache's client read from one of the stores in `tests/compat/stores`."""
    with lzma.open(STORES / "expected.json.xz") as file:
        everything: dict[str, dict[str, Any]] = json.load(file)
    return everything[name]


def config_of(name: str, root: str) -> StoreConfig:
    values = expected_of(name)["config"]
    return StoreConfig(
        root_dir=root,
        commit_log_file_size=values["mappedFileSizeCommitLog"],
        consume_queue_file_size=values["mappedFileSizeConsumeQueue"],
        consume_queue_ext_file_size=values.get("mappedFileSizeConsumeQueueExt", 50_331_648),
        index_slots=values["maxHashSlotNum"],
        index_items=values["maxIndexNum"],
    )
