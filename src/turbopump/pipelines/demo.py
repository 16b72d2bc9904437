"""A demonstration in a minute: orders into a topic, the topic into a Delta table, the table into a topic.

`make run` and `turbopump up --demo` start it beside a running cluster. A second run continues from its
checkpoint: only new orders are archived.

    python -m turbopump.pipelines.demo NAME_SERVER DIRECTORY
"""

import contextlib
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turbopump import Admin, Message, Producer
from turbopump.pipelines.jobs.display import ResultTable
from turbopump.pipelines.jobs.session import check, session
from turbopump.pipelines.requirements import CannotRun
from turbopump.protocol.bodies import TopicConfig
from turbopump.protocol.names import AUTO_CREATE_TOPIC

ORDERS, TOTALS = "DemoOrders", "DemoTotals"
COUNT = 1000
CITIES = ("Berlin", "Lagos", "Lima", "Osaka", "Pune")
STATES = ("paid", "paid", "paid", "refunded")
STDERR = 2
FIELDS = "id long, city string, amount double"


def main(arguments: list[str]) -> int:
    name_server, home = arguments[0], Path(arguments[1]) / "demo"
    report(f"Sending {COUNT:,} orders to topic {ORDERS} ...")
    send_orders(name_server)
    try:
        check()
    except CannotRun as error:
        report(f"Skipping the pipelines: {error}")
        return 0
    log = home / "spark.log"
    report(f"Starting Spark, which takes some seconds; its log is {log} ...")
    home.mkdir(parents=True, exist_ok=True)
    with errors_to(log):
        spark = session("turbopump demo", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    try:
        show(spark, name_server, home)
    finally:
        spark.stop()
    report(f"Done. The table is in {home / 'orders'}. Next: turbopump pipeline stats --from topic:{ORDERS}")
    return 0


@contextlib.contextmanager
def errors_to(log: Path) -> Iterator[None]:
    """Redirects stderr to the log for programs started inside the block, until those programs end.

    Spark's workers report closed connections when a session stops, which looks like a failure.
    """
    kept = os.dup(STDERR)
    with log.open("ab") as file:
        os.dup2(file.fileno(), STDERR)
    try:
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)


def show(spark: Any, name_server: str, home: Path) -> None:
    begin = time.monotonic()
    rows = archive(spark, name_server, home)
    took = time.monotonic() - begin
    report(f"{rows:,} orders from topic {ORDERS} to a Delta table, exactly once, in {took:.1f} s")
    publish(spark, name_server, home)
    report(f"Totals of paid orders by city from the table to topic {TOTALS}, and read from there:")
    for line in read_totals(spark, name_server).lines()[2:]:
        report(f"  {line}")


def send_orders(name_server: str) -> None:
    chance = random.Random()
    with Admin(name_server) as admin:
        for topic in (ORDERS, TOTALS):
            config = TopicConfig(topicName=topic, readQueueNums=4, writeQueueNums=4)
            admin.topics.create_like(AUTO_CREATE_TOPIC, config)
    with Producer("demo", name_servers=name_server) as producer:
        orders = [order(chance, number) for number in range(COUNT)]
        for begin in range(0, COUNT, 100):
            producer.send_batch(orders[begin : begin + 100])


def order(chance: random.Random, number: int) -> Message:
    fields = {"id": number, "city": chance.choice(CITIES), "amount": round(chance.uniform(5, 500), 2)}
    return Message.json(ORDERS, fields, tags=chance.choice(STATES), keys=f"order-{number}")


def archive(spark: Any, name_server: str, home: Path) -> int:
    stream = (
        spark.readStream.format("rocketmq")
        .option("nameServer", name_server)
        .option("subscribe", ORDERS)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        stream.writeStream.format("rocketmq-delta")
        .option("path", str(home / "orders"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def publish(spark: Any, name_server: str, home: Path) -> None:
    from turbopump.pipelines.transforms.bodies import json_body

    orders = spark.read.format("rocketmq-delta").load(str(home / "orders"))
    json_body(orders, FIELDS).createOrReplaceTempView("orders")
    totals = spark.sql(
        "SELECT city AS keys, "
        "to_json(struct(city, count(*) AS orders, round(sum(amount), 2) AS amount)) AS body "
        "FROM orders WHERE tags = 'paid' GROUP BY city"
    )
    writer = totals.write.format("rocketmq").option("nameServer", name_server).option("topic", TOTALS)
    writer.mode("append").save()


def read_totals(spark: Any, name_server: str) -> ResultTable:
    """Returns the newest total of each city in the topic; every run of the demo adds its own."""
    from turbopump.pipelines.transforms.bodies import json_body

    read = spark.read.format("rocketmq").option("nameServer", name_server).option("subscribe", TOTALS).load()
    json_body(read, "city string, orders long, amount double").createOrReplaceTempView("totals")
    rows = spark.sql(
        "SELECT city, max_by(orders, storeTimestamp) AS orders, max_by(amount, storeTimestamp) AS amount "
        "FROM totals GROUP BY city ORDER BY city"
    )
    return ResultTable("totals", "", [row.asDict() for row in rows.collect()], rows.columns)


def report(line: str) -> None:
    print(f"demo: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
