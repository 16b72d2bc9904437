"""Peers that do not read answers: unread answers must not fill the server's memory."""

from __future__ import annotations

import time

import pytest

from . import wire
from .target import Target
from .wire import Peer, message, pull

TOPIC = "hostile_slow"
BODY = 32 * 1024
PER_READER_MIB = 4  # one answer over the high water mark, and the queue behind it
ALL_READERS_MIB = 256
SLACK_MIB = 32


@pytest.fixture(scope="module", autouse=True)
def _messages(target: Target) -> None:
    with Peer(target.broker, timeout_s=30) as peer:
        for _ in range(64):
            assert peer.ask(wire.SEND, message(TOPIC), bytes(BODY)).code == wire.OK


@pytest.mark.parametrize(
    ("readers", "pulls"),
    [(1, 2000), (10, 500), pytest.param(200, 500, marks=pytest.mark.long)],
)
def test_pulls_whose_answers_are_not_read(target: Target, readers: int, pulls: int) -> None:
    """Every answer has 256 KiB; without a limit that is 0.5 to 25 GiB."""
    requests = b"".join(wire.request(wire.PULL, pull(TOPIC, maxMsgNums="32")) for _ in range(pulls))
    limit = readers * PER_READER_MIB + SLACK_MIB
    what = f"{readers} readers that never read {pulls} pulls"
    with wire.crowd(target.broker, readers, receive_buffer=4096) as slow, target.growth(what, limit):
        for peer in slow:
            push(peer, requests)
        time.sleep(1)
        # Each takes answers until its socket is full: one burst, in which a new client has to wait.
        target.is_served(f"among {what}", within_s=2 + 0.04 * readers)
        can_pull(target)
    target.is_served(f"after {what}")


def test_parked_pulls_whose_answers_are_not_read(target: Target) -> None:
    """One message of 1 MiB answers all of them: without a limit that is 1,440 MiB."""
    readers, pulls, topic = 24, 60, f"{TOPIC}_parked"
    requests = b"".join(wire.request(wire.PULL, pull(topic, offset=1, suspend=True)) for _ in range(pulls))
    what = f"{readers} readers that never read the answers to {pulls} parked pulls"
    with Peer(target.broker, timeout_s=30) as sender:
        assert sender.ask(wire.SEND, message(topic), b"first").code == wire.OK
        with (
            wire.crowd(target.broker, readers, receive_buffer=4096) as slow,
            target.growth(
                what, 2 * ALL_READERS_MIB + SLACK_MIB
            ),  # the allocator keeps some of what was freed
        ):
            for peer in slow:
                peer.send(requests)
            time.sleep(1)
            assert sender.ask(wire.SEND, message(topic), bytes(1 << 20)).code == wire.OK
            time.sleep(1)
            target.is_served(f"among {what}")
    target.is_served(f"after {what}")


def test_sends_whose_answers_are_not_read(target: Target) -> None:
    requests = b"".join(wire.request(wire.SEND, message(TOPIC), bytes(100)) for _ in range(20_000))
    what = "a sender that never reads 20,000 answers"
    with Peer(target.broker, receive_buffer=4096) as peer, target.growth(what, SLACK_MIB):
        push(peer, requests)
        time.sleep(0.5)
        target.is_served(f"beside {what}")


def test_a_slow_reader_gets_every_answer_in_the_end(target: Target) -> None:
    count = 200
    requests = b"".join(wire.request(wire.PULL, pull(TOPIC), opaque=n + 1) for n in range(count))
    with Peer(target.broker, timeout_s=30, receive_buffer=16 * 1024) as slow:
        assert push(slow, requests) == len(requests)
        time.sleep(0.5)
        answers = [slow.answer().opaque for _ in range(count)]
    assert sorted(answers) == list(range(1, count + 1))


def push(peer: Peer, data: bytes, patience_s: float = 1.0) -> int:
    """Writes until all is sent or the server reads nothing for a while; returns the bytes sent."""
    peer.socket.settimeout(patience_s)
    view, sent = memoryview(data), 0
    try:
        while sent < len(data):
            sent += peer.socket.send(view[sent : sent + 65536])
    except (TimeoutError, ConnectionError):
        pass
    peer.socket.settimeout(30)
    return sent


def can_pull(target: Target) -> None:
    began = time.monotonic()
    with Peer(target.broker, timeout_s=10) as peer:
        try:
            answer = peer.ask(wire.PULL, pull(TOPIC))
        except TimeoutError:
            assert not target.strict, "slow readers keep others from pulling"
            target.figures.append("a pull beside slow readers: no answer in 10 s")
            return
    assert answer.code == wire.OK
    assert len(answer.body) > BODY
    target.bound("a pull beside slow readers answered in", time.monotonic() - began, 2.0, "s")
