"""A broadcasting consumer in Java goes on from our file of offsets, and ours from Java's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from turbopump import MessageQueue

from . import artifacts, clients, peers
from .conftest import StartOnce
from .our_client_stage import Old, Stage, must

COUNT = 6


@pytest.mark.parametrize("client", [f"java-{version}" for version in artifacts.JAVA_CLIENTS[1:]])
def test_either_client_goes_on_where_the_other_was(
    client: str, start_once: StartOnce, tmp_path: Path
) -> None:
    stage = Stage(clients.prefix(), start_once(peers.OURS), tmp_path, Old("", 0.0))
    topic = stage.topic(queues=2)
    assert ours(stage, topic, send(stage, topic, "a")) == names("a")
    assert theirs(stage, topic, client, send(stage, topic, "b")) == names("b")
    assert ours(stage, topic, send(stage, topic, "c")) == names("c")
    assert theirs(stage, topic, client, send(stage, topic, "d")) == names("d")


def names(letter: str) -> list[str]:
    return [f"{letter}{number}" for number in range(COUNT)]


def send(stage: Stage, topic: str, letter: str) -> list[str]:
    """Half of them to each of both queues."""
    with stage.producer() as producer:
        for number, text in enumerate(names(letter)):
            stage.send(producer, topic, text, queue=MessageQueue(topic, "broker-a", number % 2))
    return names(letter)


def ours(stage: Stage, topic: str, wanted: list[str]) -> list[str]:
    settings = {
        "client_ip": "127.0.0.1",
        "local_offset_store_dir": str(stage.home / ".rocketmq_offsets"),
    }
    with stage.reading(topic, broadcast=True, **settings) as got:
        got.wait(*wanted)
        must(lambda: len(got.consumer.queues()) == 2)
    return sorted(got.texts)


def theirs(stage: Stage, topic: str, client: str, wanted: list[str]) -> list[str]:
    arguments = [stage.cluster.namesrv, topic, f"{stage.name}-readers", str(len(wanted))]
    said = clients.run_java(client, "Broadcasting", arguments, stage.home)
    (got,) = re.findall(r"^got (.*)$", said, re.MULTILINE)
    return str(got).split()
