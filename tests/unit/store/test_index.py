import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties import examples
from tests.unit.store.kit import HandClock, apache_store

from turbopump.protocol import record
from turbopump.protocol.hashing import index_hash
from turbopump.protocol.sysflag import ROLLBACK, TRANSACTION_MASK
from turbopump.runtime.disk import SystemDisk
from turbopump.store.index import Entry, Index
from turbopump.store.index_file import HEADER, ITEM, SLOT, STEPS_PER_TURN, file_size
from turbopump.store.slices import run_to_end
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.simulated_files import Survival

SLOTS, ITEMS = 7, 10
START = 1_794_733_741_890
EVER = (0, 1 << 62)


def simulated(seed: int = 1, **options: int) -> SimulatedDisk:
    return SimulatedDisk(random.Random(seed), HandClock(), **options)


def opened(disk: SimulatedDisk, slots: int = SLOTS, items: int = ITEMS) -> Index:
    return Index.open("/index", disk, slots, items, disk.clock)


def entries(count: int, keys: int = 1) -> list[Entry]:
    """Messages of 100 bytes, one each 400 ms, each with so many keys of a few hashes."""
    return [(n * 100, START + n * 400, (n * keys + k) % 23) for n in range(count) for k in range(keys)]


def offsets(index: Index, key_hash: int, max_count: int = 1000) -> list[int]:
    return run_to_end(index.query(key_hash, *EVER, max_count))


def expected(put: list[Entry], key_hash: int) -> list[int]:
    return sorted({offset for offset, _, found in put if found == key_hash})


def assert_holds(index: Index, put: list[Entry]) -> None:
    for key_hash in range(23):
        assert offsets(index, key_hash) == expected(put, key_hash)


def contents(disk: SimulatedDisk) -> list[bytes]:
    return [disk.read(f"/index/{entry.name}") for entry in disk.entries("/index")]


@pytest.mark.parametrize("name", ["4.9.7-clean", "4.9.7-kill9", "5.5.0-clean", "5.5.0-kill9"])
@pytest.mark.parametrize("batch", [1, 7, 10_000])
def test_the_files_are_apaches_byte_for_byte(name: str, batch: int, tmp_path: Path) -> None:
    store = Path(apache_store(name, tmp_path))
    put = apache_entries(store, with_tags=name.startswith("5.5"))
    index = Index.open(str(tmp_path / "index"), SystemDisk(), 50, 60, HandClock())
    for at in range(0, len(put), batch):
        index.put_many(put[at : at + batch])
    index.close()
    ours = [file.read_bytes() for file in sorted((tmp_path / "index").iterdir())]
    theirs = [file.read_bytes() for file in sorted((store / "index").iterdir())]
    assert ours == theirs


def apache_entries(store: Path, with_tags: bool) -> list[Entry]:
    """What Apache's dispatcher puts; 5.5 adds the tag of each message."""
    put = []
    for file in sorted((store / "commitlog").iterdir()):
        data, at = file.read_bytes(), 0
        while (size := record.measure(data, at, len(data), True)) > 0:
            found = record.decode(data, at)
            at += size
            if found.sys_flag & TRANSACTION_MASK == ROLLBACK:
                continue
            keys = [found.unique_key or "", *(found.keys or "").split(" ")]
            keys += [f"T#{found.tags}"] if with_tags and found.tags else []
            hashes = [index_hash(f"{found.topic}#{key}") for key in keys if key]
            put += [(found.physical_offset, found.store_timestamp, key_hash) for key_hash in hashes]
    return put


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-3000, 9000), st.integers(0, 40)), max_size=60))
@examples(60)
def test_any_sequence_can_be_queried_and_read_again(steps: list[tuple[int, int, int]]) -> None:
    put, offset, timestamp = [], 0, START
    for step, later, key_hash in steps:
        offset, timestamp = offset + step * 50, max(1, timestamp + later)
        put.append((offset, timestamp, key_hash))
    disk = simulated()
    index = opened(disk)
    for entry in put:
        index.put(*entry)
    for key_hash in range(41):
        assert offsets(index, key_hash) == expected(put, key_hash)
    index.close()
    again = opened(disk)
    for key_hash in range(41):
        assert offsets(again, key_hash) == expected(put, key_hash)


def test_a_file_holds_one_item_less_than_it_has_room_for() -> None:
    disk = simulated()
    index = opened(disk)
    index.put_many(entries(ITEMS - 1))
    assert len(disk.entries("/index")) == 1
    index.put_many(entries(ITEMS)[-1:])
    index.close()
    first, second = contents(disk)
    assert HEADER.unpack_from(first)[5] == ITEMS
    assert HEADER.unpack_from(second)[5] == 2


def test_the_first_item_after_a_full_file_counts_from_the_end_of_that_file() -> None:
    disk = simulated()
    index = opened(disk)
    index.put_many(entries(ITEMS - 1))
    end = START + (ITEMS - 2) * 400
    index.put(5000, end + 7_300, 3)
    index.close()
    second = contents(disk)[1]
    assert HEADER.unpack_from(second)[:4] == (end + 7_300, end + 7_300, 5000, 5000)
    assert ITEM.unpack_from(second, HEADER.size + SLOTS * SLOT.size + ITEM.size) == (3, 5000, 7, 0)


def test_file_names_are_local_times_and_rise_even_when_the_clock_does_not() -> None:
    disk = simulated()
    index = opened(disk)
    for n in range(4):
        index.put_many([(n * 1000 + k, START, k) for k in range(ITEMS - 1)])
        disk.clock.now -= 3_600_000 * (n % 2)  # type: ignore[attr-defined]
    names = [entry.name for entry in disk.entries("/index")]
    assert len(set(names)) == 4
    assert all(len(name) == 17 and name.isdecimal() for name in names)
    index.flush()
    assert opened(disk).end_offset == index.end_offset


def test_a_query_returns_the_newest_in_log_order_within_its_times() -> None:
    disk = simulated()
    index = opened(disk, items=100)
    index.put_many([(n * 100, START + n * 1000, 5) for n in range(40)])
    assert offsets(index, 5, 3) == [3700, 3800, 3900]
    assert run_to_end(index.query(5, START + 10_000, START + 12_000, 9)) == [1000, 1100, 1200]
    assert run_to_end(index.query(5, START + 10_000, START + 30_000, 2)) == [2900, 3000]
    assert run_to_end(index.query(5, START + 40_000, *EVER[1:], 9)) == []
    assert run_to_end(index.query(5, 0, START - 1, 9)) == []
    assert run_to_end(index.query(5 + SLOTS, *EVER, 9)) == []


def test_an_offset_is_found_once_however_often_it_was_put() -> None:
    index = opened(simulated())
    index.put_many([(100, START, 5), (100, START, 5), (100, START, 6)])
    assert offsets(index, 5) == [100]


def test_messages_before_the_end_are_dropped_when_they_come_again() -> None:
    disk = simulated()
    index = opened(disk)
    put = entries(30, keys=3)
    index.put_many(put[:50])
    index.close()
    before = contents(disk)
    again = opened(disk)
    again.put_many(put[:50])
    again.close()
    assert contents(disk) == before


def test_the_missing_keys_of_the_last_message_are_added_and_no_other() -> None:
    for cut in range(1, 60):
        disk = simulated()
        put = entries(20, keys=3)
        whole = opened(disk)
        whole.put_many(put)
        whole.close()
        other = simulated()
        index = opened(other)
        index.put_many(put[:cut])
        index.close()
        index = opened(other)
        index.put_many(put)
        index.close()
        assert contents(other) == contents(disk)


def test_a_killed_process_leaves_what_was_published() -> None:
    disk = simulated()
    index = opened(disk)
    put = entries(30, keys=2)
    index.put_many(put[:20])
    index.publish()
    index.put_many(put[20:])
    killed = disk.crash(Survival.KEPT)
    again = opened(killed)
    assert again.end_offset >= put[19][0]
    again.put_many(put)
    assert_holds(again, put)


@pytest.mark.parametrize("seed", range(60))
def test_after_a_crash_the_flushed_part_stands_and_the_rest_can_be_put_again(seed: int) -> None:
    chance = random.Random(seed)
    disk = simulated(seed)
    slots, items = chance.choice([(7, 10), (50, 60), (300, 400)])
    index = opened(disk, slots, items)
    keys = chance.randint(1, 4)
    put = entries(chance.randint(1, 150), keys)
    safe, at = 0, 0
    while at < len(put):
        step = chance.randint(1, 40) * keys
        index.put_many(put[at : at + step])
        at += step
        if chance.random() < 0.3:
            index.publish()
        if chance.random() < 0.3:
            _, safe = index.flush()
            safe += chance.choice([0, 1, 100])  # up to the end of the last message
    for _ in range(chance.randint(1, 3)):  # the machine may fail again while it recovers
        disk = disk.crash(chance.choice([Survival.RANDOM, Survival.PREFIX, Survival.LOST]))
        index = opened(disk, slots, items)
        index.truncate(safe)
        assert index.end_offset <= safe
        assert_holds(index, [entry for entry in put if entry[0] < safe])
        index.put_many(entry for entry in put if entry[0] >= index.end_offset)
    assert_holds(index, put)
    index.close()
    fresh = simulated()
    whole = opened(fresh, slots, items)
    whole.put_many(put)
    whole.close()
    assert contents(disk) == contents(fresh)


def test_truncation_is_exact_and_leaves_nothing_of_what_was_behind() -> None:
    put = entries(40, keys=2)
    for end in range(0, 4100, 150):
        disk = simulated()
        index = opened(disk)
        index.put_many(put)
        index.flush()
        index.truncate(end)
        kept = [entry for entry in put if entry[0] < end]
        assert_holds(index, kept)
        crashed = opened(disk.crash(Survival.LOST))
        assert_holds(crashed, kept)
        other = [(offset + 7, timestamp, key_hash) for offset, timestamp, key_hash in put if offset >= end]
        crashed.put_many(other)
        assert_holds(crashed, kept + other)


def test_files_newer_than_the_checkpoint_go_with_all_that_follow() -> None:
    disk = simulated()
    index = opened(disk)
    put = entries(4 * (ITEMS - 1))
    index.put_many(put)
    end_of_second = put[2 * (ITEMS - 1) - 1]
    index.remove_newer(end_of_second[1])
    assert index.last_update == (end_of_second[1], end_of_second[0])
    assert len(disk.entries("/index")) == 2
    index.put_many(put)
    assert_holds(index, put)
    index.remove_newer(0)
    assert (index.end_offset, disk.entries("/index")) == (0, [])


def test_files_go_when_their_messages_left_the_log_but_never_the_last() -> None:
    disk = simulated()
    index = opened(disk)
    put = entries(3 * (ITEMS - 1))
    index.put_many(put)
    index.delete_before(put[ITEMS - 2][0])
    assert len(disk.entries("/index")) == 3
    index.delete_before(put[ITEMS - 2][0] + 1)
    assert len(disk.entries("/index")) == 2
    index.delete_before(1 << 60)
    assert len(disk.entries("/index")) == 1


def test_what_a_failed_sync_left_unwritten_is_written_by_the_next() -> None:
    for seed in range(20):
        disk = simulated(seed)
        index = opened(disk, 300, 400)
        put = entries(100, keys=3)
        index.put_many(put)
        disk.fail_sync()
        with pytest.raises(OSError):
            index.flush()
        with pytest.raises(OSError):  # nothing was published since
            index.sync()
        index.flush()
        assert_holds(opened(disk.crash(Survival.LOST), 300, 400), put)


def test_on_a_full_disk_nothing_is_lost_that_was_put_and_it_goes_on_later() -> None:
    size = file_size(SLOTS, ITEMS)
    disk = simulated(capacity=2 * size)
    index = opened(disk)
    put = entries(40)
    with pytest.raises(OSError):
        index.put_many(put)
    done = put.index((index.end_offset, index.last_update[0], index.end_offset // 100 % 23)) + 1
    assert 0 < done < len(put)
    assert_holds(index, put[:done])
    disk.capacity = 100 * size
    index.put_many(put[done:])
    assert_holds(index, put)


def test_files_of_other_counts_are_kept_unread_until_their_messages_go() -> None:
    disk = simulated()
    other = opened(disk, slots=9, items=30)
    other.put_many(entries(20))
    other.close()
    index = opened(disk)
    assert index.end_offset == 1900
    put = [(offset + 2000, timestamp, key_hash) for offset, timestamp, key_hash in entries(20)]
    index.put_many(put)
    assert_holds(index, put)
    index.delete_before(2000)
    assert_holds(index, put)
    index.flush()
    assert {entry.size for entry in disk.entries("/index")} == {file_size(SLOTS, ITEMS)}


def test_foreign_and_unfinished_files_do_no_harm() -> None:
    disk = simulated()
    disk.write("/index/20261115090901902", b"")
    disk.write("/index/readme", b"x")
    disk.make_dirs("/index/20261115090901903")
    index = opened(disk)
    index.put_many(entries(3))
    assert_holds(index, entries(3))
    assert not disk.exists("/index/20261115090901902")


def test_damaged_files_are_searched_without_harm() -> None:
    for seed in range(100):
        chance = random.Random(seed)
        disk = simulated()
        index = opened(disk)
        index.put_many(entries(ITEMS - 1))
        index.close()
        file = disk.open_mapped(f"/index/{disk.entries('/index')[0].name}")
        for _ in range(chance.randint(1, 200)):
            file.buffer[chance.randrange(file.size)] = chance.randrange(256)
        index = opened(disk)
        for key_hash in range(23):
            offsets(index, key_hash)
        index.put_many([(1 << 61, START, key_hash) for key_hash in range(23)])
        index.truncate(300)


def test_a_new_file_of_full_size_takes_no_space_for_items_it_does_not_have(tmp_path: Path) -> None:
    index = Index.open(str(tmp_path), SystemDisk(), 5_000_000, 20_000_000, HandClock())
    index.put(0, START, 1)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == 420_000_040
    assert file.stat().st_blocks * 512 < 30_000_000
    assert run_to_end(index.query(1, *EVER, 1)) == [0]


def test_a_long_search_lets_others_have_their_turn_and_survives_that_its_file_goes() -> None:
    index = Index.open("/index", simulated(), 4, 4 * STEPS_PER_TURN, HandClock())
    last = 3 * STEPS_PER_TURN
    index.put_many((number * 100, START, 4) for number in range(last + 1))  # one chain, never what is sought
    assert len(list(index.query(0, *EVER, 9))) == 3

    interrupted = index.query(0, *EVER, 9)
    next(interrupted)
    index.close()
    assert run_to_end(interrupted) == []


def test_the_layout_of_an_index_file_is_forty_bytes_slots_and_items() -> None:
    assert (HEADER.size, SLOT.size, ITEM.size) == (40, 4, 20)
    assert file_size(5_000_000, 20_000_000) == 420_000_040
