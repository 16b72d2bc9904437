import asyncio
import struct

import pytest
from tests.unit.store.kit import HandClock
from tests.unit.store.lab import Workers, check, draft, fill, new_disk, open_store, small

from turbopump.runtime.disk import SystemDisk
from turbopump.store.errors import UnusableStore
from turbopump.store.queue_ext import is_address
from turbopump.store.store import Store


def test_files_have_apaches_names_and_sizes():
    disk = new_disk()
    store = open_store(disk, consume_queue_file_size=190)  # rounded up to whole entries: 200
    fill(store, 25, queues=1)
    store.queues.write_out(1)
    entries = disk.entries("/store/consumequeue/T/0")
    assert [entry.name for entry in entries] == [f"{start:020d}" for start in (0, 200, 400)]
    assert {entry.size for entry in entries} == {200}
    data = disk.read("/store/consumequeue/T/0/00000000000000000400")
    queue = store.queues.queue("T", 0)
    assert struct.unpack_from(">qiq", data, 80) == queue.entry(24)
    assert data[100:] == bytes(100)


def test_a_queue_that_begins_late_is_blank_before():
    disk = new_disk()
    store = open_store(disk)
    queue = store.queues.queue("T", 0)
    assert queue.put(13, 5000, 100, 7) is False
    queue.skip_to(13)
    assert queue.put(13, 5000, 100, 7) is True
    queue.write_out()
    data = disk.read("/store/consumequeue/T/0/00000000000000000200")
    assert data[:60] == struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * 3
    assert struct.unpack_from(">qiq", data, 60) == (5000, 100, 7)
    assert (queue.min_offset, queue.max_offset) == (13, 14)


def test_a_queue_with_a_gap_behind_deleted_messages_begins_behind_the_gap():
    store = open_store(new_disk())
    queue = store.queues.queue("T", 0)
    for number in range(3):
        queue.put(number, 100 * number, 100, 0)
    log_min = 1000  # the log begins behind all of them
    store.queues.files.log_min = lambda: log_min  # type: ignore[method-assign]
    assert queue.min_offset == queue.max_offset == 3
    queue.skip_to(7)
    queue.put(7, 1000, 100, 0)
    assert (queue.min_offset, queue.max_offset) == (7, 8)


def test_an_entry_is_put_once():
    queue = open_store(new_disk()).queues.queue("T", 0)
    for _ in range(2):
        assert queue.put(0, 1000, 100, 0)
        assert queue.put(1, 1100, 100, 0)
    assert queue.max_offset == 2


def test_only_so_many_descriptors_are_open():
    disk = new_disk()
    store = open_store(disk, open_queue_files=5, index_enabled=False)
    for number in range(40):
        fill(store, 1, topic=f"T{number}")
    store.queues.write_out(100)
    assert len(store.queues.files._open) <= 5
    check(store)


def test_ten_thousand_queues_cost_nothing_while_they_are_idle(tmp_path):
    config = small(root_dir=str(tmp_path), index_enabled=False)
    store = Store.open(config, SystemDisk(), HandClock(), Workers())
    for number in range(300):
        fill(store, 1, topic=f"T{number}", queues=1)
    asyncio.run(store.close())
    again = Store.open(config, SystemDisk(), HandClock(), Workers())
    assert again.queues.files.count == 300
    assert again.queues.opened() == []
    assert len(again.queues.files._open) == 0
    assert again.queues.queue("T17", 0).max_offset == 1


def test_truncation_is_on_disk():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 35, queues=1)
    queue = store.queues.queue("T", 0)
    queue.write_out()
    at = queue.entry(12)[0]
    queue.truncate(at)
    assert (queue.max_offset, queue.next_offset) == (12, 12)
    assert [entry.name[-3:] for entry in disk.entries("/store/consumequeue/T/0")] == ["000", "200"]
    assert disk.read("/store/consumequeue/T/0/00000000000000000200")[40:] == bytes(160)
    queue.truncate(0)
    assert (queue.max_offset, len(disk.entries("/store/consumequeue/T/0"))) == (0, 1)


def test_truncation_of_entries_that_still_wait():
    store = open_store(new_disk())
    fill(store, 8, queues=1)
    queue = store.queues.queue("T", 0)
    queue.truncate(queue.entry(5)[0])
    assert (queue.max_offset, len(queue.tail)) == (5, 100)


def test_a_file_of_another_size_or_name_is_refused_with_advice():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 5, queues=1)
    asyncio.run(store.close())
    again = open_store(disk, consume_queue_file_size=400)
    with pytest.raises(UnusableStore, match="mappedFileSizeConsumeQueue"):
        again.queues.queue("T", 0)
    asyncio.run(again.close())
    disk.write("/store/consumequeue/T/0/junk", b"x" * 200)
    with pytest.raises(UnusableStore, match="junk is no consume queue file"):
        open_store(disk).queues.queue("T", 0)


def test_names_that_lead_out_of_the_store_are_not_used():
    store = open_store(new_disk())
    for name in ("../../etc", "a/b", "..", "."):
        with pytest.raises(AssertionError):
            store.queues.queue(name, 0)
        assert store.queues.find(name, 0) is None


def test_a_tag_whose_extension_is_missing_is_unknown_and_passes():
    store = open_store(new_disk())
    queue = store.queues.queue("T", 0)
    address = -(2**63) + 40
    assert is_address(address)
    assert not is_address(-(2**31))
    assert is_address(-(2**31) - 1)
    store.log.append([draft(queue, tags_code=address)])
    assert store.reader.get(queue, 0, 1, None, lambda code: False).count == 1


def test_what_queues_got_is_told_once():
    store = open_store(new_disk())
    fill(store, 3)
    store.queues.write_out(1)  # the entries of one are on disk, those of the other wait
    fill(store, 1, topic="U", queues=1)
    told = {(puts.queue.topic, puts.queue.queue_id): puts.messages for puts in store.queues.take_counts()}
    assert told == {("T", 0): 2, ("T", 1): 1, ("U", 0): 1}
    assert (store.log.appended_messages, store.log.appended_bytes) == (4, store.log.end)
    assert store.queues.take_counts() == []
    fill(store, 2, queues=1, start=3)
    [puts] = store.queues.take_counts()
    assert (puts.messages, puts.size) == (2, sum(puts.queue.entry(at)[1] for at in (2, 3)))


def test_what_recovery_finds_and_what_is_deleted_is_not_new():
    disk = new_disk()
    fill(open_store(disk), 3)
    store = open_store(disk.crash())
    assert (store.queues.take_counts(), store.log.appended_messages) == ([], 0)
    fill(store, 1, start=4)
    store.queues.write_out(9)
    store.queues.delete_topic("T")
    assert store.queues.take_counts() == []
