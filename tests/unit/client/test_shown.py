"""Messages and receipts in a shell and in a notebook."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump import Message
from turbopump.client.shown import MAX_SHOWN, body_text
from turbopump.protocol.bodies import SubscriptionData
from turbopump.testing import Cluster


@given(st.binary(max_size=2000))
def test_every_body_can_be_shown_short_and_without_control_bytes(body: bytes) -> None:
    shown = body_text(body)
    assert shown.isprintable()
    assert len(shown) < 10 * MAX_SHOWN + 50


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"paid", "'paid'"),
        ("größe".encode(), "'größe'"),
        (b"\x1b[31m", r"'\x1b[31m'"),
        (b"\xff\x00", r"b'\xff\x00'"),
        (b"x" * 81, f"'{'x' * 80}'… (81 bytes)"),
        ("ü".encode() * 1000, f"'{'ü' * 80}'… (2000 bytes)"),
        (("x" + "€" * 500).encode(), f"'x{'€' * 79}'… (1501 bytes)"),
    ],
)
def test_a_body_is_decoded_and_cut(body: bytes, shown: str) -> None:
    assert body_text(body) == shown


def test_a_message_shows_what_was_given() -> None:
    message = Message("orders", b"x" * 100_000, tags="paid", keys="A-1", properties={"a": "b"})
    assert repr(message) == (
        f"Message('orders', '{'x' * 80}'… (100000 bytes), tags='paid', keys=('A-1',), "
        "properties={'a': 'b'})"
    )
    assert repr(Message("orders", b"paid")) == "Message('orders', 'paid')"
    assert "<td style='text-align:left'>paid</td>" in message._repr_html_()


def test_what_is_received_and_a_receipt_are_short() -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
        topic = cluster.create_topic("orders", queues=1)
        receipt = producer.send(Message(topic, b"<b>" + b"x" * 50_000, tags="paid", keys=["A-1", "A-2"]))
        (message,) = cluster.messages(topic)
    assert repr(receipt).startswith(
        "SendResult(status=SEND_OK, topic=orders, queue=broker-a/0, offset=0, mess"
    )
    assert receipt.message_id in repr(receipt)
    shown = repr(message)
    assert shown.startswith("<MessageExt topic=orders, tags=paid, keys=A-1 A-2, id=")
    assert len(shown) < 400
    assert "(50003 bytes)>" in shown
    assert "&lt;b&gt;" in message._repr_html_()
    assert receipt.message_id in receipt._repr_html_()


def test_results_of_an_admin_are_short_and_tables_in_notebooks() -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer, cluster.admin() as admin:
        for number in range(30):
            cluster.create_topic(f"orders-{number}", queues=1)
        producer.send(Message("orders-0", b"<b>"))
        (broker,) = admin.clusters.layout().brokers
        config = admin.topics.config(broker.address, "orders-0")
        table = admin.topics.configs(broker.address)
        route = admin.topics.route("orders-0")
    assert repr(broker) == (
        f"BrokerAt(cluster='DefaultCluster', name='broker-a', id=0, address='{broker.address}')"
    )
    assert "<caption>BrokerAt</caption>" in broker._repr_html_()
    assert "topicName='orders-0'" in repr(config)
    assert "<th style='text-align:left'>topicName</th><td style='text-align:left'>orders-0</td>" in (
        config._repr_html_()
    )
    count = len(table.topicConfigTable)
    assert f"… {count - 20} more of {count}" in repr(table)
    assert f"{count - 20} more of {count}" in table._repr_html_()
    assert "<caption>QueueData</caption>" in route._repr_html_()


def test_values_in_tables_are_escaped() -> None:
    shown = SubscriptionData(topic="<script>", subString="a && b")._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "a &amp;&amp; b" in shown
    assert "<script>" not in shown
