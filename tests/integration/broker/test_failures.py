"""The harness of failures with real processes: it runs, and it finds a broker that breaks its promise."""

from dataclasses import replace
from pathlib import Path

from tests.failures import group_runs
from tests.failures.group_scenarios import GROUP_TABLE
from tests.failures.runs import run
from tests.failures.scenarios import TABLE
from tests.interop.peers import OURS

CUT_LINK = next(one for one in TABLE if one.name == "cut-link")


def test_a_master_that_does_not_wait_for_its_slave_is_found(tmp_path: Path) -> None:
    hasty = replace(CUT_LINK, conf={"brokerRole": "ASYNC_MASTER"})
    outcome = run(hasty, OURS, tmp_path, seed=1)
    assert outcome.error == outcome.not_possible == ""
    assert outcome.figures.lost_ok > 0


def test_a_master_that_waits_for_its_slave_loses_nothing(tmp_path: Path) -> None:
    outcome = run(CUT_LINK, OURS, tmp_path, seed=1)
    assert outcome.error == outcome.not_possible == ""
    assert outcome.figures.warned > 0
    assert outcome.figures.anomalies == 0, outcome.figures


def test_the_calls_of_clients_of_a_group_that_loses_its_leader_are_linearizable(tmp_path: Path) -> None:
    kill_leader = next(one for one in GROUP_TABLE if one.name == "kill-leader")
    outcome = group_runs.run(kill_leader, "group", tmp_path / "group", seed=1, rounds=1)
    assert outcome.error == outcome.not_possible == ""
    assert outcome.figures.acknowledged > 0
    assert outcome.figures.reads > 0
    assert outcome.figures.leaderships > 1
    assert not outcome.figures.is_broken, outcome.figures
