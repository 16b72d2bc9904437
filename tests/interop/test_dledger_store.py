"""A DLedger directory that we wrote, opened by Apache 4.9.7: it serves every message and writes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turbopump.protocol import record
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.ids import pack_host
from turbopump.runtime.disk import SystemDisk
from turbopump.store.config import StoreConfig
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.dledger.state_files import Vote
from turbopump.store.tools import run, verify

from . import peers
from .asking import asked
from .replica_pair import pull_records

VERSION = "4.9.7"  # DLedger 0.3.1.2
TOPIC, QUEUES, COUNT = "Main", 4, 400
FILE_SIZE = 1 << 16
TERM = 3


def write_store(place: peers.Place) -> list[record.Record]:
    """Writes a log of entries and the table of topics, and nothing else; returns the records."""
    host = pack_host(peers.HOST, place.broker_port)
    written = [
        record.Record(
            TOPIC,
            number % QUEUES,
            0,
            number // QUEUES,
            0,
            0,
            1_794_733_741_890,
            host,
            1_794_733_741_900 + number,
            host,
            body=f"message {number} ".encode() * (1 + number % 60),
            properties=f"KEYS\1key{number}\2TAGS\1tag{number % 3}\2".encode(),
        )
        for number in range(COUNT)
    ]
    log = EntryLog.open(config_of(place), SystemDisk())
    for begin in range(0, COUNT, 50):
        log.append([record.encode(one) for one in written[begin : begin + 50]], TERM)
    log.sync()
    log.commit_to(COUNT - 1)
    log.state_files.save_checkpoint(log.checkpoint())
    log.state_files.save_vote(Vote(TERM, "n0"))
    log.close()
    topic = {
        "order": False,
        "perm": 6,
        "readQueueNums": QUEUES,
        "topicFilterType": "SINGLE_TAG",
        "topicName": TOPIC,
        "topicSysFlag": 0,
        "writeQueueNums": QUEUES,
    }
    config = place.store_dir / "config"
    config.mkdir()
    table = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": {TOPIC: topic}}
    (config / "topics.json").write_text(json.dumps(table))
    return written


def config_of(place: peers.Place) -> StoreConfig:
    return StoreConfig(root_dir=str(place.store_dir), dledger_id="n0", commit_log_file_size=FILE_SIZE)


@pytest.mark.long
def test_apache_opens_a_dledger_directory_of_ours_serves_every_message_and_writes_on(tmp_path: Path) -> None:
    place = peers.place(tmp_path / "node")
    port = peers.free_port(avoid=range(place.broker_port - 2, place.broker_port + 2))
    written = write_store(place)
    conf = {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "broker-a",
        "dLegerSelfId": "n0",
        "dLegerPeers": f"n0-{peers.HOST}:{port}",
        "mappedFileSizeCommitLog": str(FILE_SIZE),
    }
    with peers.start(VERSION, place, conf, namesrv=peers.OURS) as cluster:
        for queue in range(QUEUES):
            served = pull_records(cluster.broker_addr, TOPIC, queue)
            assert [(one.queue_offset, one.body, one.properties) for one in served] == [
                (one.queue_offset, one.body, one.properties) for one in written if one.queue_id == queue
            ]
        asked(
            cluster.broker_addr,
            RequestCode.SEND_MESSAGE,
            b"of Apache",
            producerGroup="p",
            topic=TOPIC,
            defaultTopic="TBW102",
            defaultTopicQueueNums=4,
            queueId=1,
            sysFlag=0,
            bornTimestamp=1_794_733_741_890,
            flag=0,
            properties="",
            reconsumeTimes=0,
            unitMode=False,
            batch=False,
        )
    log = EntryLog.open(config_of(place), SystemDisk())
    assert (log.begin_index, log.end_index) == (0, COUNT)
    last = log.entry(COUNT)
    assert last is not None
    assert record.decode(last.body).body == b"of Apache"
    assert (last.term >= TERM, last.bodyCrc) == (True, 0)
    log.close()
    report = run(verify(str(place.store_dir)))
    assert (report.problems, report.records) == ([], COUNT + 1)
