"""Messages and receipts in a shell and in a notebook."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump import Message
from turbopump.client.shown import MAX_SHOWN, body_text
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
