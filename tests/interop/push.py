"""Push consumers: the programs `Consumers` (Java) and the Go client's, which run many scenarios at once.

Their brokers have short delay levels, small files, and for each client a topic whose first messages are gone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from . import artifacts, clients, peers, processes
from .asking import asked
from .clients import GO, Answers
from .peers import Cluster
from .topics import wait_known

CLIENTS = (*(f"push-java-{version}" for version in artifacts.JAVA_CLIENTS), f"push-{GO}")
PAIRS = tuple((client, server) for server in artifacts.SERVERS for client in CLIENTS)
# Run again against the real server each time, so that a stale recording shows.
LIVE_PAIRS = (("push-java-5.5.0", "5.5.0"), (f"push-{GO}", "5.5.0"))

TIMEOUT_S = 420.0
SMALL_FILE = 2 << 20
# The levels of Delaying.java and delaying.go.
CONF = {
    "messageDelayLevel": "1s 2s 2s 4s 6s 8s",
    "mappedFileSizeCommitLog": str(SMALL_FILE),
    "maxMessageSize": str(1 << 20),
}

SEND = 10
GONE, LEFT = 20, 10  # messages of the old topic
PAUSE_S = 5.0  # between two halves of what is left: start times have whole seconds, 4.9.7 takes the nearest


def ask_all(names: Iterable[str], kind: str, home: Path) -> dict[str, Future[Answers]]:
    """Starts a cluster, runs all these clients at once, and ends it; an answer may be an exception."""
    prefixes = {client: clients.prefix() for client in names}
    cluster = start(kind, home, prefixes.values())
    try:
        with ThreadPoolExecutor(len(prefixes)) as pool:
            return {
                client: pool.submit(run, client, cluster, prefix, home) for client, prefix in prefixes.items()
            }
    finally:
        cluster.discard()


def start(kind: str, home: Path, prefixes: Iterable[str]) -> Cluster:
    cluster = peers.start(kind, peers.place(home / kind), CONF)
    try:
        _make_old_topics(cluster, [f"{prefix}old" for prefix in prefixes])
    except BaseException:
        cluster.kill()
        raise
    return cluster


def run(client: str, cluster: Cluster, prefix: str, work: Path, only: Iterable[str] = ()) -> Answers:
    home = work / f"{client}-on-{cluster.kind}"
    home.mkdir(parents=True)
    output = home / "answers.json"
    arguments = [cluster.namesrv, cluster.broker_addr, prefix, str(output), *only]
    command = clients.program_of(client.removeprefix("push-"), "Consumers", home)
    processes.run([*command, *arguments], home / "log", TIMEOUT_S, {"HOME": str(home)})
    answers: Answers = json.loads(output.read_text())
    return answers


def _make_old_topics(cluster: Cluster, topics: list[str]) -> None:
    """Retention has taken their beginning: the first file of the log is removed while the broker is down."""
    for number in range(GONE):
        _send_to_all(cluster, topics, number)
    for _ in range(SMALL_FILE // (1 << 18)):
        _send(cluster, "Filler", "filler", bytes(1 << 18))
    for number in range(GONE, GONE + LEFT):
        if number == GONE + LEFT // 2:
            time.sleep(PAUSE_S)
        _send_to_all(cluster, topics, number)
    cluster.stop_broker()
    min((cluster.store_dir / "commitlog").iterdir()).unlink()
    cluster.start_broker()
    for topic in topics:
        wait_known(cluster, topic)


def _send_to_all(cluster: Cluster, topics: list[str], number: int) -> None:
    for topic in topics:
        _send(cluster, topic, f"old{number}", f"old{number}".encode())


def _send(cluster: Cluster, topic: str, key: str, body: bytes) -> None:
    fields: Mapping[str, object] = {
        "producerGroup": "fill",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 1,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": int(time.time() * 1000),
        "flag": 0,
        "properties": f"KEYS\x01{key}\x02WAIT\x01true\x02",
    }
    asked(cluster.broker_addr, SEND, body, **fields)
