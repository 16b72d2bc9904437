"""`python -m benchmarks.heartbeats`: measures what many clients and groups cost a broker without messages.

First the clients: `--clients` push consumers, 20 to a group, join and then send heartbeats, round after
round, as Java 5.5.0 writes them. The figure is CPU time of the broker per join and per heartbeat; a client
sends one every 30 s. Then as many in one group, where every join is announced to all members. Last the
offsets: `--groups` groups commit on every queue, and the table is written to its file, as it is every 5 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from turbopump.broker.config import OffsetRules
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk
from turbopump.runtime.network import SystemNetwork
from turbopump.store.config_files import ConfigFiles

from . import servers
from .generator import CACHE

HEARTBEAT_INTERVAL_S = 30
IN_FLIGHT = 64
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heartbeats", description=__doc__)
    parser.add_argument("--clients", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--groups", type=int, default=1000, help="groups that commit offsets")
    parser.add_argument("--offsets", type=int, default=50_000, help="offsets of all groups together")
    parser.add_argument(
        "--only", action="append", choices=servers.ALL, help="only this server (may be repeated)"
    )
    options = parser.parse_args()
    print("server    clients  groups   us/join   us/beat  of a core    MiB")
    for kind in options.only or [servers.OURS]:
        for members in (20, options.clients):
            print(asyncio.run(clients(kind, options, members)))
    print(table_of_offsets(options))


async def clients(kind: str, options: argparse.Namespace, members: int) -> str:
    server, _ = servers.start(kind, CACHE / "heartbeats")
    try:
        before = server.memory_mib()["broker"]["rss"]
        everyone = [Member(number, members) for number in range(options.clients)]
        join_us = await measured(server, everyone)
        beats_us = [await measured(server, everyone) for _ in range(options.rounds)]
        grown = server.memory_mib()["broker"]["rss"] - before
        for member in everyone:
            await member.close()
    finally:
        server.kill()
        shutil.rmtree(CACHE / "heartbeats", ignore_errors=True)
    beat_us = sorted(beats_us)[len(beats_us) // 2]
    share = beat_us * options.clients / HEARTBEAT_INTERVAL_S / 1e6
    groups = options.clients // members
    return (
        f"{kind:8} {options.clients:8,} {groups:7,} {join_us:9.1f} {beat_us:9.1f} {share:10.2%} {grown:6.1f}"
    )


async def measured(server: servers.Running, everyone: list[Member]) -> float:
    """CPU microseconds of the broker per member, when each sends one heartbeat."""
    await asyncio.sleep(0.5)
    before = cpu_s(server.pids)
    turns = asyncio.Semaphore(IN_FLIGHT)

    async def beat(member: Member) -> None:
        async with turns:
            await member.beat(server.address)

    await asyncio.gather(*(beat(member) for member in everyone))
    await asyncio.sleep(0.5)  # until the broker has sent the notices it had collected
    return (cpu_s(server.pids) - before) / len(everyone) * 1e6


class Member:
    """A client with one push consumer."""

    def __init__(self, number: int, members: int) -> None:
        self._client = Client(SystemNetwork(), SystemClock())
        self._body = heartbeat(
            f"10.0.{number // 250}.{number % 250}@{number}#1", f"group-{number // members}"
        )

    async def beat(self, address: str) -> None:
        request = Command(RequestCode.HEART_BEAT, ext={}, body=self._body, language="JAVA")
        answer = await self._client.call(address, request, 60)
        assert answer.code == 0, answer

    async def close(self) -> None:
        await self._client.close()


def heartbeat(client_id: str, group: str) -> bytes:
    subscriptions = [
        {"classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*"}
        | {"subVersion": 1_700_000_000_000, "tagsSet": [], "topic": topic}
        for topic in (f"topic-of-{group}", f"%RETRY%{group}")
    ]
    consumer = {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY"}
    consumer |= {"groupName": group, "messageModel": "CLUSTERING"}
    body = {
        "clientID": client_id,
        "consumerDataSet": [consumer | {"subscriptionDataSet": subscriptions, "unitMode": False}],
        "heartbeatFingerprint": 0,
        "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
        "withoutSub": False,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def cpu_s(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def table_of_offsets(options: argparse.Namespace) -> str:
    tracemalloc.start()
    offsets = committed(options)
    grown = tracemalloc.get_traced_memory()[0] / (1 << 20)
    tracemalloc.stop()
    count = options.offsets // options.groups * options.groups
    began = time.process_time()
    offsets = committed(options)
    commit_us = (time.process_time() - began) / count * 1e6
    times = [step for _ in range(5) for step in timed(offsets.slices())]
    total_ms, longest_ms = sum(times) / 5 * 1000, max(times) * 1000
    data = offsets.dump()
    with tempfile.TemporaryDirectory(dir=CACHE) as home:
        files = ConfigFiles(home, SystemDisk())
        began = time.perf_counter()
        files.save("consumerOffset.json", data)
        write_ms = (time.perf_counter() - began) * 1000
    return (
        f"\n{options.groups:,} groups, {count:,} offsets: {grown:.1f} MiB in memory, "
        f"{len(data) / 1e6:.1f} MB in the file\n"
        f"a commit {commit_us:.2f} us; the file {total_ms:.1f} ms of CPU time on the loop, "
        f"at most {longest_ms:.2f} ms without a pause, written and synced by a worker in {write_ms:.0f} ms"
    )


def committed(options: argparse.Namespace) -> CommittedOffsets:
    offsets = CommittedOffsets(OffsetRules(), SystemClock())
    for group in range(options.groups):
        for number in range(options.offsets // options.groups):
            offsets.commit(f"group-{group}", f"topic-{number // 10}", number % 10, 1_000_000 + number)
    return offsets


def timed(slices: Iterator[bytes]) -> Iterator[float]:
    while True:
        began = time.process_time()
        if next(slices, None) is None:
            return
        yield time.process_time() - began


if __name__ == "__main__":
    main()
