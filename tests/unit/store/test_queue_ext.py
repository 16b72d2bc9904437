"""Extension files: units as Apache draws them, and that they follow their queue wherever it goes."""

import asyncio
import struct
from typing import Any

import pytest
from tests.unit.store.kit import HandClock
from tests.unit.store.lab import check, draft, fill, new_disk, open_store, small

from turbopump.protocol.hashing import java_hash
from turbopump.store.queue_ext import ADDRESS_BASE, Bits, Extension, ExtUnit
from turbopump.store.store import Store
from turbopump.store.tools import rebuild, run, verify
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.simulated_files import Survival

EXT = "/store/consumequeue_ext/T/0"
FIRST = f"{EXT}/{0:020}"
HEAD = struct.Struct(">hqqh")
A = java_hash("A")


def extended(disk: SimulatedDisk, **settings: Any) -> Store:
    values = {"write_extensions": True, "consume_queue_ext_file_size": 1024, **settings}
    return open_store(disk, HandClock(), **values)


def written(store: Store) -> Store:
    store.queues.write_out(1000)
    return store


def tags(store: Store, topic: str = "T", queue_id: int = 0) -> list[int | None]:
    queue = store.queues.queue(topic, queue_id)
    entries = [queue.entry(offset) for offset in range(queue.max_offset)]
    return [queue.tags_code(entry[2]) for entry in entries if entry is not None]


def test_an_entry_has_an_address_and_the_unit_there_the_rest() -> None:
    disk = new_disk()
    store = extended(disk)
    queue = store.queues.queue("T", 0)
    store.log.append([draft(queue, tag="A"), draft(queue)])
    assert [queue.entry(0), queue.entry(1)] == [
        (0, queue.entry(0)[0] + queue.entry(0)[1], ADDRESS_BASE),  # type: ignore[index]
        (queue.entry(0)[1], queue.entry(1)[1], ADDRESS_BASE + 20),  # type: ignore[index]
    ]
    assert tags(store) == [A, 0]  # before they are written, too
    written(store)
    now = HandClock().now_ms()
    units = HEAD.pack(20, A, now, 0) + HEAD.pack(20, 0, now, 0)
    assert disk.read(FIRST) == units + bytes(1024 - len(units))
    assert tags(store) == [A, 0]


def test_a_file_ends_with_a_mark_when_a_unit_has_no_room() -> None:
    disk = new_disk()
    store = extended(disk, consume_queue_ext_file_size=70)
    for number in range(7):
        store.log.append([draft(store.queues.queue("T", 0), tag=str(number))])
    written(store)
    assert [entry.name for entry in disk.entries(EXT)] == [f"{start:020}" for start in (0, 70, 140)]
    assert disk.read(FIRST)[60:] == b"\xff\xff" + bytes(8)
    assert tags(store) == [java_hash(str(number)) for number in range(7)]


def test_a_unit_that_leaves_four_bytes_fits() -> None:
    disk = new_disk()
    store = extended(disk, consume_queue_ext_file_size=64)
    for _ in range(4):
        store.log.append([draft(store.queues.queue("T", 0))])
    written(store)
    assert disk.read(FIRST)[60:] == b"\xff\xff\0\0"
    assert len(disk.entries(EXT)) == 2


@pytest.mark.parametrize("clean", [True, False])
def test_it_goes_on_where_it_was(clean: bool) -> None:
    disk = new_disk()
    store = extended(disk)
    for tag in ("A", "B", "C"):
        store.log.append([draft(store.queues.queue("T", 0), tag=tag)])
    if clean:
        asyncio.run(store.close())
    again = extended(disk if clean else disk.crash(Survival.KEPT))
    again.log.append([draft(again.queues.queue("T", 0), tag="D")])
    assert tags(again) == [java_hash(tag) for tag in "ABCD"]
    assert again.queues.queue("T", 0).entry(3)[2] == ADDRESS_BASE + 60  # type: ignore[index]


@pytest.mark.parametrize("survival", list(Survival))
def test_after_a_crash_units_are_those_of_the_log(survival: Survival) -> None:
    for seed in range(8):
        disk = new_disk(seed)
        store = extended(disk)
        for number in range(40):
            store.log.append([draft(store.queues.queue("T", number % 2), tag=f"t{number}", key=f"k{number}")])
            if number == 15:
                asyncio.run(store.upkeep.take_checkpoint())
            if number == 25:
                written(store)
        again = extended(disk.crash(survival))
        for record in check(again):
            queue = again.queues.queue(record.topic, record.queue_id)
            entry = queue.entry(record.queue_offset)
            assert entry is not None
            assert record.tags is not None
            assert queue.tags_code(entry[2]) == java_hash(record.tags)


def test_with_and_without_extension_in_one_queue() -> None:
    disk = new_disk()
    for tag, settings in (("A", {}), ("B", {"write_extensions": False}), ("C", {})):
        store = extended(disk, **settings)
        store.log.append([draft(store.queues.queue("T", 0), tag=tag)])
        asyncio.run(store.close())
    store = extended(disk)
    assert tags(store) == [java_hash(tag) for tag in "ABC"]
    assert store.queues.queue("T", 0).entry(1)[2] == java_hash("B")  # type: ignore[index]
    assert disk.read(FIRST)[40:] == bytes(1024 - 40)


def test_files_of_messages_that_are_gone_go_too() -> None:
    disk = new_disk()
    store = extended(disk, consume_queue_ext_file_size=100)
    fill(store, 100, queues=1)
    asyncio.run(store.upkeep.take_checkpoint())
    assert len(disk.entries(EXT)) == 25
    store.commit_log.delete_first()
    while store.queues.queue("T", 0).delete_first_before(store.log.min_offset):
        pass
    store.queues.queue("T", 0).delete_extension_before_first()
    left = [entry.name for entry in disk.entries(EXT)]
    assert 0 < len(left) < 25
    check(store)
    assert None not in tags(store)[store.queues.queue("T", 0).min_offset :]


def test_a_rebuild_does_without_and_the_next_start_goes_on_with() -> None:
    disk = new_disk()
    store = extended(disk)
    for tag in ("A", "B"):
        store.log.append([draft(store.queues.queue("T", 0), tag=tag)])
    asyncio.run(store.close())
    assert run(verify("/store", disk, index_shape=(16, 64))).problems == []
    run(rebuild("/store", disk, HandClock(), small()))
    assert not disk.exists(EXT)
    again = extended(disk)
    again.log.append([draft(again.queues.queue("T", 0), tag="C")])
    assert tags(again) == [java_hash(tag) for tag in "ABC"]
    assert again.queues.queue("T", 0).entry(2)[2] == ADDRESS_BASE  # type: ignore[index]
    asyncio.run(again.close())
    assert run(verify("/store", disk, index_shape=(16, 64))).problems == []


def test_a_deleted_topic_has_none() -> None:
    disk = new_disk()
    store = extended(disk)
    fill(store, 4)
    written(store)
    store.queues.delete_topic("T")
    assert not disk.exists("/store/consumequeue_ext/T")


def test_an_entry_never_points_at_what_another_wrote() -> None:
    """The unit of the last entry is gone: nobody knows how long it was."""
    disk = new_disk()
    store = extended(disk)
    store.log.append([draft(store.queues.queue("T", 0), tag="A")])
    asyncio.run(store.close())
    disk.write(FIRST, bytes(1024))
    again = extended(disk)
    again.log.append([draft(again.queues.queue("T", 0), tag="B")])
    assert tags(again) == [None, java_hash("B")]


def test_nothing_that_is_no_unit_is_taken_for_one() -> None:
    disk = new_disk()
    disk.make_dirs(EXT)
    disk.write(FIRST, HEAD.pack(34, 1, 2, 14) + b"x" * 14 + HEAD.pack(20, 1, 2, 3))
    extension = Extension(EXT, 1024, disk)
    assert extension.unit(ADDRESS_BASE) == ExtUnit(1, 2, b"x" * 14)
    assert extension.unit(ADDRESS_BASE + 34) is None
    assert extension.unit(ADDRESS_BASE + 5000) is None


def test_bits_say_no_only_of_messages_that_came_after_their_group() -> None:
    bits = Bits(mask=0b101, size=1, born_ms=100)
    assert bits.exclude(ExtUnit(0, 101, b"\x01"))
    assert not bits.exclude(ExtUnit(0, 101, b"\x07"))
    assert not bits.exclude(ExtUnit(0, 100, b"\x01"))
    assert not bits.exclude(ExtUnit(0, 101, b""))
    assert not bits.exclude(None)
