import json
import random

import pytest
from tests.unit.store.kit import HandClock

from turbopump.runtime.disk import SystemDisk
from turbopump.store.config_files import ConfigFiles
from turbopump.testing.disk import PowerCut, SimulatedDisk
from turbopump.testing.simulated_files import Survival


def is_json(data: bytes) -> bool:
    return isinstance(json.loads(data), dict)


def version(n: int) -> bytes:
    return json.dumps({"version": n, "padding": "x" * 2000}).encode()


def simulated(seed: int = 1) -> SimulatedDisk:
    return SimulatedDisk(random.Random(seed), HandClock())


def test_what_was_saved_is_loaded_and_the_contents_before_are_kept(tmp_path: object) -> None:
    files = ConfigFiles(f"{tmp_path}/config", SystemDisk())
    assert files.load("topics.json") is None
    files.save("topics.json", b"{1}")
    files.save("topics.json", b"{2}")
    assert files.load("topics.json") == b"{2}"
    assert files.load("topics.json.bak") == b"{1}"
    assert [entry.name for entry in SystemDisk().entries(f"{tmp_path}/config")] == [
        "topics.json",
        "topics.json.bak",
    ]


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b'{"version": 2, "pad', b"[]"])
def test_a_damaged_file_gives_way_to_the_contents_before(damage: bytes) -> None:
    disk = simulated()
    files = ConfigFiles("/config", disk)
    files.save("topics.json", version(1))
    files.save("topics.json", version(2))
    disk.write("/config/topics.json", damage)
    assert files.load("topics.json", is_json) == version(1)


def test_without_any_usable_contents_there_is_none() -> None:
    disk = simulated()
    disk.write("/config/a.json", b"{")
    disk.write("/config/a.json.bak", b"")
    assert ConfigFiles("/config", disk).load("a.json", is_json) is None


@pytest.mark.parametrize("seed", range(100))
def test_a_crash_at_any_point_leaves_the_last_contents_or_the_new_ones(seed: int) -> None:
    chance = random.Random(seed)
    disk = simulated(seed)
    saved = started = 0
    for _ in range(6):
        files = ConfigFiles("/config", disk)
        disk.cut_power_after(chance.randint(0, 30))
        try:
            for _ in range(chance.randint(1, 4)):
                started = saved + 1
                files.save("topics.json", version(started))
                saved = started
        except PowerCut:
            pass
        disk = disk.crash(chance.choice(list(Survival)))
        loaded = ConfigFiles("/config", disk).load("topics.json", is_json)
        assert loaded in ([version(saved), version(started)] if saved else [None, version(started)])
        saved = json.loads(loaded)["version"] if loaded else 0


def test_a_failed_save_leaves_what_was_there() -> None:
    disk = simulated()
    files = ConfigFiles("/config", disk)
    files.save("topics.json", version(1))
    disk.fail_sync()
    with pytest.raises(OSError):
        files.save("topics.json", version(2))
    assert files.load("topics.json", is_json) == version(1)
