"""A copy of a store that is in use: a prefix of its log, nothing acknowledged before it began is missing."""

import pytest
from tests.unit.store.lab import ROOT, check, fill, new_disk, numbers, open_store

from turbopump.store.errors import UnusableStore
from turbopump.store.tools import backup, run

COPY = "/copy"


def opened_copy(disk):
    return open_store(disk, root_dir=COPY)


def test_a_copy_taken_while_messages_arrive_is_a_prefix_without_a_gap():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 60)
    number = 60
    steps = backup(ROOT, COPY, disk)
    for _ in steps:
        fill(store, 9, start=number)  # the log rolls to a new file at every other step
        number += 9
    copy = opened_copy(disk)
    found = numbers(copy)
    assert found == list(range(len(found)))
    assert 60 <= len(found) < number
    check(copy)
    fill(copy, 5, start=len(found))
    assert numbers(copy) == list(range(len(found) + 5))


def test_a_file_that_retention_took_first_is_not_missed():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 60)
    names = [entry.name for entry in disk.entries(f"{ROOT}/commitlog")]
    steps = backup(ROOT, COPY, disk)

    def gone_meanwhile(path):
        raise FileNotFoundError(path)

    opened = disk.open_plain
    disk.open_plain = lambda path, *more, **others: (
        gone_meanwhile(path) if path == f"{ROOT}/commitlog/{names[0]}" else opened(path, *more, **others)
    )
    copied = run(steps)
    disk.open_plain = opened
    assert copied.log_begin == int(names[1])
    found = numbers(opened_copy(disk))
    assert found == list(range(found[0], 60))


def test_tables_are_copied_and_locks_are_not():
    disk = new_disk()
    store = open_store(disk)
    fill(store, 3)
    disk.make_dirs(f"{ROOT}/config")
    disk.write(f"{ROOT}/config/topics.json", b"{}")
    copied = run(backup(ROOT, COPY, disk))
    assert copied.tables == 2  # and the delay levels
    assert disk.read(f"{COPY}/config/topics.json") == b"{}"
    assert sorted(entry.name for entry in disk.entries(COPY)) == ["commitlog", "config"]


def test_an_empty_store_can_be_copied():
    disk = new_disk()
    open_store(disk)
    run(backup(ROOT, COPY, disk))
    assert numbers(opened_copy(disk)) == []


def test_a_target_that_holds_something_is_refused():
    disk = new_disk()
    fill(open_store(disk), 3)
    disk.make_dirs(COPY)
    disk.write(f"{COPY}/something", b"mine")
    with pytest.raises(UnusableStore, match="must be an empty directory"):
        run(backup(ROOT, COPY, disk))
    assert disk.read(f"{COPY}/something") == b"mine"
