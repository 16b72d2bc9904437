"""Topics with `queue.type=BatchCQ`: a row for each message of a batch, by queue and by log alike."""

import os
import shutil
from itertools import groupby
from pathlib import Path

import pytest
from tests.unit.pipelines.log.kit import changed, closed, log_files, opened, rows
from tests.unit.store.kit import apache_store
from tests.unit.store.queue_kinds_kit import TOPICS, batch_of, fill_batches

from turbopump.pipelines import inner_batches
from turbopump.pipelines.log import OffsetsGone, RecordsLost
from turbopump.pipelines.log.files import StoreFiles
from turbopump.pipelines.log.partitions import partitions_of
from turbopump.pipelines.log.plan import StoreQuery
from turbopump.pipelines.log.store_reader import RowFormat, StoreReader
from turbopump.pipelines.schema import schema_of
from turbopump.protocol import batch

UNIT, FIRST_OFFSET_AT, COMPACTED_AT = 46, 28, 38


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_bytes(TOPICS)
    store = opened(tmp_path, batch_queue_file_size=46 * 3)
    fill_batches(store)
    closed(store)
    return tmp_path


def by_place(found: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(found, key=lambda row: (row["queueId"], row["queueOffset"]))


@pytest.mark.parametrize("name", ["5.5.0-queues-clean", "5.5.0-queues-kill9"])
def test_what_apache_kept_in_batches_is_the_same_by_queue_and_by_log(name, tmp_path):
    root = apache_store(name, tmp_path)
    everything = {"properties": True, "broker": "b"}
    by_queue = rows(root, "Batches", scan="queue", **everything)
    assert by_queue == by_place(by_queue)
    assert by_queue == by_place(rows(root, "Batches", scan="log", **everything))
    for _, queue in groupby(by_queue, lambda row: row["queueId"]):
        offsets = [row["queueOffset"] for row in queue]
        assert offsets == list(range(len(offsets)))
    records = {row["commitLogOffset"] for row in rows(root, "Batches", columns=["commitLogOffset"])}
    assert 0 < len(records) < len(by_queue)
    assert by_place(rows(root, "Batches")) == by_place(rows(root, "Batches", scan="queue"))


def test_offsets_inside_a_batch_are_honoured(root):
    whole = rows(root, "B", scan="queue")
    assert [row["queueOffset"] for row in whole] == list(range(len(whole)))
    for begin in range(len(whole) + 1):
        for end in range(begin, len(whole) + 1):
            asked = {"starting_offsets": {"B": {0: begin}}, "ending_offsets": {"B": {0: end}}}
            assert rows(root, "B", scan="queue", **asked) == whole[begin:end]


@pytest.mark.parametrize("most", [1, 2, 4, 100])
def test_pieces_of_a_queue_have_every_message_once(root, most):
    files, query = StoreFiles(str(root)), StoreQuery(("B",), scan="queue", rows_per_partition=most)
    reader = StoreReader(files, query, RowFormat(schema_of(["queueOffset"]), batch_rows=2))
    found = [
        offset
        for partition in partitions_of(files, query)
        for one in reader.read(partition)
        for offset in one.column(0).to_pylist()
    ]
    assert sorted(found) == list(range(len(rows(root, "B", scan="log"))))


def test_tags_and_times_are_of_each_message(tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_bytes(TOPICS)
    store = opened(tmp_path)
    for number in range(3):
        one = batch_of(store, b"x%d" % number, b"y%d" % number)
        one.body = batch.join([(0, b"x%d" % number, b"TAGS\x01odd\x02"), (0, b"y%d" % number, b"")])
        store.log.append([one])
    closed(store)
    for scan in ("queue", "log"):
        assert [row["body"] for row in rows(tmp_path, "B", scan=scan, tags="odd")] == [b"x0", b"x1", b"x2"]
    last = rows(tmp_path, "B")[-1]["storeTimestamp"]
    assert rows(tmp_path, "B", scan="queue", since=last) == rows(tmp_path, "B", scan="log", since=last)


def test_what_is_missing_is_an_error_unless_it_may_be(root):
    whole = rows(root, "B", scan="queue")
    second = sorted({row["commitLogOffset"] for row in rows(root, "B", columns=["commitLogOffset"])})[1]
    changed(log_files(root)[0], second + 4, b"\0\0\0\0")
    with pytest.raises(RecordsLost, match="B/0: messages after offset 0"):
        rows(root, "B", scan="queue")
    rest = rows(root, "B", scan="queue", fail_on_data_loss=False)
    assert rest == [row for row in whole if row in rest]
    assert 0 < len(rest) < len(whole)


def test_first_files_that_retention_removed_are_no_loss_and_one_in_the_middle_is(root, tmp_path):
    queue = root / "batchconsumequeue" / "B" / "0"
    first, middle, *_ = sorted(os.listdir(queue))
    whole = rows(root, "B", scan="queue")
    shutil.move(queue / middle, tmp_path / "away")
    with pytest.raises(RecordsLost, match="entries from offset"):
        rows(root, "B", scan="queue")
    shutil.move(tmp_path / "away", queue / middle)
    (queue / first).unlink()
    rest = rows(root, "B", scan="queue")
    assert 0 < len(rest) < len(whole)
    assert rest == whole[-len(rest) :]
    with pytest.raises(OffsetsGone, match="failOnDataLoss=false"):
        rows(root, "B", scan="queue", starting_offsets={"B": {0: 0}})


def test_a_first_entry_that_is_all_wrong_hides_no_message(root):
    first = min((root / "batchconsumequeue" / "B" / "0").iterdir())
    changed(str(first), 4, b"\xff")  # of the offset in the log
    changed(str(first), 32, b"\xff")  # of the first message
    with pytest.raises(RecordsLost, match="B/0"):
        rows(root, "B", scan="queue")
    assert len(rows(root, "B", scan="queue", fail_on_data_loss=False)) > 0


def test_large_batches_are_taken_apart_a_few_at_a_time(root, monkeypatch):
    whole = rows(root, "B")
    monkeypatch.setattr(inner_batches, "MAX_BYTES_PER_TURN", 1)
    assert rows(root, "B", scan="queue") == rows(root, "B", scan="log") == whole


@pytest.mark.parametrize("strict", [True, False])
def test_a_damaged_entry_never_adds_a_row_and_never_costs_one_unsaid(root, strict):
    """A wrong last entry is taken for what a crash left, as in other queues; one that points before the log
    for what retention left.
    """
    whole = rows(root, "B", scan="queue")
    last = whole[-1]
    for path in sorted((root / "batchconsumequeue" / "B" / "0").iterdir()):
        good = path.read_bytes()
        for at in range(0, len(good), 5):
            path.write_bytes(good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
            try:
                found = rows(root, "B", scan="queue", fail_on_data_loss=strict)
            except RecordsLost:
                assert strict
                continue
            assert found == [row for row in whole if row in found]
            is_read = at % UNIT in range(FIRST_OFFSET_AT, COMPACTED_AT)
            assert not (strict and is_read) or found in (whole, whole[: last["queueOffset"]]), (path, at)
        path.write_bytes(good)


def test_an_entry_that_names_the_record_of_another_file_of_the_queue_gives_no_row_twice(root):
    first, *_, last = sorted((root / "batchconsumequeue" / "B" / "0").iterdir())
    changed(str(first), UNIT, last.read_bytes()[:UNIT])
    with pytest.raises(RecordsLost, match="B/0"):
        rows(root, "B", scan="queue")
    offsets = [row["queueOffset"] for row in rows(root, "B", scan="queue", fail_on_data_loss=False)]
    assert len(set(offsets)) == len(offsets) > 0


def test_an_entry_that_points_into_a_record_makes_no_plan_without_end(root):
    """What lies there is no offset, and the number of messages before the next one is none."""
    first = min((root / "batchconsumequeue" / "B" / "0").iterdir())
    whole = rows(root, "B", scan="queue")
    for at in range(1, 60):
        changed(str(first), 0, at.to_bytes(8, "big"))
        for scan in ("queue", "log"):
            query = StoreQuery(("B",), scan=scan, rows_per_partition=1)
            assert len(partitions_of(StoreFiles(str(root)), query)) <= len(whole), (at, scan)
        with pytest.raises(RecordsLost, match="B/0: messages after offset 0"):
            rows(root, "B", scan="queue")
        assert rows(root, "B", scan="queue", fail_on_data_loss=False) == whole[1:]
