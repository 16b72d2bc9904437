"""A copy of the store of a DLedger node, stopped or running: both parts of its log, and its term and vote."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.store.dledger.golden_kit import ENTRIES, config_of_node, dledger_store
from tests.unit.store.dledger.kit import new_disk
from tests.unit.store.dledger.switch_kit import (
    PLAIN,
    SWITCHED,
    append,
    close,
    commit_all,
    numbers,
    open_switched,
    write_plain,
)
from tests.unit.store.kit import HandClock
from tests.unit.store.lab import Workers

from turbopump.runtime.disk import Disk, SystemDisk
from turbopump.store.dledger.state_files import Vote
from turbopump.store.store import Store
from turbopump.store.tools import backup, dump, rebuild, run, verify

OLD, NEW = 25, 20
COPY = "/copy"


def switched(disk: Disk) -> Store:
    """A store with messages in both parts of its log; the last three entries are not committed."""
    write_plain(disk, OLD)
    store = open_switched(disk)
    append(store, range(OLD, OLD + NEW))
    commit_all(store)
    append(store, range(OLD + NEW, OLD + NEW + 3))
    store.entries.state_files.save_vote(Vote(4, "n2"))
    return store


def opened_copy(disk: Disk) -> Store:
    return Store.open(replace(SWITCHED, root_dir=COPY), disk, HandClock(), Workers())


@pytest.mark.parametrize("is_running", [False, True])
def test_a_copy_has_both_parts_of_the_log_and_the_vote(is_running):
    disk = new_disk()
    store = switched(disk)
    store.entries.state_files.save_checkpoint(store.entries.checkpoint())
    if not is_running:
        close(store)
    copied = run(backup(PLAIN.root_dir, COPY, disk))
    assert (copied.dledger_id, copied.log_begin) == ("n0", 0)
    copy = opened_copy(disk)
    assert copy.entries.state_files.load_vote() == Vote(4, "n2")
    assert copy.commit_log.files.divided_at == store.commit_log.files.divided_at
    assert (copy.entries.end_index, copy.entries.committed_index) == (NEW + 2, NEW - 1)
    assert numbers(copy) == list(range(OLD + NEW))
    commit_all(copy)
    assert numbers(copy) == list(range(OLD + NEW + 3))


def test_a_copy_taken_while_entries_arrive_is_a_prefix_without_a_gap():
    disk = new_disk()
    store = switched(disk)
    count = OLD + NEW + 3
    for _ in backup(PLAIN.root_dir, COPY, disk):
        append(store, range(count, count + 9))  # the log rolls to a new file at every other step
        count += 9
    copy = opened_copy(disk)
    commit_all(copy)
    found = numbers(copy)
    assert found == list(range(len(found)))
    assert OLD + NEW + 3 <= len(found) < count


def test_a_copy_is_sound_and_its_missing_index_of_entries_is_noted():
    disk = new_disk()
    store = switched(disk)
    commit_all(store)
    close(store)
    run(backup(PLAIN.root_dir, COPY, disk))
    run(rebuild(COPY, disk, config=replace(SWITCHED, root_dir=COPY)))
    report = run(verify(COPY, disk))
    assert (report.problems, report.records) == ([], OLD + NEW + 3)
    assert "no index of entries" in {note.kind for note in report.notes}


def test_dump_and_rebuild_read_both_parts_of_a_switched_store():
    disk = new_disk()
    store = switched(disk)
    close(store)
    found = [int(record.body[:6]) for record in dump(PLAIN.root_dir, disk=disk)]
    assert found == list(range(OLD + NEW + 3))
    rebuilt = run(rebuild(PLAIN.root_dir, disk, config=SWITCHED))
    assert rebuilt.records == OLD + NEW
    again = open_switched(disk)
    assert numbers(again) == list(range(OLD + NEW))


def test_a_node_of_apaches_is_copied(tmp_path):
    root, target = dledger_store("n0", tmp_path), str(tmp_path / "copy")
    copied = run(backup(root, target))
    assert copied.tables > 0
    config = replace(config_of_node("n0", root), root_dir=target)
    copy = Store.open(config, SystemDisk(), HandClock(), Workers())
    assert copy.entries.end_index == ENTRIES - 1
    assert copy.entries.state_files.load_vote().term == 2
