"""A start on a full disk: the store can be read and cleaned, and goes on by itself when there is room."""

import asyncio
import contextlib
import errno
import random

import pytest
from tests.unit.store.lab import HandClock, check, draft, fill, numbers, open_store, small

from turbopump.protocol.errors import ServiceNotAvailable
from turbopump.store import checkpoint as checkpoints
from turbopump.store import queues
from turbopump.store import store as stores
from turbopump.store.consume_queue import UNIT
from turbopump.store.dispatch import MAX_BACKLOG, MAX_KEYS_PER_APPEND
from turbopump.store.errors import UnusableStore
from turbopump.store.store import Store
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.testing.simulated_files import Survival

ABORT = "/store/abort"
SIZE = 1 << 16
ENDS = ["stopped", "killed"]


class Disk(SimulatedDisk):
    """One that may have no space for another name either."""

    has_no_names_left = False
    refusal = errno.ENOSPC

    def write(self, path: str, data: bytes, sync: bool = True) -> None:
        if self.has_no_names_left and not self.exists(path):
            raise OSError(self.refusal, "no space for another name")
        super().write(path, data, sync)


def full_disk(seed: int = 1, end: str = "stopped", count: int = 20) -> Disk:
    """Has a store with so many messages, and not a byte for more."""
    disk = Disk(random.Random(seed), HandClock())
    store = open_store(disk, commit_log_file_size=SIZE)
    fill(store, count)
    if end == "stopped":
        run_virtual(store.close())
    else:
        disk._locks.clear()
        names = disk._names.after_kill()
        disk = Disk(disk.chance, disk.clock)
        disk._names = names
    disk.capacity = disk._used()
    disk._used_at_most = disk.capacity
    return disk


def make_room(disk: SimulatedDisk) -> None:
    disk.capacity = 1 << 40


async def start(disk: SimulatedDisk, **settings: object) -> Store:
    disk.clock = VirtualClock()
    config = small(commit_log_file_size=SIZE, **settings)
    store = Store.open(config, disk, disk.clock, SimulatedWorkers(disk))
    await store.start()
    return store


@pytest.mark.parametrize("end", ENDS)
def test_a_store_on_a_full_disk_can_be_read(end):
    store = open_store(full_disk(end=end), commit_log_file_size=SIZE)
    assert store.reader.get(store.queues.queue("T", 0), 0, 32).count == 10
    assert store.reader.get(store.queues.queue("T", 1), 0, 32).count == 10
    assert numbers(store) == list(range(20))


@pytest.mark.parametrize("end", ENDS)
def test_when_there_is_room_again_the_store_takes_messages_without_another_start(end):
    async def main(disk: Disk) -> None:
        store = await start(disk)
        await asyncio.sleep(30)
        make_room(disk)
        await asyncio.sleep(15)
        assert store.flags.reason is None
        fill(store, 10, start=20)
        await asyncio.sleep(15)
        note = checkpoints.load(disk, "/store/checkpoint").note
        assert note is not None
        assert note.complete == store.log.end
        check(store)
        await store.close()
        assert not disk.exists(ABORT)

    disk = full_disk(end=end)
    run_virtual(main(disk))
    again = open_store(disk.crash(Survival.LOST), commit_log_file_size=SIZE)
    assert numbers(again) == list(range(30))
    check(again)


def test_after_a_kill_nothing_is_accepted_until_the_queues_of_what_was_read_can_be_written():
    async def main(disk: Disk) -> None:
        store = await start(disk)
        with pytest.raises(ServiceNotAvailable, match="consume queues cannot be written"):
            fill(store, 1, start=20)
        make_room(disk)
        await asyncio.sleep(2)
        fill(store, 1, start=20)
        await store.close()

    run_virtual(main(full_disk(end="killed")))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("survival", list(Survival))
def test_a_crash_of_a_store_that_was_started_on_a_full_disk_costs_nothing(seed, survival):
    disk = full_disk(seed, "killed")
    open_store(disk, commit_log_file_size=SIZE)
    after = disk.crash(survival)
    make_room(after)
    store = open_store(after, commit_log_file_size=SIZE)
    assert store.recovered_end is not None
    assert numbers(store) == list(range(20))
    check(store)


@pytest.mark.parametrize("end", ENDS)
def test_a_stop_on_a_full_disk_does_not_pretend_that_all_was_written(end):
    async def main(disk: Disk) -> None:
        await (await start(disk)).close()
        assert disk.exists(ABORT) == (end == "killed")

    disk = full_disk(end=end)
    run_virtual(main(disk))
    make_room(disk)
    check(open_store(disk, commit_log_file_size=SIZE))


@pytest.mark.parametrize("end", ["no room", "crash", "stop"])
def test_queues_that_a_full_disk_left_half_made_are_made_anew_by_the_next_start(end, monkeypatch):
    """The checkpoint of the orderly stop before must not be believed any more."""
    sizes = {"commit_log_file_size": 1 << 13, "consume_queue_file_size": 2000}
    disk = SimulatedDisk(random.Random(1), HandClock())
    store = open_store(disk, **sizes)
    for number in range(400):
        for topic in "BA" if number < 60 else "A":
            store.log.append([draft(store.queues.queue(topic, 0), b"%06d" % number, key=f"{topic}-{number}")])
    run_virtual(store.close())
    disk.remove_tree("/store/consumequeue")
    if end == "no room":
        monkeypatch.setattr(queues, "MAX_WAITING_BYTES", 500)
    disk.capacity = disk._used_at_most = disk._used() + 6000
    if end == "no room":
        with pytest.raises(UnusableStore, match="too full to recover"):
            open_store(disk, **sizes)
        assert disk.exists(ABORT)
    else:
        store = open_store(disk, **sizes)
        assert store.flags.reason is not None
        if end == "stop":
            run_virtual(store.close())
        else:
            disk = disk.crash(Survival.KEPT)
    make_room(disk)
    again = open_store(disk, **sizes)
    assert [again.queues.queue(topic, 0).max_offset for topic in "AB"] == [400, 60]
    check(again)


def test_without_abort_no_queue_is_made_anew():
    disk = full_disk(count=20)
    disk.remove_tree("/store/consumequeue/T/1")
    disk.has_no_names_left = True
    disk.capacity = disk._used_at_most = disk._used() + 10_000
    with pytest.raises(UnusableStore, match="Free some space"):
        open_store(disk, commit_log_file_size=SIZE)
    assert not disk.entries("/store/consumequeue/T/1")


def test_a_store_with_many_keys_waiting_takes_messages_at_once():
    store = open_store(SimulatedDisk(random.Random(1), HandClock()))
    fill(store, 3)
    waiting = store._appender.keys
    waiting.extend([waiting[-1]] * (MAX_BACKLOG + 2 * MAX_KEYS_PER_APPEND - len(waiting)))
    store._dispatcher.keys_waiting()
    assert len(waiting) == MAX_BACKLOG + MAX_KEYS_PER_APPEND


@pytest.mark.parametrize(("most", "is_enough"), [(20 * UNIT, True), (20 * UNIT - 1, False)])
def test_entries_that_recovery_keeps_in_memory_have_a_bound(most, is_enough, monkeypatch):
    monkeypatch.setattr(queues, "MAX_WAITING_BYTES", most)
    with contextlib.nullcontext() if is_enough else pytest.raises(UnusableStore, match="Free some space"):
        open_store(full_disk(end="killed"), commit_log_file_size=SIZE)


def test_keys_that_recovery_keeps_in_memory_have_a_bound(monkeypatch):
    monkeypatch.setattr(stores, "MAX_KEYS", 5000)
    disk = full_disk(end="killed", count=100)
    make_room(disk)
    store = open_store(disk, commit_log_file_size=SIZE)
    dispatcher = stores._RecoveryDispatcher(
        store.commit_log, store.queues, store._appender, store.index, store._history, None
    )
    waiting = [(store.queues.queue("T", 0), store.log.end + n, 1, f"k{n}", "") for n in range(4999)]
    store._appender.keys.extend(waiting)
    disk.capacity = disk._used_at_most = disk._used()
    dispatcher.put_all_keys()
    dispatcher.put_all_keys()
    store._appender.keys.extend(waiting)
    with pytest.raises(OSError, match="full"):
        dispatcher.put_all_keys()


# the file `abort`


def test_on_a_full_disk_an_empty_abort_is_enough():
    disk = full_disk(count=18)
    open_store(disk, commit_log_file_size=SIZE)
    assert disk.read(ABORT) == b""
    assert open_store(disk.crash(Survival.LOST), commit_log_file_size=SIZE).recovered_end is not None


def test_an_abort_that_is_there_is_not_written_again():
    disk = full_disk(end="killed")
    make_room(disk)
    disk.write(ABORT, b"12345")
    open_store(disk, commit_log_file_size=SIZE)
    assert disk.read(ABORT) == b"12345"


def test_without_abort_a_store_can_be_read_and_takes_nothing_until_there_is_one():
    async def main(disk: Disk) -> None:
        store = await start(disk)
        assert store.reader.get(store.queues.queue("T", 0), 0, 32).count == 10
        with pytest.raises(ServiceNotAvailable, match="no space for the file abort"):
            fill(store, 1, start=20)
        with pytest.raises(ServiceNotAvailable):
            store.log.rewrite([draft(store.queues.queue("T", 0))])
        disk.has_no_names_left = False
        make_room(disk)
        await asyncio.sleep(2)
        assert disk.exists(ABORT)
        fill(store, 1, start=20)
        await store.close()
        assert not disk.exists(ABORT)

    disk = full_disk()
    disk.has_no_names_left = True
    run_virtual(main(disk))


def test_a_store_that_never_got_its_abort_stops_in_order(caplog):
    async def main(disk: Disk) -> None:
        await (await start(disk)).close()

    disk = full_disk()
    disk.has_no_names_left = True
    run_virtual(main(disk))
    assert "Cannot close the store" not in caplog.text
    assert open_store(disk, commit_log_file_size=SIZE).recovered_end is None


def test_without_abort_nothing_is_recovered():
    disk = full_disk()
    disk.remove("/store/checkpoint")
    disk.has_no_names_left = True
    with pytest.raises(UnusableStore, match=r"file abort.*Free some space"):
        open_store(disk, commit_log_file_size=SIZE)
    disk.has_no_names_left = False
    make_room(disk)
    check(open_store(disk, commit_log_file_size=SIZE))


def test_a_directory_that_may_not_be_written_is_no_full_disk():
    disk = full_disk()
    disk.has_no_names_left, disk.refusal = True, errno.EACCES
    with pytest.raises(PermissionError):
        open_store(disk, commit_log_file_size=SIZE)


# the first checkpoint, and the first syncs


def test_a_first_checkpoint_that_fails_is_tried_again():
    async def main(disk: Disk) -> None:
        disk.fail_sync(after=1, path_part="/checkpoint")  # the first is that of all files
        store = await start(disk)
        assert store.flags.reason is None
        await asyncio.sleep(15)
        after = disk.crash(Survival.LOST)
        note = checkpoints.load(after, "/store/checkpoint").note
        assert note is not None
        assert note.complete == store.log.end

    disk = full_disk(end="killed")
    make_room(disk)
    run_virtual(main(disk))
