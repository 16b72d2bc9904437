"""Tables of Spark's catalog: CREATE TABLE, SELECT, INSERT INTO and streams, for all three formats."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake")  # with PySpark; make test-spark has both

from collections import Counter

from deltalake import DeltaTable
from tests.spark.reading import bodies, make_topic

NAMES = ("sql_topic", "sql_two", "sql_columns", "sql_log", "sql_lake", "sql_copy")


@pytest.fixture
def sql(spark):
    yield spark.sql
    for name in NAMES:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_a_topic_is_a_table_that_is_read_written_and_followed(spark, sql, broker, topic, tmp_path):
    make_topic(broker, topic)
    options = f"OPTIONS (nameServer '{broker.namesrv}', subscribe '{topic}', sendTimeoutMs '9000')"
    sql(f"CREATE TABLE sql_topic USING rocketmq {options} COMMENT 'orders' TBLPROPERTIES ('team' = 'shop')")
    sql("INSERT INTO sql_topic (body, tags) SELECT CAST(CAST(id AS STRING) AS BINARY), 'paid' FROM RANGE(60)")
    assert bodies(broker, topic, 60) == Counter(map(str, range(60)))
    assert sql("SELECT * FROM sql_topic WHERE tags = 'paid'").count() == 60
    assert sql("SELECT * FROM sql_topic WITH (`tags` = 'refunded')").count() == 0
    stream = spark.readStream.option("startingOffsets", "earliest").table("sql_topic")
    query = stream.writeStream.format("memory").queryName("sql_seen").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.table("sql_seen").count() == 60
    target = f"WITH (`nameServer` = '{broker.namesrv}', `topic` = '{topic}')"
    with pytest.raises(Exception, match="column brokerName has a value, and brokers assign it"):
        sql(f"INSERT INTO sql_topic {target} SELECT * FROM sql_topic")
    with pytest.raises(Exception, match="Spark does not say which table these rows go to"):
        sql("INSERT INTO sql_topic SELECT * FROM sql_topic")
    with pytest.raises(Exception, match="no option 'subscrib': did you mean subscribe"):
        sql(f"CREATE TABLE sql_two USING rocketmq OPTIONS (nameServer '{broker.namesrv}', subscrib 'x')")
    with pytest.raises(Exception, match="give tlsKeyPassword to each query"):
        sql("CREATE TABLE sql_two USING rocketmq OPTIONS (nameServer 'x:1', tlsKeyPassword 'y')")


def test_rows_of_one_table_never_go_to_the_wrong_one(spark, sql, tmp_path):
    """Spark hands a writer the columns of the rows, which may carry the options of another table."""
    for name in ("lake", "copy"):
        spark.range(3).selectExpr("id", "'x' AS key").write.format("rocketmq-delta").mode("append").save(
            f"{tmp_path}/{name}"
        )
        sql(f"CREATE TABLE sql_{name} USING `rocketmq-delta` LOCATION '{tmp_path}/{name}'")
    sql("INSERT INTO sql_lake VALUES (7, 'y')")
    assert sql("SELECT * FROM sql_lake").count() == 4
    with pytest.raises(Exception, match="Spark does not say which table these rows go to"):
        sql("INSERT INTO sql_copy SELECT * FROM sql_lake")
    sql(f"INSERT INTO sql_copy WITH (`path` = '{tmp_path}/copy') SELECT * FROM sql_lake")
    sql("INSERT INTO sql_copy SELECT id, UPPER(key) FROM sql_lake WHERE id = 7")
    sql("INSERT OVERWRITE sql_lake VALUES (8, 'z')")
    counts = {name: DeltaTable(f"{tmp_path}/{name}").to_pyarrow_table().num_rows for name in ("lake", "copy")}
    assert counts == {"lake": 1, "copy": 8}
    stream = spark.readStream.format("rate").load().selectExpr("value AS id", "'x' AS key").writeStream
    with pytest.raises(Exception, match=r"option path is missing: .* to a stream's writer as options"):
        stream.option("checkpointLocation", f"{tmp_path}/c").trigger(availableNow=True).toTable(
            "sql_copy"
        ).awaitTermination()


def test_a_table_with_columns_of_its_own_is_told_what_to_do(sql, tmp_path):
    sql(f"CREATE TABLE sql_columns (id BIGINT) USING `rocketmq-delta` LOCATION '{tmp_path}/table'")
    with pytest.raises(Exception, match="keeps its options only if CREATE TABLE names no columns"):
        sql("INSERT INTO sql_columns VALUES (1)")
    sql(f"INSERT INTO sql_columns WITH (`path` = '{tmp_path}/table') VALUES (1)")
    assert sql(f"SELECT * FROM sql_columns WITH (`path` = '{tmp_path}/table')").count() == 1


def test_a_store_is_a_table_that_cannot_be_written(sql, broker, topic, tmp_path):
    sql(f"CREATE TABLE sql_log USING `rocketmq-log` OPTIONS (topic '{topic}') LOCATION '{tmp_path}'")
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "consumequeue").mkdir()
    assert sql("SELECT * FROM sql_log").count() == 0
    with pytest.raises(Exception, match="write to a topic with format rocketmq"):
        sql("INSERT INTO sql_log (body) VALUES (X'00')")
