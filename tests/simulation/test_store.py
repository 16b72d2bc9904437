"""Random simulations of the store, and scenarios of known data losses of Apache."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable

import pytest
from tests.simulation.store import run

from turbopump.protocol import properties as props
from turbopump.protocol.record import decode_all
from turbopump.store.append import Draft
from turbopump.store.config import StoreConfig
from turbopump.store.flush import Durability
from turbopump.store.reading import GetStatus
from turbopump.store.store import Store
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.testing.simulated_files import Survival

SEEDS = int(os.environ.get("TURBOPUMP_SEEDS", "100"))
BATCH = 20
POWER_CUTS = [Survival.LOST, Survival.RANDOM, Survival.PREFIX]
EVERY_END = [*POWER_CUTS, Survival.KEPT]


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_promises_are_kept_in_worlds_of_faults(first: int) -> None:
    for seed in range(first, first + BATCH):
        try:
            run(seed)
        except Exception as error:
            pytest.fail(f"seed {seed}: {error}\npython -m tests.simulation -v --seed {seed}")


class Machine:
    """A store with small files on a disk that loses unsynced writes."""

    def __init__(self, seed: int = 1, **config: object) -> None:
        self.disk = SimulatedDisk(random.Random(seed), VirtualClock())
        self.config = StoreConfig(
            root_dir="/store",
            commit_log_file_size=4096,
            consume_queue_file_size=400,
            index_slots=50,
            index_items=60,
            **config,  # type: ignore[arg-type]
        )

    async def start(self) -> Store:
        store = Store.open(self.config, self.disk, self.disk.clock, SimulatedWorkers(self.disk))
        await store.start()
        return store

    async def crash(self, survival: Survival) -> None:
        self.disk = self.disk.crash(survival)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def scenario(story: Callable[[], Awaitable[None]]) -> None:
    run_virtual(story())  # type: ignore[arg-type]


def send(store: Store, number: int, queue_id: int = 0) -> int:
    """Appends message `number`; returns its end."""
    key = f"KEY{number}"
    draft = Draft(
        queue=store.queues.queue("orders", queue_id),
        body=b"message %d" % number,
        properties=props.pack({props.UNIQUE_KEY: key}).encode(),
        flag=0,
        sys_flag=0,
        born_timestamp=number,
        born_host=bytes(8),
        unique_key=key,
    )
    ((offset, _, size),) = store.log.append([draft])
    return offset + size


async def on_disk(store: Store, end: int) -> Durability:
    answer: asyncio.Future[Durability] = asyncio.get_running_loop().create_future()
    store.flusher.durable(end, answer.set_result)
    return await answer


def bodies(store: Store, queue_id: int = 0) -> list[bytes]:
    """Returns what a consumer reads from the first offset on."""
    queue = store.queues.queue("orders", queue_id)
    offset, found = queue.min_offset, []
    while (result := store.reader.get(queue, offset, 32, 1 << 20, None)).status is GetStatus.FOUND:
        found += [record.body for record in decode_all(result.body)]
        offset = result.next_offset
    return found


def numbers(count: int) -> list[bytes]:
    return [b"message %d" % number for number in range(count)]


@pytest.mark.parametrize("survival", EVERY_END)
@pytest.mark.parametrize("seed", range(5))
def test_row_1_what_was_appended_and_not_dispatched_is_in_its_queue_after_a_crash(
    survival: Survival, seed: int
) -> None:
    """apache/rocketmq#7355: the queue stayed shorter than the log."""

    async def story() -> None:
        machine = Machine(seed, flush_disk_type="SYNC_FLUSH")
        store = await machine.start()
        end = 0
        for number in range(100):
            end = send(store, number)
        assert await on_disk(store, end) is Durability.DISK
        await machine.crash(survival)  # no entry of a queue was written yet
        store = await machine.start()
        assert bodies(store) == numbers(100)
        assert store.queues.queue("orders", 0).max_offset == 100
        assert await on_disk(store, send(store, 100)) is Durability.DISK
        assert bodies(store) == numbers(101)

    scenario(story)


@pytest.mark.parametrize("survival", EVERY_END)
def test_row_3_messages_are_found_by_key_after_a_crash(survival: Survival) -> None:
    """apache/rocketmq#7477: by offset id, but no more by message id."""

    async def story() -> None:
        machine = Machine(flush_disk_type="SYNC_FLUSH", checkpoint_interval_ms=1_000)
        store = await machine.start()
        for number in range(150):
            end = send(store, number)
            if number % 50 == 25:
                await asyncio.sleep(1.5)  # some keys are on disk, some in memory
        assert await on_disk(store, end) is Durability.DISK
        await machine.crash(survival)
        store = await machine.start()
        for number in range(150):
            found = store.queries.query("orders", f"KEY{number}", 0, 1 << 62, 32)
            assert [record.body for found in found.records for record in decode_all(found)] == [
                b"message %d" % number
            ]

    scenario(story)


@pytest.mark.parametrize("survival", EVERY_END)
@pytest.mark.parametrize("seed", range(5))
def test_row_4_what_queues_lacked_at_a_crash_is_in_them_before_anything_new(
    survival: Survival, seed: int
) -> None:
    """apache/rocketmq#467, #405: dispatch began at the end of the log after an abnormal stop, and what the
    queues had not yet got was never in them. The same of a slave that becomes master waits for replication.
    """

    async def story() -> None:
        machine = Machine(seed, flush_disk_type="SYNC_FLUSH", checkpoint_interval_ms=1_000)
        store = await machine.start()
        for number in range(60):
            end = send(store, number, queue_id=number % 3)
        assert await on_disk(store, end) is Durability.DISK
        await asyncio.sleep(1.5)  # the queues have these, and the checkpoint says so
        for number in range(60, 100):
            end = send(store, number, queue_id=number % 2)  # one queue is not behind
        assert await on_disk(store, end) is Durability.DISK
        await machine.crash(survival)
        store = await machine.start()
        assert [store.queues.queue("orders", queue_id).max_offset for queue_id in range(3)] == [40, 40, 20]
        assert await on_disk(store, send(store, 100)) is Durability.DISK
        expected = [
            *(b"message %d" % number for number in range(0, 60, 3)),
            *(b"message %d" % number for number in range(60, 101, 2)),
        ]
        assert bodies(store) == expected
        await machine.crash(survival)  # before a checkpoint records that the tail is dispatched
        assert bodies(await machine.start()) == expected

    scenario(story)


@pytest.mark.parametrize("cut", POWER_CUTS)
@pytest.mark.parametrize("seed", range(10))
def test_row_8_what_a_recovery_cut_off_never_comes_back(cut: Survival, seed: int) -> None:
    """apache/rocketmq#10666: truncation in memory only; the stale tail was valid again after a crash."""

    async def story() -> None:
        machine = Machine(seed)
        store = await machine.start()
        for number in range(10):
            end = send(store, number)
        assert await on_disk(store, end) is Durability.DISK
        for number in range(10, 40):
            send(store, number)
        await machine.crash(Survival.RANDOM)
        store = await machine.start()
        kept = len(bodies(store))
        assert 10 <= kept <= 40
        await machine.crash(cut)  # before anything is appended where the tail was
        store = await machine.start()
        assert bodies(store) == numbers(kept)
        send(store, 1000)
        await machine.crash(cut)
        assert bodies(await machine.start()) in (numbers(kept), [*numbers(kept), b"message 1000"])

    scenario(story)


def test_a_reader_beyond_the_end_is_sent_to_the_end_not_to_the_beginning() -> None:
    """apache/rocketmq#4771, #2181: a crash cost messages that a consumer had seen; it must not restart."""

    async def story() -> None:
        machine = Machine()
        store = await machine.start()
        for number in range(10):
            end = send(store, number)
        assert await on_disk(store, end) is Durability.DISK
        for number in range(10, 30):
            send(store, number)
        await machine.crash(Survival.LOST)
        store = await machine.start()
        queue = store.queues.queue("orders", 0)
        assert queue.max_offset == 10
        beyond = store.reader.get(queue, 30, 32, 1 << 20, None)
        assert (beyond.status, beyond.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 10)
        at_end = store.reader.get(queue, 10, 32, 1 << 20, None)
        assert (at_end.status, at_end.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 10)

    scenario(story)


def test_a_failed_sync_fails_who_waited_for_it_and_nobody_after_it_has_healed() -> None:
    async def story() -> None:
        machine = Machine(flush_disk_type="SYNC_FLUSH")
        store = await machine.start()
        assert await on_disk(store, send(store, 0)) is Durability.DISK
        machine.disk.fail_sync(path_part="commitlog")
        assert await on_disk(store, send(store, 1)) is Durability.FAILED
        assert store.flags.reason is not None
        await asyncio.sleep(5)
        assert store.flags.reason is None
        assert await on_disk(store, send(store, 2)) is Durability.DISK
        await machine.crash(Survival.LOST)
        assert bodies(await machine.start()) == numbers(3)  # the second was synced with the third

    scenario(story)


def test_a_sync_that_takes_too_long_is_answered_in_time() -> None:
    async def story() -> None:
        machine = Machine(flush_disk_type="SYNC_FLUSH")
        workers = SimulatedWorkers(machine.disk)
        store = Store.open(machine.config, machine.disk, machine.disk.clock, workers)
        await store.start()
        workers.stall(60)
        begin = machine.disk.clock.monotonic()
        assert await on_disk(store, send(store, 0)) is Durability.TIMEOUT
        assert machine.disk.clock.monotonic() - begin < 10
        await asyncio.sleep(70)
        assert await on_disk(store, send(store, 1)) is Durability.DISK

    scenario(story)


def test_a_full_disk_refuses_and_goes_on_when_there_is_room() -> None:
    async def story() -> None:
        machine = Machine()
        store = await machine.start()
        machine.disk.used_ratio = 0.95
        await asyncio.sleep(15)
        assert "disk is full" in (store.flags.reason or "")
        machine.disk.used_ratio = 0.5
        await asyncio.sleep(15)
        assert store.flags.reason is None
        send(store, 0)
        assert bodies(store) == numbers(1)

    scenario(story)
