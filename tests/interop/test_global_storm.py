"""Hundreds of transfers by XA, TCC and SAGA from eight processes, while everything is killed at random."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import wait
from typing import Any

import pytest
from tests.interop import global_tm

from . import peers
from .global_bank import RealBank, TransactionManager
from .mariadb import MariaDB
from .postgres import Postgres

WORKERS = 8
KINDS = ("xa", "tcc", "saga")
FINISHED_WITHIN_S = 240.0


@pytest.fixture
def bank(
    postgres_server: Postgres, mariadb_server: MariaDB, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealBank]:
    cluster = peers.start(peers.OURS, peers.place(tmp_path_factory.mktemp("storm")))
    yield RealBank(cluster, postgres_server, mariadb_server)
    cluster.discard()


@pytest.mark.parametrize(
    ("transfers", "seconds"), [(60, 10.0), pytest.param(600, 60.0, marks=pytest.mark.long)]
)
def test_money_is_conserved_while_everything_is_killed_at_random(
    bank: RealBank, transfers: int, seconds: float
) -> None:
    chance = random.Random(transfers)
    before = bank.cents()
    crew = Crew(bank, transfers)
    kills: Counter[str] = Counter()
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        crew.listen(chance.uniform(0.2, 1.0))
        victim = chance.choice(("tm", "tm", "tm", "postgres", "mariadb", "broker"))
        kills[victim] += 1
        if victim == "tm":
            crew.replace(chance.randrange(WORKERS))
        else:
            bank.kill([victim], crew.workers[0])
    crew.finish()
    saga, tcc = global_tm.transfer_saga(bank.where), global_tm.transfer_tcc(bank.where)
    bank.recover([saga, *tcc])
    moved = before[0] - bank.cents()[0]
    print(f"kills: {dict(kills)}, outcomes: {dict(crew.outcomes)}, moved: {moved}")
    assert bank.cents() == (before[0] - moved, before[1] + moved)
    assert bank.frozen() == (0, 0)
    assert bank.not_ended(bank.fenced()) == []
    told = sum(count for (_, outcome), count in crew.outcomes.items() if outcome == "committed")
    assert moved >= told * global_tm.CENTS, "what was told to be committed is committed"
    assert all(crew.outcomes[kind, "committed"] for kind in KINDS), crew.outcomes
    assert sum(crew.outcomes.values()) >= transfers - sum(kills.values())


class Crew:
    """Eight processes that make transfers; the replacement of one that was killed does the rest."""

    def __init__(self, bank: RealBank, transfers: int) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self._where = bank.where
        kinds = itertools.cycle(KINDS)
        todo: list[list[str]] = [[] for _ in range(WORKERS)]
        for number in range(transfers):
            todo[number % WORKERS].append(next(kinds))
        self._todo = todo
        self.workers = [self._worker(number) for number in range(WORKERS)]

    def _worker(self, number: int) -> TransactionManager:
        return TransactionManager(global_tm.many, self._where, number, tuple(self._todo[number]))

    def listen(self, seconds: float) -> None:
        """Notes what the workers say, for so long."""
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            pipes = {worker.pipe: number for number, worker in enumerate(self.workers) if self._todo[number]}
            if not pipes:
                time.sleep(left_s)
                return
            for pipe in wait(list(pipes), left_s):
                self._note(pipes[pipe], pipe)

    def _note(self, number: int, pipe: Any) -> None:
        kind, outcome = pipe.recv()
        assert self._todo[number].pop(0) == kind
        self.outcomes[kind, outcome.partition(":")[0]] += 1

    def replace(self, number: int) -> None:
        self.workers[number].kill()
        while self.workers[number].pipe.poll():
            try:
                self._note(number, self.workers[number].pipe)
            except EOFError:
                break
        if self._todo[number]:
            self._todo[number].pop(0)  # it died in this one: whether it was committed is not known here
        self.workers[number] = self._worker(number)

    def finish(self) -> None:
        """Waits until all transfers are made, now that nothing is killed, and ends the workers."""
        deadline = time.monotonic() + FINISHED_WITHIN_S
        while any(self._todo):
            assert time.monotonic() < deadline, self._todo
            self.listen(1.0)
        for worker in self.workers:
            worker.go_on()
            worker.close_gently()
