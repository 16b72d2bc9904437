"""Term, vote and checkpoint of a DLedger node: as Apache writes them, and old or new after a crash."""

from __future__ import annotations

import pytest
from tests.unit.store.dledger.kit import new_disk

from turbopump.store.dledger.state_files import EntryCheckpoint, StateFiles, Vote
from turbopump.store.errors import UnusableStore
from turbopump.testing.disk import PowerCut
from turbopump.testing.simulated_files import Survival

DIRECTORY = "/store/dledger-n0"


def test_a_node_that_never_voted_has_neither_term_nor_vote():
    files = StateFiles(DIRECTORY, new_disk())
    assert files.load_vote() is None
    assert files.load_checkpoint() == EntryCheckpoint(-1, -1)


def test_term_and_vote_are_written_as_apache_writes_them():
    disk = new_disk()
    files = StateFiles(DIRECTORY, disk)
    files.save_vote(Vote(2))
    assert disk.read(f"{DIRECTORY}/currterm") == b"voteLeader=\ncurrTerm=2\n"
    files.save_vote(Vote(2, "n1"))
    assert disk.read(f"{DIRECTORY}/currterm") == b"voteLeader=n1\ncurrTerm=2\n"
    assert disk.read(f"{DIRECTORY}/currterm.bak") == b"voteLeader=\ncurrTerm=2\n"
    assert files.load_vote() == Vote(2, "n1")


def test_the_checkpoint_is_written_as_apache_writes_it():
    disk = new_disk()
    files = StateFiles(DIRECTORY, disk)
    files.save_checkpoint(EntryCheckpoint(57, 58))
    assert disk.read(f"{DIRECTORY}/checkpoint") == b"committedIndex=57\nendIndex=58\n"
    assert files.load_checkpoint() == EntryCheckpoint(57, 58)


@pytest.mark.parametrize("survival", list(Survival))
def test_a_vote_that_was_saved_is_never_forgotten(survival):
    step, done = 0, False
    while not done:
        disk = new_disk(step)
        files = StateFiles(DIRECTORY, disk)
        files.save_vote(Vote(6))
        files.save_vote(Vote(7, "n1"))
        disk.cut_power_after(step)
        saved = Vote(7, "n1")
        try:
            files.save_vote(Vote(8, "n2"))
            saved, done = Vote(8, "n2"), True
        except PowerCut:
            pass
        after = StateFiles(DIRECTORY, disk.crash(survival))
        found = after.load_vote()
        assert found in (saved, Vote(8, "n2")), step
        after.save_vote(Vote(9))
        assert after.load_vote() == Vote(9)
        step += 1
    assert step > 3


@pytest.mark.parametrize("damaged", [b"", b"voteLeader=n1\n", b"currTerm=-3\n", b"\0" * 30, b"currTerm=x\n"])
def test_a_damaged_vote_is_refused_even_if_an_older_one_is_kept(damaged):
    disk = new_disk()
    files = StateFiles(DIRECTORY, disk)
    files.save_vote(Vote(2))
    files.save_vote(Vote(2, "n1"))
    disk.write(f"{DIRECTORY}/currterm", damaged)
    with pytest.raises(UnusableStore, match="no longer knows whom it voted for"):
        files.load_vote()


def test_a_damaged_checkpoint_counts_as_the_one_before_or_none():
    disk = new_disk()
    files = StateFiles(DIRECTORY, disk)
    files.save_checkpoint(EntryCheckpoint(1, 2))
    files.save_checkpoint(EntryCheckpoint(3, 4))
    disk.write(f"{DIRECTORY}/checkpoint", b"committedIndex=9")
    assert files.load_checkpoint() == EntryCheckpoint(1, 2)
    disk.write(f"{DIRECTORY}/checkpoint.bak", b"")
    assert files.load_checkpoint() == EntryCheckpoint(-1, -1)


@pytest.mark.parametrize(
    ("noted", "begin", "end", "clamped"),
    [
        (EntryCheckpoint(5, 9), 0, 9, EntryCheckpoint(5, 9)),
        (EntryCheckpoint(9, 12), 0, 7, EntryCheckpoint(7, 7)),
        (EntryCheckpoint(2, 3), 10, 20, EntryCheckpoint(9, 9)),
        (EntryCheckpoint(-1, -1), 0, 20, EntryCheckpoint(-1, -1)),
        (EntryCheckpoint(4, 4), 0, -1, EntryCheckpoint(-1, -1)),
    ],
)
def test_a_checkpoint_is_clamped_to_the_log(noted, begin, end, clamped):
    assert noted.within(begin, end) == clamped
