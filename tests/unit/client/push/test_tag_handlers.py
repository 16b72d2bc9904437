"""Several handlers of one topic: each message goes to the handler of its tag, and none replaces another."""

import logging
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import NAMESRV, cluster
from tests.unit.client.listening import Reader, plain

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import MessageExt
from turbopump.client.push.consumer import Consumer
from turbopump.testing.loop import run_virtual


def take(message: MessageExt) -> None:
    """A handler."""


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
@virtual
async def test_a_second_handler_of_a_topic_gets_its_tags_and_the_first_keeps_its_own(ordered: bool) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        paid, others = Reader(), Reader()
        both = plain(town)
        both.subscribe("orders", paid, "paid", ordered=ordered)
        both.subscribe("orders", others, "refunded || open", ordered=ordered)
        async with both:
            for number, tags in enumerate(["paid", "refunded", "paid", "lost", "open"]):
                await town.send("orders", b"%d" % number, tags=tags)
            await town.clock.sleep(3)
        assert (paid.bodies, others.bodies) == ([b"0", b"2"], [b"1", b"4"])


@virtual
async def test_a_handler_added_while_the_consumer_runs_gets_its_tags() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        paid, refunded = Reader(), Reader()
        both = plain(town)
        both.subscribe("orders", paid, "paid")
        async with both:
            await town.clock.sleep(2)
            both.subscribe("orders", refunded, "refunded")
            await town.clock.sleep(1)
            await town.send("orders", b"0", tags="paid")
            await town.send("orders", b"1", tags="refunded")
            await town.clock.sleep(2)
        assert (paid.bodies, refunded.bodies) == ([b"0"], [b"1"])


@virtual
async def test_a_message_that_comes_again_goes_to_the_handler_of_its_tag() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        failures = iter([True])
        paid, refunded = Reader(), Reader(lambda body: next(failures, False))
        both = plain(town)
        both.subscribe("orders", paid, "paid")
        both.subscribe("orders", refunded, "refunded")
        async with both:
            await town.send("orders", b"0", tags="refunded")
            await town.clock.sleep(30)
        assert paid.got == []
        assert [message.reconsume_times for message in refunded.got] == [0, 1]


@virtual
async def test_each_handler_of_a_topic_has_batches_of_its_own() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        batches: list[list[str]] = []

        async def gather(messages: list[MessageExt]) -> None:
            batches.append([message.tags or "" for message in messages])

        refunded = Reader()
        both = plain(town)
        both.subscribe("orders", gather, "paid", batch=8)
        both.subscribe("orders", refunded, "refunded")
        for number in range(8):
            await town.send("orders", b"%d" % number, tags="refunded" if number % 2 else "paid")
        async with both:
            await town.clock.sleep(2)
        assert batches == [["paid"] * 4]
        assert refunded.bodies == [b"1", b"3", b"5", b"7"]


@pytest.mark.parametrize(
    ("first", "second", "complaint"),
    [
        ({"tags": "paid"}, {"tags": "open || paid"}, "handler for tag paid already"),
        ({}, {}, r"must differ by tag, got '\*' and '\*'"),
        ({}, {"tags": "paid"}, r"must differ by tag, got '\*' and 'paid'"),
        ({"tags": "paid"}, {"tags": "*"}, "must differ by tag"),
        ({"tags": "paid"}, {"sql": "price > 1"}, "must differ by tag, got 'paid' and 'price > 1'"),
        ({"sql": "price > 1"}, {"sql": "price <= 1"}, "must differ by tag"),
        ({"tags": "paid"}, {"module": "region"}, "must differ by tag"),
        (
            {"tags": "paid", "ordered": True, "auto_commit": False},
            {"tags": "open", "ordered": True},
            "auto_commit=False must be the only one of its topic",
        ),
        ({"tags": "paid"}, {"tags": "open", "ordered": True}, "ordered for all its topics or for none"),
    ],
)
def test_a_second_handler_that_is_ambiguous_is_refused(
    first: dict[str, Any], second: dict[str, Any], complaint: str
) -> None:
    consumer = Consumer("g", name_servers=NAMESRV)
    consumer.subscribe("orders", take, **first)
    with pytest.raises(InvalidArgument, match=complaint):
        consumer.on("orders", **second)(take)
    consumer.subscribe("orders", take, **second, replace=True)


def test_a_message_of_a_tag_without_a_handler_fails_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    """It comes through the retry topic when members of a group have different subscriptions."""

    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            only_paid, all_tags = plain(town, 1), plain(town, 2)
            only_paid.subscribe("orders", take, "paid")
            only_paid.subscribe("orders", take, "open")
            all_tags.subscribe("orders", Reader(lambda body: True))
            await town.send("orders", b"0", tags="lost")
            async with all_tags:
                await town.clock.sleep(2)
            async with only_paid:
                await town.clock.sleep(20)

    with caplog.at_level(logging.WARNING):
        run_virtual(scene())
    assert "no handler for tag lost of topic orders" in caplog.text
