"""Pauses between the tries of a send, and a broker that is away for a part of the time."""

import pytest
from tests.kit import virtual
from tests.unit.client.kit import BROKER_A, BROKER_B, stored
from tests.unit.client.producer_retries_kit import SEND, Scene

from turbopump.client.errors import SendFailed
from turbopump.client.message import Message, MessageQueue
from turbopump.client.produce.backoff import FIRST_PAUSE_S, MAX_PAUSE_S, pause_s
from turbopump.remoting.connection import ConnectionClosed
from turbopump.testing import AsyncCluster


def test_pauses_double_up_to_a_bound_and_jitter_takes_up_to_half() -> None:
    assert [pause_s(round, 0.0) for round in range(6)] == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5]
    assert pause_s(10_000, 0.0) == MAX_PAUSE_S
    assert pause_s(0, 1.0) == FIRST_PAUSE_S / 2


@pytest.mark.parametrize("away_s", [0.3, 2.0])
@pytest.mark.parametrize("fixed", [False, True], ids=["any queue", "one queue"])
@virtual
async def test_a_send_succeeds_when_its_broker_comes_back_within_the_timeout(
    away_s: float, fixed: bool
) -> None:
    async with AsyncCluster(clock="virtual") as cluster, cluster.producer() as producer:
        await cluster.create_topic("orders", queues=1)
        queue = MessageQueue("orders", "broker-a", 0) if fixed else None
        await producer.send(Message("orders", b"before"), queue=queue)
        await cluster.kill_broker()
        clock = cluster.world.clock
        began_s = clock.monotonic()
        sending = producer.send_async(Message("orders", b"during"), queue=queue, timeout=3)
        await clock.sleep(away_s)
        assert not sending.done()
        await cluster.start_broker()
        await sending
        assert clock.monotonic() - began_s < 3
        assert [one.body for one in await cluster.messages("orders")] == [b"before", b"during"]


def test_a_broker_that_stays_away_uses_up_the_time_and_is_told_once() -> None:
    scene = Scene()
    with pytest.raises(SendFailed) as raised:
        scene.send()
    assert 2.5 <= scene.took <= 3.0
    assert 10 < len(raised.value.tries) < 40
    assert raised.value.code == 10001
    assert str(raised.value).count("nobody at") == 2
    assert f"a (0.000 s, {sum(one.broker == 'a' for one in raised.value.tries)} times)" in str(raised.value)


def test_another_broker_is_tried_without_a_pause() -> None:
    scene = Scene()
    scene.cluster.on(BROKER_B, SEND, stored)
    assert scene.send().queue.broker == "b"
    assert scene.took == 0.0


def test_a_try_that_may_have_been_stored_counts() -> None:
    """So that a message is not stored again and again."""
    scene = Scene()

    def break_off(request: object) -> object:
        raise ConnectionClosed("the connection was closed")

    for broker in (BROKER_A, BROKER_B):
        scene.cluster.on(broker, SEND, break_off)  # type: ignore[arg-type]
    with pytest.raises(SendFailed) as raised:
        scene.send()
    assert len(raised.value.tries) == 3
    assert 0 < scene.took < 0.1


def test_without_retries_there_is_one_try() -> None:
    scene = Scene(retry_times_when_send_failed=0)
    with pytest.raises(SendFailed):
        scene.send()
    assert (scene.cluster.tried(), scene.took) == (["a"], 0.0)
