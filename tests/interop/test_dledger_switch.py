"""A plain store that was switched over to DLedger, by us or by Apache 4.9.7, opened by the other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from turbopump.protocol import record
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.ids import pack_host
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk, SystemWorkers
from turbopump.store.config import StoreConfig
from turbopump.store.dledger.state_files import Vote
from turbopump.store.store import Store
from turbopump.store.tools import backup, run, verify

from . import peers, topics
from .asking import asked
from .replica_pair import pull_records

VERSION = "4.9.7"  # DLedger 0.3.1.2
TOPIC, QUEUES = "Main", 4
OLD, NEW, MORE = 300, 200, 100
FILE_SIZE = 1 << 16
SIZES = {"mappedFileSizeCommitLog": str(FILE_SIZE), "maxMessageSize": "32768"}


class SwitchedPlace:
    """A broker's directory, its configuration before and after the switch-over, and what was sent."""

    def __init__(self, home: Path) -> None:
        self.place = peers.place(home)
        port = peers.free_port(avoid=range(self.place.broker_port - 2, self.place.broker_port + 2))
        self.dledger = {
            **SIZES,
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "broker-a",
            "dLegerSelfId": "n0",
            "dLegerPeers": f"n0-{peers.HOST}:{port}",
        }
        self.sent: list[bytes] = []

    def start_plain(self) -> peers.Cluster:
        return peers.start(VERSION, self.place, SIZES, namesrv=peers.OURS)

    def start_dledger(self) -> peers.Cluster:
        return peers.start(VERSION, self.place, self.dledger, namesrv=peers.OURS)

    def send(self, count: int) -> None:
        for _ in range(count):
            number = len(self.sent)
            body = f"message {number} ".encode() * (1 + number % 60)
            asked(
                self.place.broker_addr,
                RequestCode.SEND_MESSAGE,
                body,
                producerGroup="p",
                topic=TOPIC,
                defaultTopic="TBW102",
                defaultTopicQueueNums=QUEUES,
                queueId=number % QUEUES,
                sysFlag=0,
                bornTimestamp=1_794_733_741_890,
                flag=0,
                properties=f"KEYS\1key{number}\2",
                reconsumeTimes=0,
                unitMode=False,
                batch=False,
            )
            self.sent.append(body)

    def bodies_at_broker(self) -> list[list[bytes]]:
        return [
            [one.body for one in pull_records(self.place.broker_addr, TOPIC, queue)]
            for queue in range(QUEUES)
        ]

    def expected(self) -> list[list[bytes]]:
        return [self.sent[queue::QUEUES] for queue in range(QUEUES)]

    def open_ours(self) -> Store:
        config = StoreConfig(
            root_dir=str(self.place.store_dir), dledger_id="n0", commit_log_file_size=FILE_SIZE
        )
        return Store.open(config, SystemDisk(), SystemClock(), SystemWorkers())


def bodies_in(store: Store) -> list[list[bytes]]:
    """Reads every message by its queue, and looks it up by its log offset."""
    found: list[list[bytes]] = []
    for number in range(QUEUES):
        queue = store.queues.queue(TOPIC, number)
        found.append([])
        for offset in range(queue.min_offset, queue.max_offset):
            one = record.decode(store.reader.get(queue, offset, 1).body)
            assert store.log.look_up(one.physical_offset) == one
            found[-1].append(one.body)
    return found


def append_ours(switched: SwitchedPlace, store: Store, count: int) -> None:
    """Appends and commits entries as a leader of a group of one does."""
    assert store.entries is not None
    assert store.committed is not None
    host = pack_host(peers.HOST, switched.place.broker_port)
    for number in range(len(switched.sent), len(switched.sent) + count):
        body = f"message {number} ".encode() * (1 + number % 60)
        place = (TOPIC, number % QUEUES, 0, number // QUEUES, 0, 0, 1_794_733_741_890, host)
        stored = 1_794_733_741_900 + number
        properties = f"KEYS\1key{number}\2".encode()
        message = record.Record(*place, stored, host, body=body, properties=properties)
        store.entries.append([record.encode(message)], 1)
        switched.sent.append(body)
    store.entries.sync()
    store.entries.commit_to(store.entries.end_index)
    while store.committed.dispatch():
        pass


@pytest.mark.long
def test_apache_opens_a_store_that_we_switched_over_and_serves_old_and_new_messages(tmp_path: Path) -> None:
    switched = SwitchedPlace(tmp_path / "node")
    with switched.start_plain() as cluster:
        topics.create(cluster, TOPIC, QUEUES)
        switched.send(OLD)
    store = switched.open_ours()
    assert bodies_in(store) == switched.expected()
    assert store.entries is not None
    divided = store.entries.end
    append_ours(switched, store, NEW)
    store.entries.state_files.save_vote(Vote(1, "n0"))
    asyncio.run(store.close())
    with switched.start_dledger():
        assert switched.bodies_at_broker() == switched.expected()
        switched.send(MORE)
        assert switched.bodies_at_broker() == switched.expected()
    again = switched.open_ours()
    assert again.commit_log.files.divided_at == divided
    assert bodies_in(again) == switched.expected()
    asyncio.run(again.close())
    report = run(verify(str(switched.place.store_dir)))
    assert (report.problems, report.records) == ([], OLD + NEW + MORE)


@pytest.mark.long
@pytest.mark.parametrize("new", [0, NEW])
def test_we_open_a_store_that_apache_switched_over_and_serve_old_and_new_messages(
    tmp_path: Path, new: int
) -> None:
    switched = SwitchedPlace(tmp_path / "node")
    with switched.start_plain() as cluster:
        topics.create(cluster, TOPIC, QUEUES)
        switched.send(OLD)
    with switched.start_dledger():
        switched.send(new)
        assert switched.bodies_at_broker() == switched.expected()
    report = run(verify(str(switched.place.store_dir)))
    assert (report.problems, report.records) == ([], OLD + new)
    store = switched.open_ours()
    assert bodies_in(store) == switched.expected()
    append_ours(switched, store, MORE)
    assert bodies_in(store) == switched.expected()
    asyncio.run(store.close())
    with switched.start_dledger():
        assert switched.bodies_at_broker() == switched.expected()


@pytest.mark.long
def test_apache_starts_on_a_backup_of_a_switched_store(tmp_path: Path) -> None:
    """The copy has no queues, no index and no index of entries: its first start makes them."""
    switched = SwitchedPlace(tmp_path / "node")
    with switched.start_plain() as cluster:
        topics.create(cluster, TOPIC, QUEUES)
        switched.send(OLD)
    store = switched.open_ours()
    append_ours(switched, store, NEW)
    assert store.entries is not None
    store.entries.state_files.save_vote(Vote(1, "n0"))
    asyncio.run(store.close())
    original = switched.place.store_dir.rename(tmp_path / "original")
    run(backup(str(original), str(switched.place.store_dir)))
    with switched.start_dledger():
        assert switched.bodies_at_broker() == switched.expected()
        switched.send(MORE)
        assert switched.bodies_at_broker() == switched.expected()
