"""Logs of members of a group: equal where both are committed, or it is said where they differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.store.dledger.golden_kit import ENTRIES, LAST_OF_TERM_1, NODES, config_of_node, dledger_store
from tests.unit.store.dledger.kit import CONFIG, body, new_disk
from tests.unit.store.dledger.switch_kit import SWITCHED, append, close, commit_all, write_plain
from tests.unit.store.kit import HandClock
from tests.unit.store.lab import Workers

from turbopump.runtime.disk import SystemDisk
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.dledger.member_comparison import (
    MAX_SHOWN,
    MemberComparison,
    compare_entries,
    compare_members,
)
from turbopump.store.dledger.state_files import Vote
from turbopump.store.store import Store
from turbopump.store.tools import backup, run
from turbopump.testing.disk import SimulatedDisk


def log_of(disk: SimulatedDisk, root: str) -> EntryLog:
    return EntryLog.open(replace(CONFIG, root_dir=root), disk)


def written(disk: SimulatedDisk, root: str, numbers: list[int], committed: int, term: int = 1) -> None:
    log = log_of(disk, root)
    log.append([body(number) for number in numbers], term)
    log.sync()
    log.commit_to(committed)
    log.state_files.save_checkpoint(log.checkpoint())
    log.state_files.save_vote(Vote(term, "n0"))
    log.close()


def files_in(disk: SimulatedDisk, directory: str) -> dict[str, bytes]:
    """Returns the contents of all files below a directory."""
    found: dict[str, bytes] = {}
    for entry in disk.entries(directory):
        path = f"{directory}/{entry.name}"
        found |= files_in(disk, path) if entry.is_dir else {path: disk.read(path)}
    return found


def compared(disk: SimulatedDisk, *roots: str) -> MemberComparison:
    return compare_members(roots, disk)


def test_the_members_of_apaches_group_are_equal(tmp_path):
    found = compare_members([dledger_store(node, tmp_path) for node in NODES], SystemDisk())
    assert (found.is_equal, found.compared, found.first, found.last) == (True, ENTRIES, 0, ENTRIES - 1)
    assert [(member.node, member.term, member.begin, member.end) for member in found.members] == [
        (node, 2, 0, ENTRIES - 1) for node in NODES
    ]
    assert all(member.committed == ENTRIES - 1 for member in found.members)
    assert [member.vote for member in found.members].count("n1") >= 2


def test_a_log_of_ours_equals_that_of_apache_although_only_ours_has_checksums(tmp_path):
    root = dledger_store("n1", tmp_path)
    theirs = EntryLog.open(config_of_node("n1", root), SystemDisk())
    ours = EntryLog.open(config_of_node("n2", str(tmp_path / "ours")), SystemDisk())
    ours.append_entries(theirs.entries(0, 1 << 20, 1 << 30))
    ours.sync()
    ours.commit_to(LAST_OF_TERM_1)
    ours.state_files.save_checkpoint(ours.checkpoint())
    ours.close()
    found = compare_members([root, str(tmp_path / "ours")], SystemDisk())
    assert (found.is_equal, found.compared) == (True, LAST_OF_TERM_1 + 1)
    assert any("knows 11 entries fewer" in note for note in found.notes)


def test_a_committed_entry_that_differs_is_named():
    disk = new_disk()
    written(disk, "/a", list(range(40)), 39)
    written(disk, "/b", [*range(20), 99, *range(21, 40)], 39)
    found = compared(disk, "/a", "/b")
    assert (found.differing, found.compared) == (1, 40)
    [text] = found.differences
    assert text.startswith("entry 20: /a has 100 bytes of term 1 at ")


def test_entries_that_only_one_member_has_as_committed_may_differ():
    disk = new_disk()
    written(disk, "/a", list(range(40)), 39)
    written(disk, "/b", [*range(30), *range(80, 90)], 29)
    found = compared(disk, "/a", "/b")
    assert (found.is_equal, found.compared, found.last) == (True, 30, 29)


def test_another_term_of_the_same_record_is_a_difference():
    disk = new_disk()
    written(disk, "/a", list(range(15)), 14, term=1)
    written(disk, "/b", list(range(15)), 14, term=2)
    found = compared(disk, "/a", "/b")
    assert (found.differing, len(found.differences)) == (15, MAX_SHOWN)


def test_a_committed_entry_that_cannot_be_read_is_a_difference():
    disk = new_disk()
    written(disk, "/a", list(range(40)), 39)
    written(disk, "/b", list(range(40)), 39)
    path = "/b/dledger-n0/data/" + f"{0:020d}"
    data = bytearray(disk.read(path))
    data[500] ^= 1
    disk.write(path, bytes(data))
    found = compared(disk, "/a", "/b")
    assert (
        "its checkpoint has entry 39 as committed, but only entries up to 2 can be read"
        in found.differences[0]
    )


def test_a_third_member_is_compared_too():
    disk = new_disk()
    for name in "ab":
        written(disk, f"/{name}", list(range(10)), 9)
    written(disk, "/c", [*range(9), 77], 9)
    found = compared(disk, "/a", "/b", "/c")
    assert found.differing == 1
    assert found.differences[0].count(" has ") == 3


def test_comparing_changes_nothing():
    disk = new_disk()
    written(disk, "/a", list(range(40)), 39)
    written(disk, "/b", list(range(40)), 20)
    before = files_in(disk, "/a") | files_in(disk, "/b")
    assert len(before) > 6
    compared(disk, "/a", "/b")
    assert files_in(disk, "/a") | files_in(disk, "/b") == before


def test_open_logs_are_compared_as_well():
    disk = new_disk()
    written(disk, "/a", list(range(10)), 9)
    written(disk, "/b", [*range(9), 77], 9)
    result = MemberComparison([])
    streams = {name: log_of(disk, name).entries(0, 100, 1 << 20) for name in ("/a", "/b")}
    compare_entries(streams, result)
    assert (result.compared, result.differing) == (10, 1)


@pytest.fixture
def switched_disk():
    """Two members with the same old log: the second is a copy of the first."""
    disk = new_disk()
    write_plain(disk, 25)
    store = Store.open(SWITCHED, disk, HandClock(), Workers())
    append(store, range(25, 45))
    commit_all(store)
    close(store)
    run(backup("/store", "/other", disk))
    return disk


def test_the_logs_before_a_switch_over_are_compared(switched_disk):
    found = compared(switched_disk, "/store", "/other")
    assert (found.is_equal, found.compared) == (True, 20)
    path = "/other/commitlog/" + f"{2048:020d}"
    data = bytearray(switched_disk.read(path))
    data[170] ^= 1
    switched_disk.write(path, bytes(data))
    found = compared(switched_disk, "/store", "/other")
    assert found.differences == [f"the old logs of /store and /other differ at {2048 + 170}"]


def test_a_member_without_the_old_log_is_noted(switched_disk):
    for entry in switched_disk.entries("/other/commitlog"):
        switched_disk.remove(f"/other/commitlog/{entry.name}")
    found = compared(switched_disk, "/store", "/other")
    assert found.is_equal
    assert any("/other has no messages below log offset" in note for note in found.notes)
