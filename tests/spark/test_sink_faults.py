"""Whatever is killed, fails or comes late: each row is in the topic once.

A driver in a process of its own writes three micro-batches of 20 rows and meets a misfortune in the second.
Then the query goes on in this session, from the same checkpoint, and what the broker has is counted. Three
points in CI, all of them in the long suite.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.interop import peers
from tests.spark import faults
from tests.spark.driving import DRIVER_S, EACH_ONCE, ROWS, add_file, add_files, drive, driving, go_on, said
from tests.spark.reading import bodies, make_topic


@pytest.fixture
def place(tmp_path: Path) -> Path:
    add_files(tmp_path)
    return tmp_path


def options(cluster: peers.Cluster, topic: str, **more: str) -> dict[str, str]:
    return {"nameServer": cluster.namesrv, "topic": topic, **more}


KILLS = ["written", "decided", "committed", pytest.param("begun", marks=pytest.mark.long)]


@pytest.mark.parametrize("point", [*KILLS, pytest.param("sent", marks=pytest.mark.long)])
def test_each_row_is_there_once_after_the_driver_was_killed(spark, broker, topic, place, point):
    make_topic(broker, topic)
    given = options(broker, topic)
    assert drive(place, given, f"{point}:1:kill") != 0
    go_on(spark, place, given)
    assert bodies(broker, topic) == EACH_ONCE


@pytest.mark.long
@pytest.mark.parametrize("point", ["begun", "sent"])
def test_each_row_is_there_once_after_a_task_was_repeated(spark, broker, topic, place, point):
    make_topic(broker, topic)
    assert drive(place, options(broker, topic), f"{point}:1:fail-once", master="local[2,3]") == 0, said(place)
    assert bodies(broker, topic) == EACH_ONCE


@pytest.mark.long
@pytest.mark.parametrize("point", ["begun", "sent", "written", "decided", "committed"])
def test_each_row_is_there_once_after_a_query_has_failed(spark, broker, topic, place, point):
    make_topic(broker, topic)
    given = options(broker, topic)
    assert drive(place, given, f"{point}:1:fail", master="local[2,2]") != 0
    assert f"a misfortune at {point} of batch 1" in said(place)
    go_on(spark, place, given)
    assert bodies(broker, topic) == EACH_ONCE


@pytest.mark.long
@pytest.mark.parametrize("point", ["sent", "written", "decided"])
def test_each_row_is_there_once_when_the_broker_is_killed_in_between(spark, start, topic, place, point):
    cluster = start()
    make_topic(cluster, topic)
    with driving(place, options(cluster, topic), f"{point}:1:wait") as process:
        faults.wait_for(place / f"reached-{point}")
        cluster.kill_broker()
        cluster.start_broker()
        (place / "go").touch()
        assert process.wait(DRIVER_S) == 0, said(place)
    assert bodies(cluster, topic) == EACH_ONCE


@pytest.mark.long
def test_a_driver_that_was_replaced_is_fenced_off_and_adds_nothing(spark, broker, topic, place):
    """It sleeps in the middle of a commit, while another takes its place from a copy of its checkpoint."""
    (place / "in" / "2.json").unlink()
    make_topic(broker, topic)
    given = options(broker, topic)
    with driving(place, given, "written:1:wait", ends=False) as zombie:
        faults.wait_for(place / "reached-written")
        shutil.copytree(place / "checkpoint", place / "copy")
        go_on(spark, place, given, checkpoint="copy")
        (place / "go").touch()
        add_file(place, 2)
        assert zombie.wait(DRIVER_S) != 0
    assert "Fenced" in said(place), said(place)[-3000:]
    assert bodies(broker, topic) == Counter(str(number) for number in range(2 * ROWS))
    go_on(spark, place, given, checkpoint="copy")
    assert bodies(broker, topic) == EACH_ONCE


def test_row_21_what_a_task_has_sent_is_stored_before_the_task_is_done(spark, broker, topic, place):
    """The old connector lost what was under way when an executor was killed right after a task's success."""
    make_topic(broker, topic)
    given = options(broker, topic, delivery="at-least-once")
    drive(place, given, "sent:1:kill")
    there = bodies(broker, topic)
    assert sum(there[str(number)] > 0 for number in range(ROWS, 2 * ROWS)) >= ROWS // 2
    go_on(spark, place, given)
    assert set(bodies(broker, topic)) == set(EACH_ONCE)
