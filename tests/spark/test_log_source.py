"""Format `rocketmq-log` in a real Spark, on stores that Apache's brokers and ours wrote."""

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from tests.interop import peers
from tests.unit.pipelines.log.dledger_kit import NEW, OLD, switched_store
from tests.unit.pipelines.log.kit import closed, log_files, numbered, opened, put
from tests.unit.store.dledger.golden_kit import answers, dledger_store
from tests.unit.store.kit import HandClock, apache_store
from tests.unit.store.lab import expected_of

from turbopump import Message, Producer
from turbopump.pipelines.schema import KAFKA_COLUMNS

START = 1_700_000_000_000
BEGIN = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """60 messages a second apart in two queues of T, over several files, and one of another topic."""
    root = tmp_path_factory.mktemp("store")
    clock = HandClock(START)
    store = opened(root, clock)
    for number, body in enumerate(numbered(60)):
        clock.now = START + number * 1000
        put(store, "T", number % 2, body, key=f"U{number}", tag="abc"[number % 3], keys=f"k{number}")
    put(store, "Other", body=b"9999")
    closed(store)
    return str(root)


def log(spark, path, **options):
    return spark.read.format("rocketmq-log").options(**options).load(str(path))


def numbers(frame):
    return sorted(int(bytes(row.body)[:4]) for row in frame.collect())


@pytest.mark.parametrize("scan", ["queue", "log"])
@pytest.mark.parametrize("name", ["4.9.7-clean", "4.9.7-kill9", "5.5.0-clean", "5.5.0-kill9"])
def test_a_store_of_apaches_is_read_as_its_client_read_it(spark, name, scan, tmp_path):
    options = {"includeSystemTopics": "true", "includeProperties": "true", "scan": scan}
    found = log(spark, apache_store(name, tmp_path), **options).collect()
    rows = {(row.topic, row.queueId, row.queueOffset): row for row in found}
    for message in expected_of(name)["messages"]:
        row = rows[message["topic"], message["queueId"], message["queueOffset"]]
        assert row.properties == message["properties"]
        assert row.tags == message["properties"].get("TAGS")


@pytest.mark.parametrize("scan", ["queue", "log"])
def test_the_store_of_a_dledger_node_of_apaches_is_read(spark, scan, tmp_path):
    found = log(spark, dledger_store("n0", tmp_path), scan=scan).collect()
    bodies = {(f"{row.topic}/{row.queueId}", row.queueOffset): bytes(row.body) for row in found}
    for place, messages in answers().items():
        for message in messages:
            body = bodies[place, message["queueOffset"]]
            assert hashlib.sha256(body).hexdigest() == message["bodySha256"]


@pytest.mark.parametrize("scan", ["queue", "log"])
def test_a_store_that_was_switched_over_to_dledger_is_read_up_to_what_is_committed(spark, scan, tmp_path):
    root = switched_store(tmp_path / "store")
    frame = log(spark, root, topic="T", scan=scan, maxRecordsPerPartition="7")
    assert frame.rdd.getNumPartitions() > 6
    assert numbers(frame) == list(range(OLD + NEW))
    assert numbers(frame.where("tags = 'a' and queueId = 0")) == list(range(0, OLD + NEW, 6))


@pytest.mark.parametrize("scan", ["queue", "log"])
def test_all_rows_once_whatever_the_partitions(spark, store, scan):
    frame = log(spark, store, topic="T", scan=scan, maxRecordsPerPartition="7", arrowBatchRows="3")
    assert frame.rdd.getNumPartitions() > 6
    assert numbers(frame) == list(range(60))


def test_columns_are_those_that_are_asked_for(spark, store):
    assert log(spark, store, columns="body,tags").columns == ["body", "tags"]
    frame = log(spark, store, topic="T", kafkaCompat="true", includeHeaders="true")
    assert frame.columns == [column.name for column in KAFKA_COLUMNS]
    row = frame.where("offset = 3 and partition = 0").head()
    assert (bytes(row.key), row.timestamp.replace(tzinfo=UTC)) == (b"k6", BEGIN + timedelta(seconds=6))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"queue": "1"}, range(1, 60, 2)),
        ({"startingTimestamp": str(START + 10_000), "endingTimestamp": "2023-11-14T22:13:32Z"}, [10, 11]),
        ({"startingOffsets": '{"T":{"0":28}}', "queue": "0"}, [56, 58]),
        ({"tags": "b || c"}, [n for n in range(60) if n % 3]),
        ({"key": "k31"}, [31]),
    ],
)
def test_filters_by_option(spark, store, options, expected):
    assert numbers(log(spark, store, topic="T", **options)) == list(expected)


CONDITIONS = {
    "topic = 'T'": range(60),
    "topic in ('Other', 'None')": [9999],
    "topic = 'None'": [],
    "queueId = 1 and topic = 'T'": range(1, 60, 2),
    "queueOffset >= 28 and queueOffset < 29": [56, 57],
    "queueOffset in (0, 29) and topic = 'T'": [0, 1, 58, 59],
    "storeTimestamp > timestamp'2023-11-14 22:13:30' and storeTimestamp <= timestamp'2023-11-14 22:13:32'": [
        11,
        12,
    ],
    "tags = 'a' and queueOffset < 3": [0, 3],
    "tags in ('a', 'b') and queueOffset < 2": [0, 1, 3],
    "keys = 'k33'": [33],
    "keys = 'k33' or tags = 'nothing'": [33],
    "topic <> 'T'": [9999],
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_are_taken_over_where_the_api_allows(spark, store, condition):
    expected = sorted(CONDITIONS[condition])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert numbers(log(spark, store, pushFilters="true").where(condition)) == expected
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_condition_that_is_taken_over_spares_reading(store):
    from pyspark.sql.datasource import EqualTo, GreaterThan, IsNotNull

    from turbopump.pipelines.log.plan import StoreQuery
    from turbopump.pipelines.log_source import narrowed_by

    query = narrowed_by(StoreQuery(), EqualTo(("topic",), "T"))
    assert query.among == {"T"}
    assert narrowed_by(query, EqualTo(("topic",), "U")).among == frozenset()
    assert narrowed_by(StoreQuery(since_ms=START), GreaterThan(("storeTimestamp",), BEGIN)).since_ms == START
    assert narrowed_by(StoreQuery(), IsNotNull(("topic",))) == StoreQuery()
    assert narrowed_by(StoreQuery(), EqualTo(("keys",), "two words")) == StoreQuery()


def test_an_empty_topic_is_an_empty_frame(spark, tmp_path):
    store = opened(tmp_path)
    store.queues.queue("T", 0)
    put(store, "Other")
    closed(store)
    (tmp_path / "consumequeue" / "Empty" / "0").mkdir(parents=True)
    assert log(spark, tmp_path, topic="Empty").collect() == []


def test_a_table_in_sql(spark, store):
    spark.sql(f"create temporary view orders using `rocketmq-log` options (path '{store}', topic 'T')")
    (row,) = spark.sql("select count(*) as n, count(distinct tags) as tags from orders").collect()
    assert (row.n, row.tags) == (60, 3)


def test_what_is_wrong_is_told_when_the_query_is_planned(spark, store, tmp_path):
    for options, told in [({"topik": "T"}, "did you mean topic"), ({"topic": "Tx"}, "no topic 'Tx'")]:
        with pytest.raises(Exception, match=told):
            log(spark, store, **options).collect()
    with pytest.raises(Exception, match="not a store"):
        log(spark, tmp_path).collect()


def test_loss_is_an_error_unless_one_may_do_without(spark, tmp_path):
    store = opened(tmp_path)
    for body in numbered(60):
        put(store, body=body)
    closed(store)
    with open(log_files(tmp_path)[1], "r+b") as file:
        file.write(b"????????")
    with pytest.raises(Exception, match="failOnDataLoss"):
        log(spark, tmp_path, topic="T").collect()
    assert log(spark, tmp_path, topic="T", failOnDataLoss="false").count() == 59


@pytest.mark.parametrize("kind", [peers.OURS, "4.9.7", "5.5.0"])
def test_a_broker_that_runs_is_read_beside_it(spark, start, kind):
    cluster = start(kind)
    with Producer("g", name_servers=cluster.namesrv) as producer:
        for body in numbered(100):
            producer.send(Message("T", body, tags="t", keys="k"))
    found = log(spark, cluster.store_dir, topic="T", scan="log")
    assert numbers(found) == list(range(100))
    cluster.stop()
    assert numbers(log(spark, cluster.store_dir, topic="T", scan="queue")) == list(range(100))
