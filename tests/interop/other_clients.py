"""Clients that are neither Apache's Java nor Go ones nor ours: each sends messages and push-consumes them.

A program of ours for each: it gets a name server, a topic, a group and a number of messages, sends these,
starts a push consumer with a new group, and prints `arrived <body>` for all that it got, then `finished`. It
is killed there: the C++ library sometimes takes two minutes to end its process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import artifacts, processes
from .asking import asked
from .clients import prefix
from .peers import Cluster

QUEUES = 4
CREATE_TOPIC = 17
ARRIVED, FINISHED = "arrived ", "finished"


@dataclass(frozen=True)
class Program:
    command: list[str]
    env: Mapping[str, str]


def cpp() -> Program:
    """PyPI `rocketmq`, which brings the C++ client library."""
    script = artifacts.HERE / "python" / "cpp_client.py"
    return Program([sys.executable, str(script)], {"PYTHONPATH": str(artifacts.cpp_package())})


def node() -> Program:
    """npm `rocketmq-nodejs`, an addon around the C++ client library."""
    script = artifacts.HERE / "node" / "client.js"
    return Program(
        [artifacts.tool("node", "Node.js client"), str(script)], {"NODE_PATH": str(artifacts.node_package())}
    )


def spring() -> Program:
    """rocketmq-spring, with the Java client that it brings."""
    java = artifacts.tool("java", "rocketmq-spring")
    options = [*artifacts.JAVA_OPTIONS, "-Xmx512m", "-cp", artifacts.spring_programs()]
    return Program([java, *options, "SpringClient"], {})


def rust() -> Program:
    """The crate `rocketmq-client-rust`."""
    return Program([str(artifacts.rust_program())], {})


CLIENTS: dict[str, Callable[[], Program]] = {"cpp": cpp, "node": node, "spring": spring, "rust": rust}


def send_and_consume(client: str, cluster: Cluster, work: Path, count: int) -> list[str]:
    """The bodies that arrived."""
    program = CLIENTS[client]()
    topic = prefix()
    _create(cluster, topic)
    log = work / f"{client}-on-{cluster.kind}.log"
    arguments = [cluster.namesrv, topic, f"{topic}-group", str(count)]
    running = processes.Server([*program.command, *arguments], log, {**program.env, "HOME": str(work)})
    try:
        running.wait_ready(FINISHED)
    finally:
        running.kill()
    lines = log.read_text("utf-8", "replace").splitlines()
    return [line.removeprefix(ARRIVED) for line in lines if line.startswith(ARRIVED)]


def _create(cluster: Cluster, topic: str) -> None:
    asked(
        cluster.broker_addr,
        CREATE_TOPIC,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=QUEUES,
        writeQueueNums=QUEUES,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order=False,
    )
