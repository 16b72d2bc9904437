"""Large numbers of connections, topics and parked pulls. The largest are marked `long`."""

from __future__ import annotations

import resource
import time
from contextlib import ExitStack

import pytest

from . import wire
from .target import Target
from .wire import Peer, message, pull, topic_settings

# `turbopump up` keeps 1,000 descriptors for files and shares the others among three servers.
ENOUGH_DESCRIPTORS = pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 17_000, reason="ulimit -Hn is below 17,000"
)


def sizes(ordinary: int, real: int) -> list[object]:
    return [ordinary, pytest.param(real, marks=pytest.mark.long)]


@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=ENOUGH_DESCRIPTORS)])
def test_idle_connections(target: Target, role: str, count: int) -> None:
    with ExitStack() as connected, target.growth(f"{count} idle connections", 32 + count * 0.01, role):
        idle = connected.enter_context(wire.crowd(target.addresses[role], count))
        target.is_served(f"among {count} idle connections", role)
        before = target.cpu_s(role)
        time.sleep(2)
        target.bound(f"CPU of the {role} in 2 s with {count} idle", target.cpu_s(role) - before, 0.5, "s")
        assert not idle[0].is_closed(0.01)
    target.is_served(f"after {count} idle connections", role)


@pytest.mark.parametrize("count", sizes(500, 10_000))
def test_connections_that_come_and_go(target: Target, role: str, count: int) -> None:
    come_and_go(target, role, count)  # the first round costs up to 32 MiB, which the next one reuses
    with target.growth(f"{count} connections that came and went", 16, role):
        come_and_go(target, role, count)
        target.is_served(f"after {count} connections came and went", role)


def come_and_go(target: Target, role: str, count: int) -> None:
    for number in range(count):
        peer = Peer(target.addresses[role])
        if number % 3 == 0:
            peer.send(b"\x00\x00")
        peer.reset()


@pytest.mark.parametrize("count", sizes(1000, 20_000))
def test_parked_pulls_are_woken_by_one_message(target: Target, count: int) -> None:
    topic = f"hostile_parked_{count}"
    each = 50
    with Peer(target.broker, timeout_s=60) as sender, wire.crowd(target.broker, count // each) as waiting:
        assert sender.ask(wire.SEND, message(topic), b"first").code == wire.OK
        with target.growth(f"{count} parked pulls", 8 + count * 0.01):
            for peer in waiting:
                peer.send(
                    b"".join(
                        wire.request(wire.PULL, pull(topic, offset=1, suspend=True)) for _ in range(each)
                    )
                )
            time.sleep(1)
            target.is_served(f"among {count} parked pulls")
        began = time.monotonic()
        assert sender.ask(wire.SEND, message(topic), b"second").code == wire.OK
        codes = [peer.answer().code for peer in waiting for _ in range(each)]
        assert set(codes) == {wire.OK}
        target.bound(f"{count} parked pulls woken in", time.monotonic() - began, 1 + count / 2000, "s")


@pytest.mark.parametrize("count", sizes(1000, 20_000))
def test_parked_pulls_whose_connections_die(target: Target, count: int) -> None:
    topic = f"hostile_dead_{count}"
    each = 50
    with Peer(target.broker, timeout_s=60) as sender:
        assert sender.ask(wire.SEND, message(topic), b"first").code == wire.OK
        with target.growth(f"{count} parked pulls of dead connections", 8 + count * 0.01):
            with wire.crowd(target.broker, count // each) as waiting:
                for peer in waiting:
                    one = wire.request(wire.PULL, pull(topic, offset=1, suspend=True))
                    peer.send(one * each)
                time.sleep(0.5)
                for peer in waiting:
                    peer.reset()
            assert sender.ask(wire.SEND, message(topic), b"second").code == wire.OK
            target.is_served(f"after {count} parked pulls died")


@pytest.mark.parametrize("count", sizes(500, 10_000))
def test_topics_created_in_one_go(target: Target, count: int) -> None:
    requests = [
        wire.request(wire.CREATE_TOPIC, topic_settings(f"hostile_{count}_{n}"), opaque=n + 1)
        for n in range(count)
    ]
    with (
        target.growth(f"{count} topics created", 8 + count * 0.02),
        Peer(target.broker, timeout_s=120) as admin,
    ):
        began = time.monotonic()
        for start in range(0, count, 100):
            admin.send(b"".join(requests[start : start + 100]))
            assert {admin.answer().code for _ in requests[start : start + 100]} == {wire.OK}
        target.bound(f"{count} topics created in", time.monotonic() - began, 1 + count * 0.01, "s")
        target.is_served(f"after {count} topics")
        assert admin.ask(wire.SEND, message(f"hostile_{count}_{count - 1}"), b"last").code == wire.OK
    routed(target, f"hostile_{count}_{count - 1}")


@pytest.mark.parametrize("count", sizes(500, 10_000))
def test_topics_created_by_sends(target: Target, count: int) -> None:
    with (
        target.growth(f"{count} topics created by sends", 8 + count * 0.03),
        Peer(target.broker, timeout_s=120) as sender,
    ):
        began = time.monotonic()
        for start in range(0, count, 100):
            names = [f"hostile_auto_{count}_{n}" for n in range(start, start + 100)]
            sender.send(b"".join(wire.request(wire.SEND, message(name), b"x") for name in names))
            assert {sender.answer().code for _ in names} == {wire.OK}
        target.bound(f"{count} topics created by sends in", time.monotonic() - began, 1 + count * 0.01, "s")
        target.is_served(f"after {count} topics created by sends")
    routed(target, f"hostile_auto_{count}_{count - 1}")


@pytest.mark.parametrize("count", sizes(2000, 10_000))
def test_messages_none_like_the_other(target: Target, count: int) -> None:
    """A cache of properties must be limited."""
    topic = "hostile_unlike"
    filler = "v" * 30_000
    with (
        target.growth(f"{count} messages with unlike properties", 48),
        Peer(target.broker, timeout_s=60) as sender,
    ):
        for start in range(0, count, 20):
            texts = [
                f"UNIQ_KEY\x01{n:032X}\x02KEYS\x01key{n}\x02p\x01{n}{filler}\x02"
                for n in range(start, start + 20)
            ]
            sender.send(
                b"".join(wire.request(wire.SEND, message(topic, properties=text), b"x") for text in texts)
            )
            assert {sender.answer().code for _ in texts} == {wire.OK}
        target.is_served(f"after {count} unlike messages")


def routed(target: Target, topic: str) -> None:
    """Waits until the topic is registered with the name server."""
    began = time.monotonic()
    with Peer(target.addresses["namesrv"], timeout_s=30) as peer:
        while peer.ask(wire.ROUTE, {"topic": topic}).code != wire.OK:
            assert time.monotonic() < began + 60, "no route"
            time.sleep(0.05)
    target.bound(f"{topic} known to the name server after", time.monotonic() - began, 5.0, "s")
