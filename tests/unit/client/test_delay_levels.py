"""A delay level above the broker's highest: the highest is applied, with a warning and in the receipt."""

import logging

import pytest
from tests.unit.client.kit import BROKER_A
from tests.unit.client.producer_retries_kit import Scene

from turbopump import Message
from turbopump.client.message import SendResult
from turbopump.client.produce.packer import MessagePacker
from turbopump.testing import Cluster


@pytest.mark.parametrize(("asked", "applied"), [(3, 3), (18, 18), (99, 18), (0, None)])
def test_the_receipt_has_the_level_that_is_applied(
    asked: int, applied: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
        topic = cluster.create_topic()
        with caplog.at_level(logging.WARNING, "turbopump.client"):
            receipts = [producer.send(Message(topic, b"x", delay_level=asked)) for _ in range(3)]
    assert {receipt.delay_level for receipt in receipts} == {applied}
    warned = [one.getMessage() for one in caplog.records if "delay_level=" in one.getMessage()]
    assert len(warned) == (asked == 99)
    assert all("delay_level=99" in one and "level 18 is applied" in one for one in warned)


def test_with_a_broker_that_does_not_say_the_warning_is_about_apaches_levels(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    scene.answers(BROKER_A, 0)
    prepare = MessagePacker.prepare

    def delayed(packer: MessagePacker, message: Message) -> object:
        return prepare(packer, Message(message.topic, message.body, delay_level=77))

    monkeypatch.setattr(MessagePacker, "prepare", delayed)
    with caplog.at_level(logging.WARNING, "turbopump.client"):
        receipt: SendResult = scene.send()
    assert receipt.delay_level is None
    assert "delay_level=77" in caplog.text
    assert "applies its highest one" in caplog.text
