"""A topic becomes a table, and the paid orders of that table go to another topic, exactly once."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

NAME_SERVER = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
spark = SparkSession.active()


@dp.table(format="parquet")
def orders() -> DataFrame:
    """All that topic OrderTopic has, and had."""
    return (
        spark.readStream.format("rocketmq")
        .option("nameServer", NAME_SERVER)
        .option("subscribe", "OrderTopic")
        .option("startingOffsets", "earliest")
        .load()
    )


dp.create_sink("billing", "rocketmq", {"nameServer": NAME_SERVER, "topic": "Billing"})


@dp.append_flow(target="billing")
def bill() -> DataFrame:
    return spark.readStream.table("orders").where("tags = 'paid'").select("body", "keys")
