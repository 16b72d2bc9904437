"""Well-formed requests with hostile values: answered or disconnected, without effect on other clients."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import pytest

from . import wire
from .target import Target
from .wire import Peer, message, pull, topic_settings

BIG = str(2**31 - 1)
HUGE = str(10**30)
LONG_MIN, LONG_MAX = str(-(2**63)), str(2**63 - 1)
TOPIC = "hostile_values"
CREATE_GROUP, COMMIT_OFFSET, QUERY_OFFSET, MEMBERS, SEND_BACK, LOOK_UP = 200, 15, 14, 38, 36, 33

Case = tuple[int, Mapping[str, Any], bytes]


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def batch(total: int, body: int) -> bytes:
    """Returns one entry of a batch with arbitrary lengths."""
    return struct.pack(">iiiii", total, 0, 0, 0, body) + b"body" + struct.pack(">h", 0)


# Requests that must be refused: any code but 0, or a closed connection.
REFUSED: dict[str, Case] = {
    "send to a path": (wire.SEND, message("../../evil"), b"x"),
    "send to an absolute path": (wire.SEND, message("/tmp/evil"), b"x"),
    "send to a topic with a slash": (wire.SEND, message("a/evil"), b"x"),
    "send to a topic with a null": (wire.SEND, message("evil\x00"), b"x"),
    "send to no topic": (wire.SEND, message(""), b"x"),
    "send to a topic of 300 letters": (wire.SEND, message("t" * 300), b"x"),
    "send to a topic of 100,000 letters": (wire.SEND, message("t" * 100_000), b"x"),
    "send to queue 2^31-1": (wire.SEND, message(TOPIC, e=BIG), b"x"),
    "send to queue 10^30": (wire.SEND, message(TOPIC, e=HUGE), b"x"),
    "send to queue abc": (wire.SEND, message(TOPIC, e="abc"), b"x"),
    "send with no fields": (wire.SEND, {}, b"x"),
    "send with properties of 40,000 bytes": (
        wire.SEND,
        message(TOPIC, properties="k\x01" + "v" * 40_000),
        b"x",
    ),
    "send of 5 MiB": (wire.SEND, message(TOPIC), bytes(5 * 1024 * 1024)),
    "batch of garbage": (320, message(TOPIC, m="true"), b"\xff" * 100),
    "batch with an entry of 2 GiB": (320, message(TOPIC, m="true"), batch(0x7FFFFFFF, 4)),
    "batch with a body of 2 GiB": (320, message(TOPIC, m="true"), batch(26, 0x7FFFFFFF)),
    "batch with a negative entry": (320, message(TOPIC, m="true"), batch(-26, -4)),
    "batch with an entry of length 0": (320, message(TOPIC, m="true"), batch(0, 0)),
    "pull from a path": (wire.PULL, pull("../../evil"), b""),
    "pull from queue -5": (wire.PULL, pull(TOPIC, queue=-5), b""),
    "pull from queue 2^31-1": (wire.PULL, pull(TOPIC, queueId=BIG), b""),
    "pull at offset 10^30": (wire.PULL, pull(TOPIC, queueOffset=HUGE), b""),
    "pull at offset 2^63-1": (wire.PULL, pull(TOPIC, queueOffset=LONG_MAX), b""),
    "pull with no fields": (wire.PULL, {}, b""),
    "create a topic named as a path": (wire.CREATE_TOPIC, topic_settings("../../evil"), b""),
    "create a topic named with a slash": (wire.CREATE_TOPIC, topic_settings("a/evil"), b""),
    "create a topic with queues abc": (
        wire.CREATE_TOPIC,
        topic_settings("evil") | {"readQueueNums": "abc"},
        b"",
    ),
    "heartbeat of garbage": (wire.HEARTBEAT, {}, b"\x00\x01\x02{"),
    "heartbeat 100,000 deep": (wire.HEARTBEAT, {}, deep(100_000)),
    "look-up at offset 10^30": (LOOK_UP, {"offset": HUGE}, b""),
    "look-up at offset -1": (LOOK_UP, {"offset": "-1"}, b""),
    "send back what is not there": (
        SEND_BACK,
        {"offset": LONG_MAX, "group": "HOSTILE", "delayLevel": "3"},
        b"",
    ),
    "send back to a path": (SEND_BACK, {"offset": "0", "group": "../../evil", "delayLevel": "3"}, b""),
    "group of garbage": (CREATE_GROUP, {}, b"\xff\xfe"),
    "group 100,000 deep": (CREATE_GROUP, {}, deep(100_000)),
    "code 0": (0, {}, b""),
    "code -1": (-1, {}, b""),
    "code 2^31-1": (2**31 - 1, {}, b""),
    "code 10^30": (10**30, {}, b""),
}

# Requests that may get any answer, but must get one.
ANSWERED: dict[str, Case] = {
    "send with a born time of -2^63": (wire.SEND, message(TOPIC, g=LONG_MIN), b"x"),
    "send with sysFlag -1": (wire.SEND, message(TOPIC, f="-1"), b"x"),
    "send with reconsumeTimes 2^31-1": (wire.SEND, message(TOPIC, j=BIG), b"x"),
    "send with properties of separators": (wire.SEND, message(TOPIC, properties="\x01\x02" * 5000), b"x"),
    "send with 3,000 keys": (wire.SEND, message(TOPIC, properties="KEYS\x01" + "k " * 3000 + "\x02"), b"x"),
    "send with delay level 2^31-1": (wire.SEND, message(TOPIC, properties=f"DELAY\x01{BIG}\x02"), b"x"),
    "send with delay level abc": (wire.SEND, message(TOPIC, properties="DELAY\x01abc\x02"), b"x"),
    "send of a body that says compressed": (wire.SEND, message(TOPIC, f="1"), b"no zlib at all"),
    "send with a lone surrogate": (wire.SEND, message(TOPIC, properties="TAGS\x01\ud800\x02"), b"x"),
    "pull of 2^31-1 messages": (wire.PULL, pull(TOPIC, maxMsgNums=BIG), b""),
    "pull of -1 messages": (wire.PULL, pull(TOPIC, maxMsgNums="-1"), b""),
    "pull of -2^31 bytes": (wire.PULL, pull(TOPIC, maxMsgBytes=str(-(2**31))), b""),
    "pull at offset -2^63": (wire.PULL, pull(TOPIC, queueOffset=LONG_MIN), b""),
    "pull with 20,000 tags": (wire.PULL, pull(TOPIC, subscription="||".join(map(str, range(20_000)))), b""),
    "pull with SQL 5,000 deep": (
        wire.PULL,
        pull(TOPIC, expressionType="SQL92", subscription="(" * 5000 + "a>1" + ")" * 5000),
        b"",
    ),
    "pull with an unknown expression": (wire.PULL, pull(TOPIC, expressionType="COBOL"), b""),
    "pull for a group of 5,000 letters": (wire.PULL, pull(TOPIC, consumerGroup="g" * 5000), b""),
    "commit for a path": (
        COMMIT_OFFSET,
        {"consumerGroup": "../../evil", "topic": TOPIC, "queueId": "0", "commitOffset": LONG_MIN},
        b"",
    ),
    "query of 2^31-1 messages": (
        wire.QUERY,
        {"topic": TOPIC, "key": "k", "maxNum": BIG, "beginTimestamp": LONG_MIN, "endTimestamp": LONG_MAX},
        b"",
    ),
    "members of a path": (MEMBERS, {"consumerGroup": "../../evil"}, b""),
    "offset of a path": (QUERY_OFFSET, {"consumerGroup": "../..", "topic": "../..", "queueId": "0"}, b""),
    "heartbeat of 5,000 producers": (
        wire.HEARTBEAT,
        {},
        json.dumps(
            {"clientID": "h", "producerDataSet": [{"groupName": f"g{n}"} for n in range(5000)]}
        ).encode(),
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _topic(target: Target) -> None:
    with Peer(target.broker) as peer:
        assert peer.ask(wire.SEND, message(TOPIC), b"first").code == wire.OK


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(target: Target, name: str) -> None:
    code = outcome(target, REFUSED[name])
    assert code != wire.OK or not target.strict
    if code in (wire.OK, "silence"):
        target.figures.append(f"{name}: {code}")
    target.is_served(f"after {name}")


@pytest.mark.parametrize("name", ANSWERED)
def test_what_is_odd_is_answered(target: Target, name: str) -> None:
    if outcome(target, ANSWERED[name]) == "silence":
        target.figures.append(f"{name}: silence")
    target.is_served(f"after {name}")


def outcome(target: Target, case: Case) -> int | str:
    code, ext, body = case
    with Peer(target.broker, timeout_s=5 if target.strict else 2) as peer:
        try:
            peer.send(wire.request(code, ext, body, opaque=7))
            return peer.answer().code
        except wire.Closed:
            return "closed"
        except TimeoutError:
            assert not target.strict, "neither answered nor closed"
            return "silence"


def test_one_way_requests_are_never_answered(target: Target) -> None:
    """Their errors must not end the connection for the next request."""
    with Peer(target.broker) as peer:
        for code, ext, body in REFUSED.values():
            if len(body) < 1000 and 0 < code < 1000:
                peer.send(wire.request(code, ext, body, opaque=9, flag=wire.ONE_WAY))
        assert peer.ask(wire.SEND, message(TOPIC), b"after").code == wire.OK


def test_answers_nobody_asked_for_are_dropped(target: Target) -> None:
    with Peer(target.broker) as peer:
        for opaque in range(1000):
            peer.send(wire.request(0, {}, opaque=opaque, flag=1))
        assert peer.ask(wire.SEND, message(TOPIC), b"after").code == wire.OK


def test_no_name_reached_the_file_system(target: Target) -> None:
    """Runs last in this file: names with paths in them left no trace outside or inside the store."""
    if target.home is None:
        pytest.skip("the files of a running server are its own")
    strange = list(target.home.parent.rglob("*evil*"))
    assert not strange or not target.strict, strange
