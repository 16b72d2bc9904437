"""Runs the scenario programs: one process per client version, all scenarios in it, answers as a JSON file."""

from __future__ import annotations

import json
import random
import string
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import artifacts, processes
from .peers import Cluster, write_logback

Answers = dict[str, dict[str, Any]]

TIMEOUT_S = 300
GO = "go"
PYTHON = "python"  # our own client
PUSH_PROGRAMS = ("Consumers", "Partner", "Worker")
FIRST_MESSAGES, EARLY_COMMIT = "FirstMessages", "EarlyCommit"
TRANSACTOR, OLD_TRANSACTOR = "Transactor", "OldTransactor"
CLIENTS = (
    *(f"java-{version}" for version in artifacts.JAVA_CLIENTS),
    f"dashboard-{artifacts.DASHBOARD}",
    GO,
)

# The 4.5.1 client is the one whose users still send through the VIP channel, two ports below.
VIP_CHANNEL = {"4.5.1": ("-Dcom.rocketmq.sendMessageWithVIPChannel=true",)}
# Of those that live for minutes, the newest spares the broker its subscriptions in most heartbeats.
SHORT_HEARTBEATS = {"5.5.0": ("-Dcom.rocketmq.heartbeat.v2=true",)}


def run_scenarios(
    client: str,
    cluster: Cluster,
    work: Path,
    only: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Answers:
    """What the client (`java-<version>`, `dashboard-<version>` or `go`) saw, by scenario and step.

    `environment` may name credentials: see Credentials.java and credentials.go.
    """
    output = work / f"{client}-on-{cluster.kind}.json"
    arguments = [cluster.namesrv, cluster.broker_addr, prefix(), str(output), *only]
    log = output.with_suffix(".log")
    program = "Dashboard" if client.startswith("dashboard-") else "Scenarios"
    variables = {"HOME": str(work), **(environment or {})}
    processes.run([*program_of(client, program, work), *arguments], log, TIMEOUT_S, variables)
    answers: Answers = json.loads(output.read_text())
    return answers


def run_java(client: str, program: str, arguments: Sequence[str], work: Path) -> str:
    """Another program of ours, most of them in Java; what it printed."""
    log = work / f"{program}-{prefix()}.log"
    processes.run([*program_of(client, program, work), *arguments], log, TIMEOUT_S, {"HOME": str(work)})
    return log.read_text()


def start_java(client: str, program: str, arguments: Sequence[str], work: Path) -> processes.Server:
    """The same, in the background."""
    return processes.Server(
        [*program_of(client, program, work), *arguments],
        work / f"{program}-{prefix()}.log",
        {"HOME": str(work)},
    )


def prefix() -> str:
    """Sets the topics of this run apart; always equally long, because lengths are compared."""
    return "R" + "".join(random.choices(string.ascii_lowercase + string.digits, k=7))


def program_of(client: str, program: str, work: Path) -> list[str]:
    """The command that starts a program of ours with that client's jars."""
    if client == PYTHON:
        return [sys.executable, str(artifacts.HERE / "python" / f"{program.lower()}.py")]
    if client == GO:
        return [
            str(artifacts.go_program()),
            *([program] if program in (*PUSH_PROGRAMS, TRANSACTOR, FIRST_MESSAGES) else []),
        ]
    kind, version = client.split("-")
    programs = artifacts.client_programs if kind == "java" else artifacts.tools_programs
    if program in PUSH_PROGRAMS:
        programs = artifacts.push_programs
    if program == "Choosing":
        programs = artifacts.choosing_programs
    if program == "Kinds":
        programs = artifacts.kinds_programs
    if program in (TRANSACTOR, OLD_TRANSACTOR):
        programs = artifacts.transaction_programs
    if program == "Timed":
        programs = artifacts.timer_programs
    if program in (FIRST_MESSAGES, EARLY_COMMIT):
        programs = artifacts.first_programs
    long_lived = SHORT_HEARTBEATS if program == "Worker" else {}
    java = artifacts.tool("java", f"Java client {version}")
    options = ["-Xmx512m", *VIP_CHANNEL.get(version, ()), *long_lived.get(version, ())]
    homes = [f"-D{name}={work}" for name in ("user.home", "rocketmq.home.dir", "rocketmq.client.logRoot")]
    write_logback(work)
    return [java, *artifacts.JAVA_OPTIONS, *options, *homes, "-cp", programs(version), program]
