"""Topics in Delta tables: files first, one commit then, whatever is killed in between."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime, timedelta

import pytest

pytest.importorskip("deltalake")  # with PySpark; make test-spark has both

import pyarrow as pa
import pyarrow.parquet
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError

from turbopump.pipelines import lake
from turbopump.pipelines.lake import files, table
from turbopump.pipelines.options import BadOption

TIME = pa.timestamp("us", tz="Europe/Berlin")
BY = ("topic", "date")


def batch(first: int, count: int = 4, topic: str = "A") -> pa.RecordBatch:
    return pa.record_batch(
        {
            "topic": pa.array([topic] * count),
            "date": pa.array([date(2026, 1, 1 + number % 2) for number in range(count)]),
            "brokerName": pa.array(["b"] * count),
            "queueId": pa.array([0] * count, pa.int32()),
            "queueOffset": pa.array(range(first, first + count), pa.int64()),
            "body": pa.array([str(number).encode() for number in range(first, first + count)]),
            "storeTimestamp": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * count, TIME),
            "properties": pa.array([[("a", "b")]] * count, pa.map_(pa.string(), pa.string())),
        }
    )


def bodies(path) -> Counter[bytes]:
    return Counter(DeltaTable(str(path)).to_pyarrow_table().column("body").to_pylist())


def numbers(count: int) -> Counter[bytes]:
    return Counter(str(number).encode() for number in range(count))


def write(path, first: int, token: str) -> files.WrittenFiles:
    return files.write(str(path), BY, token, [batch(first)])


def test_rows_are_there_once_by_partition_with_their_offsets(tmp_path):
    written = [write(tmp_path, 0, "x"), write(tmp_path, 4, "y")]
    assert table.commit(str(tmp_path), BY, written, "q", 0)
    assert bodies(tmp_path) == numbers(8)
    found = DeltaTable(str(tmp_path))
    assert found.metadata().partition_columns == ["topic", "date"]
    assert found.to_pyarrow_table(filters=[("date", "=", date(2026, 1, 2))]).num_rows == 4
    assert lake.offsets(str(tmp_path)) == {"A": {"b": {"0": 8}}}
    assert found.transaction_version("rmq:q") == 0


def test_a_batch_that_comes_again_is_recognised(tmp_path):
    for number, first in ((0, 0), (1, 4)):
        assert table.commit(str(tmp_path), BY, [write(tmp_path, first, f"first-{number}")], "q", number)
        assert not table.commit(str(tmp_path), BY, [write(tmp_path, first, f"again-{number}")], "q", number)
    assert not table.commit(str(tmp_path), BY, [write(tmp_path, 0, "late")], "q", 0)
    assert bodies(tmp_path) == numbers(8)


def test_of_two_drivers_that_commit_one_batch_the_first_counts(tmp_path, monkeypatch):
    """The zombie looked before the other one had committed."""
    table.commit(str(tmp_path), BY, [write(tmp_path, 0, "begin")], "q", 0)
    late, taken = write(tmp_path, 4, "late"), write(tmp_path, 4, "taken")
    append, calls = table._write, []

    def overtaken(*given) -> None:
        calls.append(given)
        if len(calls) == 1:
            table.commit(str(tmp_path), BY, [taken], "q", 1)
        append(*given)

    monkeypatch.setattr(table, "_write", overtaken)
    assert not table.commit(str(tmp_path), BY, [late], "q", 1)
    assert bodies(tmp_path) == numbers(8)


def test_delta_refuses_a_transaction_that_another_one_has_overtaken(tmp_path):
    """What the test above rests on."""
    table.commit(str(tmp_path), BY, [write(tmp_path, 0, "begin")], "q", 0)
    old = DeltaTable(str(tmp_path))
    table.commit(str(tmp_path), BY, [write(tmp_path, 4, "x")], "q", 1)
    properties = CommitProperties(app_transactions=[Transaction("rmq:q", 1)])
    with pytest.raises(CommitFailedError):
        old.create_write_transaction(
            [], mode="append", schema=old.schema(), partition_by=list(BY), commit_properties=properties
        )


def test_a_batch_without_rows_changes_nothing(tmp_path):
    assert table.commit(str(tmp_path), BY, [files.write(str(tmp_path), BY, "x", [])], "q", 0)
    assert not DeltaTable.is_deltatable(str(tmp_path))


def test_another_table_is_not_written_to(tmp_path):
    table.commit(str(tmp_path), BY, [write(tmp_path, 0, "x")], "q", 0)
    other = files.write(str(tmp_path), BY, "y", [batch(4).drop_columns(["body"])])
    with pytest.raises(lake.OtherTable, match="differs in body: select its columns, or give another path"):
        table.commit(str(tmp_path), BY, [other], "q", 1)
    with pytest.raises(lake.OtherTable, match="has partitionBy='topic,date', not 'topic'"):
        table.commit(str(tmp_path), ("topic",), [write(tmp_path, 4, "z")], "q", 1)


def test_topics_with_odd_names_and_rows_without_a_partition_are_kept(tmp_path):
    odd = batch(0, 2, "%DLQ%a|b")
    none = batch(2, 2).set_column(0, "topic", pa.nulls(2, pa.string()))
    table.commit(str(tmp_path), BY, [files.write(str(tmp_path), BY, "x", [odd, none])], "q", 0)
    topics = DeltaTable(str(tmp_path)).to_pyarrow_table().column("topic").to_pylist()
    assert Counter(topics) == {"%DLQ%a|b": 2, None: 2}


def test_other_readers_find_the_values_of_every_kind_of_partition(tmp_path):
    """Polars takes them from the names of folders."""
    polars = pytest.importorskip("polars")
    moment = datetime(2026, 1, 1, 10, 0, 0, 123456, tzinfo=UTC)
    values = {
        "topic": pa.array(["%DLQ%a|b", "ä b=c/d", None]),
        "time": pa.array([moment, None, moment.replace(microsecond=0)], TIME),
        "flag": pa.array([True, False, None]),
        "number": pa.array([-1, 0, None], pa.int32()),
        "body": pa.array([b"0", b"1", b"2"]),
    }
    rows, by = pa.record_batch(values), ("topic", "time", "flag", "number")
    table.commit(str(tmp_path), by, [files.write(str(tmp_path), by, "x", [rows])], "q", 0)
    wanted = sorted(files.in_utc(rows).to_pylist(), key=lambda row: row["body"])
    for found in (polars.read_delta(str(tmp_path)), DeltaTable(str(tmp_path)).to_pyarrow_table()):
        rows_found = found.to_dicts() if hasattr(found, "to_dicts") else found.to_pylist()
        assert sorted(rows_found, key=lambda row: row["body"]) == [
            {name: row[name] for name in rows_found[0]} for row in wanted
        ]


def test_an_empty_partition_value_is_refused(tmp_path):
    with pytest.raises(files.BadPartition, match="NULLIF"):
        files.write(str(tmp_path), BY, "x", [batch(0, topic="")])


def test_columns_are_added_where_that_is_asked_for(tmp_path):
    table.commit(str(tmp_path), BY, [write(tmp_path, 0, "x")], "q", 0)
    more = batch(4).append_column("extra", pa.array([1, 2, 3, 4])).drop_columns(["brokerName"])
    with pytest.raises(lake.OtherTable, match="mergeSchema=true adds columns"):
        table.commit(str(tmp_path), BY, [files.write(str(tmp_path), BY, "y", [more])], "q", 1)
    for number in (1, 2):
        part = files.write(str(tmp_path), BY, f"z{number}", [more])
        assert table.commit(str(tmp_path), BY, [part], "q", number, table.WriteMode(merge_schema=True))
    found = DeltaTable(str(tmp_path)).to_pyarrow_table()
    assert sorted(found.column("extra").to_pylist(), key=str) == [1, 1, 2, 2, 3, 3, 4, 4] + [None] * 4
    other = batch(4).set_column(5, "body", pa.array([1, 2, 3, 4]))
    part = files.write(str(tmp_path), BY, "w", [other])
    with pytest.raises(lake.OtherTable, match=r"differs in body: select its columns, or give another path$"):
        table.commit(str(tmp_path), BY, [part], "q", 3, table.WriteMode(merge_schema=True))


def test_rows_take_the_place_of_others_once(tmp_path):
    table.commit(str(tmp_path), BY, [write(tmp_path, 0, "x")], "q", 0)
    over = table.WriteMode(overwrite=True)
    assert table.commit(str(tmp_path), BY, [write(tmp_path, 4, "y")], "q", 1, over)
    assert not table.commit(str(tmp_path), BY, [write(tmp_path, 8, "z")], "q", 1, over)
    assert bodies(tmp_path) == numbers(8) - numbers(4)
    less = files.write(str(tmp_path), BY, "w", [batch(8).drop_columns(["properties"])])
    with pytest.raises(lake.OtherTable, match="differs in properties"):
        table.commit(str(tmp_path), BY, [less], "q", 2, over)
    assert table.commit(
        str(tmp_path), BY, [less], "q", 2, table.WriteMode(overwrite=True, overwrite_schema=True)
    )
    assert "properties" not in DeltaTable(str(tmp_path)).to_pyarrow_table().column_names
    assert table.commit(str(tmp_path), BY, [], "q", 3, over, batch(0).drop_columns(["properties"]).schema)
    assert not bodies(tmp_path)


def test_a_column_of_another_writer_that_is_not_null_stays_so(tmp_path):
    required = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("body", pa.string())])
    DeltaTable.create(str(tmp_path), required)
    good = pa.record_batch({"id": [1, 2], "body": ["a", None]})
    assert table.commit(str(tmp_path), (), [files.write(str(tmp_path), (), "x", [good])], "q", 0)
    bad = pa.record_batch({"id": [3, None], "body": ["a", "b"]})
    with pytest.raises(lake.OtherTable, match=r"column id .* is NOT NULL, and 1 rows have no value"):
        table.commit(str(tmp_path), (), [files.write(str(tmp_path), (), "y", [bad])], "q", 1)
    part = files.write(str(tmp_path), (), "z", [pa.record_batch({"body": ["a", "b"]})])
    with pytest.raises(lake.OtherTable, match=r"column id .* is NOT NULL, and 2 rows"):
        table.commit(str(tmp_path), (), [part], "q", 1, table.WriteMode(merge_schema=True))


def test_compaction_leaves_the_rows_and_takes_what_nobody_committed(tmp_path):
    for number in range(5):
        table.commit(str(tmp_path), BY, [write(tmp_path, number * 4, f"x{number}")], "q", number)
    write(tmp_path, 0, "orphan")
    figures = lake.compact(str(tmp_path), keep=timedelta(0))
    assert bodies(tmp_path) == numbers(20)
    assert figures["numFilesAdded"] == 2
    assert not list(tmp_path.glob("**/*orphan*"))
    assert len(list(tmp_path.glob("topic=A/**/*.parquet"))) == 2
    assert not table.commit(str(tmp_path), BY, [write(tmp_path, 0, "again")], "q", 4)
    assert lake.offsets(str(tmp_path)) == {"A": {"b": {"0": 20}}}


def test_few_files_are_open_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_OPEN_FILES", 1)
    written = files.write(str(tmp_path), BY, "x", [batch(0), batch(4)])
    assert len(written.files) == 4
    table.commit(str(tmp_path), BY, [written], "q", 0)
    assert bodies(tmp_path) == numbers(8)


def test_wrong_options_are_named():
    from turbopump.pipelines.lake.spark import lake_of

    assert lake_of({"path": "/x"}, ["topic", "body", "hour"], False).partition_by == ("topic", "hour")
    with pytest.raises(BadOption, match="partitionBy names day"):
        lake_of({"path": "/x", "partitionBy": "day"}, ["topic", "body"], False)
    with pytest.raises(BadOption, match="path is missing"):
        lake_of({}, ["body"], False)
    with pytest.raises(BadOption, match="nothing is left"):
        lake_of({"path": "/x", "partitionBy": "body"}, ["body"], False)
    with pytest.raises(BadOption, match=r"mode\('overwrite'\); mergeSchema adds columns"):
        lake_of({"path": "/x", "overwriteSchema": "true"}, ["body"], False)
    with pytest.raises(BadOption, match="give transactionalId too"):
        lake_of({"path": "/x", "txnVersion": "1"}, ["body"], False)


# --- in Spark --------------------------------------------------------------------------------------------


def rows(spark, count: int = 40):
    moment = (
        "TIMESTAMP '2026-01-01 10:00:00' + MAKE_INTERVAL(0, 0, 0, 0, CAST(id % 3 AS INT)) AS storeTimestamp"
    )
    return spark.range(0, count, 1, 2).selectExpr("CAST(id AS STRING) AS body", "'T' AS topic", moment)


def test_a_batch_of_spark_is_a_table_by_topic_date_and_hour(spark, tmp_path):
    lake.to_delta(rows(spark), str(tmp_path / "table")).save()
    found = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert found.num_rows == 40
    assert set(found.column("hour").to_pylist()) == {10, 11, 12}
    assert set(found.column("date").to_pylist()) == {date(2026, 1, 1)}


def test_a_batch_with_an_id_and_a_version_is_there_once_however_often_it_runs(spark, tmp_path):
    for _ in range(2):
        writer = lake.to_delta(rows(spark), str(tmp_path / "table")).option("transactionalId", "import-1")
        writer.option("txnVersion", 3).save()
    assert DeltaTable(str(tmp_path / "table")).to_pyarrow_table().num_rows == 40


def test_a_second_batch_under_one_id_without_a_version_is_refused(spark, tmp_path):
    writer = lake.to_delta(rows(spark), str(tmp_path / "table")).option("transactionalId", "import-1")
    writer.save()
    with pytest.raises(Exception, match=r"already written a batch .* option txnVersion"):
        writer.save()
    assert DeltaTable(str(tmp_path / "table")).to_pyarrow_table().num_rows == 40


def test_foreach_batch_with_one_id_keeps_every_row_once(spark, tmp_path):
    """Each micro-batch is written twice, as after a restart between write and checkpoint."""
    path = str(tmp_path / "table")
    for number in range(4):
        spark.range(number * 250, number * 250 + 250, 1, 1).write.json(f"{tmp_path}/in/{number}")

    def write(frame, batch: int) -> None:
        for _ in range(2):
            writer = frame.write.format("rocketmq-delta").mode("append").option("transactionalId", "orders")
            writer.option("txnVersion", batch).save(path)

    frames = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", 1).json(f"{tmp_path}/in/*")
    stream = frames.writeStream.foreachBatch(write).option("checkpointLocation", f"{tmp_path}/checkpoint")
    stream.trigger(availableNow=True).start().awaitTermination()
    found = DeltaTable(path).to_pyarrow_table().column("id").to_pylist()
    assert sorted(found) == list(range(1000))


def test_a_batch_that_is_passed_over_leaves_a_warning_with_its_rows(tmp_path, caplog):
    for _ in range(2):
        table.commit(str(tmp_path), BY, [write(tmp_path, 0, "x")], "q", 2)
    assert "Skipping 4 rows of batch 2 of q" in caplog.text
    with pytest.raises(table.AlreadyWritten, match="txnVersion"):
        table.commit(str(tmp_path), BY, [write(tmp_path, 4, "y")], "q", 0, table.WriteMode(may_repeat=False))


def test_parquet_has_the_same_partitions(spark, tmp_path):
    lake.to_parquet(rows(spark), str(tmp_path / "files")).save()
    assert spark.read.parquet(str(tmp_path / "files")).count() == 40
    assert {path.name for path in (tmp_path / "files" / "topic=T" / "date=2026-01-01").iterdir()} == {
        "hour=10",
        "hour=11",
        "hour=12",
    }


def test_the_offsets_of_a_commit_are_json(tmp_path):
    table.commit(str(tmp_path), BY, [write(tmp_path, 0, "x")], "q", 0)
    (last, *_) = DeltaTable(str(tmp_path)).history()
    assert json.loads(last["rocketmq.offsets"]) == {"A": {"b": {"0": 4}}}


def test_rows_of_every_type_are_read_back_null_or_not(spark, tmp_path):
    frame = spark.sql(
        "SELECT id, array(1, 2) a, map('x', 1) m, struct(1 AS q, array(named_struct('w', id)) AS r) s, "
        "TIMESTAMP '2026-01-01 10:00:00.5' t, TIMESTAMP_NTZ '2026-01-01' n, CAST(1.5 AS DECIMAL(10, 2)) d, "
        "id > 1 b, DATE '2026-01-01' dt, X'00' bi, IF(id = 1, NULL, 'x') k FROM RANGE(3)"
    )
    path = str(tmp_path / "table")
    frame.write.format("rocketmq-delta").mode("append").option("partitionBy", "t,b").save(path)
    read = spark.read.format("rocketmq-delta")
    columns = frame.columns
    assert sorted(read.load(path).select(columns).collect()) == sorted(frame.collect())
    required = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    DeltaTable.create(str(tmp_path / "required"), required)
    frame.select("id").write.format("rocketmq-delta").mode("append").save(str(tmp_path / "required"))
    again = read.load(str(tmp_path / "required"))
    assert not again.schema["id"].nullable
    assert sorted(row.id for row in again.collect()) == [0, 1, 2]


def test_files_that_have_no_row_for_a_condition_are_not_opened(spark, tmp_path):
    """All files but those that are needed are broken."""
    path = tmp_path / "table"
    days = spark.range(0, 40, 1, 4).selectExpr(
        "id AS number",
        "CONCAT('k', id DIV 10) AS key",
        "DATE_ADD(DATE '2026-01-01', CAST(id % 2 AS INT)) AS date",
        "TIMESTAMP_SECONDS(id DIV 10 * 86400) AS time",
    )
    days.write.format("rocketmq-delta").mode("append").save(str(path))
    parts = sorted(path.glob("date=*/*.parquet"))
    assert len(parts) == 8
    for part in parts:
        kept = (
            "date=2026-01-02" in str(part)
            and 10 <= min(pa.parquet.read_table(part)["number"].to_pylist()) < 20
        )
        if not kept:
            part.write_bytes(b"broken")
    before = spark.conf.get("spark.sql.python.filterPushdown.enabled")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("rocketmq-delta").option("pushFilters", "true").load(str(path))
        day = "date = DATE '2026-01-02'"
        for condition in (
            "number BETWEEN 10 AND 19", "key = 'k1'", "key IN ('k1', 'k7')", "number >= 10 AND number < 20",
            "time > TIMESTAMP '1970-01-01 12:00:00' AND time <= TIMESTAMP '1970-01-02 00:00:00'",
        ):  # fmt: skip
            assert frame.where(f"{day} AND {condition}").count() == 5, condition
        assert frame.where("number > 1000").count() == 0
        with pytest.raises(Exception, match=r"[Pp]arquet"):
            frame.where(day).count()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", before)


def test_streams_replace_a_table_or_update_it(spark, tmp_path):
    spark.range(0, 20, 1, 1).write.json(f"{tmp_path}/in/0")

    def run(name: str, writer) -> dict[str, int]:
        for number in range(2):
            if number:
                spark.range(20, 30, 1, 1).write.mode("overwrite").json(f"{tmp_path}/in/1-{name}")
            writer(str(tmp_path / name)).option(
                "checkpointLocation", f"{tmp_path}/{name}-checkpoint"
            ).trigger(availableNow=True).start().awaitTermination()
        found = DeltaTable(str(tmp_path / name)).to_pyarrow_table().to_pylist()
        return {row["key"]: row["count"] for row in found}

    frame = spark.readStream.schema("id LONG").json(f"{tmp_path}/in/*")
    counts = frame.selectExpr("CAST(id % 2 AS STRING) AS key").groupBy("key").count()
    complete = counts.writeStream.format("rocketmq-delta").outputMode("complete")
    assert run("complete", lambda path: complete.option("path", path)) == {"0": 15, "1": 15}
    update = counts.writeStream.outputMode("update")
    writer = lambda path: update.foreachBatch(  # noqa: E731
        lambda batch, number: [lake.upsert(batch, path, ["key"], "counts", number) for _ in range(2)] and None
    )
    assert run("update", writer) == {"0": 20, "1": 20}


def test_a_batch_takes_the_place_of_a_table(spark, tmp_path):
    path = str(tmp_path / "table")
    for count in (40, 10):
        rows(spark, count).write.format("rocketmq-delta").mode("overwrite").save(path)
    assert spark.read.format("rocketmq-delta").load(path).count() == 10
