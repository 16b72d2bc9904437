"""The sink at brokers, without Spark: what its tasks and its driver do, and what consumers see of it."""

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from turbopump.broker.transactions.ledger.send import LedgerSendHandler
from turbopump.client.produce.ledger import Fenced
from turbopump.pipelines.sink import at_least_once, connections, exactly_once
from turbopump.pipelines.sink.at_least_once import StoredUnsafely
from turbopump.pipelines.sink.exactly_once import NOTHING, CannotBeExact, QueryRun
from turbopump.pipelines.sink.rows import BadRow
from turbopump.pipelines.sink.settings import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions, sink_of
from turbopump.protocol import properties
from turbopump.protocol.errors import MessageIllegal
from turbopump.testing import Cluster

FIRST, SECOND = QueryRun("query", "first"), QueryRun("query", "second")


@pytest.fixture
def two_brokers() -> Iterator[Cluster]:
    with Cluster(2) as cluster:
        cluster.create_topic("T", queues=2)
        yield cluster


def sink(cluster: Cluster, delivery: str = EXACTLY_ONCE, topic: str = "T", **given: str) -> SinkOptions:
    options = {"nameServer": cluster.name_servers, "topic": topic, "sendTimeoutMs": "8000", **given}
    return sink_of(options, [("body", "string")], False, delivery)


def arrow(begin: int, end: int, **more: list[str]) -> list[pa.RecordBatch]:
    """In two batches."""
    whole = pa.record_batch({"body": [str(number) for number in range(begin, end)], **more})
    half = len(whole) // 2
    return [whole.slice(0, half), whole.slice(half)]


def seen(cluster: Cluster, topic: str = "T") -> Counter[str]:
    return Counter(message.text for message in cluster.messages(topic))


def numbers(begin: int, end: int) -> Counter[str]:
    return Counter(str(number) for number in range(begin, end))


# --- at least once ---------------------------------------------------------------------------------------


def test_rows_are_stored_when_their_task_is_done_on_all_brokers(two_brokers):
    assert at_least_once.write(sink(two_brokers, AT_LEAST_ONCE), arrow(0, 5000)) == 5000
    assert seen(two_brokers) == numbers(0, 5000)


def test_unique_keys_are_unique(two_brokers):
    at_least_once.write(sink(two_brokers, AT_LEAST_ONCE), arrow(0, 100))
    at_least_once.write(sink(two_brokers, AT_LEAST_ONCE), arrow(0, 100))
    keys = {message.message_id for message in two_brokers.messages("T")}
    assert len(keys) == 200


def test_a_topic_is_created_where_brokers_do_that(two_brokers):
    at_least_once.write(sink(two_brokers, AT_LEAST_ONCE, "New"), arrow(0, 10))
    assert seen(two_brokers, "New") == numbers(0, 10)


def test_a_broker_that_comes_back_is_waited_for(two_brokers):
    two_brokers.kill_broker(0)
    two_brokers.kill_broker(1)
    threading.Timer(1.5, two_brokers.start_broker, (0,)).start()
    assert at_least_once.write(sink(two_brokers, AT_LEAST_ONCE), arrow(0, 50)) == 50
    assert set(seen(two_brokers)) == set(numbers(0, 50))


def test_a_task_fails_when_nobody_answers_in_time(two_brokers):
    two_brokers.kill_broker(0)
    two_brokers.kill_broker(1)
    with pytest.raises(OSError, match="was not sent"):
        at_least_once.write(sink(two_brokers, AT_LEAST_ONCE, sendTimeoutMs="1500"), arrow(0, 50))


def test_what_is_not_stored_as_the_broker_is_set_up_to_fails_the_task():
    with Cluster(settings={"brokerRole": "SYNC_MASTER"}) as cluster:
        cluster.create_topic("T")
        with pytest.raises(StoredUnsafely, match="SLAVE_NOT_AVAILABLE"):
            at_least_once.write(sink(cluster, AT_LEAST_ONCE), arrow(0, 5))


# --- exactly once ----------------------------------------------------------------------------------------


def test_rows_are_seen_when_their_batch_is_committed_and_not_before(two_brokers):
    one = sink(two_brokers)
    attempts = [
        exactly_once.write(one, FIRST, 0, arrow(0, 3000)),
        exactly_once.write(one, FIRST, 0, arrow(3000, 5000)),
    ]
    assert seen(two_brokers) == Counter()
    exactly_once.commit(one, 0, attempts)
    assert seen(two_brokers) == numbers(0, 5000)
    message = two_brokers.messages("T")[0]
    assert properties.REAL_QUEUE_ID not in message.properties or message.topic == "T"


def timed(levels: list[int | None], times: list[datetime | None]) -> list[pa.RecordBatch]:
    """A row for each, named by its number."""
    columns = {
        "body": [str(number) for number in range(len(levels))],
        "delayLevel": pa.array(levels, pa.int32()),
        "deliverTime": pa.array(times, pa.timestamp("us", "UTC")),
    }
    return [pa.record_batch(columns)]


def test_rows_with_a_time_come_in_it_after_their_batch_is_committed(two_brokers):
    one = sink(two_brokers)
    due = datetime.now(UTC) + timedelta(seconds=2)
    count = 40
    levels = [(None, 1, None, 0)[number % 4] for number in range(count)]
    times = [(None, None, due, None)[number % 4] for number in range(count)]
    loser = exactly_once.write(one, FIRST, 0, timed(levels, times))
    winner = exactly_once.write(one, FIRST, 0, timed(levels, times))
    assert (loser.written.count, winner.written.count) == (count, count)
    exactly_once.commit(one, 0, [winner])
    assert seen(two_brokers) == Counter(str(number) for number in range(count) if number % 4 in (0, 3))
    two_brokers.wait_until(lambda: len(two_brokers.messages("T")) >= count)
    assert seen(two_brokers) == numbers(0, count)
    stored = {message.text: message.record.store_timestamp for message in two_brokers.messages("T")}
    assert all(stored[str(number)] >= due.timestamp() * 1000 for number in range(2, count, 4))


def test_a_time_that_brokers_refuse_names_its_row(two_brokers):
    far = datetime.now(UTC) + timedelta(days=365 * 11)
    rows = timed([None] * 7, [None] * 5 + [far, None])
    with pytest.raises(BadRow, match=r"row 5 of its partition: column deliverTime is refused .* max delay"):
        exactly_once.write(sink(two_brokers), FIRST, 0, rows)


def test_a_broker_that_takes_no_time_is_told_with_a_way_out(two_brokers, monkeypatch):
    def as_before(desk: LedgerSendHandler, pairs: dict[str, str]) -> None:
        raise MessageIllegal("a message of a batch cannot be delayed; send it alone")

    monkeypatch.setattr(LedgerSendHandler, "_check_time", as_before)
    with pytest.raises(CannotBeExact, match=r"cannot be delayed.*delivery=at-least-once"):
        exactly_once.write(sink(two_brokers), FIRST, 0, timed([1], [None]))


def test_attempts_that_did_not_win_are_never_seen(two_brokers):
    one = sink(two_brokers)
    exactly_once.write(one, FIRST, 0, arrow(0, 100))
    winner = exactly_once.write(one, FIRST, 0, arrow(0, 100))
    exactly_once.commit(one, 0, [winner])
    assert seen(two_brokers) == numbers(0, 100)


def test_a_batch_that_was_decided_is_not_written_again(two_brokers):
    one = sink(two_brokers)
    exactly_once.commit(one, 0, [exactly_once.write(one, FIRST, 0, arrow(0, 100))])
    again = exactly_once.write(one, SECOND, 0, arrow(0, 100))
    assert again.written == NOTHING
    exactly_once.commit(one, 0, [again])
    exactly_once.commit(one, 1, [exactly_once.write(one, SECOND, 1, arrow(100, 200))])
    assert seen(two_brokers) == numbers(0, 200)


def test_a_run_that_was_replaced_can_neither_open_nor_decide(two_brokers):
    one = sink(two_brokers)
    late = exactly_once.write(one, FIRST, 0, arrow(0, 100))
    new = exactly_once.write(one, SECOND, 0, arrow(0, 100))
    with pytest.raises(Fenced):
        exactly_once.commit(one, 0, [late])
    exactly_once._ledgers.drop((one, FIRST))
    with pytest.raises(Fenced):
        exactly_once.write(one, FIRST, 0, arrow(0, 100))
    exactly_once.commit(one, 0, [new])
    assert seen(two_brokers) == numbers(0, 100)


def test_a_home_that_restarts_before_the_decision_is_waited_for(two_brokers):
    one = sink(two_brokers)
    attempt = exactly_once.write(one, FIRST, 0, arrow(0, 100))
    two_brokers.kill_broker(0)
    threading.Timer(1.5, two_brokers.start_broker, (0,)).start()
    exactly_once.commit(one, 0, [attempt])
    two_brokers.wait_until(lambda: seen(two_brokers) == numbers(0, 100))


def test_jobs_of_one_id_have_versions_and_one_that_comes_again_sends_nothing(two_brokers, caplog):
    for version, begin in (("0", 0), ("0", 0), ("4", 10), ("4", 10)):
        one = sink(two_brokers, transactionalId="nightly", txnVersion=version)
        run, batch = exactly_once.begin_job(one)
        assert batch == int(version)
        attempt = exactly_once.write(one, run, batch, arrow(begin, begin + 10))
        exactly_once.commit(one, batch, [attempt])
    two_brokers.wait_until(lambda: seen(two_brokers) == numbers(0, 20))
    assert "Skipping batch 4 of nightly" in caplog.text


def test_a_job_that_has_written_ends_its_id_and_one_that_failed_leaves_nothing(two_brokers):
    one = sink(two_brokers, transactionalId="nightly")
    run, batch = exactly_once.begin_job(one)
    assert (run.id, batch) == ("nightly", 0)
    exactly_once.write(one, run, batch, arrow(0, 10))
    exactly_once.give_up(one, run)
    run, batch = exactly_once.begin_job(one)
    exactly_once.commit(one, batch, [exactly_once.write(one, run, batch, arrow(0, 10))])
    exactly_once.give_up(one, run)  # it has decided before it failed
    with pytest.raises(CannotBeExact, match=r"already written a batch. .* option txnVersion"):
        exactly_once.begin_job(one)
    two_brokers.wait_until(lambda: seen(two_brokers) == numbers(0, 10))


def test_a_job_that_was_replaced_does_not_end_the_one_that_replaced_it(two_brokers):
    one = sink(two_brokers, transactionalId="nightly")
    old, _ = exactly_once.begin_job(one)
    new, batch = exactly_once.begin_job(one)
    exactly_once.give_up(one, old)
    exactly_once.commit(one, batch, [exactly_once.write(one, new, batch, arrow(0, 10))])
    assert seen(two_brokers) == numbers(0, 10)


def test_a_topic_that_does_not_exist_is_named(two_brokers, monkeypatch):
    monkeypatch.setattr(connections, "TOPIC_PATIENCE_S", 1.0)
    with pytest.raises(CannotBeExact, match="topic Nowhere does not exist"):
        exactly_once.write(sink(two_brokers, topic="Nowhere"), FIRST, 0, arrow(0, 10))


def test_a_batch_that_is_too_large_is_told_what_to_do(two_brokers, monkeypatch):
    monkeypatch.setattr("turbopump.broker.transactions.ledger.send.MAX_OPEN", 20)
    with pytest.raises(CannotBeExact, match="maxOffsetsPerTrigger"):
        exactly_once.write(sink(two_brokers), FIRST, 0, arrow(0, 200))


def test_connections_are_kept_and_few(two_brokers, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CACHED", 2)
    kept: connections.ConnectionCache[exactly_once.Ledger] = connections.ConnectionCache()
    one = sink(two_brokers)
    made = [kept.get(number, lambda: exactly_once._ledger(one, FIRST)) for number in (1, 2, 1, 3)]
    assert made[0] is made[2]
    assert list(kept._kept) == [1, 3]
    for number in (1, 3):
        kept.drop(number)


def test_brokers_are_asked_before_the_first_task(two_brokers):
    exactly_once.check_brokers(sink(two_brokers))
