"""Masters and slaves, Apache's and ours in every mixture: equal logs, statuses, tables, one's death."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from turbopump.client.message import SendStatus

from . import peers, replication_table
from .conftest import Early
from .replica_pair import FILE_SIZE, ReplicaPair, eventually, log_bytes

OK, NO_SLAVE = SendStatus.SEND_OK, SendStatus.SLAVE_NOT_AVAILABLE
LATE = SendStatus.FLUSH_SLAVE_TIMEOUT

TABLE = (
    (peers.OURS, peers.OURS),
    (peers.OURS, "4.9.7"),
    (peers.OURS, "5.5.0"),
    ("4.9.7", peers.OURS),
    ("5.5.0", peers.OURS),
)
APACHES = (("4.9.7", "4.9.7"), ("4.9.7", "5.5.0"), ("5.5.0", "4.9.7"), ("5.5.0", "5.5.0"))
IN_CI = ((peers.OURS, "4.9.7"), ("4.9.7", peers.OURS))
EARLY = {
    f"replication-{master}-{slave}": lambda home, pair=(master, slave): live(*pair, home)
    for master, slave in IN_CI
}


def row(master: str, slave: str, *marks: pytest.MarkDecorator) -> ParameterSet:
    return pytest.param(master, slave, marks=marks, id=f"{master} to {slave}")


@pytest.mark.parametrize(
    ("master", "slave"), [row(*pair, pytest.mark.early("replication-{}-{}".format(*pair))) for pair in IN_CI]
)
def test_a_pair_lives_through_the_death_of_either(master: str, slave: str, early: Early) -> None:
    early(f"replication-{master}-{slave}")


@pytest.mark.long
@pytest.mark.parametrize(("master", "slave"), [row(*pair) for pair in TABLE if pair not in IN_CI])
def test_the_same_with_the_other_pairs(master: str, slave: str, tmp_path: Path) -> None:
    live(master, slave, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("master", "slave"), [row(*pair) for pair in TABLE])
def test_an_empty_slave_that_comes_late_gets_what_its_master_sends(
    master: str, slave: str, tmp_path: Path
) -> None:
    come_late(master, slave, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("master", "slave"), [row(*pair) for pair in TABLE])
def test_a_slave_that_is_ahead_gets_nothing_and_never_counts(master: str, slave: str, tmp_path: Path) -> None:
    """Known failure 23."""
    be_ahead(master, slave, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("master", "slave"), [row(*pair) for pair in APACHES])
def test_apaches_own_pairs_do_what_they_are_known_to_do(master: str, slave: str, tmp_path: Path) -> None:
    """The cells beside ours in docs/results/replication.md."""
    seen = replication_table.observe(master, slave, tmp_path)
    assert seen.is_equal
    assert (seen.together, seen.back) == (["SEND_OK"], "SEND_OK")
    without_slave = "FLUSH_SLAVE_TIMEOUT" if master == "5.5.0" else "SLAVE_NOT_AVAILABLE"
    assert (seen.alone, seen.killed) == ([without_slave], without_slave)
    assert seen.frozen == "FLUSH_SLAVE_TIMEOUT"
    assert (seen.lacking, seen.unread) == ([], 0)


def test_the_page_of_the_table_is_current() -> None:
    """The cells are those of the last run; `python -m tests.interop.replication_table` makes them again."""
    results = replication_table.RESULTS
    found = json.loads((results / "replication.json").read_text())
    cells = [replication_table.Cell(**one) for one in found["cells"]]
    assert [(one.master, one.slave) for one in cells] == list(replication_table.PAIRS)
    assert (results / "replication.md").read_text() == replication_table.page(found["date"], cells)
    ours = [one for one in cells if peers.OURS in (one.master, one.slave)]
    assert {(one.is_equal, one.unread, tuple(one.lacking)) for one in ours} == {(True, 0, ())}


def live(master: str, slave: str, home: Path) -> None:
    """The life of a pair: the slave comes, is frozen, killed and back; then the master is killed and back."""
    with ReplicaPair(master, slave, home) as pair:
        alone = pair.load(1)
        assert alone == ({LATE} if master == "5.5.0" else {NO_SLAVE})
        pair.make_group()
        pair.start_slave()
        pair.send_until(OK)
        assert pair.load() == {OK}
        pair.wait_copied()
        assert pair.difference() == ""
        eventually(
            lambda: pair.metadata_at(pair.slave) == pair.metadata_at(pair.master),
            lambda: f"{pair.metadata_at(pair.slave)} is not {pair.metadata_at(pair.master)}",
        )
        freeze(pair)
        kill_slave(pair)
        kill_master(pair)
        if master == peers.OURS:  # it has asked the slave for its last record each time
            assert "it could not be compared" not in pair.master.broker_log


def freeze(pair: ReplicaPair) -> None:
    pair.freeze_slave()
    assert pair.send() is LATE
    pair.thaw_slave()
    pair.send_until(OK)


def kill_slave(pair: ReplicaPair) -> None:
    pair.slave.kill_broker()
    if pair.master.kind != "5.5.0":
        pair.send_until(NO_SLAVE)
        assert pair.load(5) == {NO_SLAVE}
    pair.slave.start_broker()
    pair.send_until(OK)
    assert pair.load(5) == {OK}
    pair.wait_copied()
    assert pair.difference() == ""


def kill_master(pair: ReplicaPair) -> None:
    wait_delivered(pair)
    pair.master.kill_broker()
    assert pair.unread(pair.slave) == {}
    pair.master.start_broker()
    pair.send_until(OK)
    assert pair.load(5) == {OK}
    wait_delivered(pair)
    assert pair.difference() == ""
    assert pair.unread(pair.slave) == {}


def wait_delivered(pair: ReplicaPair) -> None:
    """Returns when delayed messages and transactions have come, and the slave has them."""
    eventually(lambda: not pair.unread(pair.master), lambda: f"the master lacks {pair.unread(pair.master)}")
    pair.wait_copied()
    eventually(lambda: not pair.unread(pair.slave), lambda: f"the slave lacks {pair.unread(pair.slave)}")


def come_late(master: str, slave: str, home: Path) -> None:
    """An empty slave comes when the master has rolled over files: Apache's sends its last file only."""
    with ReplicaPair(master, slave, home) as pair:
        pair.fill(5 * FILE_SIZE // 2)
        first, end = pair.extent(pair.master)
        assert end > 2 * FILE_SIZE
        pair.start_slave()
        pair.send_until(OK)
        pair.wait_copied()
        assert pair.difference() == ""
        begin = pair.extent(pair.slave)[0]
        if master == slave == peers.OURS:
            assert begin == first
            assert pair.unread(pair.slave) == {}
        else:
            assert begin == (end - 1) // FILE_SIZE * FILE_SIZE
        pair.fill(2 * FILE_SIZE)
        pair.wait_copied()
        assert pair.difference() == ""


def be_ahead(master: str, slave: str, home: Path) -> None:
    """Known failure 23: the master lost its disk, and its slave has what the master does not have.

    Nothing is sent to the slave, not even when the master has grown past its end, and it never counts.
    """
    with ReplicaPair(master, slave, home) as pair:
        pair.start_slave()
        pair.send_until(OK)
        pair.load(20)
        pair.wait_copied()
        _, end = pair.extent(pair.slave)
        before = log_bytes(pair.slave, 0, end)
        pair.empty_master()
        statuses = {pair.send() for _ in range(3)}
        if slave == peers.OURS:
            wait_said(pair.slave, "bytes beyond the master's end")
        else:
            wait_said(pair.master, "it holds records that this master does not have")
        pair.fill(2 * end)
        if slave == peers.OURS:
            wait_said(pair.slave, "holds other records than the master's")
        else:
            wait_said(pair.master, "it is not a copy")
        statuses |= {pair.send() for _ in range(3)}
        assert master != peers.OURS or statuses == {NO_SLAVE}
        assert pair.extent(pair.slave)[1] == end
        assert log_bytes(pair.slave, 0, end) == before


def wait_said(broker: peers.Cluster, words: str) -> None:
    eventually(lambda: words in broker.broker_log, f"{broker.kind} did not say: {words}")
