"""DLedger's log on disk: entries by index, cut and begun again, and what a crash at any moment leaves."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties import examples
from tests.unit.store.dledger.kit import (
    ASIDE,
    CONFIG,
    DATA,
    FILE_SIZE,
    INDEX,
    Model,
    all_entries,
    body,
    check,
    new_disk,
    numbers,
)

from turbopump.protocol.dledger.entry import END_MARK, HEAD_SIZE, entry_of
from turbopump.runtime.disk import SystemDisk
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.dledger.placement import MisplacedEntry
from turbopump.store.dledger.state_files import EntryCheckpoint
from turbopump.store.errors import UnusableStore
from turbopump.testing.disk import PowerCut, SimulatedDisk
from turbopump.testing.simulated_files import Survival

OPEN_FILES = Path("/proc/self/fd")


def open_log(disk: SimulatedDisk) -> EntryLog:
    log = EntryLog.open(CONFIG, disk)
    check(log)
    return log


def filled(disk: SimulatedDisk, count: int = 40, term: int = 1) -> EntryLog:
    """A log of entries with the numbers 0 to `count`, on the medium."""
    log = open_log(disk)
    log.append([body(number) for number in range(count)], term)
    log.sync()
    return log


# --- appending and reading ---------------------------------------------------------------------------


def test_a_new_log_is_empty_and_begins_at_index_0():
    log = open_log(new_disk())
    assert (log.begin_index, log.end_index, log.next_index, log.end) == (-1, -1, 0, 0)
    assert log.append([body(0)], term=0) == [0]
    assert (log.begin_index, log.end_index, log.end_term) == (0, 0, 0)


def test_entries_are_found_by_index_after_a_restart():
    disk = new_disk()
    filled(disk).close()
    log = open_log(disk)
    assert numbers(log) == list(range(40))
    assert len(log.files.starts) == 4
    assert [entry.name for entry in disk.entries(INDEX)] == [f"{n * 512:020d}" for n in range(3)]


def test_an_entry_that_leaves_no_8_bytes_goes_to_the_next_file_after_the_mark():
    log = open_log(new_disk())
    fits = FILE_SIZE - HEAD_SIZE - 8
    assert log.append([body(1, fits), body(2, 100), body(3, fits - 147)], 1) == [0, 2048, 4096]
    assert END_MARK.unpack_from(log.files.mapped(0).buffer, FILE_SIZE - 8) == (-1, 8)
    assert END_MARK.unpack_from(log.files.mapped(2048).buffer, 148) == (-1, FILE_SIZE - 148)


def test_one_append_writes_the_same_bytes_as_many():
    one, many = open_log(new_disk()), open_log(new_disk())
    bodies = [body(number, 36 + 13 * number) for number in range(40)]
    positions = one.append(bodies, 2)
    assert positions == [many.append([each], 2)[0] for each in bodies]
    assert all_entries(one) == all_entries(many)


def test_a_follower_has_the_same_files_as_its_leader():
    disk, copy_disk = new_disk(), new_disk()
    leader, follower = filled(disk), open_log(copy_disk)
    for index in range(0, 40, 7):
        follower.append_entries(leader.entries(index, 7, 1 << 20))
    check(follower)
    for name in (DATA, INDEX):
        files = [entry.name for entry in disk.entries(name)]
        assert files == [entry.name for entry in copy_disk.entries(name)]
        for file in files:
            assert disk.read(f"{name}/{file}") == copy_disk.read(f"{name}/{file}")


def test_an_entry_that_does_not_continue_the_log_is_refused_and_changes_nothing():
    log = filled(new_disk(), 3, term=2)
    good = entry_of(body(3), 3, 2, log.end)
    wrong = [
        msgspec.structs.replace(good, index=4),
        msgspec.structs.replace(good, term=1),
        msgspec.structs.replace(good, pos=log.end + 1),
        msgspec.structs.replace(good, size=99),
        msgspec.structs.replace(good, magic=2),
        entry_of(bytes(FILE_SIZE), 3, 2, log.end),
        entry_of(b"", 3, 2, log.end),
    ]
    for entry in wrong:
        with pytest.raises(MisplacedEntry):
            log.append_entries([good, entry] if entry is wrong[0] else [entry])
    assert numbers(log) == [0, 1, 2]


def test_a_leader_that_left_a_file_early_is_followed():
    log = filled(new_disk(), 3)
    entry = entry_of(body(3)[:28] + (FILE_SIZE + 48).to_bytes(8, "big") + body(3)[36:], 3, 1, FILE_SIZE)
    log.append_entries([entry])
    assert numbers(log) == [0, 1, 2, 3]
    assert log.place_of(3) == FILE_SIZE


def test_at_most_so_many_bytes_are_read_but_at_least_one_entry():
    log = filled(new_disk())
    assert [entry.index for entry in log.entries(5, 100, 300)] == [5, 6]
    assert [entry.index for entry in log.entries(5, 100, 1)] == [5]
    assert [entry.index for entry in log.entries(5, 3, 1 << 20)] == [5, 6, 7]
    assert log.entries(40, 3, 1 << 20) == []
    assert (log.term_of(39), log.term_of(40), log.term_of(-1)) == (1, -1, -1)


def test_a_file_that_cannot_be_made_refuses_an_append_as_a_whole():
    disk = new_disk()
    log = filled(disk, 3)
    disk.capacity = 0
    disk._used_at_most = 1 << 40
    with pytest.raises(OSError, match="full"):
        log.append([body(number) for number in range(3, 60)], 1)
    disk.capacity = 1 << 40
    assert numbers(log) == [0, 1, 2]
    log.append([body(3)], 1)
    assert numbers(log) == [0, 1, 2, 3]


# --- what readers of messages see --------------------------------------------------------------------


def test_only_committed_entries_can_be_read_by_offset():
    log = filled(new_disk())
    assert (log.committed, log.read(48, 100)) == (0, None)
    log.commit_to(1)
    assert log.committed == log.end_of(1)
    assert log.read(48, 100) == log.entry(0).body
    assert log.read(log.place_of(2) + 48, 100) is None
    log.commit_to(0)
    assert log.committed_index == 1
    log.commit_to(1000)
    assert log.committed_index == 39


def test_the_committed_index_comes_back_and_never_exceeds_the_log():
    disk = new_disk()
    log = filled(disk)
    log.commit_to(20)
    log.state_files.save_checkpoint(log.checkpoint())
    log.close()
    assert open_log(disk).committed_index == 20
    EntryLog(CONFIG, disk).state_files.save_checkpoint(EntryCheckpoint(100, 120))
    assert open_log(disk).committed_index == 39


# --- cutting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [-1, 0, 5, 12, 13, 14, 26, 38])
def test_what_is_cut_off_does_not_come_back_and_is_kept_aside(last):
    disk = new_disk()
    log = filled(disk)
    kept = log.truncate_after(last)
    assert {path.rpartition("/")[0] for path in kept} == {ASIDE}
    check(log)
    assert numbers(log) == list(range(last + 1))
    after = disk.crash(Survival.RANDOM)
    log = open_log(after)
    assert numbers(log) == list(range(last + 1))
    if last >= 0:
        log.append([body(100)], 7)
        assert numbers(log) == [*range(last + 1), 100]


def test_a_stale_tail_is_not_valid_again_behind_a_shorter_new_entry():
    disk = new_disk()
    log = filled(disk)
    log.truncate_after(4)
    log.append([body(50, 100)], 2)
    log.sync()
    assert numbers(open_log(disk.crash(Survival.KEPT))) == [0, 1, 2, 3, 4, 50]


def test_a_file_that_was_made_ahead_leaves_no_gap_behind_a_cut():
    disk = new_disk()
    log = filled(disk)
    log.files.create_durably(log.base + FILE_SIZE)
    log.truncate_after(4)
    assert numbers(open_log(disk.crash(Survival.KEPT))) == [0, 1, 2, 3, 4]


def test_without_a_checkpoint_all_units_of_the_index_are_built_again():
    disk = new_disk()
    filled(disk, 80).close()
    disk.write(f"{INDEX}/{0:020d}", bytes(512))
    assert numbers(open_log(disk)) == list(range(80))


def test_a_committed_entry_is_never_cut():
    log = filled(new_disk())
    log.commit_to(9)
    with pytest.raises(AssertionError):
        log.truncate_after(8)
    log.truncate_after(9)


def test_a_log_begins_again_where_that_of_the_leader_begins():
    disk = new_disk()
    log = filled(disk, 5)
    pos = 3 * FILE_SIZE + 777
    assert log.reset(1000, pos)
    check(log)
    assert (log.next_index, log.end) == (1000, pos)
    assert log.append([body(1), body(2)], 9) == [pos, pos + 148]
    log.sync()
    log = open_log(disk.crash(Survival.RANDOM))
    assert (log.begin_index, log.end_index, log.end_term) == (1000, 1001, 9)
    assert numbers(log) == [1, 2]


def test_a_log_that_was_reset_and_never_written_is_empty():
    disk = new_disk()
    log = filled(disk, 5)
    log.reset(1000, 3 * FILE_SIZE + 777)
    log = open_log(disk.crash(Survival.RANDOM))
    assert (log.next_index, log.end) == (0, 0)
    assert log.append([body(1)], 9) == [0]


def on_system_disk(directory: Path) -> EntryLog:
    """A log in real files, whose closed maps refuse every access."""
    return EntryLog.open(replace(CONFIG, root_dir=str(directory)), SystemDisk())


def test_a_log_that_was_reset_takes_the_leaders_first_entry(tmp_path: Path):
    leader, log = on_system_disk(tmp_path / "leader"), on_system_disk(tmp_path / "follower")
    leader.append([body(1)], 2)
    log.append([body(0)], 1)
    assert log.reset(0, 0)
    log.append_entries(leader.entries(0, 1, 1 << 20))
    assert numbers(log) == [1]
    for one in (leader, log):
        one.close()


@pytest.mark.skipif(not OPEN_FILES.exists(), reason="needs /proc to see which files are open")
def test_a_reset_gives_the_space_of_index_files_back_that_were_never_written(tmp_path: Path):
    log = on_system_disk(tmp_path)
    log.index.reserve(0, 1)
    log.reset(0, 0)
    opened = [_target(path) for path in OPEN_FILES.iterdir()]
    log.close()
    assert not [path for path in opened if str(tmp_path) in path and "(deleted)" in path]


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:  # closed meanwhile
        return ""


# --- deleting ----------------------------------------------------------------------------------------


def test_the_first_index_follows_the_files_that_are_deleted():
    disk = new_disk()
    log = filled(disk)
    log.commit_to(39)
    log.state_files.save_checkpoint(log.checkpoint())
    for begin in (13, 26):
        log.delete_first()
        disk.sync_dir(DATA)
        check(log)
        assert log.begin_index == begin
        assert log.min_offset == log.place_of(begin)
    disk = disk.crash()
    log = open_log(disk)
    assert numbers(log) == list(range(26, 40))
    assert [entry.name for entry in disk.entries(INDEX)] == [f"{n * 512:020d}" for n in (1, 2)]
    assert log.committed_index == 39


def test_a_file_with_an_uncommitted_entry_is_not_deleted():
    log = filled(new_disk())
    log.commit_to(11)
    with pytest.raises(AssertionError):
        log.delete_first()


# --- damage ------------------------------------------------------------------------------------------


def test_a_damaged_index_is_built_again_from_the_entries():
    for harm in ("size", "gap", "zeros", "none"):
        disk = new_disk()
        filled(disk).close()
        path = f"{INDEX}/{512:020d}"
        if harm == "size":
            disk.open_plain(path).truncate(100)
        elif harm == "gap":
            disk.remove(path)
        elif harm == "zeros":
            disk.write(path, bytes(512))
        else:
            disk.remove_tree(INDEX)
        assert numbers(open_log(disk)) == list(range(40))


def test_a_changed_bit_of_an_entry_on_the_medium_is_refused_instead_of_cut():
    disk = new_disk()
    log = filled(disk)
    log.state_files.save_checkpoint(log.checkpoint())
    log.close()
    data = bytearray(disk.read(f"{DATA}/{FILE_SIZE:020d}"))
    data[500] ^= 1
    disk.write(f"{DATA}/{FILE_SIZE:020d}", bytes(data))
    with pytest.raises(UnusableStore, match="is damaged, but entry 39"):
        EntryLog.open(CONFIG, disk)
    assert disk.read(f"{DATA}/{FILE_SIZE:020d}") == bytes(data)


def test_a_beginning_that_cannot_be_read_is_refused_instead_of_cleared():
    disk = new_disk()
    log = filled(disk, 3)
    log.state_files.save_checkpoint(log.checkpoint())
    log.close()
    disk.write(f"{DATA}/{0:020d}", b"\x01" * FILE_SIZE)
    with pytest.raises(UnusableStore, match="does not begin with an entry"):
        EntryLog.open(CONFIG, disk)


# --- crashes -----------------------------------------------------------------------------------------


def survivors(disk: SimulatedDisk, survival: Survival) -> list[int]:
    log = open_log(disk.crash(survival))
    found = numbers(log)
    log.append([body(7777)], log.end_term + 1 if found else 1)  # and it can be written to again
    check(log)
    return found


@pytest.mark.parametrize("survival", list(Survival))
def test_an_entry_that_was_synced_survives_and_a_torn_tail_is_cut(survival):
    for seed in range(30):
        disk = new_disk(seed)
        log = filled(disk, 20)
        log.append([body(number) for number in range(20, 50)], 2)
        found = survivors(disk, survival)
        assert found == list(range(len(found)))
        assert len(found) >= 20


@pytest.mark.parametrize("work", ["append", "truncate", "reset", "delete", "open"])
def test_power_that_fails_at_any_operation_leaves_a_log_that_can_be_opened(work):
    step, done = 0, False
    while not done:
        disk = new_disk(step)
        log = filled(disk, 30)
        log.commit_to(14)
        log.state_files.save_checkpoint(log.checkpoint())
        disk.cut_power_after(step)
        least, most = 30, [*range(30)]
        try:
            if work == "append":
                most = [*range(60)]
                for number in range(30, 60, 5):
                    log.append([body(each) for each in range(number, number + 5)], 2)
                    log.sync()
                    least = number + 5
            elif work == "truncate":
                least = 16
                log.truncate_after(15)
                most = [*range(16)]
                log.append([body(number) for number in range(50, 60)], 3)
                most = [*range(16), *range(50, 60)]
                log.sync()
                least = 26
            elif work == "reset":
                least, log.committed_index = 0, -1
                log.reset(100, 5000)
                most = [200, 201]
                log.append([body(200), body(201)], 3)
                log.sync()
                least = 2
            elif work == "delete":
                log.delete_first()
                least, most = 17, [*range(13, 30)]
                disk.sync_dir(DATA)
            else:
                disk.cut_power_after(None)
                log.append([body(number) for number in range(30, 40)], 2)
                most = [*range(40)]
                disk = disk.crash(Survival.RANDOM)
                disk.cut_power_after(step)
                open_log(disk)
            done = True
        except PowerCut:
            pass
        found = survivors(disk, Survival.RANDOM)
        if work == "delete" and found[0] == 0:
            least, most = 30, [*range(30)]
        assert found == most[: len(found)], step
        assert len(found) >= least, step
        step += 1
    assert step > 2


@examples(60)
@given(st.integers(0, 1 << 32), st.lists(st.sampled_from("aaasstcrrk"), min_size=1, max_size=25))
def test_a_log_is_the_list_of_its_entries_whatever_happens(seed, steps):
    chance, disk, model, number = random.Random(seed), new_disk(seed), Model(), 0
    log, term = open_log(disk), 1
    for step in steps:
        if step == "a":
            sizes = [chance.randint(36, 900) for _ in range(chance.randint(1, 6))]
            bodies = [body(number + n, max(45, size)) for n, size in enumerate(sizes)]
            log.append(bodies, term)
            model.numbers += range(number, number + len(sizes))
            number += len(sizes)
        elif step == "s":
            log.sync()
            model.synced = len(model.numbers)
            log.state_files.save_checkpoint(log.checkpoint())
        elif step == "t" and model.numbers:
            last = chance.randint(model.committed - 1, len(model.numbers) - 1)
            log.truncate_after(last)
            del model.numbers[last + 1 :]
            model.synced = min(model.synced, last + 1)
            term += 1
        elif step == "c" and model.synced:
            model.committed = chance.randint(model.committed, model.synced)
            log.commit_to(model.committed - 1)
        elif step == "r":
            log.close()
            log = open_log(disk)
            model.synced = len(model.numbers)
        elif step == "k":
            disk = disk.crash(chance.choice(list(Survival)))
            log = open_log(disk)
            found = numbers(log)
            assert model.synced <= len(found)
            assert found == model.numbers[: len(found)]
            model.numbers, model.synced = found, len(found)
            log.commit_to(model.committed - 1)
        check(log)
        assert numbers(log) == model.numbers
        assert log.committed_index <= model.committed - 1
