"""Messages with a time of their own, as a user sends, receives and recalls them."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message
from turbopump.client.rules import SendRules
from turbopump.testing import Cluster

RULES = SendRules(max_message_size=1000)


@pytest.mark.parametrize(
    ("wish", "pairs"),
    [
        ({"delay": 1}, {"TIMER_DELAY_MS": "1000"}),
        ({"delay": 0.0015}, {"TIMER_DELAY_MS": "2"}),
        ({"delay": 0.1 + 0.2}, {"TIMER_DELAY_MS": "300"}),
        ({"delay": timedelta(days=400)}, {"TIMER_DELAY_MS": "34560000000"}),
        ({"deliver_at": 1_794_775_326_840}, {"TIMER_DELIVER_MS": "1794775326840"}),
        ({"deliver_at": datetime(2026, 11, 15, 20, tzinfo=UTC)}, {"TIMER_DELIVER_MS": "1794772800000"}),
        (
            {"deliver_at": datetime(2026, 11, 15, 21, 0, 0, 1, tzinfo=timezone(timedelta(hours=1)))},
            {"TIMER_DELIVER_MS": "1794772800001"},
        ),
        ({}, {}),
    ],
)
def test_a_time_becomes_the_property_that_brokers_of_5_know(
    wish: dict[str, Any], pairs: dict[str, str]
) -> None:
    message = Message("T", b"x", **wish)
    RULES.check(message)
    assert message.property_map() == pairs


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"delay": 1, "delay_level": 3}, "only one of delay_level="),
        ({"delay": 1, "deliver_at": 5}, "only one of delay_level="),
        ({"delay": 1, "properties": {"TIMER_DELAY_SEC": "3"}}, "only one of delay_level="),
        ({"delay": -1}, "seconds or a timedelta"),
        ({"delay": "5"}, "seconds or a timedelta"),
        ({"delay": True}, "seconds or a timedelta"),
        ({"delay": float("inf")}, "seconds or a timedelta"),
        ({"delay": float("nan")}, "seconds or a timedelta"),
        ({"deliver_at": 1.5}, "or milliseconds since 1970"),
        ({"deliver_at": datetime(2026, 11, 15)}, "must have a time zone"),
    ],
)
def test_what_cannot_be_a_time_is_said_before_anything_is_sent(wish: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        RULES.check(Message("T", b"x", **wish))


def test_a_batch_holds_none_of_them() -> None:
    with pytest.raises(InvalidArgument, match="one by one"):
        RULES.check_batch([Message("T", b"x", delay=1)])


def test_it_comes_in_its_time_and_what_is_recalled_does_not() -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
        cluster.create_topic("Reminders", queues=1)
        began_ms = producer.send(Message("Reminders", b"now"))
        assert began_ms.recall_handle is None
        receipt = producer.send(Message("Reminders", b"later", delay=timedelta(minutes=10)))
        unwanted = producer.send(Message("Reminders", b"never", delay=timedelta(minutes=5)))
        assert receipt.recall_handle
        assert unwanted.recall_handle
        assert producer.recall("Reminders", unwanted.recall_handle) == unwanted.message_id
        cluster.clock.advance(599)
        assert [message.body for message in cluster.messages("Reminders")] == [b"now"]
        cluster.clock.advance(2)
        assert [message.body for message in cluster.messages("Reminders")] == [b"now", b"later"]
