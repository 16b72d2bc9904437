import io
from collections import Counter

import pytest

from turbopump.cli.failures import CommandFailure
from turbopump.cli.store import ProgressBar, bar, store_in, summary_of
from turbopump.store.findings import Finding
from turbopump.store.tools import Progress, TopicCount, VerifyReport


def test_the_bar_is_as_full_as_the_work_is_done() -> None:
    assert bar(Progress(0, 4 << 20)).startswith("[......")
    assert bar(Progress(2 << 20, 4 << 20)) == f"[{'#' * 15}{'.' * 15}]  50%  2 of 4 MiB"
    assert "100%" in bar(Progress(0, 0))


def test_no_bar_is_drawn_where_nobody_looks() -> None:
    log = io.StringIO()
    ProgressBar(log)(Progress(1, 1))
    assert log.getvalue() == ""


def test_a_sound_store_is_called_so() -> None:
    report = VerifyReport(
        "/s", is_clean=True, log_end=300, records=3, topics={"t": TopicCount(3, 300, {0, 1})}
    )
    text = summary_of(report)
    assert "3 records in 1 topics" in text
    assert text.endswith("sound")


def test_all_problems_are_counted_though_few_are_shown() -> None:
    report = VerifyReport(
        "/s", is_clean=True, problems=[Finding("crc", "record at 7")], counts=Counter(crc=250)
    )
    text = summary_of(report)
    assert "PROBLEM: record at 7" in text
    assert "250 problems" in text


def test_a_directory_that_is_no_store_is_refused(tmp_path: object) -> None:
    with pytest.raises(CommandFailure):
        store_in(str(tmp_path))
