"""The log of a slave: the same bytes as the master's, and everything that is derived from them."""

import asyncio
import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit import virtual
from tests.unit.store.flush_kit import Bench
from tests.unit.store.lab import EVER, check, draft, fill, new_disk, open_store, records
from tests.unit.store.replica_kit import bytes_of, copy, queues_of, slave_on, written

from turbopump.protocol.errors import ServiceNotAvailable
from turbopump.store.errors import UnusableStore
from turbopump.store.replica_log import NotACopy
from turbopump.store.store import Store
from turbopump.testing.disk import PowerCut, SimulatedDisk
from turbopump.testing.simulated_files import Survival

FILE = 4096


def assert_same(slave: Store, master: Store) -> None:
    assert bytes_of(slave) == bytes_of(master)
    assert queues_of(slave) == queues_of(master)
    check(slave)


def dispatch_all(slave: Store) -> None:
    while slave.replica.dispatch():
        pass


# copying


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_bytes_cut_anywhere_give_the_same_log_queues_and_index(seed: int, flush: str) -> None:
    master, slave = written(), slave_on(flush_disk_type=flush)
    assert master.log.end > 3 * FILE
    copy(master, slave, chance=random.Random(seed))
    assert_same(slave, master)
    assert slave.replica.last_record == master._dispatcher.state()[1]
    for key in ("common", "k3"):
        found, expected = (one.queries.query("U", key, *EVER, 64).records for one in (slave, master))
        assert found == expected
        assert found


@given(st.lists(st.integers(1, 400), min_size=1, max_size=30), st.integers(0, 1 << 30))
def test_any_records_cut_anywhere_come_out_the_same(sizes: list[int], seed: int) -> None:
    master, slave = open_store(new_disk()), slave_on()
    for number, size in enumerate(sizes):
        master.log.append([draft(master.queues.queue("T", number % 3), bytes(size), key=f"T-{number}")])
    copy(master, slave, chance=random.Random(seed))
    assert_same(slave, master)


def test_one_byte_at_a_time_a_record_is_dispatched_with_its_last_byte() -> None:
    master, slave = open_store(new_disk()), slave_on()
    fill(master, 3, size=50)
    ends = [record.physical_offset + record.size for record in records(master)]
    slave.replica.begin_at(0)
    data = bytes_of(master)
    for at in range(len(data)):
        slave.replica.append(memoryview(data)[at : at + 1])
        slave.replica.dispatch()
        assert slave.replica.dispatched == max((end for end in ends if end <= at + 1), default=0)
    assert not slave.replica.is_behind


def test_waiting_pulls_are_woken_for_each_copied_message_and_not_for_half_messages() -> None:
    master, slave = written(count=4), slave_on()
    arrived: list[tuple[str, int, int]] = []
    slave.log.on_arrival = lambda queue, end, code: arrived.append((queue.topic, queue.queue_id, end))
    copy(master, slave)
    expected = [("T", 0, 1), ("T", 1, 1), ("T", 0, 2), ("T", 1, 2), *(("U", 0, n) for n in range(1, 6))]
    assert arrived == expected


def test_a_turn_dispatches_a_limited_number_of_bytes() -> None:
    master, slave = written(), slave_on()
    slave.replica.begin_at(0)
    slave.replica.append(memoryview(bytes_of(master)))
    assert slave.replica.dispatch(1000)
    assert 0 < slave.replica.dispatched <= 1000
    turns = 1
    while slave.replica.dispatch(1000):
        turns += 1
    assert turns > 10
    assert_same(slave, master)


def test_a_record_that_is_larger_than_a_turn_is_dispatched() -> None:
    master, slave = open_store(new_disk()), slave_on()
    fill(master, 2, size=3000)
    slave.replica.begin_at(0)
    slave.replica.append(memoryview(bytes_of(master)))
    while slave.replica.dispatch(100):
        pass
    assert_same(slave, master)


def test_a_log_that_ends_with_a_file_goes_on_in_the_next() -> None:
    master, slave = written(), slave_on()
    copy(master, slave, until=FILE)
    assert (slave.replica.end, slave.replica.dispatched) == (FILE, FILE)
    assert slave.replica.dispatch() is False
    copy(master, slave)
    assert_same(slave, master)


def test_nothing_but_the_copying_writes_to_the_store_of_a_slave() -> None:
    slave = slave_on()
    with pytest.raises(ServiceNotAvailable, match="slave"):
        fill(slave, 1)


def test_a_copy_may_begin_where_the_master_has_deleted_what_was_before() -> None:
    master, slave = written(), slave_on()
    master.commit_log.mark_synced(master.log.end)
    master.commit_log.delete_first()
    copy(master, slave)
    assert slave.replica.min_offset == FILE
    assert bytes_of(slave) == bytes_of(master)
    for (topic, queue_id), entries in queues_of(slave).items():
        queue = master.queues.find(topic, queue_id)
        assert queue is not None
        begin = queue.max_offset - len(entries)
        assert entries == [queue.entry(offset) for offset in range(begin, queue.max_offset)]
    assert len(queues_of(slave)) == len(queues_of(master))


def test_a_master_with_files_of_another_size_is_told_apart() -> None:
    slave = slave_on()
    with pytest.raises(UnusableStore, match="mappedFileSizeCommitLog"):
        slave.replica.begin_at(1000)
    assert slave.replica.is_empty


def test_the_file_made_ahead_does_not_hinder_a_copy_that_begins_elsewhere() -> None:
    master, slave = written(), slave_on()
    slave.replica.make_room()  # as the upkeep of an empty store does
    master.commit_log.mark_synced(master.log.end)
    master.commit_log.delete_first()
    copy(master, slave)
    assert bytes_of(slave) == bytes_of(master)
    again = open_store(slave._disk.crash(Survival.KEPT))  # type: ignore[attr-defined]
    assert bytes_of(again) == bytes_of(master)


# bytes that are no log


@pytest.mark.parametrize(
    "garbage",
    [bytes(200), b"\xff" * 200, b"\x00\x00\x00\x10" * 50, b"\x7f\xff\xff\xff" + b"\xda\xa3\x20\xa7" * 20],
)
def test_bytes_that_are_no_record_end_the_copy_where_they_begin(garbage: bytes) -> None:
    master, slave = open_store(new_disk()), slave_on()
    fill(master, 5)
    copy(master, slave)
    end = master.log.end
    slave.replica.append(memoryview(garbage))
    with pytest.raises(NotACopy) as caught:
        slave.replica.dispatch()
    assert caught.value.offset == end
    assert slave.replica.dispatched == end
    assert queues_of(slave) == queues_of(master)


@given(st.binary(min_size=1, max_size=300))
def test_garbage_is_refused_or_waits_for_more_and_is_never_a_message(garbage: bytes) -> None:
    slave = slave_on()
    slave.replica.begin_at(0)
    slave.replica.append(memoryview(garbage))
    with contextlib.suppress(NotACopy):
        assert slave.replica.dispatch() is False
    assert queues_of(slave) == {}
    assert slave.replica.dispatched == 0


def test_a_record_of_another_offset_is_not_taken() -> None:
    """A master that lost its disk sends records of another past, from the middle of this one on (row 23)."""
    master, slave, other = written(), slave_on(), open_store(new_disk())
    copy(master, slave, until=FILE)
    fill(other, 40)
    slave.replica.append(memoryview(bytes_of(other, 0, 500)))
    with pytest.raises(NotACopy):
        slave.replica.dispatch()
    assert slave.replica.dispatched == FILE


def test_a_damaged_record_is_not_taken_and_nothing_behind_it() -> None:
    master, slave = open_store(new_disk()), slave_on()
    fill(master, 10)
    places = [record.physical_offset for record in records(master)]
    data = bytearray(bytes_of(master))
    data[places[4] + 100] ^= 1  # in the body
    slave.replica.begin_at(0)
    slave.replica.append(memoryview(bytes(data)))
    with pytest.raises(NotACopy) as caught:
        dispatch_all(slave)
    assert caught.value.offset == places[4]


# a full disk


def test_a_full_disk_stops_the_copy_between_two_files_and_it_goes_on_when_there_is_space() -> None:
    disk = new_disk()
    slave, master = slave_on(disk), written()
    disk.capacity = 0
    copied = master.log.end
    with pytest.raises(OSError, match="full"):
        copy(master, slave)
    assert slave.replica.end < copied
    with pytest.raises(OSError, match="full"):
        slave.replica.make_room()
    disk.capacity = 1 << 40
    slave.replica.make_room()
    copy(master, slave)
    assert_same(slave, master)


def test_a_disk_that_fills_in_the_middle_keeps_what_was_copied() -> None:
    disk = new_disk()
    slave, master = slave_on(disk), written()
    copy(master, slave, until=100)
    disk.capacity = disk._used()
    with pytest.raises(OSError, match="full"):
        copy(master, slave)
    assert slave.replica.end == FILE
    assert bytes_of(slave) == bytes_of(master, 0, FILE)
    assert slave.replica.read(0, FILE) == bytes_of(master, 0, FILE)
    disk.capacity = 1 << 40
    copy(master, slave)
    assert_same(slave, master)


# stops and crashes


def test_a_stop_in_order_removes_an_incomplete_record_and_the_next_start_reads_nothing() -> None:
    disk = new_disk()
    slave, master = slave_on(disk), open_store(new_disk())
    fill(master, 10)
    *_, last = records(master)
    copy(master, slave, until=last.physical_offset + 60)
    asyncio.run(slave.close())
    assert not disk.exists("/store/abort")
    again = slave_on(disk.crash(Survival.LOST))
    assert again.recovered_end is None
    assert again.replica.end == last.physical_offset
    assert again.commit_log.slice(last.physical_offset, FILE) == bytes(FILE - last.physical_offset)
    copy(master, again)
    assert_same(again, master)


@virtual
async def test_a_stop_during_a_sync_is_one_in_order() -> None:
    """A sync that was under way reported the end of the incomplete record, and the stop looked unclean."""
    bench = Bench(flush_disk_type="ASYNC_FLUSH")
    slave, master = bench.store, open_store(new_disk())
    slave.replica.open()
    fill(master, 10)
    *_, last = records(master)
    await slave.start()
    copy(master, slave, until=last.physical_offset + 60)
    bench.workers.stall(0.5)
    slave.flusher.want(slave.log.end)
    await asyncio.sleep(0.01)
    await slave.close()
    assert not bench.disk.exists("/store/abort")
    again = slave_on(bench.disk)
    assert (again.recovered_end, again.replica.end) == (None, last.physical_offset)


def test_a_stop_with_garbage_at_the_end_is_not_in_order_and_the_next_start_removes_it() -> None:
    disk = new_disk()
    slave, master = slave_on(disk), open_store(new_disk())
    fill(master, 5)
    copy(master, slave)
    slave.replica.append(memoryview(b"\xff" * 200))
    asyncio.run(slave.close())
    assert disk.exists("/store/abort")
    again = slave_on(disk)
    assert again.replica.end == master.log.end
    assert_same(again, master)


@pytest.mark.parametrize("survival", list(Survival))
@pytest.mark.parametrize("seed", range(12))
def test_a_crash_at_any_point_leaves_a_prefix_whose_queues_are_complete(
    survival: Survival, seed: int
) -> None:
    chance = random.Random(seed)
    master, disk = written(), new_disk(seed)
    for _ in range(4):
        disk.cut_power_after(chance.randint(0, 60))
        try:
            slave = slave_on(disk, flush_disk_type=chance.choice(["ASYNC_FLUSH", "SYNC_FLUSH"]))
            copy(master, slave, until=chance.randint(slave.replica.end, master.log.end), chance=chance)
            if chance.random() < 0.5:
                slave.flusher.want(slave.log.end)
                slave.upkeep.take_checkpoint_now()
        except PowerCut:
            pass
        disk = disk.crash(survival)
    slave = slave_on(disk)
    assert bytes_of(slave) == bytes_of(master, 0, slave.replica.end)
    check(slave)
    copy(master, slave, chance=chance)
    assert_same(slave, master)


@pytest.mark.parametrize("survival", [Survival.LOST, Survival.RANDOM])
def test_what_was_reported_as_synced_survives_a_power_failure(survival: Survival) -> None:
    for seed in range(20):
        disk, master = new_disk(seed), written()
        slave = slave_on(disk, flush_disk_type="SYNC_FLUSH")
        copy(master, slave, until=random.Random(seed).randint(1, master.log.end))
        synced = slave.replica.synced
        whole = [
            one.physical_offset + one.size
            for one in records(master)
            if one.physical_offset + one.size <= synced
        ]
        again = slave_on(disk.crash(survival))
        assert again.replica.end >= max(whole, default=0)


# starting over


def test_a_log_that_is_set_aside_is_kept_and_another_begins() -> None:
    disk = new_disk()
    slave, old, new = slave_on(disk), written(), written(count=90)
    copy(old, slave)
    kept = asyncio.run(slave.upkeep.set_log_aside())
    assert slave.replica.is_empty
    assert b"".join(disk.read(path) for path in sorted(kept))[: old.log.end] == bytes_of(old)
    assert queues_of(slave) == {}
    assert slave.queries.query("U", "common", *EVER, 64).records == []
    new.commit_log.mark_synced(new.log.end)
    new.commit_log.delete_first()
    copy(new, slave)
    assert bytes_of(slave) == bytes_of(new)
    asyncio.run(slave.close())
    again = slave_on(disk)
    assert again.recovered_end is None
    assert bytes_of(again) == bytes_of(new)
    check_after_gap(again)


def test_a_torn_first_record_after_the_log_was_set_aside_does_not_make_the_store_unusable() -> None:
    """A power failure before the first sync of the new log: nothing of it was on the medium yet."""
    disk = new_disk()
    slave, old, new = slave_on(disk), written(), written(count=90)
    copy(old, slave)
    asyncio.run(slave.upkeep.set_log_aside())
    new.commit_log.mark_synced(new.log.end)
    new.commit_log.delete_first()
    copy(new, slave)
    begin = slave.replica.min_offset
    slave.commit_log.files.mapped(begin).buffer[99] ^= 0xFF  # in the body: the checksum tells
    again = slave_on(disk.crash(Survival.KEPT))
    assert (again.replica.min_offset, again.replica.end) == (begin, begin)
    copy(new, again)
    assert bytes_of(again) == bytes_of(new)


def check_after_gap(store: Store) -> None:
    """Every record of the log is in its queue, at its own offset."""
    for record in records(store):
        if record.topic == "H":
            continue
        queue = store.queues.find(record.topic, record.queue_id)
        assert queue is not None
        entry = queue.entry(record.queue_offset)
        assert entry is not None
        assert entry[0] == record.physical_offset


@pytest.mark.parametrize("survival", list(Survival))
@pytest.mark.parametrize("operations", range(0, 60, 3))
def test_a_crash_while_the_log_is_set_aside_leaves_a_prefix_of_it_and_loses_no_file(
    survival: Survival, operations: int
) -> None:
    disk, old = new_disk(operations), written()
    slave = slave_on(disk)
    copy(old, slave)
    slave.flusher.want(slave.log.end)
    slave.upkeep.take_checkpoint_now()
    disk.cut_power_after(operations)
    with contextlib.suppress(PowerCut):
        asyncio.run(slave.upkeep.set_log_aside())
    disk = disk.crash(survival)
    again = slave_on(disk)
    begin = again.replica.end
    if not again.replica.is_empty:
        assert bytes_of(again) == bytes_of(old, 0, begin)
    check(again)
    assert_kept(disk, old, begin)
    asyncio.run(again.upkeep.set_log_aside())
    copy(old, again)
    assert_same(again, old)


def assert_kept(disk: SimulatedDisk, old: Store, begin: int) -> None:
    """Every record from `begin` on is in a file that was set aside."""
    aside: dict[int, bytes] = {}
    if disk.exists("/store/set-aside"):
        for entry in disk.entries("/store/set-aside"):
            start = entry.name.partition(".")[0]
            if start.isdigit():
                aside[int(start)] = disk.read(f"/store/set-aside/{entry.name}")
    for record in records(old):
        begins, size = record.physical_offset, record.size
        if begins >= begin:
            at = begins % FILE
            assert aside[begins - at][at : at + size] == bytes_of(old, begins, begins + size)


# cutting


@pytest.mark.parametrize("survival", list(Survival))
@pytest.mark.parametrize("kept", [0, 7, 25, 38])
def test_a_crash_at_any_point_of_a_cut_leaves_a_log_that_ends_there_or_later(
    survival: Survival, kept: int
) -> None:
    """apache/rocketmq#10666 for a cut that an operator asks for: what was cut is never half there."""
    for operations in range(0, 70, 4):
        disk = new_disk(operations)
        store = open_store(disk)
        fill(store, 40)
        places = [record.physical_offset for record in records(store)]
        whole = bytes_of(store)
        store.flusher.want(store.log.end)
        store.upkeep.take_checkpoint_now()
        disk.cut_power_after(operations)
        try:
            asyncio.run(store.log.cut(places[kept]))
            is_cut = True
        except PowerCut:
            is_cut = False
        disk = disk.crash(survival)
        again = open_store(disk)
        left = len(list(records(again)))
        assert left == kept if is_cut else left >= kept
        assert bytes_of(again) == whole[: again.log.end]
        check(again)
        if left > kept:
            asyncio.run(again.log.cut(places[kept]))
        fill(again, 5, start=100)
        killed = open_store(disk.crash(Survival.KEPT))
        assert [int(one.body[:6]) for one in records(killed)] == [*range(kept), *range(100, 105)]
        check(killed)


def test_a_cut_log_can_be_copied_on_from_another_master() -> None:
    """An old master that returns as a slave: its own tail is gone, the new master's follows."""
    disk = new_disk()
    old = open_store(disk)
    fill(old, 30)
    common = [record.physical_offset for record in records(old)][20]
    new = open_store(new_disk())
    copy_into_master(old, new, common)
    fill(new, 25, start=500, size=120)
    old.replica.open()
    asyncio.run(old.log.cut(common))
    copy(new, old)
    assert_same(old, new)
    again = slave_on(disk.crash(Survival.KEPT))
    assert_same(again, new)


def copy_into_master(source: Store, target: Store, until: int) -> None:
    """Gives a store the beginning of another's log, and makes it a master's."""
    target.replica.open()
    copy(source, target, until=until)
    target.flags.clear(next(iter(target.flags._details)))
    target._dispatcher.copied_from = None
