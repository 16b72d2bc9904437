"""A plain store opened with DLedger: its log is ended at a file's boundary, and both parts are one log."""

from __future__ import annotations

import random

import pytest
from tests.unit.store.dledger.kit import new_disk
from tests.unit.store.dledger.switch_kit import (
    PLAIN,
    SWITCHED,
    append,
    close,
    commit_all,
    numbers,
    open_plain,
    open_switched,
    write_plain,
)
from tests.unit.store.lab import fill

from turbopump.runtime.disk import Disk
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.dledger.switch_over import end_older_files
from turbopump.store.errors import UnusableStore
from turbopump.store.segment import LogFiles
from turbopump.store.tools import run, verify
from turbopump.testing.disk import PowerCut
from turbopump.testing.simulated_files import Survival

FILE_SIZE = PLAIN.commit_log_file_size
OLD, NEW = 25, 20  # messages before and after; both fill more than one file
BLANK_MAGIC = bytes.fromhex("cbd43194")


def old_files(disk: Disk) -> dict[str, bytes]:
    return {entry.name: disk.read(f"{PLAIN.log_dir}/{entry.name}") for entry in disk.entries(PLAIN.log_dir)}


def end_of_records(disk: Disk) -> int:
    store = open_plain(disk)
    end = store.log.end
    close(store)
    return end


def test_a_plain_store_is_ended_by_a_blank_and_serves_old_and_new_messages():
    disk = new_disk()
    write_plain(disk, OLD)
    end = end_of_records(disk)
    store = open_switched(disk)
    divided = end - end % FILE_SIZE + FILE_SIZE
    assert (store.entries.end, store.entries.committed, store.commit_log.files.divided_at) == (divided,) * 3
    last = old_files(disk)[f"{divided - FILE_SIZE:020d}"]
    assert last[end % FILE_SIZE :][:8] == (divided - end).to_bytes(4, "big") + BLANK_MAGIC
    assert numbers(store) == list(range(OLD))
    append(store, range(OLD, OLD + NEW))
    assert numbers(store) == list(range(OLD))
    commit_all(store)
    assert store.entries.place_of(0) == divided
    assert numbers(store) == list(range(OLD + NEW))


@pytest.mark.parametrize("ending", ["stop", "kill", "power failure"])
@pytest.mark.parametrize("new", [0, NEW])
def test_later_starts_change_nothing_of_the_old_log(ending, new):
    disk = new_disk()
    write_plain(disk, OLD)
    store = open_switched(disk)
    divided = store.entries.end
    files = old_files(disk)
    for _ in range(3):
        if new:
            append(store, range(store.entries.next_index + OLD, store.entries.next_index + OLD + new))
            commit_all(store)
            store.entries.state_files.save_checkpoint(store.entries.checkpoint())
        count = OLD + store.entries.next_index
        if ending == "stop":
            close(store)
        else:
            disk = disk.crash(Survival.KEPT if ending == "kill" else Survival.RANDOM)
        store = open_switched(disk)
        assert old_files(disk) == files
        assert store.commit_log.files.divided_at == divided
        assert numbers(store) == list(range(count))
        assert (store.recovered_end is None) == (ending == "stop")


@pytest.mark.parametrize("survival", list(Survival))
def test_a_plain_store_that_crashed_is_recovered_by_the_plain_rules_first(survival):
    for seed in range(10):
        disk = new_disk(seed)
        store = open_plain(disk)
        fill(store, OLD, queues=2)
        for part in store.commit_log.unsynced(store.log.end):
            part.sync()
        fill(store, 7, queues=2, start=OLD)
        store = open_switched(disk.crash(survival))
        kept = numbers(store)
        assert kept == list(range(len(kept)))
        assert len(kept) >= OLD
        append(store, range(len(kept), len(kept) + NEW))
        commit_all(store)
        assert numbers(store) == list(range(len(kept) + NEW))


def test_power_that_fails_at_any_operation_of_the_switch_over_costs_nothing():
    disk = new_disk()
    write_plain(disk, OLD)
    before = disk.operations
    divided = open_switched(disk).entries.end
    operations = disk.operations - before
    assert operations > 10
    for survival in Survival:
        for cut in range(operations):
            disk = new_disk(cut)
            write_plain(disk, OLD)
            disk.cut_power_after(cut)
            with pytest.raises(PowerCut):
                open_switched(disk)
            disk = disk.crash(survival)
            if cut % 2:  # the operator gives up
                plain = open_plain(disk)
                assert numbers(plain) == list(range(OLD))
                close(plain)
            store = open_switched(disk)
            assert store.entries.end == divided
            assert numbers(store) == list(range(OLD))


def test_power_that_fails_at_any_time_leaves_old_messages_and_committed_entries():
    for seed in range(40):
        chance, disk = random.Random(seed), new_disk(seed)
        write_plain(disk, OLD)
        committed = OLD
        for _ in range(4):
            disk.cut_power_after(chance.randint(0, 150))
            try:
                store = open_switched(disk)
                for _ in range(4):
                    first = OLD + store.entries.next_index
                    append(store, range(first, first + chance.randint(1, 9)))
                    commit_all(store)
                    store.entries.state_files.save_checkpoint(store.entries.checkpoint())
                    committed = OLD + store.entries.next_index
                    if chance.random() < 0.5:
                        store.upkeep.take_checkpoint_now()
            except PowerCut:
                pass
            disk = disk.crash(chance.choice(list(Survival)))
        disk.cut_power_after(None)
        store = open_switched(disk)
        commit_all(store)
        assert numbers(store) == list(range(OLD + store.entries.next_index))
        assert OLD + store.entries.next_index >= committed


def test_files_of_both_parts_are_deleted_from_the_front():
    disk = new_disk()
    write_plain(disk, OLD)
    store = open_switched(disk)
    append(store, range(OLD, OLD + NEW))
    commit_all(store)
    left = [file.start for file in store.commit_log.file_list()]
    while len(left) > 1:
        store.commit_log.delete_first()
        disk.sync_dir(PLAIN.log_dir)
        left.pop(0)
        assert store.log.min_offset == left[0]
        assert [file.start for file in store.commit_log.file_list()] == left
    assert disk.entries(PLAIN.log_dir) == []
    close(store)
    again = open_switched(disk)
    assert again.log.min_offset == left[0]
    assert numbers(again)[-1] == OLD + NEW - 1


def test_a_store_without_a_message_begins_at_offset_0():
    disk = new_disk()
    write_plain(disk, 0)
    disk.write(f"{PLAIN.log_dir}/{0:020d}", bytes(FILE_SIZE))  # made ahead
    store = open_switched(disk)
    assert (store.entries.end, old_files(disk)) == (0, {})


def test_a_last_file_without_a_record_is_removed():
    disk = new_disk()
    write_plain(disk, OLD)
    divided = open_switched(disk).entries.end
    disk = disk.crash(Survival.KEPT)
    disk.write(f"{PLAIN.log_dir}/{divided:020d}", bytes(FILE_SIZE))
    store = open_switched(disk)
    assert store.entries.end == divided
    assert f"{divided:020d}" not in old_files(disk)


def test_the_only_file_keeps_the_offset_even_without_a_record():
    disk = new_disk()
    disk.make_dirs("/log")
    disk.write(f"/log/{FILE_SIZE:020d}", bytes(FILE_SIZE))
    files = LogFiles("/data", FILE_SIZE, disk, 2, older_dir="/log")
    files.load()
    assert end_older_files(files, FILE_SIZE) == 2 * FILE_SIZE
    assert disk.read(f"/log/{FILE_SIZE:020d}")[:8] == FILE_SIZE.to_bytes(4, "big") + BLANK_MAGIC


def test_damage_in_the_old_log_before_entries_is_refused():
    disk = new_disk()
    write_plain(disk, OLD)
    store = open_switched(disk)
    append(store, range(OLD, OLD + NEW))
    commit_all(store)
    close(store)
    name, data = next(iter(old_files(disk).items()))
    disk.write(f"{PLAIN.log_dir}/{name}", data[:300] + bytes(100) + data[400:])
    for gone in ("consumequeue", "index"):
        disk.remove_tree(f"{PLAIN.root_dir}/{gone}")
    disk.remove(f"{PLAIN.root_dir}/checkpoint")
    with pytest.raises(UnusableStore, match=r"is damaged, and entries of DLedger follow\. Copy the file"):
        open_switched(disk)


def test_a_log_of_entries_alone_does_not_begin_behind_a_commit_log_without_an_end():
    disk = new_disk()
    write_plain(disk, OLD)
    with pytest.raises(UnusableStore, match="open it as a store first"):
        EntryLog.open(SWITCHED, disk)
    divided = open_switched(disk).entries.end
    assert EntryLog.open(SWITCHED, disk).end == divided


def test_a_switched_store_is_sound():
    disk = new_disk()
    write_plain(disk, OLD)
    store = open_switched(disk)
    append(store, range(OLD, OLD + NEW))
    commit_all(store)
    close(store)
    report = run(verify(PLAIN.root_dir, disk))
    assert (report.problems, report.records, report.is_clean) == ([], OLD + NEW, True)


def test_a_member_without_the_old_log_has_the_entries_and_lacks_what_is_older():
    leader_disk, disk = new_disk(), new_disk()
    write_plain(leader_disk, OLD)
    leader = open_switched(leader_disk)
    append(leader, range(OLD, OLD + NEW))
    store = open_switched(disk)
    store.entries.reset(0, leader.entries.place_of(0))
    store.entries.append_entries(leader.entries.entries(0, 1000, 1 << 20))
    store.entries.sync()
    disk = disk.crash(Survival.RANDOM)
    store = open_switched(disk)
    commit_all(store)
    assert store.log.min_offset == leader.commit_log.files.divided_at
    assert numbers(store) == list(range(OLD, OLD + NEW))


def test_a_member_with_another_old_log_sets_it_aside():
    leader_disk, disk = new_disk(), new_disk()
    write_plain(leader_disk, 2 * OLD)
    leader = open_switched(leader_disk)
    append(leader, range(2 * OLD, 2 * OLD + NEW))
    write_plain(disk, OLD)
    files = old_files(disk)
    store = open_switched(disk)
    kept = store.entries.reset(0, leader.entries.place_of(0))
    assert len(kept) == len(files)
    store.entries.append_entries(leader.entries.entries(0, 1000, 1 << 20))
    store.entries.sync()
    store = open_switched(disk.crash(Survival.KEPT))
    commit_all(store)
    assert store.log.min_offset == leader.commit_log.files.divided_at
    for queue_id in range(2):
        queue = store.queues.queue("T", queue_id)
        assert queue.max_offset == leader.queues.queue("T", queue_id).next_offset + NEW // 2
