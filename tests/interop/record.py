"""Asks Apache's servers again and rewrites tests/compat/recorded.

Usage: python -m tests.interop.record [CLIENT-on-SERVER ...]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from itertools import groupby
from pathlib import Path

from . import artifacts, clients, members, mqadmin, peers, push, recordings, request_bodies, two_brokers
from .clients import Answers

Pairs = tuple[tuple[str, str], ...]
AskAll = Callable[[list[str], str, Path], dict[str, Future[Answers]]]

BODIES = tuple((request_bodies.RECORDED, server) for server in artifacts.SERVERS)


def main(wanted: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="record-") as work:
        for server, names in _by_server(recordings.PAIRS, wanted):
            record(server, names, Path(work))
        for server, _ in _by_server(BODIES, wanted):
            record_bodies(server, Path(work))
        for server, names in _by_server(push.PAIRS, wanted):
            record_at_once(push.ask_all, server, names, Path(work) / "push")
        for server, names in _by_server(members.PAIRS, wanted):
            record_at_once(members.observe_all, server, names, Path(work) / "members")
        for server, names in _by_server(two_brokers.PAIRS, wanted):
            record_two_brokers(server, names, Path(work))
        for server, names in _by_server(mqadmin.PAIRS, wanted):
            record_mqadmin(server, names, Path(work))


def _by_server(pairs: Pairs, wanted: list[str]) -> list[tuple[str, list[str]]]:
    chosen = [pair for pair in pairs if not wanted or "-on-".join(pair) in wanted]
    return [
        (server, [client for client, _ in group])
        for server, group in groupby(chosen, key=lambda pair: pair[1])
    ]


def record(server: str, names: list[str], work: Path) -> None:
    cluster = peers.start(server, peers.place(work / server))
    try:
        for client in names:
            begun = time.monotonic()
            target = recordings.save(client, server, clients.run_scenarios(client, cluster, work))
            print(f"{target.name}: {time.monotonic() - begun:.0f} s")
    finally:
        cluster.kill()


def record_bodies(server: str, work: Path) -> None:
    begun = time.monotonic()
    cluster = peers.start(server, peers.place(work / f"{request_bodies.RECORDED}-{server}"))
    try:
        target = recordings.save(request_bodies.RECORDED, server, request_bodies.observe(cluster))
    finally:
        cluster.kill()
    print(f"{target.name}: {time.monotonic() - begun:.0f} s")


def record_at_once(ask: AskAll, server: str, names: list[str], work: Path) -> None:
    begun = time.monotonic()
    for client, answers in ask(names, server, work).items():
        target = recordings.save(client, server, answers.result())
        print(f"{target.name}: {time.monotonic() - begun:.0f} s, all at once")


def record_two_brokers(server: str, names: list[str], work: Path) -> None:
    for client in names:
        begun = time.monotonic()
        observed = two_brokers.observe(client, server, work / f"{client}-{server}")
        target = recordings.save(client, server, observed.answers)
        print(f"{target.name}: {time.monotonic() - begun:.0f} s; {', '.join(observed.counts)}")


def record_mqadmin(server: str, names: list[str], work: Path) -> None:
    for client in names:
        begun = time.monotonic()
        home = work / f"{client}-{server}"
        home.mkdir()
        target = recordings.save(client, server, mqadmin.ask(client, server, home))
        print(f"{target.name}: {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
