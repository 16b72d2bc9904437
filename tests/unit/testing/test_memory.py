"""The disk in memory of embedded servers."""

import pytest

from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import AlreadyLocked
from turbopump.testing.memory import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(SystemClock())


def test_what_is_written_can_be_read(disk: MemoryDisk) -> None:
    disk.write("/store/config/topics.json", b"{}")
    assert disk.read("/store/config/topics.json") == b"{}"
    assert [entry.name for entry in disk.entries("/store")] == ["config"]
    assert [(entry.name, entry.size) for entry in disk.entries("/store/config")] == [("topics.json", 2)]


def test_a_plain_file_grows_where_it_is_written(disk: MemoryDisk) -> None:
    file = disk.open_plain("/queue/0", create=True, size=4)
    file.write_at(6, b"xy")
    assert file.size() == 8
    assert disk.open_plain("/queue/0").read_at(0, 8) == b"\0" * 6 + b"xy"
    file.truncate(3)
    assert file.size() == 3


def test_a_mapped_file_is_found_again(disk: MemoryDisk) -> None:
    disk.create_mapped("/log/0", 16).buffer[0:2] = b"ab"
    assert disk.open_mapped("/log/0").buffer[0:2] == b"ab"


def test_a_file_that_is_not_there_is_not_found(disk: MemoryDisk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open_mapped("/log/0")
    with pytest.raises(FileNotFoundError):
        disk.open_plain("/log/0")
    with pytest.raises(FileNotFoundError):
        disk.remove("/log/0")


def test_a_name_can_be_replaced_and_removed(disk: MemoryDisk) -> None:
    disk.write("/a/one", b"1")
    disk.write("/a/two", b"2")
    disk.rename("/a/one", "/a/two")
    assert disk.read("/a/two") == b"1"
    assert not disk.exists("/a/one")
    disk.remove_tree("/a")
    assert not disk.exists("/a/two")
    assert not disk.exists("/a")


def test_a_copy_is_what_a_killed_process_leaves(disk: MemoryDisk) -> None:
    mapped = disk.create_mapped("/log/0", 16)
    mapped.buffer[0:2] = b"ab"
    disk.lock("/lock")
    left = disk.copy()
    mapped.buffer[0:2] = b"cd"
    assert left.open_mapped("/log/0").buffer[0:2] == b"ab"
    left.lock("/lock")


def test_a_copy_of_files_that_nobody_opened_is_changed_alone(disk: MemoryDisk) -> None:
    disk.write("/queue/0", b"abcd")
    one, two = disk.copy(), disk.copy()
    one.open_plain("/queue/0").write_at(1, b"x")
    two.open_mapped("/queue/0").buffer[2:3] = b"y"
    assert [each.read("/queue/0") for each in (disk, one, two)] == [b"abcd", b"axcd", b"abyd"]


def test_an_empty_file_cannot_be_mapped(disk: MemoryDisk) -> None:
    disk.write("/log/0", b"")
    with pytest.raises(ValueError, match="empty"):
        disk.open_mapped("/log/0", writable=False)


def test_what_is_mapped_is_seen_by_who_reads_the_file(disk: MemoryDisk) -> None:
    disk.open_plain("/log/0", create=True, size=4)
    disk.open_mapped("/log/0").buffer[0:2] = b"ab"
    assert disk.open_plain("/log/0").read_at(0, 4) == b"ab\0\0"


def test_names_that_no_system_takes_are_not_taken(disk: MemoryDisk) -> None:
    with pytest.raises(ValueError, match="null"):
        disk.entries("/queue/\0")
    with pytest.raises(OSError, match="too long"):
        disk.write("/queue/" + "n" * 256, b"")


def test_entries_follow_what_is_made_renamed_and_removed(disk: MemoryDisk) -> None:
    disk.write("/a/b/one", b"1")
    disk.make_dirs("/a/c/d/")
    disk.rename("/a/b/one", "/a/c/two")
    assert [entry.name for entry in disk.entries("/a")] == ["b", "c"]
    assert disk.entries("/a/b") == []
    assert [(entry.name, entry.is_dir) for entry in disk.entries("/a/c/")] == [("d", True), ("two", False)]
    disk.remove_tree("/a/c")
    assert [entry.name for entry in disk.entries("/a")] == ["b"]


def test_a_lock_is_held_once(disk: MemoryDisk) -> None:
    lock = disk.lock("/lock")
    with pytest.raises(AlreadyLocked):
        disk.lock("/lock")
    lock.release()
    disk.lock("/lock")
