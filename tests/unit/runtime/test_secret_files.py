"""Which files with secrets others can read or change."""

import pytest
from tests.kit import virtual

from turbopump.runtime.chance import Chance
from turbopump.runtime.disk import SystemDisk
from turbopump.runtime.secret_files import exposure
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import VirtualClock


@pytest.mark.parametrize(
    ("mode", "group", "words"),
    [
        (0o600, 1000, None),
        (0o640, 0, None),
        (0o660, 0, None),
        (0o644, 0, "can be read by every user of this machine: chmod 600"),
        (0o602, 0, "can be changed by every user of this machine: chmod 600"),
        (0o640, 1000, "can be read by group 1000: chmod 600"),
        (0o620, 1000, "can be changed by group 1000: chmod 600"),
        (0o664, 1000, "can be read by every user of this machine: chmod 600"),
    ],
)
@virtual
async def test_who_else_can_read_or_change_a_file(mode: int, group: int, words: str | None) -> None:
    disk = SimulatedDisk(Chance(1), VirtualClock())
    disk.write("/secret", b"x", private=True)
    node = disk._names.find("/secret")
    node.mode, node.group = mode, group
    assert exposure(disk, "/secret") == words


def test_a_file_that_is_not_there_is_open_to_nobody(tmp_path: object) -> None:
    assert exposure(SystemDisk(), f"{tmp_path}/none") is None


def test_the_group_of_a_real_file_is_read(tmp_path: object) -> None:
    disk, path = SystemDisk(), f"{tmp_path}/file"
    disk.write(path, b"x", private=True)
    assert disk.group(path) >= 0
    assert exposure(disk, path) is None
