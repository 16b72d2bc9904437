"""Workers of Spark: what they hold after a first task is not walked through after every other one."""

import gc
from collections.abc import Iterator

import pytest
from pyspark import TaskContext

from turbopump.pipelines.workers import settling


@pytest.fixture
def in_a_task() -> Iterator[None]:
    TaskContext._setTaskContext(TaskContext())
    yield
    TaskContext._setTaskContext(None)
    gc.unfreeze()


@pytest.mark.usefixtures("in_a_task")
def test_a_worker_settles_behind_the_last_row_of_its_first_task() -> None:
    rows = settling([1, 2])
    assert [next(rows), next(rows)] == [1, 2]
    assert not gc.get_freeze_count()
    assert list(rows) == []
    assert gc.get_freeze_count()


@pytest.mark.usefixtures("in_a_task")
def test_it_settles_once() -> None:
    list(settling([1]))
    kept = [[] for _ in range(100)]
    first = gc.get_freeze_count()
    list(settling([1]))
    assert gc.get_freeze_count() <= first
    assert len(kept) == 100


def test_no_other_process_is_touched() -> None:
    assert list(settling([1, 2])) == [1, 2]
    assert not gc.get_freeze_count()
