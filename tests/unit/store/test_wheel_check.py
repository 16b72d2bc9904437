"""The files of timers held against the log: what is whole is found good, each kind of damage is named."""

import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.store.kit import apache_store

from turbopump.store import timer_check
from turbopump.store.timer_log import UNIT, UNIT_SIZE
from turbopump.store.timer_wheel import SLOT, SLOTS
from turbopump.store.tools import VerifyReport, rebuild, run, verify

NAMES = ["5.5.0-timers-clean", "5.5.0-timers-kill9"]


def report(store: Path) -> VerifyReport:
    return run(verify(str(store)))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return Path(apache_store(NAMES[0], tmp_path))


@pytest.mark.parametrize("name", NAMES)
def test_what_apache_left_is_good(name: str, tmp_path: Path) -> None:
    assert report(Path(apache_store(name, tmp_path))).problems == []


def change(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def change_unit(store: Path, number: int, field: int, value: int) -> None:
    path = store / "timerlog" / ("0" * 20)
    fields = list(UNIT.unpack_from(path.read_bytes(), number * UNIT_SIZE))
    fields[field] = value
    change(path, number * UNIT_SIZE, UNIT.pack(*fields))


def wheel_slot(store: Path) -> int:
    """The last of the slots that have something."""
    data = (store / "timerwheel").read_bytes()
    used = {match.start() // SLOT.size for match in re.finditer(rb"[^\0]+", data)}
    return max((SLOT.unpack_from(data, index * SLOT.size)[0], index) for index in used)[1]


DAMAGE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a timercheck that is too short": (
        "timercheck",
        lambda store: (store / "config" / "timercheck").write_bytes(b"x") and None,
    ),
    "a timercheck with a time that cannot be": (
        "timercheck",
        lambda store: change(store / "config" / "timercheck", 0, struct.pack(">q", -5)),
    ),
    "a unit of another size": ("timer log", lambda store: change_unit(store, 4, 0, 51)),
    "a unit with a magic that cannot be": ("timer log", lambda store: change_unit(store, 4, 2, 64)),
    "a unit that names another place of the log": ("timer log", lambda store: change_unit(store, 4, 5, 1522)),
    "a unit with another size of its message": ("timer log", lambda store: change_unit(store, 4, 6, 99)),
    "a unit that is early": ("timer log", lambda store: change_unit(store, 7, 4, 5)),
    "a timer log that is gone": ("timer log", lambda store: (store / "timerlog" / ("0" * 20)).unlink()),
    "a file of the timer log that does not follow": (
        "timer log",
        lambda store: (store / "timerlog" / f"{1 << 30:020d}").write_bytes(bytes(1 << 16)) and None,
    ),
    "a wheel that is too short": (
        "timer wheel",
        lambda store: (store / "timerwheel").write_bytes(bytes(100)) and None,
    ),
    "a wheel that is empty": ("timer wheel", lambda store: (store / "timerwheel").write_bytes(b"") and None),
    "a wheel whose slot names another unit": (
        "timer wheel",
        lambda store: change(store / "timerwheel", wheel_slot(store) * SLOT.size + 16, struct.pack(">q", 52)),
    ),
    "a wheel that lost a slot": (
        "timer wheel",
        lambda store: change(store / "timerwheel", wheel_slot(store) * SLOT.size, bytes(SLOT.size)),
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_named_and_a_rebuild_leaves_none(what: str, store: Path) -> None:
    kind, damage = DAMAGE[what]
    damage(store)
    found = report(store)
    assert kind in {problem.kind for problem in found.problems}
    assert run(rebuild(str(store))).damaged_timers > 0
    assert not [problem for problem in report(store).problems if problem.kind.startswith("timer")]


def test_a_rebuild_keeps_files_of_timers_that_are_whole(store: Path) -> None:
    before = {name: (store / name).read_bytes() for name in ("timerwheel", "config/timercheck")}
    assert run(rebuild(str(store))).damaged_timers == 0
    assert {name: (store / name).read_bytes() for name in before} == before


def test_after_a_crash_the_wheel_and_units_that_timercheck_does_not_count_are_not_blamed(store: Path) -> None:
    (store / "abort").touch()
    path = store / "config" / "timercheck"
    check = timer_check.decode(path.read_bytes())
    path.write_bytes(replace(check, log_end=3 * UNIT_SIZE).encode())
    change_unit(store, 4, 5, 1522)
    (store / "timerwheel").write_bytes(bytes(SLOTS * SLOT.size))
    assert report(store).problems == []
