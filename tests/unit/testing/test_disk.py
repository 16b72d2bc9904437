import asyncio
import errno
import random

import pytest
from tests.kit import virtual

from turbopump.runtime.disk import AlreadyLocked
from turbopump.testing.disk import PowerCut, SimulatedDisk, SimulatedWorkers
from turbopump.testing.faulty import FaultyDisk
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.testing.simulated_files import SECTOR, Survival

SIZE = 8 * SECTOR


class StoppedClock:
    now = 1_000

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000

    async def sleep(self, seconds: float) -> None: ...


def disk(seed: int = 1, **options: int) -> SimulatedDisk:
    return SimulatedDisk(random.Random(seed), StoppedClock(), **options)


def sectors(data: bytes) -> list[int]:
    """The value that fills each sector."""
    parts = [data[at : at + SECTOR] for at in range(0, len(data), SECTOR)]
    assert all(len(set(part)) == 1 for part in parts)
    return [part[0] for part in parts]


def test_what_was_synced_survives_every_crash() -> None:
    for survival in Survival:
        before = disk()
        file = before.create_mapped("/a/f", SIZE)
        file.buffer[:] = b"\1" * SIZE
        file.sync()
        assert before.crash(survival).read("/a/f") == b"\1" * SIZE


@pytest.mark.parametrize(
    ("survival", "allowed"),
    [
        (Survival.LOST, [[1] * 8]),
        (Survival.KEPT, [[2] * 8]),
        (Survival.PREFIX, [[2] * n + [1] * (8 - n) for n in range(9)]),
    ],
)
def test_unsynced_sectors_fare_as_the_crash_says(survival: Survival, allowed: list[list[int]]) -> None:
    for seed in range(20):
        before = disk(seed)
        file = before.create_mapped("/f", SIZE)
        file.buffer[:] = b"\1" * SIZE
        file.sync()
        file.buffer[:] = b"\2" * SIZE
        assert sectors(before.crash(survival).read("/f")) in allowed


def test_a_random_crash_tears_and_reorders_writes() -> None:
    outcomes = set()
    for seed in range(50):
        before = disk(seed)
        before.create_mapped("/f", SIZE).buffer[:] = b"\2" * SIZE
        outcomes.add(tuple(sectors(before.crash().read("/f"))))
    assert len(outcomes) > 30
    assert any(found[0] == 0 and found[-1] == 2 for found in outcomes)


def test_after_a_failed_sync_the_system_takes_the_pages_for_clean() -> None:
    before = disk()
    file = before.create_mapped("/f", SIZE)
    before.fail_sync()
    file.buffer[:] = b"\2" * SIZE
    with pytest.raises(OSError) as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    file.sync()  # succeeds, and writes nothing
    assert file.buffer[:] == b"\2" * SIZE
    assert set(sectors(before.crash().read("/f"))) == {0, 2}


def test_pages_that_are_written_again_reach_the_medium_after_a_failed_sync() -> None:
    before = disk()
    file = before.create_mapped("/f", SIZE)
    before.fail_sync()
    file.buffer[:] = b"\2" * SIZE
    with pytest.raises(OSError):
        file.sync()
    file.buffer[:] = file.buffer[:]
    file.sync()
    assert sectors(before.crash().read("/f")) == [2] * 8


@virtual
async def test_a_sync_in_flight_covers_what_was_written_when_it_began() -> None:
    before = SimulatedDisk(random.Random(1), VirtualClock())
    file = before.create_mapped("/f", SIZE)
    workers = SimulatedWorkers(before, 1.0, 1.0)
    file.buffer[:SECTOR] = b"\1" * SECTOR
    sync = asyncio.ensure_future(workers.run(file.sync))
    await asyncio.sleep(0.5)
    file.buffer[SECTOR : 2 * SECTOR] = b"\2" * SECTOR
    await sync
    assert sectors(before.crash(Survival.LOST).read("/f"))[:3] == [1, 0, 0]


def test_a_sync_that_has_not_ended_promises_nothing() -> None:
    async def outcome(seed: int) -> tuple[int, ...]:
        before = SimulatedDisk(random.Random(seed), VirtualClock())
        file = before.create_mapped("/f", SIZE)
        file.buffer[:] = b"\1" * SIZE
        sync = asyncio.ensure_future(SimulatedWorkers(before, 1.0, 1.0).run(file.sync))
        await asyncio.sleep(0.5)
        after = before.crash(Survival.LOST)
        with pytest.raises(PowerCut):
            await sync
        return tuple(sectors(after.read("/f")))

    assert len({run_virtual(outcome(seed)) for seed in range(20)}) > 10


def test_a_kill_of_the_process_leaves_the_page_cache_and_its_debts() -> None:
    before = disk()
    file = before.create_mapped("/f", SIZE)
    file.buffer[:] = b"\2" * SIZE
    killed = before.crash(Survival.KEPT)
    assert killed.read("/f") == b"\2" * SIZE
    assert sectors(killed.crash(Survival.LOST).read("/f")) == [0] * 8


def test_names_need_a_sync_of_their_directory() -> None:
    before = disk()
    before.write("/d/old", b"x")
    before.sync_dir("/d")
    before.write("/d/new", b"y")
    before.rename("/d/old", "/d/renamed")
    after = before.crash(Survival.LOST)
    assert [entry.name for entry in after.entries("/d")] == ["old"]
    before = disk()
    before.write("/d/old", b"x")
    before.rename("/d/old", "/d/renamed")
    before.sync_dir("/d")
    assert [entry.name for entry in before.crash(Survival.LOST).entries("/d")] == ["renamed"]


def test_a_removed_file_can_come_back() -> None:
    before = disk()
    before.create_mapped("/d/f", SIZE)
    before.remove("/d/f")
    assert before.crash(Survival.LOST).exists("/d/f")
    before = disk()
    before.create_mapped("/d/f", SIZE)
    before.remove_tree("/d")
    before.sync_dir("/")
    assert not before.crash(Survival.LOST).exists("/d/f")


def test_length_and_contents_of_a_growing_file_survive_apart() -> None:
    sizes = set()
    for seed in range(20):
        before = disk(seed)
        file = before.open_plain("/f", create=True)
        file.sync()
        before.sync_dir("/")
        file.write_at(0, b"\1" * SIZE)
        sizes.add(len(before.crash().read("/f")))
    assert sizes >= {0, SIZE}


def test_power_fails_at_the_operation_named_and_stays_off() -> None:
    before = disk()
    before.make_dirs("/d")
    before.cut_power_after(1)
    before.make_dirs("/e")
    for _ in range(2):
        with pytest.raises(PowerCut):
            before.make_dirs("/f")
    assert before.is_off


def test_a_file_may_be_left_without_its_length() -> None:
    before = disk()
    before.make_dirs("/d")
    before.cut_power_after(1)
    with pytest.raises(PowerCut):
        before.create_mapped("/d/f", SIZE)
    sizes = {entry.size for entry in before.crash(Survival.KEPT).entries("/d")}
    assert sizes == {0}


def test_space_ends() -> None:
    small = disk(capacity=SIZE)
    with pytest.raises(OSError) as caught:
        small.create_mapped("/f", SIZE + 1)
    assert caught.value.errno == errno.ENOSPC
    sparse = small.create_mapped("/f", 10 * SIZE, sparse=True)
    sparse.reserve(0, SIZE)
    with pytest.raises(OSError):
        sparse.reserve(SIZE, 1)
    assert small.usage("/").used_ratio == 1.0
    small.used_ratio = 0.5
    assert small.usage("/").used_ratio == 0.5


def test_one_process_at_a_time_holds_the_lock_until_it_dies() -> None:
    before = disk()
    lock = before.lock("/lock")
    with pytest.raises(AlreadyLocked):
        before.lock("/lock")
    lock.release()
    before.lock("/lock")
    before.crash().lock("/lock")


def test_a_file_is_as_old_as_its_last_write() -> None:
    before = disk()
    clock = before.clock
    assert isinstance(clock, StoppedClock)
    file = before.create_mapped("/f", SIZE)
    clock.now = 2_000
    assert before.modified_ms("/f") == 1_000
    file.buffer[:1] = b"x"
    assert before.modified_ms("/f") == 2_000


def test_a_run_replays_from_its_seed() -> None:
    def outcome(seed: int) -> bytes:
        before = disk(seed)
        before.create_mapped("/f", SIZE).buffer[:] = b"\2" * SIZE
        return before.crash().read("/f")

    assert outcome(7) == outcome(7)


def test_the_faulty_disk_fails_on_real_files(tmp_path: object) -> None:
    faulty = FaultyDisk()
    file = faulty.create_mapped(f"{tmp_path}/f", SIZE)
    faulty.failing_syncs = 1
    file.buffer[:1] = b"x"
    with pytest.raises(OSError):
        file.sync()
    file.sync()
    faulty.space = SIZE
    faulty.create_mapped(f"{tmp_path}/g", SIZE)
    with pytest.raises(OSError):
        faulty.create_mapped(f"{tmp_path}/h", 1)
    assert not faulty.exists(f"{tmp_path}/h")
