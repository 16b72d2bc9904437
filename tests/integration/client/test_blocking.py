"""Blocking clients against a broker: what the faces add to the async clients, and what must not get lost."""

import threading
import time

import pytest

from turbopump import ConsumeFromWhere, Message, MessageExt, MessageQueue, Producer, PullConsumer
from turbopump.testing import Cluster

PATIENCE_S = 20.0
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """With ten messages in one queue."""
    name = cluster.create_topic(queues=1)
    with cluster.producer() as producer:
        producer.send_batch([Message(name, b"%d" % number) for number in range(10)])
    return name


def test_a_scheduled_callback_may_pull_and_commit_by_blocking_calls(cluster: Cluster, topic: str) -> None:
    got: list[str] = []
    consumer = cluster.pull_consumer("scheduled")

    def look(queue: MessageQueue) -> float:
        pulled = consumer.pull(queue, consumer.committed(queue) or 0, 4)
        got.extend(message.text for message in pulled.messages)
        consumer.commit({queue: pulled.next_offset})
        return 0.01

    with consumer:
        consumer.schedule(topic, look)
        cluster.wait_until(lambda: len(got) >= 10, PATIENCE_S)
    assert got == [str(number) for number in range(10)]


def test_an_iteration_ends_when_another_thread_closes_the_consumer(cluster: Cluster, topic: str) -> None:
    consumer = cluster.pull_consumer("closed-elsewhere", [topic])
    got: list[str] = []
    with consumer:
        threading.Timer(1.0, consumer.close).start()
        got.extend(message.text for message in consumer)
    assert got == [str(number) for number in range(10)]


def test_what_an_exception_interrupted_comes_again(cluster: Cluster, topic: str) -> None:
    def fail_at_the_fourth() -> None:
        with cluster.pull_consumer("failing", [topic]) as consumer:
            for message in consumer:
                if message.text == "3":
                    raise LookupError

    with pytest.raises(LookupError):
        fail_at_the_fourth()
    with cluster.pull_consumer("failing", [topic]) as consumer:
        assert next(consumer).text == "3"


def test_what_is_given_back_comes_again(cluster: Cluster, topic: str) -> None:
    with cluster.pull_consumer("undecided", [topic], pull_batch_size=4) as consumer:
        first = consumer.poll(PATIENCE_S)
        consumer.give_back(first[1:])
        assert [message.text for message in consumer.poll(PATIENCE_S)][:3] == ["1", "2", "3"]
    with cluster.pull_consumer("undecided", [topic]) as consumer:
        unused = consumer.poll(PATIENCE_S)
        consumer.give_back(unused)
    with cluster.pull_consumer("undecided", [topic]) as consumer:
        assert next(consumer).text == unused[0].text


def test_what_a_block_finished_does_not_come_again(cluster: Cluster, topic: str) -> None:
    with cluster.pull_consumer("finishing", [topic]) as consumer:
        for number, _ in enumerate(consumer):
            if number == 3:
                break
    with cluster.pull_consumer("finishing", [topic]) as consumer:
        assert next(consumer).text == "4"


def test_a_consumer_is_paused_resized_and_resubscribed_while_it_runs(cluster: Cluster, topic: str) -> None:
    got: list[str] = []

    def take(message: MessageExt) -> None:
        got.append(message.text)

    consumer = cluster.consumer("changing")
    consumer.on(topic)(take)
    with consumer, cluster.producer() as producer:
        cluster.wait_until(lambda: len(got) == 10, PATIENCE_S)
        consumer.pause()
        assert consumer.is_paused
        consumer.workers = (2, 64)
        assert consumer.workers == (2, 64)
        consumer.resume()
        other = cluster.create_topic()
        consumer.subscribe(other, take)
        producer.send(Message(other, b"other"))
        cluster.wait_until(lambda: "other" in got, PATIENCE_S)
        consumer.unsubscribe(other)
        assert {queue.topic for queue in consumer.queues()} == {topic}


def test_many_more_futures_than_may_be_under_way_are_all_sent(cluster: Cluster) -> None:
    name = cluster.create_topic()
    with Producer("futures", name_servers=cluster.name_servers, max_in_flight=16) as producer:
        futures = [producer.send_async(Message(name, b"%d" % number)) for number in range(2000)]
        assert len({future.result(PATIENCE_S).message_id for future in futures}) == 2000
    assert len(cluster.messages(name)) == 2000


def test_a_producer_that_is_closed_has_sent_what_was_under_way(cluster: Cluster) -> None:
    name = cluster.create_topic()
    with Producer("closing", name_servers=cluster.name_servers) as producer:
        futures = [producer.send_async(Message(name, b"%d" % number)) for number in range(200)]
    assert all(future.done() and future.exception() is None for future in futures)


def test_threads_wait_for_their_own_messages_only(cluster: Cluster, topic: str) -> None:
    """A long poll in one thread holds up no other."""
    with PullConsumer("waiting", name_servers=cluster.name_servers, consume_from_where=FIRST) as consumer:
        consumer.assign(consumer.queues(topic))
        while consumer.poll(1):
            pass
        waiting = threading.Thread(target=consumer.poll, args=(2,))
        waiting.start()
        begun = time.monotonic()
        with cluster.producer() as producer:
            producer.send(Message(cluster.create_topic(), b"x"))
        assert time.monotonic() - begun < 1.5
        waiting.join(PATIENCE_S)
