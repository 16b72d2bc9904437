"""A test of one's own: a cluster in the process, a producer, a consumer, and a moment to wait for."""

from turbopump import Message
from turbopump.testing import Cluster


def test_a_paid_order_is_billed_once() -> None:
    billed: list[str] = []
    with Cluster() as cluster:
        cluster.create_topic("Orders")
        consumer = cluster.consumer("billing")
        consumer.subscribe("Orders", lambda message: billed.append(message.text), tags="paid")
        with consumer, cluster.producer() as producer:
            producer.send(Message("Orders", b"A-1", tags="paid"))
            producer.send(Message("Orders", b"A-2", tags="cancelled"))
            cluster.wait_until_consumed("billing", "Orders")
    assert billed == ["A-1"]
