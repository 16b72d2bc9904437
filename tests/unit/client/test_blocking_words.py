"""What blocking clients say can be written in a blocking program: no `await`, no `async with`."""

import inspect
from typing import Any

import pytest

from turbopump import Admin, Consumer, Message, MessageQueue, Producer, PullConsumer
from turbopump.client.blocking.producer_face import Transaction
from turbopump.client.errors import ClientError
from turbopump.client.produce.transaction import AsyncTransaction
from turbopump.testing import Cluster

KINDS = [Producer, Consumer, PullConsumer, Admin]


def complaints() -> list[tuple[str, Any]]:
    order = Message("orders", b"x")
    queue = MessageQueue("orders", "broker-a", 0)
    producer = Producer("g", name_servers="127.0.0.1:1")
    consumer = Consumer("g", name_servers="127.0.0.1:1")
    pulling = PullConsumer("g", topics=["orders"], name_servers="127.0.0.1:1")
    return [
        ("send", lambda: producer.send(order)),
        ("send_async", lambda: producer.send_async(order).result()),
        ("send_batch", lambda: producer.send_batch([order])),
        ("queues", lambda: producer.queues("orders")),
        ("pause", consumer.pause),
        ("poll", pulling.poll),
        ("seek", lambda: pulling.seek(queue, 0)),
    ]


@pytest.mark.parametrize("call", [one for _, one in complaints()], ids=[name for name, _ in complaints()])
def test_a_client_that_is_not_started_says_what_a_blocking_program_would_write(call: Any) -> None:
    with pytest.raises(ClientError) as raised:
        call()
    assert "await" not in str(raised.value)
    assert "async" not in str(raised.value)


def test_a_queue_of_another_topic_is_refused_in_the_same_words() -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
        with pytest.raises(ClientError, match=r"take one of `producer.queues") as raised:
            producer.send(Message("orders", b"x"), queue=MessageQueue("bills", "broker-a", 0))
        assert "await" not in str(raised.value)


@pytest.mark.parametrize("kind", KINDS)
def test_no_docstring_of_a_blocking_class_advises_await(kind: type[Any]) -> None:
    for name, member in inspect.getmembers(kind):
        words = (inspect.getdoc(member) or "").replace("await_termination", "")
        if not name.startswith("_"):
            assert "await " not in words, name
    assert "await " not in (inspect.getdoc(kind) or "").replace("await_termination", "")


@pytest.mark.parametrize("name", ["begin", "commit", "rollback", "unknown", "end"])
def test_a_blocking_transaction_is_described_as_the_other(name: str) -> None:
    assert inspect.getdoc(getattr(Transaction, name)) == inspect.getdoc(getattr(AsyncTransaction, name))


def test_a_transaction_that_has_not_begun_says_so_in_the_same_words() -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
        transaction = producer.transaction(Message("orders", b"x"))
        with pytest.raises(ClientError, match="has not begun") as raised:
            assert transaction.receipt
        assert "async" not in str(raised.value)
