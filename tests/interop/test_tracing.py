"""Message traces: Apache's mqadmin reads ours, ours those of a Java client, and both print the same."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from turbopump import Message, MessageExt, PullConsumer
from turbopump.client.observe.trace import AFTER, BEFORE, PUB, Trace, decode

from . import artifacts, clients, peers
from .conftest import StartOnce
from .console import Console
from .mqadmin import OurMqadmin
from .our_client_stage import SEND_S, Old, Stage, all_of, by_key, is_known, must

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SERVERS = (peers.OURS, artifacts.SERVERS[-1])
PRINTED = [
    "#Type #ProducerGroup #ClientHost #SendTime #CostTimes #Status",
    "Pub <senders> <ip> <time> <n>ms success",
    "#Type #ConsumerGroup #ClientHost #ConsumerTime #CostTimes #Status",
    "Sub <readers> <ip> <time> <n>ms success",
]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("who", ["ours", f"java-{artifacts.JAVA_CLIENTS[-1]}", "java-4.9.8"])
def test_both_tools_print_the_same_of_both_clients(
    kind: str, who: str, start_once: StartOnce, tmp_path: Path
) -> None:
    cluster = start_once(kind)
    stage = Stage(clients.prefix(), cluster, tmp_path, Old("", 0.0))
    topic = stage.topic(queues=1)
    create_trace_topic(stage)
    message_id = ours(stage, topic) if who == "ours" else theirs(stage, topic, who)
    found = traces(stage, message_id, 3)
    assert {one.type for one in found} == {PUB, BEFORE, AFTER}
    (sent,) = [one for one in found if one.type == PUB]
    assert (sent.topic, sent.tags, sent.keys, sent.body_size) == (topic, "tag", "key", 6)
    assert (sent.group, sent.store_host) == (f"{stage.name}-senders", cluster.broker_addr)
    assert {one.region for one in found if one.type != AFTER} == {"DefaultRegion"}
    asked = ("queryMsgTraceById", "-n", cluster.namesrv, "-i", message_id)
    with Console(artifacts.TOOLS[-1], cluster, tmp_path) as console:
        apaches = console.mqadmin(*asked).text
    assert shape(apaches, stage) == PRINTED
    assert shape(OurMqadmin(tmp_path).mqadmin(*asked).text, stage) == PRINTED
    way = drawn(cluster, message_id)
    assert f"sent by {stage.name}-senders" in way
    assert re.search(rf"delivered to {stage.name}-readers on .*, consumed in \d+ ms", way)


def ours(stage: Stage, topic: str) -> str:
    with (
        stage.producer(enable_trace=True) as producer,
        stage.reading(topic, enable_trace=True) as got,
    ):
        receipt = producer.send(Message(topic, b"theirs", tags="tag", keys="key"))
        got.wait("theirs")
    return receipt.message_id


def create_trace_topic(stage: Stage) -> None:
    """Traces of a Java client do not create it; those that it sends before somebody else does are lost."""
    with stage.admin() as admin:
        if not is_known(admin, TRACE_TOPIC):
            ours(stage, stage.topic("-first", queues=1))
            must(lambda: is_known(admin, TRACE_TOPIC))


def theirs(stage: Stage, topic: str, client: str) -> str:
    said = clients.run_java(client, "Traced", [stage.cluster.namesrv, topic, stage.name], stage.home)
    (message_id,) = re.findall(r"^id (\S+)$", said, re.MULTILINE)
    return str(message_id)


def traces(stage: Stage, message_id: str, least: int) -> list[Trace]:
    """Of that message, when so many are there and the broker's index knows them."""
    found: list[Trace] = []
    with stage.pull_consumer("-traces") as reader, stage.admin() as admin:

        def all_there() -> bool:
            found[:] = [one for one in read(reader) if one.message_id == message_id]
            return len(found) >= least

        must(all_there)
        must(lambda: len(by_key(admin, TRACE_TOPIC, message_id)) >= 2)
    return found


def read(reader: PullConsumer) -> list[Trace]:
    messages: list[MessageExt] = [
        one for queue in reader.queues(TRACE_TOPIC) for one in all_of(reader, queue)
    ]
    return [record for message in messages for record in decode(message.text)]


def shape(printed: str, stage: Stage) -> list[str]:
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "<time>", printed)
    text = re.sub(r"\b\d+ms\b", "<n>ms", text)
    text = re.sub(r"\b\d+\.\d+\.\d+\.\d+\b", "<ip>", text)
    for role in ("senders", "readers"):
        text = text.replace(f"{stage.name}-{role}", f"<{role}>")
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def drawn(cluster: peers.Cluster, message_id: str) -> str:
    command = [sys.executable, "-m", "turbopump", "trace", message_id, "--namesrv", cluster.namesrv]
    return subprocess.run(command, capture_output=True, text=True, timeout=SEND_S, check=True).stdout
