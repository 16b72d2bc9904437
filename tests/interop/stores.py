"""Filling and reading a store through its broker, with the Java programs `Load` and `Census`."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import clients, peers

CLIENT = "java-4.9.8"
KILL_AFTER = 900  # acknowledged messages, of a load that would go on
ENDLESS = 1_000_000
COMMITTED = 17  # the consumer offset that Load leaves behind
LOAD_TIMEOUT_S = 60.0

# Small files: a load of a few megabytes rolls the commit log, the consume queues and the index.
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(300 * 20),
    "maxHashSlotNum": "500",
    "maxIndexNum": "2500",
    "maxMessageSize": str(1 << 18),
}


@dataclass(frozen=True)
class Acknowledged:
    """A send that was answered with SEND_OK."""

    place: str  # topic/queue/offset, as in a census
    offset_id: str
    key: str
    body: str


@dataclass(frozen=True)
class Census:
    """All that a client could read; see Census.java."""

    queues: dict[str, dict[str, Any]]
    messages: dict[str, dict[str, Any]]
    not_found_by_id: list[str]
    not_found_by_key: list[str]
    committed: int


def start(kind: str, place: peers.Place) -> peers.Cluster:
    """Behind our name server, whichever broker it is: quick to start, and Apache must like it too."""
    return peers.start(kind, place, SMALL_FILES, namesrv=peers.OURS)


def load(cluster: peers.Cluster, count: int) -> list[Acknowledged]:
    target = cluster.place.home / f"acknowledged-{cluster.kind}-{time.monotonic_ns()}"
    _run(cluster, "load", str(count), str(target))
    acknowledged = _acknowledged(target)
    assert len(acknowledged) >= count, f"only {len(acknowledged)} of {count} sends were acknowledged"
    return acknowledged


def load_until_killed(cluster: peers.Cluster) -> list[Acknowledged]:
    """Kills the broker while a client is sending."""
    target = cluster.place.home / f"acknowledged-{cluster.kind}-{time.monotonic_ns()}"
    arguments = [cluster.namesrv, cluster.broker_addr, "load", str(ENDLESS), str(target)]
    program = clients.start_java(CLIENT, "Store", arguments, cluster.place.home)
    try:
        deadline = time.monotonic() + LOAD_TIMEOUT_S
        while not target.exists() or target.read_bytes().count(b"\n") < KILL_AFTER:
            assert time.monotonic() < deadline, f"load too slow:\n{program.tail()}"
            time.sleep(0.1)
        cluster.kill()
    finally:
        program.kill()
    return _acknowledged(target)


def census(cluster: peers.Cluster) -> Census:
    target = cluster.place.home / f"census-{cluster.kind}-{time.monotonic_ns()}.json"
    _run(cluster, "census", str(target))
    found = json.loads(target.read_text())
    return Census(
        queues=found["queues"],
        messages=found["messages"],
        not_found_by_id=found["notFoundById"],
        not_found_by_key=found["notFoundByKey"],
        committed=found["committed"],
    )


def copy(place: peers.Place, home: Path) -> peers.Place:
    """The same store at the same address, to be opened a second time."""
    shutil.copytree(place.store_dir, home / "store")
    return replace(place, home=home)


def unread(acknowledged: Iterable[Acknowledged], seen: Census) -> list[str]:
    """Acknowledged messages that the census lacks, or has otherwise."""
    return [
        str(message)
        for message in acknowledged
        if message.place not in seen.messages
        or seen.messages[message.place]["body"] != message.body
        or message.key not in seen.messages[message.place]["properties"]["KEYS"].split()
    ]


def holes(seen: Census) -> list[str]:
    """Offsets between the bounds of a queue at which no message was found."""
    return [
        f"{queue}/{offset:06d}"
        for queue, bounds in seen.queues.items()
        for offset in range(bounds["min"], bounds["max"])
        if f"{queue}/{offset:06d}" not in seen.messages
    ]


def _run(cluster: peers.Cluster, *verbs: str) -> None:
    arguments = [cluster.namesrv, cluster.broker_addr, *verbs]
    clients.run_java(CLIENT, "Store", arguments, cluster.place.home)


def _acknowledged(file: Path) -> list[Acknowledged]:
    rows = [line.split("\t") for line in file.read_text().splitlines()]
    return [
        Acknowledged(f"{topic}/{queue}/{int(offset):06d}", offset_id, key, body)
        for topic, queue, offset, offset_id, key, body in rows
    ]
