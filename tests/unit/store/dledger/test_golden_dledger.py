"""The stores of a DLedger group that Apache 4.9.7 wrote: entries, tools, and every message it served."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from tests.unit.store.dledger.golden_kit import (
    ENTRIES,
    LAST_OF_TERM_1,
    NODES,
    answers,
    config_of_node,
    dledger_store,
)
from tests.unit.store.dledger.kit import all_entries, check

from turbopump.protocol import record as codec
from turbopump.protocol.dledger.entry import HEAD_SIZE
from turbopump.runtime.disk import SystemDisk
from turbopump.store.consume_queue import ENTRY, UNIT
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.dledger.state_files import EntryCheckpoint, StateFiles, Vote
from turbopump.store.errors import UnusableStore
from turbopump.store.stopped_log import StoppedLog
from turbopump.store.tools import dump, rebuild, run, verify

BODY_CRC = slice(40, 44)


def snapshot(root: str) -> dict[str, bytes]:
    """The contents of all files but DLedger's index files, which are large and empty."""
    paths = [path for path in Path(root).rglob("*") if path.is_file() and path.stat().st_size < 1 << 24]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("node", NODES)
def test_the_log_of_a_node_is_opened_with_all_entries_and_not_changed(node, tmp_path):
    root = dledger_store(node, tmp_path)
    before = snapshot(root)
    log = EntryLog.open(config_of_node(node, root), SystemDisk())
    check(log)
    assert (log.begin_index, log.end_index, log.end_term) == (0, ENTRIES - 1, 2)
    assert (log.term_of(LAST_OF_TERM_1), log.term_of(LAST_OF_TERM_1 + 1)) == (1, 2)
    assert log.committed_index == ENTRIES - 1
    for entry in all_entries(log):
        record = codec.decode(entry.body)
        assert record.physical_offset == entry.pos + HEAD_SIZE
        assert log.read(record.physical_offset, record.size) == entry.body
        assert log.identify(record.physical_offset) == record
    log.close()
    assert snapshot(root) == before


def test_votes_and_checkpoints_of_apaches_nodes_are_read(tmp_path):
    votes = {"n0": Vote(2, "n0"), "n1": Vote(2, "n1"), "n2": Vote(2, "n1")}
    for node in NODES:
        files = StateFiles(f"{dledger_store(node, tmp_path)}/dledger-{node}", SystemDisk())
        assert files.load_vote() == votes[node]
        assert files.load_checkpoint() == EntryCheckpoint(58, 58)


def test_entries_of_apache_are_written_again_byte_for_byte_but_for_the_checksum(tmp_path):
    root = dledger_store("n1", tmp_path)
    theirs = EntryLog.open(config_of_node("n1", root), SystemDisk())
    ours = EntryLog.open(config_of_node("n1", str(tmp_path / "ours")), SystemDisk())
    ours.append_entries(theirs.entries(0, 20, 1 << 20))
    ours.append_entries(theirs.entries(20, 100, 1 << 20))
    for number in theirs.files.starts:
        expected = bytearray(theirs.files.mapped(number).buffer[:])
        written = bytearray(ours.files.mapped(number).buffer[:])
        for entry in all_entries(theirs):
            if 0 <= entry.pos - number < ours.file_size:
                at = entry.pos - number
                assert any(written[at : at + HEAD_SIZE][BODY_CRC])
                written[at + 40 : at + 44] = bytes(4)
        assert written == expected
    assert [ours.index.unit(index) for index in range(ENTRIES)] == [
        theirs.index.unit(index) for index in range(ENTRIES)
    ]


def test_records_appended_by_us_as_a_leader_get_apaches_bytes(tmp_path):
    root = dledger_store("n1", tmp_path)
    theirs = all_entries(EntryLog.open(config_of_node("n1", root), SystemDisk()))
    ours = EntryLog.open(config_of_node("n1", str(tmp_path / "ours")), SystemDisk())
    blank = [entry.body[:28] + bytes(8) + entry.body[36:] for entry in theirs]
    ours.append(blank[: LAST_OF_TERM_1 + 1], 1)
    ours.append(blank[LAST_OF_TERM_1 + 1 :], 2)
    assert [(entry.body, entry.pos, entry.term) for entry in all_entries(ours)] == [
        (entry.body, entry.pos, entry.term) for entry in theirs
    ]


@pytest.mark.parametrize("node", NODES)
def test_apaches_queues_and_index_agree_with_the_entries(node, tmp_path):
    root = dledger_store(node, tmp_path)
    before = snapshot(root)
    report = run(verify(root))
    # n0 was killed: Apache's recovery did not put the keys of its messages into the index again (#7477).
    assert [problem.kind for problem in report.problems] == (["missing keys"] if node == "n0" else [])
    assert (report.records, report.is_clean) == (ENTRIES, True)
    assert snapshot(root) == before


@pytest.mark.parametrize("node", NODES)
def test_rebuilt_queues_are_those_that_apache_wrote(node, tmp_path):
    root = dledger_store(node, tmp_path)
    before = {name: data for name, data in snapshot(root).items() if name.startswith("consumequeue")}
    rebuilt = run(rebuild(root))
    assert (rebuilt.records, rebuilt.queues, rebuilt.unread_files) == (ENTRIES, len(before), 0)
    after = {name: data for name, data in snapshot(root).items() if name.startswith("consumequeue")}
    assert after == before
    assert run(verify(root)).problems == []


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_every_message_is_found_through_its_queue_as_apache_served_it(is_rebuilt, tmp_path):
    root = dledger_store("n1", tmp_path)
    if is_rebuilt:
        run(rebuild(root))
    log = EntryLog.open(config_of_node("n1", root), SystemDisk())
    served = answers()
    assert sum(map(len, served.values())) > 50
    for queue, messages in served.items():
        file = Path(root, "consumequeue", queue, "0" * 20).read_bytes()
        for message in messages:
            physical, size, _ = ENTRY.unpack_from(file, message["queueOffset"] * UNIT)
            assert physical == message["commitLogOffset"]
            data = log.read(physical, size)
            assert data is not None
            record = codec.decode(data)
            assert f"{record.topic}/{record.queue_id}" == queue
            assert (record.queue_offset, len(record.body)) == (message["queueOffset"], message["bodyLength"])
            assert hashlib.sha256(record.body).hexdigest() == message["bodySha256"]


def test_all_records_are_dumped_in_log_order(tmp_path):
    root = dledger_store("n0", tmp_path)
    log = EntryLog.open(config_of_node("n0", root), SystemDisk())
    assert [record.physical_offset for record in dump(root)] == [
        entry.pos + HEAD_SIZE for entry in all_entries(log)
    ]
    main = list(dump(root, topic="Main", queue_id=1))
    assert [record.queue_offset for record in main] == list(range(len(answers()["Main/1"])))


def test_entries_that_are_not_committed_are_in_no_rebuilt_queue(tmp_path):
    root = dledger_store("n1", tmp_path)
    StateFiles(f"{root}/dledger-n1", SystemDisk()).save_checkpoint(EntryCheckpoint(49, 58))
    assert run(rebuild(root)).records == 50
    report = run(verify(root))
    assert (report.problems, report.is_clean) == ([], False)
    assert report.counts["entries not known to be committed"] == 9


def test_damage_of_an_entry_and_of_the_index_is_found(tmp_path):
    root = dledger_store("n1", tmp_path)
    with open(f"{root}/dledger-n1/data/{0:020d}", "r+b") as file:
        file.seek(600)
        file.write(b"\xff\xff")
    with open(f"{root}/dledger-n1/index/{0:020d}", "r+b") as file:
        file.seek(32 * 20 + 10)
        file.write(b"\xff")
    report = run(verify(root))
    assert report.counts["damage"] == 1
    assert report.counts["wrong index"] == 1
    assert report.counts["wrong unit of the index"] == 1


def test_a_store_that_was_switched_over_is_read_from_both_directories(tmp_path):
    root = dledger_store("n1", tmp_path)
    theirs = all_entries(EntryLog.open(config_of_node("n1", root), SystemDisk()))
    both = str(tmp_path / "both")
    # The old log: the first records, in one file that ends with a blank record.
    old = bytearray(65536)
    at = 0
    for entry in theirs[:10]:
        body = bytearray(entry.body)
        body[28:36] = at.to_bytes(8, "big")
        old[at : at + len(body)] = body
        at += len(body)
    old[at : at + 8] = (65536 - at).to_bytes(4, "big") + (0xCBD43194).to_bytes(4, "big")
    os.makedirs(f"{both}/commitlog")
    Path(f"{both}/commitlog/{0:020d}").write_bytes(old)
    log = EntryLog.open(config_of_node("n1", both), SystemDisk())
    assert (log.min_offset, log.end, log.next_index) == (0, 65536, 0)
    log.append([entry.body for entry in theirs[10:]], 3)
    log.commit_to(48)
    log.sync()
    log.state_files.save_checkpoint(log.checkpoint())
    log.close()
    log = EntryLog.open(config_of_node("n1", both), SystemDisk())
    check(log)
    assert (log.min_offset, log.files.divided_at, log.place_of(0)) == (0, 65536, 65536)
    assert log.identify(0) is not None
    assert sorted(os.listdir(f"{both}/dledger-n1/data")) == [f"{65536 * n:020d}" for n in (1, 2)]
    log.close()
    rebuilt = run(rebuild(both))
    assert (rebuilt.records, rebuilt.log_begin) == (ENTRIES, 0)
    report = run(verify(both))
    assert (report.problems, report.records) == ([], ENTRIES)
    assert [codec.body_of(record) for record in dump(both)] == [
        codec.body_of(codec.decode(entry.body)) for entry in theirs
    ]


def test_what_cannot_read_entries_says_so(tmp_path):
    root = dledger_store("n1", tmp_path)
    with pytest.raises(UnusableStore, match="DLedger node n1: a comparison of logs is not possible"):
        StoppedLog(root, SystemDisk())
