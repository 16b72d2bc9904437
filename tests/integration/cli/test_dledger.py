"""Brokers of a DLedger group as processes: start, status, transfer, and what is refused."""

import contextlib
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.conftest import PATIENCE_S, Home, Server

from turbopump.runtime.ports import reserved_port

HOST = "127.0.0.1"
CONF = """
brokerName = broker-a
brokerIP1 = 127.0.0.1
bindAddress = 127.0.0.1
listenPort = 0
mappedFileSizeCommitLog = 1048576
storePathRootDir = {store}
enableDLegerCommitLog = true
dLegerGroup = broker-a
dLegerPeers = {peers}
dLegerSelfId = {member}
dLegerHeartbeatInterval = 200
dLegerMinVoteWait = 50
dLegerMaxVoteWait = 200
"""


def conf(home: Home, member: str, peers: str) -> Path:
    path = home.path / f"{member}.conf"
    path.write_text(CONF.format(store=home.path / f"store-{member}", peers=peers, member=member))
    return path


@pytest.fixture
def ports() -> Iterator[list[int]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(reserved_port(HOST, ())) for _ in range(3)]


def start(home: Home, member: str) -> Server:
    server = home.start("mqbroker", "-c", f"{member}.conf", "--log-dir", f"logs-{member}")
    server.wait_for(r"The broker\[broker-a, \S+\] boot success")
    return server


def status(home: Home) -> tuple[int, dict[str, Any]]:
    shown = home.run("turbopump", "raft", "status", "broker-a", "--json")
    return shown.returncode, json.loads(shown.stdout) if shown.stdout else {}


def until(home: Home, what: Callable[[int, dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while not what(*(found := status(home))):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found[1]


def test_three_members_elect_move_and_lose_a_leader(home: Home, ports: list[int]) -> None:
    (home.path / "namesrv.conf").write_text("listenPort = 0\nbindAddress = 127.0.0.1\n")
    name_server = home.start("mqnamesrv", "-c", "namesrv.conf")
    home.environment["NAMESRV_ADDR"] = name_server.wait_for(r"boot success.* address (\S+)$")[1]
    members = [f"n{number}" for number in range(3)]
    peers = ";".join(f"{member}-{HOST}:{port}" for member, port in zip(members, ports, strict=True))
    for member in members:
        conf(home, member, peers)
    servers = {member: start(home, member) for member in members}
    # A member with an empty disk joins a moment after the first leader is known.
    first = until(home, lambda code, found: code == 0 and all(row["isJoined"] for row in found["members"]))
    assert [row["member"] for row in first["members"]] == members
    sent = home.run("turbopump", "send", "orders", "kept")
    assert sent.returncode == 0, sent.stderr
    other = next(member for member in members if member != first["leader"])
    moved = home.run("turbopump", "raft", "transfer", other, "broker-a")
    assert moved.stdout == f"{other} leads broker-a now, in place of {first['leader']}\n", moved.stderr
    until(home, lambda code, found: code == 0 and found["leader"] == other)
    servers[other].stop(signal.SIGKILL)
    second = until(home, lambda code, found: found.get("leader") not in ("", None, other))
    assert status(home)[0] == 1
    assert any(f"Member {other} " in line for line in second["problems"])
    read = home.run("turbopump", "tail", "orders", "--from", "first", "-n", "1")
    assert "kept" in read.stdout, read.stderr


def test_a_port_of_the_group_that_is_in_use_is_one_line(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        conf(home, "n0", f"n0-{HOST}:{port}")
        failed = home.run("mqbroker", "-c", "n0.conf", "--log-dir", "logs")
    assert failed.returncode == 1
    assert f"cannot listen on {HOST}:{port}: the port is in use" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_up_refuses_several_members(home: Home) -> None:
    conf(home, "n0", f"n0-{HOST}:1;n1-{HOST}:2;n2-{HOST}:3")
    refused = home.run("turbopump", "up", "-c", "n0.conf")
    assert refused.returncode == 2
    assert "start each member with `turbopump broker -c FILE`" in refused.stderr


def test_up_runs_a_group_of_one_member(home: Home, ports: list[int]) -> None:
    conf(home, "n0", f"n0-{HOST}:{ports[0]}")
    server = home.start("turbopump", "up", "-c", "n0.conf", "--namesrv-port", "0")
    home.environment["NAMESRV_ADDR"] = server.wait_for(r"name server +(\S+)")[1]
    until(home, lambda code, found: code == 0 and found["leader"] == "n0")
    assert home.run("turbopump", "send", "orders", "kept").returncode == 0
    assert server.stop() == 0
