import asyncio
import random
from collections.abc import Sequence

import pytest
from tests.kit import virtual
from tests.unit.store.kit import HandClock

from turbopump.runtime.disk import Usage
from turbopump.store.commit_log import LogFile
from turbopump.store.config import StoreConfig
from turbopump.store.retention import Retention, RetentionDecision, decide, hours, used_percent
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import VirtualClock

HOUR = 3_600_000
NOW = 1_000 * HOUR
CONFIG = StoreConfig(root_dir="/store")


def files(*ages_h: float) -> list[LogFile]:
    return [
        LogFile(n, n + 1, f"/store/commitlog/{n}", NOW - round(age * HOUR)) for n, age in enumerate(ages_h)
    ]


def decided(
    ages_h: Sequence[float], used: int = 10, hour: int = 4, asked: bool = False, config: StoreConfig = CONFIG
) -> RetentionDecision:
    return decide(files(*ages_h), NOW, hour, [Usage(100, 100 - used), Usage(100, 99)], config, asked)


@pytest.mark.parametrize(("age_h", "deleted"), [(71.99, 0), (72, 1), (73, 1)])
def test_a_file_goes_when_its_last_write_is_old_enough(age_h: float, deleted: int) -> None:
    assert decided([age_h, 0]).delete == deleted


@pytest.mark.parametrize(
    ("hour", "used", "asked", "deleted"),
    [(4, 10, False, 1), (5, 10, False, 0), (5, 75, False, 0), (5, 76, False, 1), (5, 10, True, 1)],
)
def test_expired_files_go_in_their_hour_or_for_space_or_on_demand(
    hour: int, used: int, asked: bool, deleted: int
) -> None:
    assert decided([100, 0], used, hour, asked).delete == deleted


@pytest.mark.parametrize(("used", "deleted"), [(85, 0), (86, 3)])
def test_above_the_second_mark_age_no_longer_counts(used: int, deleted: int) -> None:
    assert decided([1, 1, 1, 1], used, hour=12).delete == deleted


def test_age_still_counts_above_the_second_mark_when_force_is_forbidden() -> None:
    assert decided([100, 1, 1], 95, config=StoreConfig(root_dir="/s", clean_forcibly=False)).delete == 1


@pytest.mark.parametrize(("used", "full"), [(90, False), (91, True)])
def test_above_the_third_mark_nothing_is_written(used: int, full: bool) -> None:
    decision = decided([1], used)
    assert (decision.disk_full, decision.ratio) == (full, used / 100)


def test_either_disk_can_be_too_full() -> None:
    assert decide(files(1), NOW, 12, [Usage(100, 50), Usage(100, 5)], CONFIG).disk_full


def test_the_last_file_never_goes() -> None:
    assert decided([1000]).delete == 0
    assert decided([1000, 1000], used=99).delete == 1


def test_ten_files_go_at_a_time_oldest_first_up_to_the_first_that_stays() -> None:
    assert decided([100] * 30).delete == 10
    assert decided([100, 100, 5, 100, 0]).delete == 2


def test_marks_are_kept_within_apaches_bounds() -> None:
    careless = StoreConfig(root_dir="/s", disk_warning_ratio=100, disk_force_clean_ratio=99)
    assert decided([1, 1], 91, hour=12, config=careless).disk_full
    assert decided([1, 1], 86, hour=12, config=careless).delete == 1
    strict = StoreConfig(root_dir="/s", disk_max_used_ratio=1)
    assert decided([100, 1], 10, hour=12, config=strict).delete == 0


@pytest.mark.parametrize(
    ("total", "free", "percent"), [(1000, 250, 75), (1000, 249, 76), (1000, 0, 100), (3, 3, 0), (0, 0, 0)]
)
def test_the_used_part_is_rounded_up_to_a_whole_percent(total: int, free: int, percent: int) -> None:
    assert used_percent(Usage(total, free)) == percent


@pytest.mark.parametrize(
    ("text", "found"), [("04", {4}), ("02;04; 23", {2, 4, 23}), ("", set()), ("x;7", {7})]
)
def test_hours_are_a_list_with_semicolons(text: str, found: set[int]) -> None:
    assert hours(text) == found


class FakeStore:
    def __init__(self, count: int, clock: VirtualClock | HandClock) -> None:
        self.files = [
            LogFile(n, n + 1, f"/store/commitlog/{n}", clock.now_ms() - 100 * HOUR) for n in range(count)
        ]
        self.full: list[bool] = []
        self.changes = 0
        self.broken_file = -1

    def log_files(self) -> Sequence[LogFile]:
        return list(self.files)

    def delete_first_log_file(self) -> None:
        if self.files[0].start == self.broken_file:
            raise OSError("cannot be deleted")
        self.files.pop(0)

    async def sync_removals(self) -> None: ...

    def min_offset_changed(self) -> None:
        self.changes += 1

    def set_disk_full(self, full: bool, ratio: float) -> None:
        self.full.append(full)


ALWAYS = StoreConfig(root_dir="/store", delete_when=";".join(map(str, range(24))))


async def running(
    store: FakeStore, disk: SimulatedDisk, seconds: float, config: StoreConfig = ALWAYS
) -> None:
    task = asyncio.ensure_future(Retention(store, config, disk, disk.clock).run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@virtual
async def test_files_go_after_a_minute_ten_per_round_and_the_queues_follow_once_per_round() -> None:
    disk = SimulatedDisk(random.Random(1), VirtualClock())
    store = FakeStore(25, VirtualClock())
    await running(store, disk, 59)
    assert len(store.files) == 25
    await running(store, disk, 65)
    assert (len(store.files), store.changes) == (15, 1)
    await running(store, disk, 200)
    assert (len(store.files), store.changes) == (1, 3)


@virtual
async def test_a_full_disk_is_noted_at_once_and_forgotten_when_it_has_room_again() -> None:
    disk = SimulatedDisk(random.Random(1), VirtualClock())
    store = FakeStore(1, VirtualClock())
    disk.used_ratio = 0.95
    asyncio.get_running_loop().call_later(15, setattr, disk, "used_ratio", 0.5)
    await running(store, disk, 25)
    assert store.full == [True, True, False]


@virtual
async def test_a_file_that_cannot_be_deleted_is_tried_again_and_the_rest_is_told() -> None:
    disk = SimulatedDisk(random.Random(1), VirtualClock())
    store = FakeStore(5, VirtualClock())
    store.broken_file = 2
    asyncio.get_running_loop().call_later(100, setattr, store, "broken_file", -1)
    await running(store, disk, 90)
    assert ([file.start for file in store.files], store.changes) == ([2, 3, 4], 1)
    await running(store, disk, 100)
    assert [file.start for file in store.files] == [4]


@virtual
async def test_who_guards_what_is_in_a_file_is_asked_before_it_goes() -> None:
    disk = SimulatedDisk(random.Random(1), VirtualClock())
    store = FakeStore(5, VirtualClock())
    asked: list[int] = []

    async def guard(below: int) -> bool:
        asked.append(below)
        assert store.files[0].end == below, "not gone yet"
        return below < 3

    retention = Retention(store, ALWAYS, disk, disk.clock)
    retention.guards.append(guard)
    assert await retention.round() == 2
    assert (asked, store.changes) == ([1, 2, 3], 1)
    assert await retention.round() == 0
    assert (asked, store.changes) == ([1, 2, 3, 3], 1)


@virtual
async def test_an_operator_can_ask_for_deletion_at_any_hour() -> None:
    disk = SimulatedDisk(random.Random(1), VirtualClock())
    store = FakeStore(3, VirtualClock())
    retention = Retention(store, StoreConfig(root_dir="/store", delete_when=""), disk, disk.clock)
    assert await retention.round() == 0
    retention.ask()
    assert await retention.round() == 2
