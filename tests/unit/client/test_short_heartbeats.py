"""Heartbeats without subscriptions: when they are enough, and when not."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.client import listening

from turbopump.client.short_heartbeats import Fingerprint, ShortHeartbeats
from turbopump.protocol import bodies
from turbopump.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData
from turbopump.protocol.headers.client import HeartbeatResponse
from turbopump.testing.loop import run_virtual

UNDERSTOOD = HeartbeatResponse(IS_SUPPORT_HEART_BEAT_V2=True, IS_SUB_CHANGE=False)


def described(version: int = 7, client_id: str = "c1", tags: str = "*") -> HeartbeatData:
    subscription = SubscriptionData(topic="orders", subString=tags, subVersion=version)
    group = ConsumerData(groupName="readers", subscriptionDataSet=[subscription])
    return HeartbeatData(clientID=client_id, consumerDataSet=[group])


def is_short(message: HeartbeatData) -> bool:
    assert message.heartbeatFingerprint != 0
    has_none = not any(group.subscriptionDataSet for group in message.consumerDataSet)
    assert has_none == message.withoutSub
    return message.withoutSub


def test_a_fingerprint_is_that_of_what_is_subscribed() -> None:
    assert Fingerprint.of(described()).number == Fingerprint.of(described(8, "c2")).number
    assert Fingerprint.of(described()) != Fingerprint.of(described(8))
    assert Fingerprint.of(described()).number != Fingerprint.of(described(tags="paid")).number


def test_a_broker_that_understands_hears_subscriptions_once() -> None:
    short = ShortHeartbeats()
    assert not is_short(short.message("b", described()))
    short.heard("b", described(), UNDERSTOOD)
    assert is_short(short.message("b", described()))
    assert not is_short(short.message("another", described()))
    assert not is_short(short.message("b", described(tags="paid")))
    assert not is_short(short.message("b", described(version=8)))


@pytest.mark.parametrize(
    "answer", [HeartbeatResponse(), replace(UNDERSTOOD, IS_SUB_CHANGE=True)], ids=["an old one", "asks"]
)
def test_one_that_does_not_or_asks_for_them_hears_them_again(answer: HeartbeatResponse) -> None:
    short = ShortHeartbeats()
    short.heard("b", described(), UNDERSTOOD)
    short.heard("b", described(), answer)
    assert not is_short(short.message("b", described()))


def test_a_new_connection_hears_everything() -> None:
    short = ShortHeartbeats()
    short.heard("b", described(), UNDERSTOOD)
    short.forget("b")
    assert not is_short(short.message("b", described()))


def test_a_consumer_with_short_heartbeats_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    encode = HeartbeatData.encode

    def note(message: bodies.HeartbeatData) -> bytes:
        if message.heartbeatFingerprint and message.clientID:
            told.append(message.withoutSub)
        return encode(message)

    monkeypatch.setattr(HeartbeatData, "encode", note)

    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 2)
            first, second = listening.Reader(), listening.Reader()
            given: dict[str, Any] = {"use_heartbeat_v2": True, "heartbeat_broker_interval": 1.0}
            async with listening.consumer(town, first, **given) as one:
                await until(town, lambda: any(told))
                async with listening.consumer(town, second, seed=2, **given):
                    await until(town, lambda: len(one.queues()) == 1)
                    await told_all(town, first, second)
                    told.clear()
                    await town.brokers[0].stop()
                    await town.clock.sleep(2)
                    await town.brokers[0].start()
                    await until(town, lambda: any(told) and not all(told))
                    await told_all(town, first, second)

    run_virtual(scene())


async def told_all(town: MemoryCluster, *readers: listening.Reader) -> None:
    before = sum(len(reader.got) for reader in readers)
    for number in range(8):
        await town.send("orders", str(number).encode())
    await until(town, lambda: sum(len(reader.got) for reader in readers) >= before + 8)


async def until(town: MemoryCluster, condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await town.clock.sleep(0.1)
