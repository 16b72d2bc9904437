"""A store directory read with no broker: by queue and by log, whole, torn, damaged, in use and old."""

import os
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.unit.pipelines.log.kit import bodies, changed, closed, log_files, numbered, opened, put, rows
from tests.unit.store.kit import HandClock, apache_store
from tests.unit.store.lab import HOST_V6, expected_of

import turbopump
from turbopump.pipelines.log import NoStore, NoSuchTopic, OffsetsGone, RecordsLost, read_log
from turbopump.pipelines.log.files import StoreFiles
from turbopump.pipelines.log.partitions import partitions_of
from turbopump.pipelines.log.plan import StoreQuery
from turbopump.pipelines.log.store_reader import RowFormat, StoreReader
from turbopump.pipelines.schema import BadColumn, schema_of
from turbopump.protocol import record as codec
from turbopump.protocol.compression import compress
from turbopump.protocol.sysflag import COMPRESSED

APACHE = ["4.9.7-clean", "4.9.7-kill9", "5.5.0-clean", "5.5.0-kill9"]
SCANS = ["queue", "log"]
both = pytest.mark.parametrize("scan", SCANS)


# what Apache wrote


@both
@pytest.mark.parametrize("name", APACHE)
def test_a_store_of_apaches_is_read_as_its_client_read_it(name, scan, tmp_path):
    """Its client could not read the topic of ended transactions of 4.9."""
    root = apache_store(name, tmp_path)
    found = read_log(root, system_topics=True, scan=scan, columns=ALL_COLUMNS).read_all().to_pylist()
    by_place = {row["commitLogOffset"]: row for row in found if "_OP_HALF_" not in row["topic"]}
    expected = [one for one in expected_of(name)["messages"] if "_OP_HALF_" not in one["topic"]]
    assert len(by_place) == len(expected)
    for message in expected:
        row = by_place[message["commitLogOffset"]]
        assert (row["topic"], row["queueId"], row["queueOffset"]) == (
            message["topic"],
            message["queueId"],
            message["queueOffset"],
        )
        assert dict(row["properties"]) == message["properties"]
        assert (row["flag"], row["storeSize"]) == (message["flag"], message["storeSize"])
        assert row["storeTimestamp"].timestamp() * 1000 == pytest.approx(message["storeTimestamp"], abs=0.5)


ALL_COLUMNS = [
    "topic",
    "queueId",
    "queueOffset",
    "commitLogOffset",
    "properties",
    "flag",
    "storeSize",
    "storeTimestamp",
    "body",
]


@pytest.mark.parametrize("name", APACHE)
def test_tags_and_keys_of_apaches_are_found(name, tmp_path):
    root = apache_store(name, tmp_path)
    for message in expected_of(name)["messages"]:
        if message["topic"].startswith(("RMQ_SYS", "rmq_sys", "SCHEDULE", "%")):
            continue
        place = {"columns": ["commitLogOffset"]}
        if tag := message["properties"].get("TAGS"):
            assert {"commitLogOffset": message["commitLogOffset"]} in rows(
                root, message["topic"], tags=tag, **place
            )
        for key in message["properties"].get("KEYS", "").split():
            assert {"commitLogOffset": message["commitLogOffset"]} in rows(
                root, message["topic"], key=key, **place
            )


# what is wanted


@pytest.fixture
def store(tmp_path):
    """40 messages a second apart in two queues of T, over several files, and some of other topics."""
    clock = HandClock(1_700_000_000_000)
    store = opened(tmp_path, clock)
    for number, body in enumerate(numbered(40)):
        clock.now = 1_700_000_000_000 + number * 1000
        tag, keys = "abc"[number % 3], f"k{number} even" if number % 2 == 0 else f"k{number}"
        put(store, "T", number % 2, body + bytes(200), key=f"U{number}", tag=tag, keys=keys)
    put(store, "U", body=b"of U")
    put(store, "%RETRY%g", body=b"again")
    put(store, "SCHEDULE_TOPIC_XXXX", body=b"later")
    closed(store)
    return tmp_path


def numbers(found):
    return sorted(int(body[:4]) for body in found)


@both
def test_all_messages_of_a_topic_in_their_order(store, scan):
    found = rows(store, "T", scan=scan)
    for queue_id in (0, 1):
        of_queue = [row for row in found if row["queueId"] == queue_id]
        assert [row["queueOffset"] for row in of_queue] == list(range(20))
        assert [int(row["body"][:4]) for row in of_queue] == list(range(queue_id, 40, 2))


def test_by_log_rows_come_as_they_were_stored(store):
    assert [int(body[:4]) for body in bodies(store, "T", scan="log")] == list(range(40))


@both
def test_the_brokers_own_topics_come_when_they_are_asked_for(store, scan):
    assert len(bodies(store, scan=scan)) == 41
    assert len(bodies(store, scan=scan, system_topics=True)) == 43
    assert bodies(store, "SCHEDULE_TOPIC_XXXX", "%RETRY%g", scan=scan) == [b"again", b"later"]
    assert len(bodies(store, scan=scan, pattern="[TS].*")) == 40


@both
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"queue": 1}, range(1, 40, 2)),
        ({"queue": [0, 1]}, range(40)),
        ({"since": 1_700_000_010_000, "until": 1_700_000_012_000}, [10, 11]),
        ({"since": datetime(2023, 11, 14, 22, 13, 58, tzinfo=UTC)}, [38, 39]),
        ({"until": datetime(2023, 11, 14, 22, 13, 21, tzinfo=UTC)}, [0]),
        ({"tags": "a"}, range(0, 40, 3)),
        ({"tags": ["a", "b"], "queue": 0}, [n for n in range(0, 40, 2) if n % 3 != 2]),
        ({"tags": "a || b", "queue": 0}, [n for n in range(0, 40, 2) if n % 3 != 2]),
        ({"tags": "*"}, range(40)),
        ({"key": "k7"}, [7]),
        ({"key": "even"}, range(0, 40, 2)),
        ({"key": "U11"}, [11]),
        ({"key": "none"}, []),
        ({"key": "even", "tags": "a", "since": 1_700_000_030_000}, [30, 36]),
    ],
)
def test_filters(store, scan, asked, expected):
    assert numbers(bodies(store, "T", scan=scan, **asked)) == list(expected)


def test_offsets(store):
    asked = {"starting_offsets": {"T": {"0": 5}}, "ending_offsets": {"T": {"0": 7, "1": 1}}}
    assert numbers(bodies(store, "T", **asked)) == [1, 10, 12]
    assert numbers(bodies(store, "T", ending_offsets={"T": {"broker-a": {"0": 1, "1": -2}}})) == [0]
    with pytest.raises(ValueError, match="scan=log"):
        bodies(store, "T", scan="log", **asked)


def test_a_key_is_looked_up_in_the_index_not_searched_for(store, monkeypatch):
    from turbopump.pipelines.log import store_reader

    looked_at = []
    real = store_reader.locate
    monkeypatch.setattr(
        store_reader, "locate", lambda data, starts: looked_at.extend(starts) or real(data, starts)
    )
    assert numbers(bodies(store, "T", key="k7")) == [7]
    assert len(looked_at) < 10


def test_a_key_is_found_without_an_index_too(store):
    shutil.rmtree(store / "index")
    assert numbers(bodies(store, "T", key="k7")) == [7]


def test_a_store_without_queues_is_read_by_its_log(store):
    """A backup has none."""
    shutil.rmtree(store / "consumequeue")
    assert numbers(bodies(store, "T")) == list(range(40))
    with pytest.raises(NoStore, match="scan=log"):
        bodies(store, "T", scan="queue")


@both
def test_a_topic_without_messages_has_no_rows(store, scan):
    (store / "consumequeue" / "Empty" / "0").mkdir(parents=True)
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text('{"topicConfigTable": {"New": {"topicName": "New"}}}')
    assert rows(store, "Empty", scan=scan) == rows(store, "New", scan=scan) == []


def test_what_was_asked_wrongly_is_told(store, tmp_path):
    with pytest.raises(NoSuchTopic, match="no topic 'Tx': did you mean T"):
        read_log(store, "Tx")
    with pytest.raises(NoStore, match="no commitlog/"):
        read_log(tmp_path / "elsewhere", "T")
    with pytest.raises(BadColumn, match="did you mean body"):
        read_log(store, "T", columns=["bodi"])
    with pytest.raises(ValueError, match="scan must be 'queue' or 'log', got 'all'"):
        read_log(store, "T", scan="all")


def test_a_data_directory_will_do(store, tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    shutil.copytree(store, data / "store")
    assert len(bodies(data, "T")) == 40


def test_a_copy_that_may_only_be_read_is_read(store):
    for directory, _, names in os.walk(store):
        for name in names:
            os.chmod(os.path.join(directory, name), 0o444)
    assert len(bodies(store, "T")) == len(bodies(store, "T", scan="log")) == 40
    assert numbers(bodies(store, "T", key="k7")) == [7]


# what is missing or torn


@both
def test_first_files_that_retention_removed_are_no_loss(store, scan):
    gone = log_files(store)[:2]
    for path in gone:
        os.remove(path)
    found = numbers(bodies(store, "T", scan=scan))
    assert 0 < len(found) < 40
    assert found == list(range(40 - len(found), 40))
    assert numbers(bodies(store, "T", scan=scan, key="even")) == [n for n in found if n % 2 == 0]


def test_offsets_that_retention_removed_are_an_error_unless_one_may_do_without(store):
    os.remove(log_files(store)[0])
    asked = {"starting_offsets": {"T": {"0": 0}}}
    with pytest.raises(OffsetsGone, match="failOnDataLoss=false"):
        bodies(store, "T", **asked)
    assert bodies(store, "T", fail_on_data_loss=False, **asked) == bodies(store, "T")


@both
def test_a_file_deleted_between_planning_and_reading_is_told_or_passed_over(store, scan):
    """In Spark the two are done by different processes."""
    query = StoreQuery(("T",), scan=scan)
    planned = partitions_of(StoreFiles(str(store)), query)
    os.remove(log_files(store)[1])
    with pytest.raises(RecordsLost, match="failOnDataLoss"):
        read_apart(store, query, planned)
    assert 0 < read_apart(store, replace(query, is_strict=False), planned) < 40


def read_apart(root, query, planned):
    reader = StoreReader(StoreFiles(str(root)), query, RowFormat(schema_of(["body"])))
    return sum(batch.num_rows for partition in planned for batch in reader.read(partition))


def last_record(root):
    """The last file of the log that has records; where its last record begins, and its size."""
    for path in reversed(log_files(root)):
        with open(path, "rb") as file:
            data = file.read()
        at, last = 0, None
        while (size := codec.measure(data, at, len(data), True)) > 0:
            last, at = (path, at, size), at + size
        if last:
            return last
    raise AssertionError("no record")


@both
@pytest.mark.parametrize("kept", [0, 4, 60, 200])
def test_a_torn_tail_is_not_read(tmp_path, scan, kept):
    store = opened(tmp_path)
    for body in numbered(9):
        put(store, body=body + b"x" * 200, key="a" * 8)
    closed(store)
    path, at, size = last_record(tmp_path)
    changed(path, at + kept, bytes(size - kept))
    found = numbers(bodies(tmp_path, "T", scan=scan))
    assert found == list(range(8))


@both
def test_a_log_file_cut_short_ends_the_log(tmp_path, scan):
    store = opened(tmp_path)
    for body in numbered(9):
        put(store, body=body + b"x" * 200, key="a" * 8)
    closed(store)
    path, at, size = last_record(tmp_path)
    os.truncate(path, at + size - 1)
    assert numbers(bodies(tmp_path, "T", scan=scan)) == list(range(8))


def test_entries_of_the_queue_that_point_nowhere_are_not_read(tmp_path):
    store = opened(tmp_path)
    for body in numbered(4):
        put(store, body=body)
    closed(store)
    changed(str(tmp_path / "consumequeue/T/0" / ("0" * 20)), 4 * 20, struct.pack(">qiq", 3000, 200, 0))
    assert numbers(bodies(tmp_path, "T")) == list(range(4))


@both
def test_damage_in_the_middle_is_told_or_passed_over(store, scan):
    path = log_files(store)[1]
    changed(path, 4, b"????")
    with pytest.raises(RecordsLost, match="store verify"):
        bodies(store, "T", scan=scan)
    assert len(bodies(store, "T", scan=scan, fail_on_data_loss=False)) == 39


@both
def test_a_store_in_use_is_read_as_it_was_when_reading_began(tmp_path, scan):
    store = opened(tmp_path)
    for body in numbered(30):
        put(store, body=body)
    asyncio_flush(store)
    reader = read_log(tmp_path, "T", scan=scan, batch_rows=7, columns=["body"])
    found = numbers(reader.read_next_batch().column(0).to_pylist())
    for body in numbered(30):
        put(store, body=body + b" later")
    asyncio_flush(store)
    found += numbers(body for batch in reader for body in batch.column(0).to_pylist())
    assert found == list(range(30))
    assert len(bodies(tmp_path, "T", scan=scan)) == 60
    closed(store)


def asyncio_flush(store):
    store.queues.write_out(len(store.queues.dirty))


def test_by_log_what_is_not_in_a_queue_yet_is_read_too(tmp_path):
    store = opened(tmp_path)
    for body in numbered(30):
        put(store, body=body)
    assert numbers(bodies(tmp_path, scan="log")) == list(range(30))
    closed(store)


# unusual records


@both
def test_unusual_records_are_rows_like_others(tmp_path, scan):
    long = "%RETRY%" + "g" * 200
    store = opened(tmp_path, commit_log_file_size=8 << 20)
    put(store, body=b"v6", born_host=HOST_V6)
    put(store, body=compress(b"packed"), sys_flag=COMPRESSED)
    put(store, long, body=b"long")
    put(store, body=bytes(4 << 20))
    store.log.append([draft_of(store, b"one"), draft_of(store, b"two")])
    closed(store)
    assert bodies(tmp_path, "T", scan=scan) == [b"v6", b"packed", bytes(4 << 20), b"one", b"two"]
    assert bodies(tmp_path, long, scan=scan) == [b"long"]


def draft_of(store, body):
    from tests.unit.store.lab import draft

    return draft(store.queues.queue("T", 0), body)


def test_a_queue_that_begins_with_blank_entries(tmp_path):
    store = opened(tmp_path)
    store.queues.queue("T", 0).skip_to(7)
    store.queues.queue("T", 0).next_offset = 7
    for body in numbered(3):
        put(store, body=body)
    closed(store)
    assert [row["queueOffset"] for row in rows(tmp_path, "T")] == [7, 8, 9]


def test_rows_in_kafkas_names(store):
    row = rows(store, "T", kafka_names=True, properties=True, queue=0)[0]
    assert (row["key"], row["topic"], row["partition"], row["offset"]) == (b"k0", "T", 0, 0)
    assert {"key": "TAGS", "value": b"a"} in row["headers"]


def test_turbopump_offers_it_and_says_what_to_install(store):
    assert turbopump.read_log is read_log
    assert turbopump.read_log(store, "T", queue=0, columns=["body"]).read_all().num_rows == 20
    code = "import sys; sys.modules['pyarrow'] = None; import turbopump; turbopump.read_log"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'turbopump[arrow]'" in done.stderr


def test_numpy_and_pyarrow_are_loaded_by_nobody_who_does_not_use_them():
    code = (
        "import sys, turbopump.cli.main, turbopump.pipelines\n"
        "from turbopump import *\n"
        "print({'numpy', 'pyarrow'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_file_of_a_queue_that_is_missing_in_between_is_a_loss_wherever_one_looks(tmp_path):
    store = opened(tmp_path)
    for body in numbered(50):
        put(store, body=body)
    closed(store)
    queue = tmp_path / "consumequeue" / "T" / "0"
    for name in sorted(os.listdir(queue))[1:4]:
        (queue / name).rename(tmp_path / "away")
        with pytest.raises(RecordsLost, match="entries from offset"):
            rows(tmp_path, "T", scan="queue")
        assert len(rows(tmp_path, "T", scan="queue", fail_on_data_loss=False)) == 40
        (tmp_path / "away").rename(queue / name)


def test_entries_that_are_lost_or_of_another_queue_give_nobody_elses_messages(tmp_path):
    """Zeros point to the first record of the log, which has the first offset, too: that of another queue."""
    store = opened(tmp_path)
    for body in numbered(24):
        put(store, "U", body=body)
        put(store, "T", body=body)
        put(store, "T", 1, body=body)
    closed(store)
    zero, one = (tmp_path / "consumequeue" / "T" / queue / f"{0:020}" for queue in ("0", "1"))
    for damaged in (bytes(200), one.read_bytes()):
        zero.write_bytes(damaged)
        with pytest.raises(RecordsLost, match="T/0"):
            rows(tmp_path, "T", scan="queue")
        found = rows(tmp_path, "T", scan="queue", queue=0, fail_on_data_loss=False)
        assert [(row["topic"], row["queueId"]) for row in found] == [("T", 0)] * 14
