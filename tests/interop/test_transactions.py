"""Transactions: the clients of Apache and ours see the same on our broker and on Apache's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.ids import parse_offset_id
from turbopump.remoting.client import Client
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.network import SystemNetwork

from . import artifacts, clients, peers, topics
from .transactions import CLIENTS, CONF, Transactor, eventually, visible

KINDS = (peers.OURS, *artifacts.SERVERS)
IN_CI = {(kind, client) for kind in artifacts.SERVERS for client in ("java-5.5.0", clients.PYTHON)}
EVERY_END = ("c:commit:x", "r:rollback:x", "uc:unknown:now", "ur:unknown:!now")
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


@pytest.fixture(scope="module", params=KINDS)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.Cluster]:
    home = tmp_path_factory.mktemp("transactions")
    started = peers.start(request.param, peers.place(home / request.param), CONF)
    yield started
    started.discard()


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, cluster: peers.Cluster) -> str:
    """All of them on our broker; on Apache's two, and the others with `-m long`."""
    name: str = request.param
    is_quick = cluster.kind == peers.OURS or (cluster.kind, name) in IN_CI
    if not is_quick and "not long" in request.config.getoption("markexpr"):
        pytest.skip("with -m long only: Apache's clients on Apache's brokers")
    return name


def new_topic(cluster: peers.Cluster) -> str:
    return topics.create(cluster, clients.prefix(), 2)


def test_each_transaction_ends_as_its_producer_says(
    client: str, cluster: peers.Cluster, tmp_path: Path
) -> None:
    topic = new_topic(cluster)
    wishes = EVERY_END if client == clients.GO else (*EVERY_END, "t:throw:now")
    with Transactor(client, cluster, tmp_path, topic, "now", *wishes) as transactor:
        transactor.wait_sent()
        committed = ["c", "uc"] if client == clients.GO else ["c", "t", "uc"]
        eventually(lambda: visible(cluster, topic), committed)
        asked = {f"checked {name}" for name in ("ur", *committed[1:])}
        eventually(lambda: asked & set(transactor.noted()), asked)
        if cluster.kind == peers.OURS:  # 5.5.0 asks about ended ones too: it notes the end up to 3 s later
            assert asked == {line for line in transactor.noted() if line.startswith("checked")}
        assert visible(cluster, topic) == committed


def test_work_and_check_may_be_given_apart_as_before_4_3(cluster: peers.Cluster, tmp_path: Path) -> None:
    topic = new_topic(cluster)
    wishes = (*EVERY_END, "t:throw:now")
    old = clients.OLD_TRANSACTOR
    with Transactor("java-4.5.1", cluster, tmp_path, topic, "now", *wishes, program=old) as transactor:
        transactor.wait_sent()
        eventually(lambda: visible(cluster, topic), ["c", "t", "uc"])
        asked = {"checked t", "checked uc", "checked ur"}
        eventually(lambda: asked & set(transactor.noted()), asked)
        assert visible(cluster, topic) == ["c", "t", "uc"]


def test_when_a_producer_is_killed_another_of_its_group_is_asked(
    client: str, cluster: peers.Cluster, tmp_path: Path
) -> None:
    topic = new_topic(cluster)
    first = Transactor(client, cluster, tmp_path / "first", topic, "now", "k:hang:now")
    eventually(first.noted, ["executed k"])
    first.kill()
    with Transactor(client, cluster, tmp_path / "second", topic, "now", "c:commit:x") as second:
        second.wait_sent()
        eventually(lambda: visible(cluster, topic), ["c", "k"])
        assert "checked k" in second.noted()


@pytest.mark.parametrize("name", ["java-5.5.0", clients.PYTHON])
def test_a_broker_that_is_killed_before_the_end_asks_when_it_is_back(name: str, tmp_path: Path) -> None:
    cluster = peers.start(peers.OURS, peers.place(tmp_path / "ours"), CONF)
    try:
        topic = new_topic(cluster)
        with Transactor(name, cluster, tmp_path, topic, "now", "b:slow:now") as transactor:
            eventually(transactor.noted, ["executed b"])
            cluster.kill_broker()
            transactor.wait_sent()
            cluster.start_broker()
            eventually(lambda: visible(cluster, topic), ["b"])
            time.sleep(5)
            assert visible(cluster, topic) == ["b"]
    finally:
        cluster.discard()


# What Apache does otherwise


@pytest.mark.parametrize(
    ("first", "second", "ours", "apaches"),
    [(COMMIT, COMMIT, 1, 2), (ROLLBACK, COMMIT, 0, 1), (COMMIT, ROLLBACK, 1, 1), (ROLLBACK, ROLLBACK, 0, 0)],
)
def test_a_second_end_changes_nothing_here(
    first: int, second: int, ours: int, apaches: int, cluster: peers.Cluster
) -> None:
    topic = new_topic(cluster)
    asyncio.run(_end_twice(cluster, topic, first, second))
    seen = ours if cluster.kind == peers.OURS else apaches
    eventually(lambda: visible(cluster, topic), ["m"] * seen)


async def _end_twice(cluster: peers.Cluster, topic: str, first: int, second: int) -> None:
    client = Client(SystemNetwork(), SystemClock())
    pairs = {"TRAN_MSG": "true", "PGROUP": "twice", "UNIQ_KEY": f"{topic:0>32}", "WAIT": "true"}
    half = {
        **{"a": "twice", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "4", "h": "0", "j": "0"},
        **{"g": str(SystemClock().now_ms()), "i": properties.pack(pairs), "k": "false", "m": "false"},
    }
    try:
        sent = await client.call(
            cluster.broker_addr, Command(RequestCode.SEND_MESSAGE_V2, ext=half, body=b"m:x:x")
        )
        assert sent.code == 0, sent.remark
        ext = sent.ext or {}
        for decision, may_fail in ((first, False), (second, first != second)):
            end = {
                "producerGroup": "twice",
                "tranStateTableOffset": ext["queueOffset"],
                "commitLogOffset": str(parse_offset_id(ext["msgId"])[2]),
                "commitOrRollback": str(decision),
                "fromTransactionCheck": "false",
                "msgId": pairs["UNIQ_KEY"],
            }
            answer = await client.call(cluster.broker_addr, Command(RequestCode.END_TRANSACTION, ext=end))
            is_refused = may_fail and cluster.kind == peers.OURS
            assert answer.code == (604 if is_refused else 0), answer.remark
    finally:
        await client.close()


# One store, three brokers


@pytest.mark.long
def test_open_transactions_move_with_their_store_and_each_ends_once(tmp_path: Path) -> None:
    """Apache 5.5.0, then ours, then Apache 4.9.7, on the same files."""
    place = peers.place(tmp_path / "moving")
    topic, client = clients.prefix(), "java-5.5.0"
    patient = CONF | {"transactionTimeOut": "600000"}
    wishes = (
        "a:commit:x",
        "r:rollback:x",
        "p:unknown:two",
        "q:unknown:!two",
        "s:unknown:three",
        "u:unknown:!three",
    )
    with peers.start("5.5.0", place, patient) as cluster:
        topics.create(cluster, topic, 2)
        with Transactor(client, cluster, tmp_path, topic, "one", *wishes) as transactor:
            transactor.wait_sent()
            eventually(lambda: visible(cluster, topic), ["a"])
            time.sleep(4)  # 5.5.0 writes its op records every three seconds
    with (
        peers.start(peers.OURS, place, CONF) as cluster,
        Transactor(client, cluster, tmp_path, topic, "two", "h:commit:x", "g:unknown:three") as transactor,
    ):
        transactor.wait_sent()
        eventually(lambda: visible(cluster, topic), ["a", "h", "p"])
        eventually(lambda: {"checked q", "checked s"} & set(transactor.noted()), {"checked q", "checked s"})
    with (
        peers.start("4.9.7", place, CONF) as cluster,
        Transactor(client, cluster, tmp_path, topic, "three", "e:commit:x") as transactor,
    ):
        transactor.wait_sent()
        eventually(lambda: visible(cluster, topic), ["a", "e", "g", "h", "p", "s"], within_s=120)
        time.sleep(8)
        assert visible(cluster, topic) == ["a", "e", "g", "h", "p", "s"]
        assert not {"checked a", "checked r", "checked p", "checked q", "checked h"} & set(transactor.noted())
