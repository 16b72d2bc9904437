"""Arguments of calls: a timeout that is not in seconds is refused; JSON is read as the type given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from turbopump import Admin, Message, PullConsumer
from turbopump.client.errors import InvalidArgument, UnreadableMessage
from turbopump.testing import Cluster

EXPECTED = r"timeout must be seconds, such as timeout=1\.5, got "


@dataclass
class Order:
    id: int
    state: str = "new"


class StructOrder(msgspec.Struct):
    id: int


@pytest.mark.parametrize("wrong", ["1", True, float("nan"), [1]], ids=repr)
@pytest.mark.parametrize(
    "call",
    [
        lambda producer, wrong: producer.send(Message("orders", b"x"), timeout=wrong),
        lambda producer, wrong: producer.send_async(Message("orders", b"x"), timeout=wrong).result(),
        lambda producer, wrong: producer.send_batch([Message("orders", b"x")], timeout=wrong),
        lambda producer, wrong: producer.request(Message("orders", b"x"), timeout=wrong),
    ],
    ids=["send", "send_async", "send_batch", "request"],
)
def test_a_timeout_that_is_no_number_of_seconds_says_what_is_expected(
    call: Callable[[Any, Any], object], wrong: object
) -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
        with pytest.raises(InvalidArgument, match=EXPECTED):
            call(producer, wrong)
        assert cluster.messages("orders") == []


def test_the_timeout_of_a_poll_and_of_an_admin_says_it_too() -> None:
    with Cluster(clock="virtual") as cluster:
        reader: PullConsumer
        with (
            cluster.pull_consumer("audit", topics=["orders"]) as reader,
            pytest.raises(InvalidArgument, match=EXPECTED + "'1'"),
        ):
            reader.poll(timeout="1")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match=EXPECTED + "'1'"):
            Admin(cluster.name_servers, timeout="1")  # type: ignore[arg-type]


def test_json_is_read_as_the_type_that_is_given() -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
        producer.send(Message.json("orders", Order(7, "paid")))
        (message,) = cluster.messages("orders")
    assert message.json(Order) == Order(7, "paid")
    assert message.json(StructOrder) == StructOrder(7)
    assert message.json(dict[str, Any]) == message.json() == {"id": 7, "state": "paid"}


def test_json_that_does_not_fit_names_the_type_and_the_field() -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
        producer.send(Message.json("orders", {"id": "seven"}))
        (message,) = cluster.messages("orders")
    with pytest.raises(UnreadableMessage, match=r"must be Order: .*int.*\$\.id"):
        message.json(Order)
