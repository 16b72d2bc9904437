"""Bytes that changed on the medium: found by fuzzing, kept by name."""

import struct

import pytest
from tests.fuzz.targets import store as files
from tests.unit.store.lab import EVER, ROOT, HandClock, Workers, draft, fill, new_disk, open_store

from turbopump.protocol.record import decode_all
from turbopump.store import tools
from turbopump.store.batch_queue import BATCH
from turbopump.store.consume_queue import ENTRY
from turbopump.store.store import Store
from turbopump.store.times import STORE_TIMESTAMP_AT, Boundary
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import run_virtual

QUEUE_OFFSET_AT = 20
SIZE_AT, FIRST_OFFSET_AT = 8, 28  # in an entry of a batch queue
SHAPE = (files.CONFIG.index_slots, files.CONFIG.index_items)


def opened(name: str, data: bytes, mode: int) -> Store:
    return Store.open(files.CONFIG, files._disk_with(name, data, mode), HandClock(), Workers())


def test_a_record_with_an_impossible_queue_offset_does_not_fill_the_disk() -> None:
    name = files._newest("commitlog/")
    data = bytearray(files._good()[name])
    second = struct.unpack_from(">i", data, 0)[0]
    data[second + QUEUE_OFFSET_AT] ^= 0x01  # adds 2^56
    store = opened(name, bytes(data), files.KILLED | files.FORGOTTEN)
    assert max(store.queues.queue("T", queue_id).max_offset for queue_id in range(files.QUEUES)) < 1000


def test_new_keys_are_found_although_the_index_claims_to_end_beyond_the_log() -> None:
    name = files._newest("index/")
    data = bytearray(files._good()[name])
    struct.pack_into(">q", data, 24, 1 << 60)
    store = opened(name, bytes(data), 0)
    store.log.append([draft(store.queues.queue("T", 0), b"after", key="after")])
    assert len(store.queries.query("T", "after", *EVER, 32).records) == 1


@pytest.mark.parametrize("used", [-(1 << 31), (1 << 31) - 1])
def test_new_keys_are_found_although_the_index_counts_its_slots_wrongly(used: int) -> None:
    name = files._newest("index/")
    data = bytearray(files._good()[name])
    struct.pack_into(">i", data, 32, used)
    store = opened(name, bytes(data), 0)
    for key in ("after", "later", "last"):  # one of them takes a slot that was free
        store.log.append([draft(store.queues.queue("T", 0), b"after", key=key)])
        assert len(store.queries.query("T", key, *EVER, 32).records) == 1
    run_virtual(store.close())


@pytest.mark.parametrize("time_ms", [-5, 1 << 60])
def test_keys_are_found_although_a_file_of_the_index_begins_with_a_record_of_an_impossible_time(
    time_ms: int,
) -> None:
    name = files._newest("commitlog/")
    data = bytearray(files._good()[name])
    second = struct.unpack_from(">i", data, 0)[0]
    struct.pack_into(">q", data, second + STORE_TIMESTAMP_AT, time_ms)
    store = opened(name, bytes(data), files.KILLED | files.FORGOTTEN)
    now_ms = HandClock().now_ms()
    for key in ("T-4", "T-5"):
        assert len(store.queries.query("T", key, now_ms - 1000, now_ms + 1000, 32).records) == 1


def test_verify_reads_a_queue_file_that_is_cut_inside_an_entry() -> None:
    name = files._newest("consumequeue/T/0/")
    disk = files._disk_with(name, files._good()[name][:5], files.ANY_LENGTH)
    report = tools.run(tools.verify(files.ROOT, disk, index_shape=SHAPE))
    assert "missing entry" in [finding.kind for finding in report.problems]


@pytest.mark.parametrize("folder", ["consumequeue/T/0/", "batchconsumequeue/B/0/", "commitlog/", "index/"])
def test_verify_reads_a_store_with_an_empty_file(folder: str) -> None:
    disk = files._disk_with(files._newest(folder), b"", files.ANY_LENGTH)
    assert tools.run(tools.verify(files.ROOT, disk, index_shape=SHAPE)).problems


@pytest.mark.parametrize("topic", [b"\0", b"/", b"."])
def test_verify_passes_over_a_record_whose_topic_can_be_no_directory(topic: bytes) -> None:
    name = files._pick("commitlog/", files.OLDEST)
    data = files._good()[name].replace(b"\x01T\0", b"\x01" + topic + b"\0", 1)
    disk = files._disk_with(name, data, 0)
    report = tools.run(tools.verify(files.ROOT, disk, index_shape=SHAPE))
    assert report.counts["impossible queue"] == 1
    assert report.records == 9


def test_verify_ends_although_the_first_record_of_a_queue_has_an_impossible_offset() -> None:
    name = files._pick("commitlog/", files.OLDEST)
    data = bytearray(files._good()[name])
    data[QUEUE_OFFSET_AT] ^= 0x01
    report = tools.run(tools.verify(files.ROOT, files._disk_with(name, bytes(data), 0), index_shape=SHAPE))
    assert report.problems


@pytest.mark.parametrize("physical", [180, 0xFFFFFF])
@pytest.mark.parametrize("size", [-5, -(1 << 24), 0])
def test_an_entry_whose_message_has_no_size_is_passed_over(physical: int, size: int) -> None:
    name = files._pick("consumequeue/T/0/", files.OLDEST)
    data = bytearray(files._good()[name])
    ENTRY.pack_into(data, 0, physical, size, 0)
    store = opened(name, bytes(data), 0)
    found = store.reader.get(store.queues.queue("T", 0), 0, 8)
    assert (found.count, found.next_offset) == (1, 2)
    assert [record.body for record in decode_all(found.body)] == [b"000002"]
    assert store.reader.missing([(physical, size)]) == []


def test_a_batch_queue_begins_before_its_end_although_its_first_entry_names_a_later_offset() -> None:
    name = files._pick("batchconsumequeue/B/0/", files.OLDEST)
    data = bytearray(files._good()[name])
    struct.pack_into(">q", data, 28, 1 << 40)
    store = opened(name, bytes(data), 0)
    queue = store.queues.find("B", 0)
    assert queue is not None
    assert 0 <= queue.min_offset <= queue.max_offset < 1 << 40


def test_a_gap_that_would_fill_many_files_is_no_gap() -> None:
    disk = new_disk()
    store = open_store(disk, consume_queue_file_size=80)
    fill(store, 3, queues=1)
    run_virtual(store.close())
    _renumber(disk, 1, 1 << 18)
    store = open_store(disk, consume_queue_file_size=80)
    assert store.queues.queue("T", 0).max_offset < 10_000


def test_a_queue_that_is_made_anew_begins_where_its_first_record_says() -> None:
    disk = new_disk()
    store = open_store(disk)
    fill(store, 1, queues=1)
    run_virtual(store.close())
    _renumber(disk, 0, 3_000_000_000)
    queue = open_store(disk).queues.queue("T", 0)
    assert (queue.min_offset, queue.max_offset) == (3_000_000_000, 3_000_000_001)


@pytest.mark.parametrize("mode", [0, files.KILLED])
def test_a_batch_that_claims_the_largest_offset_does_not_break_a_search_by_time(mode: int) -> None:
    name = files._newest("batchconsumequeue/B/0/")
    data = bytearray(files._good()[name])
    assert not any(data[BATCH.size :]), "the newest file has one entry"
    struct.pack_into(">i", data, SIZE_AT, (1 << 31) - 1)  # as of a blank entry, which nothing contradicts
    struct.pack_into(">q", data, FIRST_OFFSET_AT, (1 << 63) - 1)
    store = opened(name, bytes(data), mode)
    queue = store.queues.queue("B", 0)
    for boundary in Boundary:
        assert 0 <= store.times.offset_by_time(queue, HandClock().now_ms(), boundary) <= queue.max_offset
    store.log.append([draft(queue, b"after")])


def _renumber(disk: SimulatedDisk, number: int, queue_offset: int) -> None:
    """Gives a record of the log another place in its queue, and takes queue and checkpoint away."""
    path = f"{ROOT}/commitlog/00000000000000000000"
    data, at = bytearray(disk.read(path)), 0
    for _ in range(number):
        at += struct.unpack_from(">i", data, at)[0]
    struct.pack_into(">q", data, at + QUEUE_OFFSET_AT, queue_offset)
    disk.write(path, bytes(data))
    for entry in disk.entries(f"{ROOT}/consumequeue/T/0"):
        disk.remove(f"{ROOT}/consumequeue/T/0/{entry.name}")
    disk.remove(f"{ROOT}/checkpoint")
    disk.write(f"{ROOT}/abort", b"")
