"""How complete a copy is, as its file says it."""

import logging

import pytest

from turbopump.replication.comparison import Extent
from turbopump.replication.progress import CopyProgress, CopyState


class Kept:
    """The file, and a clock."""

    def __init__(self) -> None:
        self.contents = b""
        self.now = 0.0
        self.is_full = False

    def save(self, data: bytes) -> None:
        if self.is_full:
            raise OSError("the disk is full")
        self.contents = data

    def progress(self) -> CopyProgress:
        made = CopyProgress(self.save, lambda: self.now)
        if self.contents:
            made.load(self.contents)
        return made


def test_a_store_without_a_file_was_never_a_slaves() -> None:
    kept = Kept()
    assert not kept.progress().is_kept
    kept.progress().demoted()
    assert kept.progress().is_kept
    assert kept.progress().state.missing(0) == "it has copied nothing yet"


def test_a_copy_of_the_last_file_alone_stays_incomplete_over_restarts() -> None:
    kept = Kept()
    kept.progress().begin(None, Extent(0, 1000), 0)
    progress = kept.progress()
    progress.begun_at(800)
    again = kept.progress()
    again.begin(800, Extent(0, 2000), 1500)
    assert again.state.missing(2000) == "it lacks the first 800 bytes of its master's log"


def test_a_store_that_became_a_masters_says_so_until_it_is_a_slaves_again() -> None:
    kept = Kept()
    progress = kept.progress()
    progress.begin(0, Extent(0, 100), 100)
    progress.promoted(100)
    assert kept.progress().state.promoted_at == 100
    kept.progress().demoted()
    assert kept.progress().state.promoted_at == -1


def test_a_full_disk_does_not_end_the_copying() -> None:
    kept = Kept()
    progress = kept.progress()
    kept.is_full = True
    progress.begin(None, Extent(0, 100), 0)
    progress.begun_at(0)
    assert progress.state.missing(100) == ""


def test_progress_is_told_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    progress = kept.progress()
    progress.begin(None, Extent(0, 100 << 20), 0)
    progress.begun_at(0)
    with caplog.at_level(logging.INFO):
        for second in range(25):
            kept.now = float(second)
            progress.look(second << 20)
    assert [line for line in caplog.messages if "Copied" in line] == [
        "Copied 10 of 100 MiB of the master's log (10 %), 1 MB/s",
        "Copied 20 of 100 MiB of the master's log (20 %), 1 MB/s",
    ]


def test_a_file_of_an_earlier_version_can_be_read() -> None:
    progress = CopyProgress(lambda data: None, lambda: 0.0)
    progress.load(b'{"begins":5,"wanted_begin":0,"wanted_end":9}')
    assert progress.state == CopyState(5, 0, 9)


def test_where_masters_lost_messages_is_saved_at_once_and_kept_by_the_next_comparison() -> None:
    kept = Kept()
    kept.progress().begin(0, Extent(0, 100), 100)
    kept.progress().learn_crashes([(80, 5)])
    again = kept.progress()
    again.begin(0, Extent(0, 200), 100)
    assert kept.progress().state.crashes == [(80, 5)]
    again.learn_crashes([])
    assert kept.progress().state.crashes == []
