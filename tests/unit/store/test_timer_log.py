"""Files of the timer log are deleted only when all their units are known to be old."""

import logging
import random

import pytest
from tests.unit.store.kit import HandClock

from turbopump.store.timer_log import DEFAULT, NONE, UNIT_SIZE, TimerLog, Unit
from turbopump.testing.disk import SimulatedDisk

FILE_SIZE = 200  # three units
DIRECTORY = "/store/timerlog"
NEGATIVE_OFFSET = b"\xff" * 8
OFFSET_AT = 28  # in a unit
NEW = 1 << 40


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(random.Random(1), HandClock())


@pytest.fixture
def timer_log(disk: SimulatedDisk) -> TimerLog:
    """Three files; their units point to the log offsets 0, 100, 200 | 300, 400, 500 | 600, 700, 800."""
    found = TimerLog(DIRECTORY, FILE_SIZE, disk)
    for offset in range(0, 900, 100):
        found.append(Unit(NONE, DEFAULT, 1_000, 5_000, offset, 90, 0, 6_000))
    found.write_out()
    return found


def files(disk: SimulatedDisk) -> list[int]:
    return [int(entry.name) for entry in disk.entries(DIRECTORY)]


def overwrite(disk: SimulatedDisk, file: int, at: int, data: bytes) -> None:
    disk.open_plain(f"{DIRECTORY}/{file:020}", False, FILE_SIZE).write_at(at, data)


def destroy_last_unit(disk: SimulatedDisk, file: int) -> None:
    overwrite(disk, file, 2 * UNIT_SIZE, bytes(UNIT_SIZE))


@pytest.mark.parametrize(
    ("log_min", "kept"), [(200, [0, 200, 400]), (201, [200, 400]), (501, [400]), (NEW, [400])]
)
def test_files_go_when_the_last_unit_is_old_and_the_last_file_stays(
    disk: SimulatedDisk, timer_log: TimerLog, log_min: int, kept: list[int]
) -> None:
    timer_log.delete_before(log_min)
    assert (files(disk), timer_log.begin) == (kept, kept[0])


@pytest.mark.parametrize(("log_min", "kept"), [(50, [0, 200, 400]), (299, [0, 200, 400]), (300, [200, 400])])
def test_if_the_last_unit_is_unreadable_the_next_file_tells_whether_all_are_old(
    disk: SimulatedDisk, timer_log: TimerLog, log_min: int, kept: list[int]
) -> None:
    destroy_last_unit(disk, 0)
    timer_log.delete_before(log_min)
    assert files(disk) == kept


@pytest.mark.parametrize(("log_min", "kept"), [(599, [0, 200, 400]), (600, [400])])
def test_if_the_next_file_is_damaged_too_the_one_behind_it_tells(
    disk: SimulatedDisk, timer_log: TimerLog, log_min: int, kept: list[int]
) -> None:
    destroy_last_unit(disk, 0)
    overwrite(disk, 200, 0, bytes(UNIT_SIZE))
    timer_log.delete_before(log_min)
    assert files(disk) == kept


def test_an_impossible_offset_in_the_last_unit_deletes_no_file(
    disk: SimulatedDisk, timer_log: TimerLog
) -> None:
    overwrite(disk, 0, 2 * UNIT_SIZE + OFFSET_AT, NEGATIVE_OFFSET)
    timer_log.delete_before(50)
    assert files(disk) == [0, 200, 400]


def test_a_file_of_which_nothing_is_known_is_kept_with_one_warning(
    disk: SimulatedDisk, timer_log: TimerLog, caplog: pytest.LogCaptureFixture
) -> None:
    destroy_last_unit(disk, 0)
    for later in (200, 400):
        overwrite(disk, later, 0, bytes(UNIT_SIZE))
    with caplog.at_level(logging.WARNING):
        timer_log.delete_before(NEW)
        timer_log.delete_before(NEW)
    assert files(disk) == [0, 200, 400]
    assert [line.split(";")[0] for line in caplog.messages] == [
        "Cannot tell whether /store/timerlog/00000000000000000000 has timers that still wait"
    ]
