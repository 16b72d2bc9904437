import asyncio
import errno
import os
import random
import struct

import pytest
from tests.unit.store.kit import HandClock
from tests.unit.store.lab import Workers, check, draft, fill, new_disk, numbers, open_store, records, small

from turbopump.protocol.record import encode
from turbopump.runtime.disk import AlreadyLocked, PlainFile
from turbopump.store import checkpoint as checkpoints
from turbopump.store.errors import UnusableStore
from turbopump.store.store import Store
from turbopump.testing.disk import PowerCut, SimulatedDisk
from turbopump.testing.simulated_files import Survival

CHECKPOINT = "/store/checkpoint"


def close(store: Store) -> None:
    asyncio.run(store.close())


def killed(disk: SimulatedDisk) -> SimulatedDisk:
    return disk.crash(Survival.KEPT)


def names(disk: SimulatedDisk, directory: str) -> list[str]:
    return [entry.name for entry in disk.entries(directory)]


def test_a_clean_stop_leaves_no_abort_and_the_next_start_reads_nothing():
    disk = new_disk()
    store = open_store(disk)
    assert disk.read("/store/abort") == str(os.getpid()).encode()
    fill(store, 100)
    close(store)
    assert not disk.exists("/store/abort")
    assert disk.read("/store/lock") == b"lock"
    seen = []
    again = Store.open(small(), disk, HandClock(), Workers(), seen.append)
    assert again.queues.opened() == []  # not even a queue was opened
    assert numbers(again) == list(range(100))
    check(again)


def test_a_second_process_is_turned_away():
    disk = new_disk()
    open_store(disk)
    with pytest.raises(AlreadyLocked):
        open_store(disk)


def test_what_was_only_in_memory_of_queues_and_index_comes_back_from_the_log():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 100)  # nothing was written out: all entries are lost with the process
    again = open_store(killed(disk))
    assert numbers(again) == list(range(100))
    check(again)


def test_killed_after_a_checkpoint_only_the_rest_is_read_again():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 60)
    asyncio.run(store.upkeep.take_checkpoint())
    complete = store.log.end
    fill(store, 40, start=60)
    store.queues.write_out(100)
    crashed = killed(disk)
    note = checkpoints.load(crashed, CHECKPOINT).note
    assert note is not None
    assert note.complete == complete
    again = open_store(crashed)
    assert numbers(again) == list(range(100))
    check(again)


@pytest.mark.parametrize("lost", range(1, 60, 7))
def test_a_torn_last_record_is_cut_off(lost):
    disk = new_disk()
    store = open_store(disk)
    fill(store, 20, size=100)
    end = store.log.end
    last = list(records(store))[-1]
    start = last.physical_offset - last.physical_offset % 4096
    buffer = store.commit_log.files.mapped(start).buffer
    position = end - start
    buffer[position - lost : position] = bytes([255] * lost)
    again = open_store(killed(disk))
    kept = [record.physical_offset for record in check(again)]
    assert kept[-1] < last.physical_offset or lost <= len(last.properties)
    fill(again, 5, start=100)
    check(again)


def test_the_tail_behind_the_end_is_gone_from_the_medium():
    """A crash after cutting must not bring back what was cut (Apache forgets it in memory only)."""
    disk = new_disk()
    store = open_store(disk)
    fill(store, 20, size=100)
    everything = list(records(store))
    broken = everything[10]
    buffer = store.commit_log.files.mapped(0).buffer
    position = broken.physical_offset
    buffer[position + 95] ^= 0xFF  # in the body: the checksum tells
    crashed = killed(disk)
    again = open_store(crashed)
    assert numbers(again) == list(range(10))
    # The next record is exactly as long as the broken one, so that the ones behind it would follow it.
    fill(again, 1, start=10, size=100)
    third = open_store(crashed.crash(Survival.KEPT))
    assert numbers(third) == list(range(11))
    check(third)


def test_zeros_are_on_the_medium_before_anything_is_appended():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 20, size=100)
    asyncio.run(store.flusher.stop())
    store.commit_log.files.mapped(0).buffer[99] ^= 0xFF
    store.commit_log.files.mapped(0).sync()
    disk.remove("/store/checkpoint")
    crashed = disk.crash(Survival.KEPT)
    buffer = crashed.open_mapped("/store/commitlog/00000000000000000000").buffer
    assert any(buffer[400:4000])
    with pytest.raises(UnusableStore, match="does not begin with a record"):
        open_store(crashed)  # the very first record is broken: nothing could be kept, so nothing is touched
    assert any(buffer[400:4000])


def test_left_overs_of_an_earlier_life_of_a_file_are_not_taken_for_records():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 5)
    end = store.log.end
    record = next(records(store))
    stale = encode(record)  # a valid record, but its stored offset is another one
    store.commit_log.buffer[end : end + len(stale)] = stale
    again = open_store(killed(disk))
    assert again.log.end == end
    check(again)


def test_queues_ahead_of_the_log_are_cut_back():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 30, size=100)
    store.queues.write_out(100)
    store._dispatcher.put_all_keys()
    store.index.flush()
    at = list(records(store))[20].physical_offset
    start = at - at % 4096
    mapped = store.commit_log.files.mapped(start)
    mapped.buffer[at - start : 4096] = bytes(4096 - (at - start))
    for later in [s for s in store.commit_log.files.starts if s > start]:
        store.commit_log.files.mapped(later).buffer[:4096] = bytes(4096)
    again = open_store(killed(disk))
    assert numbers(again) == list(range(20))
    assert again.queues.queue("T", 0).max_offset == 10
    check(again)
    fill(again, 30, start=20)
    check(again)


def test_later_files_with_data_are_set_aside_not_deleted():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 60, size=200)
    assert len(store.commit_log.files.starts) > 2
    store.commit_log.files.mapped(4096).buffer[4:8] = b"XXXX"
    crashed = killed(disk)
    again = open_store(crashed)
    assert again.log.end == 4096
    check(again)
    assert names(crashed, "/store/commitlog")[:1] == ["00000000000000000000"]
    assert "00000000000000008192" in names(crashed, "/store/set-aside")


def test_whole_records_behind_a_damaged_one_are_set_aside_before_they_are_cleared():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 20, size=100)
    damaged, behind = list(records(store))[5:7]
    whole = bytes(store.commit_log.files.mapped(0).buffer)
    store.commit_log.files.mapped(0).buffer[damaged.physical_offset + 95] ^= 0xFF  # in the body
    crashed = killed(disk)
    again = open_store(crashed)
    assert numbers(again) == list(range(5))
    check(again)
    kept = crashed.read("/store/set-aside/00000000000000000000")
    assert kept[behind.physical_offset :] == whole[behind.physical_offset :]


def test_a_torn_tail_alone_leaves_nothing_aside():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 18, size=100)
    last = list(records(store))[-1]
    at = last.physical_offset % 4096
    store.commit_log.files.mapped(last.physical_offset - at).buffer[at + 95] ^= 0xFF
    crashed = killed(disk)
    assert numbers(open_store(crashed)) == list(range(17))
    assert names(crashed, "/store/set-aside") == []


def test_a_second_accident_leaves_what_the_first_one_set_aside():
    disk = new_disk()
    contents = []
    for number in range(2):
        store = open_store(disk)
        fill(store, 60, size=200, start=100 * number)
        contents.append(bytes(store.commit_log.files.mapped(8192).buffer))
        store.commit_log.files.mapped(4096).buffer[4:8] = b"XXXX"
        disk = killed(disk)
        close(open_store(disk))
    kept = [disk.read(f"/store/set-aside/00000000000000008192{suffix}") for suffix in ("", ".1")]
    assert kept == contents


@pytest.mark.parametrize("log_dir", ["/elsewhere/commitlog", "/elsewhere"])
def test_files_are_set_aside_on_another_file_system_too(log_dir):
    class TwoFileSystems(SimulatedDisk):
        def rename(self, old: str, new: str) -> None:
            if old.startswith("/elsewhere/") != new.startswith("/elsewhere/"):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), old)
            super().rename(old, new)

    disk = TwoFileSystems(random.Random(1), HandClock())
    disk.make_dirs("/store")
    store = open_store(disk, commit_log_dir=log_dir)
    fill(store, 60, size=200)
    lost = bytes(store.commit_log.files.mapped(8192).buffer)
    store.commit_log.files.mapped(4096).buffer[4:8] = b"XXXX"
    crashed = disk.crash(Survival.KEPT)
    again = open_store(crashed, commit_log_dir=log_dir)
    assert again.log.end == 4096
    check(again)
    aside = os.path.join(os.path.dirname(log_dir), "set-aside")
    assert crashed.read(f"{aside}/00000000000000008192") == lost
    assert not crashed.exists(f"{log_dir}/00000000000000008192")


class Watched(SimulatedDisk):
    """Remembers what was done to names; when it is full, half a copy can still be written."""

    is_full = False

    def __init__(self) -> None:
        super().__init__(random.Random(1), HandClock())
        self.done: list[tuple[str, str]] = []

    def rename(self, old: str, new: str) -> None:
        self.done.append(("rename", new))
        super().rename(old, new)

    def sync_dir(self, path: str) -> None:
        self.done.append(("sync", path))
        super().sync_dir(path)

    def open_plain(self, path: str, create: bool = False, size: int = 0) -> PlainFile:
        file = super().open_plain(path, create, size)
        if self.is_full and "set-aside" in path:
            file.sync = self._no_room  # type: ignore[method-assign]
        return file

    def _no_room(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def damaged(disk: SimulatedDisk) -> None:
    """A store whose process is killed, with whole records behind a broken one."""
    store = open_store(disk)
    fill(store, 15, size=100)
    store.commit_log.files.mapped(0).buffer[list(records(store))[5].physical_offset + 95] ^= 0xFF
    store._lock.release()


def test_a_copy_that_does_not_fit_leaves_nothing_behind_and_the_log_as_it_was():
    disk = Watched()
    damaged(disk)
    before = disk.read("/store/commitlog/00000000000000000000")
    disk.is_full = True
    for _ in range(2):
        with pytest.raises(UnusableStore, match="Free some space"):
            open_store(disk)
        assert names(disk, "/store/set-aside") == []
        assert disk.read("/store/commitlog/00000000000000000000") == before
    disk.is_full = False
    assert numbers(open_store(disk)) == list(range(5))
    assert names(disk, "/store/set-aside") == ["00000000000000000000"]


def test_the_directory_of_what_is_set_aside_is_durable_before_anything_is_in_it():
    disk = Watched()
    damaged(disk)
    open_store(disk)
    moved = disk.done.index(("rename", "/store/set-aside/00000000000000000000"))
    assert ("sync", "/store") in disk.done[disk.done.index(("sync", "/store")) + 1 : moved]
    assert ("sync", "/store/set-aside") in disk.done[moved:]


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("zeros", [1, 511])
def test_zeros_that_were_sent_do_not_end_the_log(flush, zeros):
    """At every position within a sector."""
    disk = new_disk()
    store = open_store(disk, flush_disk_type=flush, commit_log_file_size=1 << 20)
    for number in range(520):
        sent = draft(store.queues.queue("T", 0), b"%06d" % number, key=f"T-{number}")
        sent.properties = bytes(zeros) + b"\1v\2p\1" + b"v" * (number % 7) + b"\2" + sent.properties
        store.log.append([sent])
    again = open_store(killed(disk), flush_disk_type=flush, commit_log_file_size=1 << 20)
    assert numbers(again) == list(range(520))
    check(again)


def test_an_empty_file_made_ahead_is_dropped_or_used():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 3)
    store.commit_log.files.create_ahead(4096)
    crashed = killed(disk)
    again = open_store(crashed)
    assert names(crashed, "/store/commitlog") == ["00000000000000000000"]
    fill(again, 60, start=3)
    assert numbers(again) == list(range(63))


def test_an_unfinished_last_file_is_removed_and_a_foreign_one_is_not_touched():
    for size, content, fine in ((0, b"", True), (100, bytes(100), True), (100, b"x" * 100, False)):
        disk = new_disk()
        close(open_store(disk))
        disk.write("/store/commitlog/00000000000000000000", content)
        assert len(disk.read("/store/commitlog/00000000000000000000")) == size
        if fine:
            fill(open_store(disk), 3)
        else:
            with pytest.raises(UnusableStore, match="mappedFileSizeCommitLog"):
                open_store(disk)
            assert disk.read("/store/commitlog/00000000000000000000") == content


def test_stray_files_are_named_and_dot_files_are_ignored():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 3)
    close(store)
    disk.write("/store/commitlog/.nfs0001", b"x")
    disk.make_dirs("/store/commitlog/lost+found")
    close(open_store(disk))
    disk.write("/store/commitlog/notes.txt", b"x")
    with pytest.raises(UnusableStore, match=r"notes\.txt is no commit log file"):
        open_store(disk)


def test_a_gap_in_the_log_is_refused():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 100)
    close(store)
    disk.remove("/store/commitlog/00000000000000004096")
    with pytest.raises(UnusableStore, match="00000000000000004096 is missing"):
        open_store(disk)


def test_parts_that_are_not_supported_are_refused():
    with pytest.raises(UnusableStore, match="several directories"):
        open_store(new_disk(), commit_log_dir="/a,/b")


@pytest.mark.parametrize("stopped", [True, False])
def test_missing_queues_are_made_anew(stopped):
    disk = new_disk()
    store = open_store(disk)
    fill(store, 60, topic="T")
    fill(store, 60, topic="U", start=100)
    before = check(store)
    if stopped:
        close(store)
    else:
        asyncio.run(store.upkeep.take_checkpoint())
        disk = killed(disk)
    for path in ("/store/consumequeue/T/1", "/store/consumequeue/U"):
        disk.remove_tree(path)
    again = open_store(disk)
    assert check(again) == before
    assert again.queues.queue("T", 1).max_offset == 30
    assert again.queues.queue("U", 1).max_offset == 30


@pytest.mark.parametrize("stopped", [True, False])
def test_a_missing_index_is_made_anew(stopped):
    disk = new_disk()
    store = open_store(disk)
    fill(store, 100)
    before = check(store)
    if stopped:
        close(store)
    else:
        asyncio.run(store.upkeep.take_checkpoint())
        disk = killed(disk)
    disk.remove_tree("/store/index")
    assert check(open_store(disk)) == before


def test_a_deleted_topic_does_not_make_the_next_start_look_for_its_queues():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 40, topic="T")
    fill(store, 40, topic="U", start=100)
    asyncio.run(store.upkeep.take_checkpoint())
    asyncio.run(store.upkeep.expect_deletion("T"))
    store.queues.delete_topic("T")
    asyncio.run(store.upkeep.sync_removals())
    assert store.queues.find("T", 0) is None
    crashed = killed(disk)
    again = open_store(crashed)
    assert names(crashed, "/store/consumequeue") == ["U"]
    assert again.queues.queue("T", 0).max_offset == 0


def test_a_topic_made_again_begins_at_zero_also_after_everything_was_rebuilt():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 40, topic="T", queues=1)
    store.queues.delete_topic("T")
    fill(store, 5, topic="T", queues=1, start=100)
    close(store)
    disk.remove_tree("/store/consumequeue")
    again = open_store(disk)
    queue = again.queues.queue("T", 0)
    assert queue.max_offset == 5
    assert again.reader.get(queue, 0, 1).body[88:94] == b"000100"


def test_a_log_that_begins_late_gives_queues_that_begin_late():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 200)
    with pytest.raises(OSError, match="not synced yet"):
        store.commit_log.delete_first()
    store.flusher.durable(store.log.end, lambda outcome: None)
    for _ in range(3):
        store.commit_log.delete_first()
    expected = check_late(store)
    close(store)
    for part in ("consumequeue", "index"):
        disk.remove_tree(f"/store/{part}")
    again = open_store(disk)
    assert check_late(again) == expected
    queue = again.queues.queue("T", 0)
    assert queue.min_offset > 0
    again.queues.write_out(10)
    first = disk.entries("/store/consumequeue/T/0")[0].name
    blank = disk.read(f"/store/consumequeue/T/0/{first}")[:20]
    if queue.min_offset * 20 > int(first):
        assert blank == struct.pack(">qiq", 0, 0x7FFFFFFF, 0)


def check_late(store: Store) -> list[int]:
    check(store)
    return numbers(store)


def test_a_checkpoint_of_someone_else_is_not_taken_for_ours():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 20)
    close(store)
    data = bytearray(disk.read(CHECKPOINT))
    assert len(data) == 4096
    assert checkpoints.load(disk, CHECKPOINT).note is not None
    struct.pack_into(">q", data, 8, 12345)  # as Apache does
    disk.write(CHECKPOINT, bytes(data))
    found = checkpoints.load(disk, CHECKPOINT)
    assert (found.note, found.queue_timestamp) == (None, 12345)
    assert numbers(open_store(disk)) == list(range(20))


def test_the_fields_of_the_checkpoint_are_those_that_apache_reads():
    clock = HandClock()
    disk = new_disk()
    store = open_store(disk, clock)
    fill(store, 20)
    close(store)
    fields = struct.unpack(">6q", disk.read(CHECKPOINT)[:48])
    assert fields == (clock.now, clock.now, clock.now, 0, 0, 0)


def test_apache_is_told_to_start_where_the_newest_index_file_begins():
    """After a kill it deletes that file: without a start before it the keys would be gone."""
    clock = HandClock()
    disk = new_disk()
    store = open_store(disk, clock)
    per_file = small().index_items - 1
    for number in range(2 * per_file + 5):
        clock.now += 1000
        fill(store, 1, start=number)
    first = list(records(store))[2 * per_file]
    close(store)
    log_time, queue_time, index_time, _, _, offset = struct.unpack(">6q", disk.read(CHECKPOINT)[:48])
    assert (log_time, queue_time, offset) == (
        first.store_timestamp,
        first.store_timestamp,
        first.physical_offset,
    )
    assert index_time == clock.now


@pytest.mark.parametrize("seed", range(8))
def test_a_machine_that_dies_at_any_moment_leaves_a_store_that_agrees_with_its_log(seed):
    """Unsynced sectors survive by chance. What was acknowledged as on disk is there; all parts agree."""
    disk = new_disk(seed)
    chance = disk.chance
    safe: list[int] = []
    given = 0
    for _ in range(4):
        disk.cut_power_after(chance.randrange(20, 400))
        try:
            store = open_store(disk)
            disk.cut_power_after(None)
            check(store)
            found = numbers(store)
            assert found[: len(safe)] == safe, "what was on disk is there, in order"
            given = found[-1] + 1 if found else 0
            disk.cut_power_after(chance.randrange(20, 400))
            while True:
                fill(store, chance.randrange(1, 6), start=given, size=chance.choice((20, 100, 700)))
                given = numbers_end(store)
                if chance.random() < 0.3:
                    outcomes: list[object] = []
                    store.flusher.durable(store.log.end, outcomes.append)
                    assert outcomes
                    safe = list(range(given))
                if chance.random() < 0.1:
                    asyncio.run(store.upkeep.take_checkpoint())
                if chance.random() < 0.1:
                    store.queues.write_out(100)
        except PowerCut:
            disk = disk.crash()
    disk.cut_power_after(None)
    store = open_store(disk)
    check(store)
    assert numbers(store)[: len(safe)] == safe


def numbers_end(store: Store) -> int:
    found = store.log.look_up(store._appender.last_record)
    assert found is not None
    return int(found.body[:6]) + 1


def test_one_draft_after_another_survives_every_single_cut():
    """The power fails at each operation of the disk in turn, through opening, appending and closing."""
    for cut in range(0, 400, 11):
        disk = new_disk(cut)
        disk.cut_power_after(cut)
        try:
            store = open_store(disk)
            fill(store, 30, size=300)
            close(store)
            finished = True
        except PowerCut:
            finished = False
        disk = disk.crash()
        disk.cut_power_after(None)
        again = open_store(disk)
        check(again)
        assert not finished or numbers(again) == list(range(30))
        fill(again, 3, start=500)
        check(again)
        assert draft(again.queues.queue("T", 0)).queue.next_offset == again.queues.queue("T", 0).max_offset


@pytest.mark.parametrize("name", [b"/", b"."])
def test_a_topic_that_can_be_no_directory_does_not_keep_the_store_from_opening(name):
    disk = new_disk()
    store = open_store(disk)
    fill(store, 3)
    buffer = store.commit_log.files.mapped(0).buffer
    record = next(records(store))
    at = 88 + len(record.body) + 1
    buffer[at : at + 1] = name
    again = open_store(killed(disk))
    assert again.log.end == store.log.end
    assert len(list(records(again))) == 3


def test_the_record_at_the_largest_queue_offset_is_not_passed_over():
    """Apache 5.5 dispatches only what lies behind the largest offset in any queue: that record is lost."""
    disk = new_disk()
    store = open_store(disk)
    fill(store, 25)
    before = check(store)
    close(store)
    disk.remove(CHECKPOINT)
    last = before[-1]
    path = f"/store/consumequeue/T/{last.queue_id}/{last.queue_offset * 20 // 200 * 200:020d}"
    file = disk.open_plain(path)
    file.write_at(last.queue_offset * 20 % 200, bytes(20))
    assert check(open_store(disk)) == before


def test_a_record_with_a_long_topic_in_the_middle_ends_nothing():
    """Apache 4.9 takes it for the end of the log and deletes the files behind it."""
    disk = new_disk()
    store = open_store(disk)
    fill(store, 30)
    store.log.append([draft(store.queues.queue("%RETRY%" + "g" * 200, 0), b"long", key="L")])
    fill(store, 60, start=30)
    before = check(store)
    assert check(open_store(killed(disk))) == before
