"""A member of ours in a group of Apache 4.9.7: it follows, and its log has Apache's entries."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turbopump.protocol.codes import RequestCode
from turbopump.protocol.dledger.entry import DLedgerEntry
from turbopump.raft import Role
from turbopump.replication.dledger.group import DLedgerGroup
from turbopump.replication.dledger.server import DLedgerServer, NodeEnvironment
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk, SystemWorkers
from turbopump.runtime.network import SystemNetwork
from turbopump.store.config import StoreConfig
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.flags import Flags
from turbopump.store.flush import Flusher

from . import peers
from .asking import Answer, ask

VERSION = "4.9.7"  # DLedger 0.3.1.2
GROUP, TOPIC, COUNT = "broker-a", "Main", 300
FILE_SIZE = 1 << 16
MAX_WAIT_S = 60


class ApachePair:
    """Two brokers of Apache's, members n0 and n1 of a group of three."""

    def __init__(self, home: Path) -> None:
        ports = [peers.free_port() for _ in range(3)]
        self.peers = ";".join(f"n{number}-{peers.HOST}:{port}" for number, port in enumerate(ports))
        first = peers.place(home / "n0")
        second = peers.place(home / "n1")
        second = peers.Place(second.home, first.namesrv_port, second.broker_port)
        self.brokers = [peers.Cluster(VERSION, place) for place in (first, second)]
        self._threads = ThreadPoolExecutor()  # a server ends with the thread that started it

    def start(self) -> None:
        for number, broker in enumerate(self.brokers):
            conf = {
                "enableDLegerCommitLog": "true",
                "dLegerGroup": GROUP,
                "dLegerSelfId": f"n{number}",
                "dLegerPeers": self.peers,
                "mappedFileSizeCommitLog": str(FILE_SIZE),
                "maxMessageSize": "32768",
            }
            peers.configure(broker, conf)
        self.brokers[0]._start("namesrv", peers.OURS)
        # Neither registers before it knows its role, and they need each other for that.
        list(self._threads.map(peers.Cluster.start_broker, self.brokers))

    def send(self, number: int) -> None:
        """Sends to whichever of the two leads, until one has stored the message."""
        deadline = time.monotonic() + MAX_WAIT_S
        while time.monotonic() < deadline:
            for broker in self.brokers:
                # A send that got no answer is repeated, and may then be stored twice.
                with contextlib.suppress(OSError):
                    if _send(broker.broker_addr, number).code == 0:
                        return
            time.sleep(0.2)
        raise AssertionError(f"message {number} was not stored in {MAX_WAIT_S} s")

    def entries(self, number: int) -> list[DLedgerEntry]:
        """Returns the log of a broker that was stopped."""
        place = self.brokers[number].place
        config = StoreConfig(
            root_dir=str(place.store_dir), dledger_id=f"n{number}", commit_log_file_size=FILE_SIZE
        )
        log = EntryLog.open(config, SystemDisk())
        try:
            return log.entries(log.begin_index, 1 << 20, 1 << 30)
        finally:
            log.close()

    def kill(self) -> None:
        for broker in reversed(self.brokers):
            broker.kill()
        self._threads.shutdown()


def _send(address: str, number: int) -> Answer:
    return ask(
        address,
        RequestCode.SEND_MESSAGE,
        f"message {number} ".encode() * (1 + number % 60),
        producerGroup="p",
        topic=TOPIC,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=number % 4,
        sysFlag=0,
        bornTimestamp=1_794_733_741_890,
        flag=0,
        properties="",
        reconsumeTimes=0,
        unitMode=False,
        batch=False,
    )


def compared(entry: DLedgerEntry) -> tuple[object, ...]:
    """Everything but the checksum, which Apache does not write."""
    return entry.magic, entry.size, entry.index, entry.term, entry.pos, entry.channel, entry.body


async def until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    for _ in range(MAX_WAIT_S * 10):
        if condition():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"it did not come in {MAX_WAIT_S} s: {what()}")


async def follow(pair: ApachePair, home: Path) -> list[DLedgerEntry]:
    """Runs a member of ours while messages are sent; returns its log."""
    disk, clock, workers = SystemDisk(), SystemClock(), SystemWorkers()
    config = StoreConfig(root_dir=str(home), dledger_id="n2", commit_log_file_size=FILE_SIZE)
    log = EntryLog.open(config, disk)
    flusher = Flusher(log, Flags(), clock, workers, config)
    flusher.start()
    group = DLedgerGroup.parse(GROUP, "n2", pair.peers)
    environment = NodeEnvironment(clock, SystemNetwork(), random.Random(), workers)
    server = DLedgerServer(group, log, flusher, environment, lambda term: bytes(100))
    await server.start()
    try:
        for number in range(COUNT // 2, COUNT):
            await asyncio.to_thread(pair.send, number)
        await until(lambda: log.committed_index == log.end_index >= COUNT - 1, server.status)
        status = server.status()
        assert (status.role, status.joined) == (Role.FOLLOWER, True)
        assert status.leader in ("n0", "n1")
        return log.entries(0, 1 << 20, 1 << 30)
    finally:
        await server.stop()
        await flusher.stop()
        log.close()
        workers.close()


@pytest.mark.long
def test_our_member_follows_an_apache_leader_and_holds_its_entries(tmp_path: Path) -> None:
    pair = ApachePair(tmp_path)
    try:
        pair.start()
        for number in range(COUNT // 2):
            pair.send(number)
        ours = asyncio.run(follow(pair, tmp_path / "n2"))
        for broker in reversed(pair.brokers):
            broker.stop_broker()
    finally:
        pair.kill()
    assert len(ours) >= COUNT  # more when an answer was lost
    for number in range(2):
        assert [compared(entry) for entry in pair.entries(number)] == [compared(entry) for entry in ours]
