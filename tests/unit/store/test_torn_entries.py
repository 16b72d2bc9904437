"""A power cut may keep the second half of a queue entry alone: its pointer then names a much older offset."""

import asyncio

import pytest
from tests.unit.store.lab import check, draft, fill, new_disk, open_store
from tests.unit.store.queue_kinds_kit import TOPICS

from turbopump.store.batch_queue import BATCH_UNIT
from turbopump.store.consume_queue import UNIT
from turbopump.store.segment import file_name
from turbopump.store.store import Store
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.simulated_files import SECTOR, Survival

HIGH = 1 << 32  # a log that begins here: the lower half of each pointer alone names an offset before the log
FILE = 4096
PER_FILE = 100  # entries of a queue file
PLAIN = f"/store/consumequeue/T/0/{file_name(0)}"
BATCHES = f"/store/batchconsumequeue/B/0/{file_name(0)}"
SPLIT = 2 * SECTOR // UNIT  # the entry in two sectors, with half of its pointer in the first
SPLIT_BATCH = SECTOR // BATCH_UNIT  # with two bytes of its pointer in the second


def high_store(disk: SimulatedDisk) -> Store:
    """Opens a store whose log begins at HIGH."""
    if not disk.exists("/store/commitlog"):
        disk.create_mapped(f"/store/commitlog/{file_name(HIGH)}", FILE)
    return open_store(disk, consume_queue_file_size=PER_FILE * UNIT)


def batch_store(disk: SimulatedDisk) -> Store:
    return open_store(disk, batch_queue_file_size=PER_FILE * BATCH_UNIT)


def checkpoint(store: Store) -> None:
    asyncio.run(store.upkeep.take_checkpoint())


def delete_log_before(store: Store, offset: int) -> None:
    """Removes the oldest files of the log, durably, until it begins at `offset` or later."""
    while store.log.min_offset < offset:
        store.commit_log.delete_first()
        asyncio.run(store.upkeep.sync_removals())


def cut_power(
    store: Store, disk: SimulatedDisk, path: str, lost_until: int, is_log_synced: bool = True
) -> SimulatedDisk:
    """Cuts the power when queue entries are written but not synced: of `path` the end stays nevertheless."""
    if is_log_synced:
        asyncio.run(store.flusher.wait_durable(store.log.end))
    store.queues.write_out(len(store.queues.dirty))
    written = disk.read(path)
    after = disk.crash(Survival.LOST)
    after.open_plain(path).write_at(lost_until, written[lost_until:])
    return after


def test_the_entries_that_are_split_are_those_of_this_test() -> None:
    assert SPLIT * UNIT + 4 == 2 * SECTOR
    assert SPLIT_BATCH * BATCH_UNIT + 6 == SECTOR


@pytest.mark.parametrize("synced", [SPLIT - 2, SPLIT - 1, SPLIT])
def test_half_an_entry_that_names_a_deleted_offset_does_not_end_the_queue(synced: int) -> None:
    disk = new_disk()
    store = high_store(disk)
    fill(store, synced, queues=1)
    checkpoint(store)
    fill(store, SPLIT + 5 - synced, queues=1, start=synced)
    again = high_store(cut_power(store, disk, PLAIN, lost_until=2 * SECTOR))
    queue = again.queues.queue("T", 0)
    assert (queue.min_offset, queue.max_offset) == (0, SPLIT + 5)
    check(again)


@pytest.mark.parametrize("synced", [SPLIT - 2, SPLIT])
def test_half_an_entry_whose_record_is_lost_too_does_not_count(synced: int) -> None:
    disk = new_disk()
    store = high_store(disk)
    fill(store, synced, queues=1)
    checkpoint(store)
    fill(store, SPLIT + 5 - synced, queues=1, start=synced)
    again = high_store(cut_power(store, disk, PLAIN, lost_until=2 * SECTOR, is_log_synced=False))
    assert again.queues.queue("T", 0).max_offset == synced
    fill(again, 3, queues=1, start=synced)
    check(again)


def test_left_overs_of_an_earlier_crash_that_name_deleted_offsets_do_not_end_the_queue() -> None:
    """The sweep at a start ends at a run of zeros: what lies behind it may be probed by a later start."""
    disk = new_disk()
    store = open_store(disk, consume_queue_file_size=1000 * UNIT)
    fill(store, 300, queues=1)
    checkpoint(store)
    left_overs = store.queues.queue("T", 0).units(0, 20)
    delete_log_before(store, store.commit_log.files.starts[-2])
    after = cut_power(store, disk, PLAIN, lost_until=1000 * UNIT)
    after.open_plain(PLAIN).write_at(505 * UNIT, left_overs)  # 511 is probed after 255
    again = open_store(after, consume_queue_file_size=1000 * UNIT)
    queue = again.queues.queue("T", 0)
    assert queue.min_offset < queue.max_offset == 300
    check(again)


def test_a_queue_whose_messages_are_all_deleted_goes_on_where_it_ended() -> None:
    disk = new_disk()
    store = open_store(disk)
    fill(store, 25, queues=1)
    fill(store, 100, topic="Other")
    checkpoint(store)
    delete_log_before(store, store.commit_log.files.starts[-2])
    last_file = f"/store/consumequeue/T/0/{file_name(400)}"
    again = open_store(cut_power(store, disk, last_file, lost_until=200))
    queue = again.queues.queue("T", 0)
    assert queue.min_offset == queue.max_offset == 25


@pytest.mark.parametrize("is_log_synced", [True, False])
def test_half_an_entry_after_deleted_ones_gives_way_to_the_record_in_the_log(is_log_synced: bool) -> None:
    """Its pointer ascends, and may be that of a deleted message: the log alone can tell."""
    disk = new_disk()
    disk.make_dirs("/store/config")
    disk.write("/store/config/topics.json", TOPICS)
    for directory in ("/", "/store", "/store/config"):
        disk.sync_dir(directory)
    store = batch_store(disk)
    queue = store.queues.queue("B", 0)
    store.log.append([draft(queue, b"%d" % number) for number in range(SPLIT_BATCH)])
    while store.log.end % (1 << 16) < 20_000 or store.log.end < 1 << 16:
        fill(store, 1, topic="Other", queues=1, size=1000)
    checkpoint(store)
    delete_log_before(store, store.commit_log.files.starts[-1])
    end = store.log.end
    store.log.append([draft(queue, b"live") for _ in range(2)])
    after = cut_power(store, disk, BATCHES, SECTOR, is_log_synced)
    again = batch_store(after)
    queue = again.queues.queue("B", 0)
    if is_log_synced:
        assert (queue.min_offset, queue.max_offset) == (SPLIT_BATCH, SPLIT_BATCH + 2)
        entry = queue.entry(SPLIT_BATCH)
        assert entry is not None
        assert entry[0] == end
    else:  # whether the message was deleted or lost is not known: its offset is not given again
        assert queue.min_offset == queue.max_offset == SPLIT_BATCH + 1
    again.log.append([draft(queue, b"next")])
    check(again)
