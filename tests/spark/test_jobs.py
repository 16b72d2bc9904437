"""Jobs as a person types them: each against a real broker, in the session that all tests share."""

from __future__ import annotations

import io
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.interop import peers, topics
from tests.interop.workers import eventually
from tests.spark.reading import messages, messages_once_there

from turbopump import ConsumeFromWhere, Consumer, Message, MessageExt, Producer
from turbopump.pipelines.jobs.catalog import JOBS
from turbopump.pipelines.jobs.checks import check
from turbopump.pipelines.jobs.display import Display, JobResult
from turbopump.pipelines.jobs.job_run import JobRun
from turbopump.pipelines.jobs.spec import BadSpec, given_by
from turbopump.runtime.clock import SystemClock

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
_numbers = itertools.count()
Run = Callable[..., JobResult]


@pytest.fixture
def run(spark: Any, broker: peers.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def done(job: str, **line: Any) -> JobResult:
        typed = {name.rstrip("_"): value for name, value in line.items()}
        given = given_by(JOBS[job].flags, {}, typed, job, SystemClock())
        check(job, given, JOBS[job].check)
        outcome: JobResult = JOBS[job].load()(
            JobRun(spark, given, Display(err=io.StringIO()), job, broker.namesrv)
        )
        return outcome

    return done


@pytest.fixture
def topic(broker: peers.Cluster) -> str:
    return topics.create(broker, f"Jobs{next(_numbers)}", 2)


@pytest.fixture
def other(broker: peers.Cluster) -> str:
    return topics.create(broker, f"Others{next(_numbers)}", 2)


def send(broker: peers.Cluster, topic: str, count: int, first: int = 0) -> None:
    with Producer("job-senders", name_servers=broker.namesrv) as producer:
        for number in range(first, first + count):
            body = json.dumps({"id": number, "amount": number * 1.5}).encode()
            tags = ("paid", "refunded")[number % 2]
            producer.send(Message(topic, body, tags=tags, keys=f"k{number % 5}", properties={"own": "1"}))


def bodies(broker: peers.Cluster, topic: str) -> list[int]:
    """The ids of all messages of a topic, sorted."""
    return sorted(message.json()["id"] for message in messages(broker, topic))


def wear_out(broker: peers.Cluster, topic: str, group: str, count: int) -> None:
    """A group that fails at everything, and may try once."""
    consumer = Consumer(group, name_servers=broker.namesrv, max_reconsume_times=0, consume_from_where=FIRST)

    @consumer.on(topic)
    def fail(message: MessageExt) -> None:
        raise ValueError(message.text)

    with consumer:
        topics.wait_known(broker, f"%DLQ%{group}")
        messages_once_there(broker, f"%DLQ%{group}", count)


def test_a_topic_is_archived_once_and_goes_on_where_it_ended(
    run: Run, broker: peers.Cluster, topic: str, tmp_path: Path, spark: Any
) -> None:
    for first in (0, 20):
        send(broker, topic, 20, first)
        outcome = run("archive", from_=f"topic:{topic}", to="delta:lake")
        assert (outcome.summary["read"], outcome.summary["written"]) == (20, 20)
    again = run("archive", from_=f"topic:{topic}", to="delta:lake", compact=True)
    assert again.summary["read"] == again.summary["written"] == 0
    counted = run("stats", from_="delta:lake", by="topic,tag")
    assert [(row["tags"], row["messages"]) for row in counted.tables[0].rows] == [
        ("paid", 20),
        ("refunded", 20),
    ]


def test_a_table_is_replayed_into_a_topic_within_a_time_and_a_condition(
    run: Run, broker: peers.Cluster, topic: str, other: str
) -> None:
    send(broker, topic, 20)
    run("archive", from_=f"topic:{topic}", to="parquet:files")
    assert run(
        "replay", from_="parquet:files", to=f"topic:{other}", since="1h", where="tags = 'paid'", rate="100"
    )
    assert bodies(broker, other) == list(range(0, 20, 2))


def test_sql_over_json_bodies_from_topic_to_topic(
    run: Run, broker: peers.Cluster, topic: str, other: str
) -> None:
    send(broker, topic, 20)
    query = "SELECT keys, body, tags FROM messages WHERE amount >= 15 AND bodyError IS NULL"
    given = {
        "from_": f"topic:{topic}",
        "to": f"topic:{other}",
        "sql": query,
        "json_body": "id long, amount double",
    }
    summary = run("transform", **given).summary
    assert (summary["read"], summary["written"], summary["malformed"]) == (20, 10, 0)
    assert bodies(broker, other) == list(range(10, 20))
    assert run("transform", **given).summary["read"] == 0
    with pytest.raises(BadSpec, match=r"(?s)sql: was .*15.*now .*3.*--keep-checkpoint"):
        run("transform", **given | {"sql": query.replace("15", "3")})
    with pytest.raises(BadSpec, match="where: was not given"):
        run("transform", **given, where="tags = 'paid'")


def test_repeated_keys_are_dropped_on_the_way(
    run: Run, broker: peers.Cluster, topic: str, other: str
) -> None:
    send(broker, topic, 20)
    outcome = run("dedupe", from_=f"topic:{topic}", to=f"topic:{other}", within="1h")
    summary = outcome.summary
    assert (summary["read"], summary["written"], summary["duplicate"], summary["late"]) == (20, 5, 15, 0)
    assert not outcome.is_failure
    assert len(bodies(broker, other)) == 5


def test_a_store_is_counted_and_verified_without_its_broker(
    run: Run, broker: peers.Cluster, topic: str, tmp_path: Path
) -> None:
    send(broker, topic, 20)
    store = f"log:{broker.store_dir}"

    def counted() -> int:
        found = run("stats", from_=store, options=[f"topic={topic}"], by="queue", report="stats.html")
        return int(found.summary["messages"])

    assert eventually(lambda: counted() == 20, 60)  # queues are written a second later than the log
    assert "<svg" in (tmp_path / "stats.html").read_text()
    sound = run("verify", from_=store)
    assert not sound.is_failure, sound.tables
    assert sound.summary["messages"] >= 20


def test_dead_letters_are_grouped_and_sent_again(run: Run, broker: peers.Cluster, topic: str) -> None:
    group = f"weary{next(_numbers)}"
    send(broker, topic, 6)
    wear_out(broker, topic, group, 6)
    outcome = run("dlq", from_=f"dlq:{group}", redrive="tags = 'paid'", to_topic=True, report="dlq.html")
    assert [(row["tags"], row["letters"]) for row in outcome.tables[0].rows] == [("paid", 3), ("refunded", 3)]
    assert outcome.summary["sentAgain"] == 3
    assert bodies(broker, topic) == [0, 0, 1, 2, 2, 3, 4, 4, 5]
    run("dlq", from_=f"dlq:{group}", redrive="tags = 'refunded'")
    assert bodies(broker, f"%RETRY%{group}") == [1, 3, 5]


def test_traces_become_latencies(run: Run, broker: peers.Cluster, topic: str) -> None:
    with Producer("traced", name_servers=broker.namesrv, enable_trace=True) as producer:
        for number in range(5):
            producer.send(Message(topic, f"{number}".encode()))
    outcome = run("trace", from_="topic:RMQ_SYS_TRACE_TOPIC", where=None)
    mine = [row for row in outcome.tables[0].rows if row["topic"] == topic]
    assert [row["deliveries"] for row in mine] == [5]


def test_a_topic_is_replayed_in_the_order_of_each_queue(
    run: Run, broker: peers.Cluster, topic: str, other: str
) -> None:
    send(broker, topic, 40)
    assert run("replay", from_=f"topic:{topic}", to=f"topic:{other}").summary["written"] == 40
    assert order(broker, other) == order(broker, topic)
    assert messages(broker, other)[0].properties["own"] == "1"


def order(broker: peers.Cluster, topic: str) -> list[list[int]]:
    """The ids of each queue, in its order; which queue it is does not matter."""
    found: dict[int, list[int]] = {}
    for message in messages(broker, topic):
        found.setdefault(message.queue.id, []).append(message.json()["id"])
    return sorted(found.values())


def test_a_store_is_replayed_in_the_order_of_each_queue(
    run: Run, broker: peers.Cluster, topic: str, other: str
) -> None:
    send(broker, topic, 40)
    run("archive", from_=f"topic:{topic}", to="parquet:files")
    run("replay", from_="parquet:files", to=f"topic:{other}")
    assert order(broker, other) == order(broker, topic)


def test_times_are_positions_and_what_is_pushed_down_is_explained(
    run: Run, broker: peers.Cluster, topic: str, spark: Any
) -> None:
    send(broker, topic, 10)
    middle = max(message.store_timestamp for message in messages(broker, topic)) + 1
    eventually(lambda: time.time() * 1000 > middle + 5, 5)
    send(broker, topic, 10, 10)
    until = {"from_": f"topic:{topic}", "to": "delta:before", "until": str(middle)}
    found = run("archive", **until, explain=True).document()["explain"]
    lines = [row["line"] for row in found]
    assert f"pushed down to the source: endingTimestamp={middle}" in lines
    assert run("archive", **until).summary["read"] == 10
    since = run("archive", from_=f"topic:{topic}", to="delta:after", since=str(middle), where="tags = 'paid'")
    assert (since.summary["read"], since.summary["filtered"]) == (5, 5)
    assert run("stats", from_=f"topic:{topic}", since=str(middle)).summary["messages"] == 10


def test_bodies_that_cannot_be_read_are_counted_and_a_failure_unless_allowed(
    run: Run, broker: peers.Cluster, topic: str
) -> None:
    send(broker, topic, 6)
    with Producer("job-senders", name_servers=broker.namesrv) as producer:
        producer.send(Message(topic, b"{oops"))
    given = {
        "from_": f"topic:{topic}",
        "to": "delta:orders",
        "sql": "SELECT id FROM messages WHERE amount >= 0",
        "json_body": "id long, amount double",
        "partition_by": [],
    }
    outcome = run("transform", **given)
    assert (outcome.summary["read"], outcome.summary["written"], outcome.summary["malformed"]) == (7, 6, 1)
    assert outcome.is_failure
    allowed = run("transform", **given | {"name": "again", "to": "delta:others"}, allow="malformed")
    assert allowed.summary["malformed"] == 1
    assert not allowed.is_failure


def test_a_group_without_dead_letters_has_none(run: Run, broker: peers.Cluster) -> None:
    outcome = run("dlq", from_="dlq:healthy-group")
    assert outcome.summary["letters"] == 0
    assert run("archive", from_="dlq:healthy-group", to="delta:none").summary["read"] == 0


@pytest.mark.long
def test_more_micro_batches_than_spark_remembers_are_all_counted(
    run: Run, broker: peers.Cluster, topic: str, other: str, spark: Any
) -> None:
    send(broker, topic, 240)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "3")
    try:
        outcome = run("archive", from_=f"topic:{topic}", to="delta:many", options=["maxOffsetsPerTrigger=20"])
    finally:
        spark.conf.unset("spark.sql.streaming.numRecentProgressUpdates")
    assert (outcome.summary["read"], outcome.summary["written"]) == (240, 240)
