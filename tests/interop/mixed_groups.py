"""Consumers of several clients in one group: who has which queue, seen by what each of them gets.

A concurrent and an ordered group on one topic, in the same processes, two for each client. They join, crash
(kill -9), come back and leave under load. Once settled, every queue has one owner and every member
its queues: all clients must compute the same division from the same lists, whoever serves them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests import again

from . import peers, topics, workers
from .clients import PYTHON
from .peers import Cluster
from .workers import Crew, Worker, eventually

TOPIC = "mixed"
MODES = ("concurrent", "ordered")
QUEUES_EACH = 2  # of a member, when all are there
INTERVAL_MS = 15
STARTS = 3
WINDOW_S = 4.0
PATIENCE_S = 150.0  # locks of a killed member end after 60 s, and somebody looks every 20 s

Facts = dict[str, Any]


def observe(clients: Sequence[str], kind: str, home: Path) -> Facts:
    cluster = peers.start(kind, peers.place(home / "cluster"))
    logs = home / "logs"
    logs.mkdir()
    try:
        with Crew(cluster.namesrv, logs) as crew:
            return Mixed(clients, cluster, crew).play()
    finally:
        cluster.discard()


EXPECTED: Facts = {
    "first members share": True,
    "second members have joined": True,
    "the first have it all after a crash of the second": True,
    "the second are back": True,
    "others have left": True,
    "missed": [],
    "out of order": [],
}


class Mixed:
    def __init__(self, clients: Sequence[str], cluster: Cluster, crew: Crew) -> None:
        self._clients = clients
        self._cluster = cluster
        self._crew = crew
        self._queues = 2 * QUEUES_EACH * len(clients)

    def play(self) -> Facts:
        self._create_topic()
        producer = self._crew.add(PYTHON, f"produce:load:{TOPIC}:{2 * self._queues}:{INTERVAL_MS}:keyed")
        first = {client: self._join(client, 1) for client in self._clients}
        facts: Facts = {"first members share": self._settled(first, ())}
        second = {client: self._join(client, 2) for client in self._clients}
        facts["second members have joined"] = self._settled(first, second)
        for worker in second.values():
            worker.kill()
        facts["the first have it all after a crash of the second"] = self._settled(first, ())
        for worker in second.values():
            worker.start()
            _wait_ready(worker)
        facts["the second are back"] = self._settled(first, second)
        leaving = [client for client in self._clients if client != PYTHON]
        for client in leaving:
            first[client].stop()
        facts["others have left"] = self._settled([PYTHON], second)
        producer.stop()
        sent = self._crew.acknowledged(TOPIC)
        eventually(lambda: not any(workers.lost(sent, self._crew.got(group)) for group in MODES), PATIENCE_S)
        facts["missed"] = [f"{group} {one}" for group in MODES for one in self._missed(group)][:10]
        facts["out of order"] = workers.disorder(self._crew.got("ordered"))[:10]
        return facts

    def _join(self, client: str, number: int) -> Worker:
        jobs = [f"consume:{_member(client, number, mode)}:{mode}:{TOPIC}:{mode}" for mode in MODES]
        worker = self._crew.add(client, *jobs)
        _wait_ready(worker)
        return worker

    def _settled(self, first: Iterable[str], second: Iterable[str]) -> bool | dict[str, Any]:
        """Whether, for a while, each queue gave its messages to one member, and each member got some."""
        here = [*((client, 1) for client in first), *((client, 2) for client in second)]
        fits = eventually(lambda: all(self._is_divided(mode, here) for mode in MODES), PATIENCE_S)
        return fits or {mode: self._owners(mode) for mode in MODES}

    def _is_divided(self, mode: str, here: list[tuple[str, int]]) -> bool:
        owners = self._owners(mode)
        held = [queue for queues in owners.values() for queue in queues]
        names = {_member(client, number, mode) for client, number in here}
        return set(owners) == names and len(held) == len(set(held)) == self._queues

    def _owners(self, mode: str) -> dict[str, set[tuple[str, int]]]:
        return workers.owners(self._crew.got(mode), time.time() - WINDOW_S)

    def _missed(self, group: str) -> list[workers.Sent]:
        return workers.lost(self._crew.acknowledged(TOPIC), self._crew.got(group))

    def _create_topic(self) -> None:
        topics.create(self._cluster, TOPIC, self._queues)


def _wait_ready(worker: Worker) -> None:
    """A Java client that gets no answer within 3 s does not start: a busy machine may need another go."""
    for _ in range(STARTS - 1):
        try:
            return worker.wait_ready()
        except RuntimeError as error:
            again.record("a client did not start", str(error))
            worker.start()
    return worker.wait_ready()


def _member(client: str, number: int, mode: str) -> str:
    return f"{client.replace('.', '')}-{number}-{mode}"
