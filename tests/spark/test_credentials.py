"""Source and sink sign their requests with the options, in every task, and Spark shows no secret."""

from __future__ import annotations

import pytest
from tests.interop import access_control
from tests.interop.access_control import SUPER, TOPIC

pytestmark = pytest.mark.interop

SECRET = SUPER["secret_key"]
SIGNED = {"accessKey": SUPER["access_key"], "secretKey": SECRET}


@pytest.fixture
def guarded(tmp_path):
    cluster = access_control.start(access_control.V5, tmp_path / "guarded")
    yield cluster
    cluster.discard()


def test_rows_go_through_a_broker_with_access_control(spark, guarded, tmp_path, capsys):
    def options(**given):
        return {"nameServer": guarded.namesrv, **given}

    rows = spark.range(200).selectExpr("CAST(CAST(id AS STRING) AS BINARY) AS body")
    unsigned = rows.write.format("rocketmq").options(**options(topic=TOPIC, delivery="at-least-once"))
    with pytest.raises(Exception, match="this client sends no credentials"):
        unsigned.mode("append").save()
    unsigned.options(**SIGNED).mode("append").save()

    frame = spark.read.format("rocketmq").options(**options(subscribe=TOPIC)).options(**SIGNED).load()
    assert frame.count() == 200
    frame.explain("extended")
    assert SECRET not in capsys.readouterr().out
    assert SECRET not in frame._jdf.queryExecution().toString()

    followed = spark.readStream.format("rocketmq").options(**options(subscribe=TOPIC)).options(**SIGNED)
    stream = followed.option("startingOffsets", "earliest").load().writeStream.format("memory")
    query = stream.queryName("signed").option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert spark.table("signed").count() == 200
    for file in (tmp_path / "c").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file
