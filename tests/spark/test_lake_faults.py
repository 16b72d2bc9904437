"""A Delta table has each row once, whatever is killed between files and commit, and whoever comes late."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.spark import faults
from tests.spark.driving import EACH_ONCE, add_file, add_files, drive, driving, go_on, said

FAULTY, FORMAT = "rocketmq-delta-faulty", "rocketmq-delta"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    add_files(tmp_path)
    return tmp_path


def options(place: Path) -> dict[str, str]:
    return {"path": str(place / "table")}


def bodies(place: Path) -> Counter[str]:
    deltalake = pytest.importorskip("deltalake")
    return Counter(deltalake.DeltaTable(str(place / "table")).to_pyarrow_table().column("body").to_pylist())


POINTS = ["begun", "sent", "committed"]


@pytest.mark.parametrize("point", ["written", *(pytest.param(one, marks=pytest.mark.long) for one in POINTS)])
def test_a_table_has_each_row_once_after_the_driver_was_killed(spark, place, point):
    assert drive(place, options(place), f"{point}:1:kill", FAULTY) != 0
    go_on(spark, place, options(place), FORMAT)
    assert bodies(place) == EACH_ONCE


@pytest.mark.long
@pytest.mark.parametrize("point", ["written", "committed"])
def test_a_table_has_each_row_once_after_a_commit_has_failed(spark, place, point):
    assert drive(place, options(place), f"{point}:1:fail", FAULTY) != 0
    go_on(spark, place, options(place), FORMAT)
    assert bodies(place) == EACH_ONCE


@pytest.mark.long
def test_a_table_has_each_row_once_after_a_task_was_repeated(spark, place):
    assert drive(place, options(place), "begun:1:fail-once", FAULTY, master="local[2,3]") == 0, said(place)
    assert bodies(place) == EACH_ONCE


@pytest.mark.long
def test_a_table_has_each_row_once_when_a_driver_that_was_replaced_goes_on(spark, place):
    """It sleeps before its commit, while another takes its place from a copy of its checkpoint."""
    (place / "in" / "2.json").unlink()
    with driving(place, options(place), "written:1:wait", FAULTY, ends=False):
        faults.wait_for(place / "reached-written")
        shutil.copytree(place / "checkpoint", place / "copy")
        go_on(spark, place, options(place), FORMAT, "copy")
        (place / "go").touch()
        add_file(place, 2)
        faults.wait_for(place / "checkpoint" / "commits" / "2")
    go_on(spark, place, options(place), FORMAT, "copy")
    assert bodies(place) == EACH_ONCE
