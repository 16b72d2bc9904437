"""The log reader on the stores of DLedger nodes: committed entries, and the commit log before them."""

from __future__ import annotations

import hashlib
import shutil

import pytest
from tests.unit.pipelines.log.dledger_kit import NEW, OLD, START, UNCOMMITTED, switched_store
from tests.unit.pipelines.log.kit import changed, rows
from tests.unit.store.dledger.golden_kit import NODES, answers, dledger_store

from turbopump.pipelines.log import NoStore, RecordsLost
from turbopump.pipelines.log.files import StoreFiles
from turbopump.pipelines.log.partitions import partitions_of
from turbopump.pipelines.log.plan import StoreQuery
from turbopump.pipelines.log.store_reader import RowFormat, StoreReader
from turbopump.pipelines.schema import schema_of

ALL = list(range(OLD + NEW))


@pytest.fixture
def store(tmp_path):
    return switched_store(tmp_path / "store")


def numbers(root, **asked):
    return sorted(int(row["body"]) for row in rows(root, "T", **asked))


@pytest.mark.parametrize("scan", ["queue", "log"])
@pytest.mark.parametrize("node", NODES)
def test_the_store_of_apaches_node_is_read_as_its_broker_answered(node, scan, tmp_path):
    found = {
        (f"{row['topic']}/{row['queueId']}", row["queueOffset"]): row
        for row in rows(dledger_store(node, tmp_path), scan=scan)
    }
    for place, messages in answers().items():
        for expected in messages:
            row = found[place, expected["queueOffset"]]
            assert hashlib.sha256(row["body"]).hexdigest() == expected["bodySha256"]


@pytest.mark.parametrize("scan", ["queue", "log"])
def test_both_parts_of_a_switched_store_are_read_and_uncommitted_entries_are_counted(store, scan, caplog):
    assert numbers(store, scan=scan) == ALL
    [warning] = [line.message for line in caplog.records]
    assert f": {UNCOMMITTED} entries of the DLedger node n0 behind log offset" in warning


def test_without_queues_the_checkpoint_says_what_is_committed(store, caplog):
    shutil.rmtree(f"{store}/consumequeue")
    assert numbers(store) == ALL
    assert "3 entries of the DLedger node n0" in caplog.text


def test_without_an_index_of_entries_the_same_is_read(store):
    for gone in ("consumequeue", "dledger-n0/index"):
        shutil.rmtree(f"{store}/{gone}")
    assert numbers(store) == ALL


def test_what_is_in_a_queue_is_committed_whatever_the_checkpoint_says(store, caplog):
    with open(f"{store}/dledger-n0/checkpoint", "w") as file:
        file.write("committedIndex=5\nendIndex=52\n")
    assert numbers(store, scan="log") == ALL
    assert "3 entries" in caplog.text
    shutil.rmtree(f"{store}/consumequeue")
    assert numbers(store) == list(range(OLD + 6))


def test_a_store_whose_entries_are_all_committed_gives_no_warning(tmp_path, caplog):
    numbers_of = rows(dledger_store("n1", tmp_path), "Main")
    assert numbers_of
    assert caplog.records == []


@pytest.mark.parametrize("number", [3, OLD - 1, OLD, OLD + 20, OLD + NEW - 1])
def test_a_key_is_found_in_either_part(store, number):
    assert numbers(store, key=f"U{number}") == [number]
    shutil.rmtree(f"{store}/index")
    assert numbers(store, key=f"U{number}") == [number]


@pytest.mark.parametrize("scan", ["queue", "log"])
def test_times_and_tags_are_those_of_the_records(store, scan):
    since, until = START + 50_000, START + 70_000
    assert numbers(store, scan=scan, since=since, until=until) == list(range(50, 70))
    assert numbers(store, scan=scan, tags="a") == ALL[::3]


@pytest.mark.parametrize("scan", ["queue", "log"])
def test_all_rows_once_whatever_the_partitions(store, scan):
    files = StoreFiles(store)
    query = StoreQuery(topics=("T",), scan=scan, rows_per_partition=7)
    partitions = partitions_of(files, query)
    assert len(partitions) > OLD // 7
    reader = StoreReader(files, query, RowFormat(schema_of(["body"])))
    found = [
        int(row["body"]) for one in partitions for batch in reader.read(one) for row in batch.to_pylist()
    ]
    assert sorted(found) == ALL


def test_a_damaged_entry_is_missed_and_reading_goes_on_behind_it(store):
    first = StoreFiles(store).parts[-1]
    assert first.holds_entries
    changed(first.path, 0, bytes(20))
    with pytest.raises(RecordsLost):
        numbers(store, scan="log")
    found = numbers(store, scan="log", fail_on_data_loss=False)
    assert found[-1] == ALL[-1]
    assert len(ALL) - 3 <= len(found) < len(ALL)


def test_the_logs_of_two_nodes_in_one_store_are_refused(store):
    shutil.copytree(f"{store}/dledger-n0", f"{store}/dledger-n1")
    with pytest.raises(NoStore, match="several DLedger nodes"):
        rows(store)
