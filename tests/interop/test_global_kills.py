"""Global transactions over a real PostgreSQL, MariaDB and broker; each of them is killed at each point.

Whatever dies: both accounts change or neither, nothing stays prepared, nothing stays open in the book, and
the message is seen if and only if the transaction was committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product
from pathlib import Path

import pytest
from tests.interop import global_tm
from tests.interop.global_tm import CENTS, XA_POINTS

from . import peers
from .dledger_group import DLedgerBrokers
from .global_bank import RealBank, TransactionManager
from .mariadb import MariaDB
from .postgres import Postgres

VICTIMS = (
    ("tm",),
    ("postgres",),
    ("mariadb",),
    ("broker",),
    ("tm", "postgres"),
    ("tm", "mariadb"),
    ("tm", "broker"),
)
DECIDED = XA_POINTS.index("decided")
IN_CI = {
    *((("tm",), point) for point in ("sent", "icbc prepared", "decided", "icbc committed")),
    (("postgres",), "icbc prepared"),
    (("mariadb",), "decided"),
    (("broker",), "ccb prepared"),
    (("broker",), "decided"),
    (("tm", "postgres"), "decided"),
    (("tm", "mariadb"), "ccb prepared"),
    (("tm", "broker"), "decided"),
}
CASES = [
    pytest.param(
        victims,
        point,
        id=f"{' and '.join(victims)} at {point}",
        marks=() if (victims, point) in IN_CI else pytest.mark.long,
    )
    for victims, point in product(VICTIMS, XA_POINTS)
]


@pytest.fixture(scope="module")
def bank(
    postgres_server: Postgres, mariadb_server: MariaDB, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealBank]:
    cluster = peers.start(peers.OURS, peers.place(tmp_path_factory.mktemp("bank")))
    yield RealBank(cluster, postgres_server, mariadb_server)
    cluster.discard()


@pytest.mark.parametrize(("victims", "point"), CASES)
def test_xa_conserves_money_whoever_is_killed(bank: RealBank, victims: tuple[str, ...], point: str) -> None:
    before, seen_before = bank.cents(), bank.seen()
    tm = TransactionManager(global_tm.xa, bank.where, point)
    assert tm.next() == ("at", point)
    bank.kill(victims, tm)
    outcome = "dead"
    if not tm.is_dead:
        tm.go_on()
        _, outcome, gid, reason = tm.next()
        assert outcome in ("committed", "aborted", "in doubt", "failed"), (gid, reason)
    tm.close()
    bank.recover()
    after = bank.cents()
    assert sum(after) == sum(before)
    is_committed = after != before
    assert after == ((before[0] - CENTS, before[1] + CENTS) if is_committed else before)
    assert len(bank.seen()) - len(seen_before) == int(is_committed)
    if XA_POINTS.index(point) >= DECIDED:
        assert is_committed, "a decision to commit is carried out"
    if outcome in ("committed", "aborted"):
        assert is_committed == (outcome == "committed")


LONG = pytest.mark.long


@pytest.mark.parametrize(
    "point",
    [
        "ccb prepared",
        "decided",
        *(pytest.param(one, marks=LONG) for one in ("icbc prepared", "icbc committed")),
    ],
)
def test_a_stopped_tm_finds_what_another_process_has_decided(bank: RealBank, point: str) -> None:
    before, seen_before = bank.cents(), bank.seen()
    tm = TransactionManager(global_tm.xa, bank.where, point)
    assert tm.next() == ("at", point)
    tm.pause()
    bank.sweep()
    if point != "icbc prepared":  # MariaDB ends no branch whose connection is open: it waits for the TM
        assert [one.split()[0] for one in bank.prepared()] == ["ccb"]
    tm.resume()
    tm.go_on()
    _, outcome, gid, reason = tm.next()
    tm.close()
    bank.recover()
    is_committed = bank.cents() != before
    assert sum(bank.cents()) == sum(before)
    assert is_committed == (XA_POINTS.index(point) >= DECIDED), (outcome, gid, reason)
    assert outcome == ("committed" if is_committed else "aborted"), (gid, reason)
    assert len(bank.seen()) - len(seen_before) == int(is_committed)


@pytest.mark.parametrize(
    "cents", [pytest.param(CENTS, marks=LONG, id="forward"), pytest.param(CENTS + 1, id="back")]
)
def test_a_saga_is_finished_wherever_its_process_is_killed(bank: RealBank, cents: int) -> None:
    """Before and after each record of the journal; what is between two records is done once."""
    participants = [global_tm.transfer_saga(bank.where)]
    for number in count():
        before = bank.cents()
        point = f"{('before', 'after')[number % 2]} record {number // 2 + 1}"
        tm = TransactionManager(global_tm.saga, bank.where, point, cents, f"saga-{cents}-{number}")
        is_killed = tm.next()[0] == "at"
        tm.kill()
        tm.close()
        bank.recover(participants)
        moved = cents if cents == CENTS and point != "before record 1" else 0
        assert bank.cents() == (before[0] - moved, before[1] + moved), point
        if not is_killed:  # it has fewer records than that
            break
    assert number >= 2 * 4, "opened, two steps, the decision"


class GroupCluster:
    """A DLedger group where a bank wants a broker: its leader is killed, and does not come back."""

    def __init__(self, group: DLedgerBrokers) -> None:
        self._group = group

    @property
    def namesrv(self) -> str:
        return self._group.namesrv

    @property
    def broker_addr(self) -> str:
        return self._group.brokers[self._group.leader()].broker_addr

    def kill_broker(self) -> None:
        self._group.kill(self._group.leader())

    def start_broker(self) -> None:
        self._group.leader()


@pytest.mark.parametrize(
    "victims", [("broker",), pytest.param(("tm", "broker"), marks=LONG)], ids=" and ".join
)
def test_a_leader_that_dies_between_decision_and_commit_has_decided(
    postgres_server: Postgres, mariadb_server: MariaDB, tmp_path: Path, victims: tuple[str, ...]
) -> None:
    with DLedgerBrokers(tmp_path, (peers.OURS,) * 3) as group:
        bank = RealBank(GroupCluster(group), postgres_server, mariadb_server)
        before = bank.cents()
        tm = TransactionManager(global_tm.xa, bank.where, "decided")
        assert tm.next() == ("at", "decided")
        bank.kill(victims, tm)
        if not tm.is_dead:
            tm.go_on()
            _, outcome, gid, reason = tm.next()
            assert outcome == "committed", (gid, reason)
        tm.close()
        bank.recover()
        assert bank.cents() == (before[0] - CENTS, before[1] + CENTS)
        assert len(bank.seen()) == 1
