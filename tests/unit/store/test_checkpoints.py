"""Checkpoints that are cancelled, overtaken or failed: what they say is true whatever happens to them."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from tests.kit import virtual
from tests.unit.store.lab import HandClock, Workers, check, draft, fill, new_disk, open_store, small

from turbopump.runtime.disk import SystemWorkers
from turbopump.store import checkpoint as checkpoints
from turbopump.store.checkpoint import CheckpointNote
from turbopump.store.store import Store
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.testing.simulated_files import Survival

T = TypeVar("T")

ABORT = "/store/abort"
QUEUE_FILE = "/store/consumequeue/T/0/00000000000000000000"
SEEDS = range(10)
NEVER: dict[str, Any] = {
    "commit_log_file_size": 1 << 16,
    "checkpoint_interval_ms": 3_600_000,
    "consume_queue_flush_interval_ms": 3_600_000,
}


async def started(disk: SimulatedDisk, workers: Any = None) -> Store:
    """A store with a checkpoint, and three messages since."""
    disk.clock = VirtualClock()
    store = Store.open(small(**NEVER), disk, disk.clock, workers or SimulatedWorkers(disk))
    await store.start()
    fill(store, 1, queues=1)
    await store.upkeep.take_checkpoint()
    fill(store, 3, queues=1, start=1)
    await store.flusher.wait_durable(store.log.end)
    return store


def check_after_power_failure(disk: SimulatedDisk) -> None:
    after = disk.crash(Survival.LOST)
    after.clock = HandClock()
    check(open_store(after, commit_log_file_size=1 << 16))


def note_on_disk(disk: SimulatedDisk) -> CheckpointNote:
    note = checkpoints.load(disk, "/store/checkpoint").note
    assert note is not None
    return note


async def under_way(workers: SimulatedWorkers, checkpoint: asyncio.Task[None]) -> None:
    """Until the checkpoint's sync waits for the disk thread, which has something else to do."""
    for _ in range(6):
        await asyncio.sleep(0)
    assert not checkpoint.done()


def test_a_stop_during_a_checkpoint_leaves_nothing_unsynced():
    async def main(disk: SimulatedDisk) -> None:
        workers = SimulatedWorkers(disk)
        store = await started(disk, workers)
        busy = asyncio.ensure_future(workers.run(lambda: None))
        await asyncio.sleep(0)
        periodic = store._tasks.start(store.upkeep.take_checkpoint())
        await under_way(workers, periodic)
        await store.close()
        await busy
        assert not disk.exists(ABORT)

    for seed in SEEDS:
        disk = new_disk(seed)
        run_virtual(main(disk))
        check_after_power_failure(disk)


def test_a_checkpoint_that_is_cancelled_before_its_turn_gives_back_what_it_took():
    async def main(disk: SimulatedDisk) -> None:
        workers = SimulatedWorkers(disk)
        store = await started(disk, workers)
        busy = asyncio.ensure_future(workers.run(lambda: None))
        await asyncio.sleep(0)
        asked = asyncio.create_task(store.upkeep.take_checkpoint())
        await under_way(workers, asked)
        asked.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asked
        assert QUEUE_FILE in store.queues.files.to_sync
        await store.close()
        await busy

    disk = new_disk()
    run_virtual(main(disk))
    check_after_power_failure(disk)


class Gated(SystemWorkers):
    """A real disk thread that can be held up in the middle of its work."""

    def __init__(self) -> None:
        super().__init__()
        self.is_armed = False
        self.began, self.may_go_on = threading.Event(), threading.Event()

    async def run(self, work: Callable[..., T], *args: object) -> T:
        if not self.is_armed:
            return await super().run(work, *args)
        self.is_armed = False
        return await super().run(self._held_up, work, args)

    def _held_up(self, work: Callable[..., T], args: tuple[object, ...]) -> T:
        self.began.set()
        assert self.may_go_on.wait(10)
        return work(*args)


@pytest.mark.parametrize("fails", [False, True])
def test_a_stop_waits_for_the_disk_thread_that_a_cancelled_checkpoint_left_at_work(fails):
    async def main(disk: SimulatedDisk) -> None:
        workers = Gated()
        store = await started(disk, workers)
        workers.is_armed = True
        asked = asyncio.create_task(store.upkeep.take_checkpoint())
        await asyncio.to_thread(workers.began.wait, 10)
        asked.cancel()
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        if fails:
            disk.fail_sync(path_part="consumequeue/T/0")
        assert disk.exists(ABORT)
        workers.may_go_on.set()
        await closing
        assert not disk.exists(ABORT)
        workers.close()

    for seed in SEEDS:
        disk = new_disk(seed)
        run_virtual(main(disk))
        check_after_power_failure(disk)


def test_two_checkpoints_at_once_and_a_failed_sync_leave_a_true_one():
    async def main(disk: SimulatedDisk) -> None:
        store = await started(disk)
        disk.fail_sync(path_part="consumequeue/T/0")
        first = asyncio.create_task(store.upkeep.take_checkpoint())
        await asyncio.sleep(0.0001)
        store.log.append([draft(store.queues.queue("U", 0), b"000099", key="u")])
        await asyncio.gather(first, store.upkeep.take_checkpoint())
        assert not store.queues.files.to_sync | store.queues.files.doubtful
        assert note_on_disk(disk).complete == store.log.end

    for seed in SEEDS:
        disk = new_disk(seed)
        run_virtual(main(disk))
        check_after_power_failure(disk)


@pytest.mark.parametrize(
    ("state", "path"), [("to_sync", QUEUE_FILE), ("_changed_dirs", os.path.dirname(QUEUE_FILE))]
)
@virtual
async def test_a_checkpoint_is_not_spared_while_a_file_is_not_known_to_be_synced(state, path):
    store = await started(new_disk())
    await store.upkeep.take_checkpoint()
    getattr(store.queues.files, state).add(path)
    await store.upkeep.take_checkpoint()
    assert not getattr(store.queues.files, state)
    await store.close()


def test_after_the_stop_nobody_takes_a_checkpoint():
    async def main(disk: SimulatedDisk) -> None:
        store = await started(disk)
        late = asyncio.create_task(store.upkeep.take_checkpoint())
        await store.close()
        await late
        store.queues.files.to_sync.add(QUEUE_FILE)
        before = disk.operations
        await store.upkeep.take_checkpoint()
        assert disk.operations == before

    run_virtual(main(new_disk()))


class LateSaves(Workers):
    """Writes the checkpoint when the test lets it."""

    def __init__(self) -> None:
        self.asked, self.may_go_on = asyncio.Event(), asyncio.Event()
        self.may_go_on.set()

    async def run(self, work: Callable[..., T], *args: object) -> T:
        if work is checkpoints.save:
            self.asked.set()
            await self.may_go_on.wait()
        return work(*args)


def test_a_queue_deleted_while_the_checkpoint_is_written_is_not_expected_by_the_next_start():
    async def main(disk: SimulatedDisk) -> None:
        workers = LateSaves()
        store = await started(disk, workers)
        store.log.append([draft(store.queues.queue("U", 0), b"000099", key="u")])
        workers.asked.clear()
        workers.may_go_on.clear()
        checkpoint = asyncio.create_task(store.upkeep.take_checkpoint())
        await workers.asked.wait()
        store.queues.delete_topic("U")
        workers.may_go_on.set()
        await checkpoint
        assert (note_on_disk(disk).queues, note_on_disk(disk).complete) == (1, store.log.end)
        await store.close()

    run_virtual(main(new_disk()))


def test_a_checkpoint_that_could_not_be_written_is_not_believed_to_be_there():
    async def main(disk: SimulatedDisk) -> int:
        store = await started(disk)
        disk.fail_sync(path_part="/checkpoint")
        with pytest.raises(OSError, match="simulated"):
            store.upkeep.take_checkpoint_now()
        await store.upkeep.take_checkpoint()
        return store.log.end

    for seed in SEEDS:
        disk = new_disk(seed)
        end = run_virtual(main(disk))
        assert note_on_disk(disk.crash(Survival.LOST)).complete == end
