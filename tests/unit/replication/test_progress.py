"""What a slave knows of its copy: whether it is complete, and when it heard from its master."""

from turbopump.replication.comparison import Extent
from turbopump.replication.progress import CopyProgress, CopyState


def progress() -> tuple[CopyProgress, list[bytes]]:
    saved: list[bytes] = []
    return CopyProgress(saved.append, lambda: 0.0), saved


def test_a_copy_lacks_everything_until_something_was_copied() -> None:
    copy, _ = progress()
    assert copy.state.missing(0) == "it has copied nothing yet"
    copy.begin(None, Extent(0, 1000), 0)
    assert copy.state.missing(0) == "it has copied nothing yet"
    copy.begun_at(0)
    assert copy.state.missing(400) == "it lacks the last 600 bytes of its master's log"
    assert copy.state.missing(1000) == ""


def test_a_copy_that_began_with_the_last_file_lacks_the_first_ones() -> None:
    copy, _ = progress()
    copy.begin(None, Extent(0, 3000), 0)
    copy.begun_at(2000)  # an Apache master sends an empty slave only its last file
    assert copy.state.missing(3000) == "it lacks the first 2000 bytes of its master's log"
    copy.begin(2000, Extent(2000, 3000), 3000)  # until the master has deleted what was missing
    assert copy.state.missing(3000) == ""


def test_an_old_master_that_returns_has_its_whole_log() -> None:
    copy, _ = progress()
    copy.begin(0, Extent(0, 1000), 1000)
    assert copy.state.missing(1000) == ""


def test_a_slave_that_deleted_old_files_first_is_complete() -> None:
    copy, _ = progress()
    copy.begin(0, Extent(0, 1000), 1000)
    copy.begin(500, Extent(0, 2000), 2000)
    assert copy.state.missing(2000) == ""


def test_a_log_that_starts_over_is_not_taken_for_the_old_one() -> None:
    copy, _ = progress()
    copy.begin(0, Extent(0, 1000), 1000)
    copy.begin(None, Extent(5000, 9000), 0)
    copy.begun_at(8000)
    assert copy.state.missing(9000) == "it lacks the first 3000 bytes of its master's log"


def test_the_file_says_when_the_master_was_heard_last() -> None:
    copy, saved = progress()
    copy.begin(0, Extent(0, 1000), 1000)
    copy.ended(1_700_000_000_000, followed=True)
    again, _ = progress()
    again.load(saved[-1])
    assert again.state == CopyState(0, 0, 1000, True, 1_700_000_000_000, followed=True)


def test_an_empty_copy_of_an_empty_log_is_complete() -> None:
    copy, _ = progress()
    copy.begin(None, Extent(0, 0), 0)
    assert copy.state.missing(0) == ""
