"""Allocation strategies: what Apache's classes answered to thousands of questions, ours answer too.

The recording is made by tests/interop/java/strategies/Strategies.java; names follow from its numbers here as
they do there.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.client.errors import InvalidArgument
from turbopump.client.group.strategies import (
    ByConfig,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    Strategy,
    averagely,
    by_circle,
)
from turbopump.client.message import MessageQueue

RECORDED = Path(__file__).parents[2] / "compat" / "recorded" / "strategies.json"
ROOMS = ("east", "north", "south", "west")
NOBODY = "10.9.9.9@nobody#1"


def room_of_queue(queue: MessageQueue) -> str:
    return queue.broker.replace("@", "-").split("-")[0]


def room_of_member(client_id: str) -> str:
    return client_id.split("-")[0]


def near(inner: Strategy) -> Strategy:
    return MachineRoomNearby(inner, room_of_queue, room_of_member)


STRATEGIES: dict[str, Strategy] = {
    "average": averagely,
    "circle": by_circle,
    "hash": ConsistentHash(),
    "hash3": ConsistentHash(3),
    "room": MachineRoom({"east", "west"}),
    "near": near(averagely),
    "near-circle": near(by_circle),
    "near-hash": near(ConsistentHash()),
}


def broker_name(style: int, broker: int) -> str:
    if style == 4:
        return f"broker-{broker}"
    return f"{ROOMS[broker % 4]}@broker-{broker}@" if style == 5 else f"{ROOMS[style]}@broker-{broker}"


def member_id(salt: int, member: int) -> str:
    room = ROOMS[(member * 7 + salt) % 3]
    return f"{room}-10.0.{salt}.{member}@{1000 + member * 37 + salt}#{salt * 7919 + member * 104729}"


def test_every_recorded_answer_of_apaches_is_ours() -> None:
    asked: Counter[str] = Counter()
    for line in json.loads(RECORDED.read_text()):
        kind, salt, shape, count, place, result = line.split()
        queues = sorted(
            MessageQueue(f"Topic{salt}", broker_name(int(style), broker), number)
            for broker, (style, own) in enumerate(part.split(":") for part in shape.split(","))
            for number in range(int(own))
        )
        members = sorted(member_id(int(salt), number) for number in range(int(count)))
        me = members[int(place)] if int(place) < len(members) else NOBODY
        expected = [] if result == "-" else [queues[int(at)] for at in result.split(",")]
        assert list(STRATEGIES[kind](queues, members, me)) == expected, line
        asked[kind] += 1
    assert set(asked) == set(STRATEGIES)
    assert min(asked.values()) >= 500


@given(
    st.lists(st.builds(MessageQueue, st.just("t"), st.sampled_from(["a", "b"]), st.integers(0)), unique=True),
    st.lists(st.text("abc@#1", min_size=1), unique=True, min_size=1),
    st.sampled_from([averagely, by_circle, ConsistentHash()]),
)
def test_every_queue_has_one_owner(
    queues: list[MessageQueue], members: list[str], strategy: Strategy
) -> None:
    shares = [strategy(sorted(queues), sorted(members), me) for me in members]
    assert sorted(queue for part in shares for queue in part) == sorted(queues)


def test_configured_queues_are_given_whoever_is_there() -> None:
    mine = (MessageQueue("t", "a", 3),)
    assert ByConfig(mine)([], [], "me") == mine


def test_a_thing_without_a_room_and_a_negative_ring_are_refused() -> None:
    homeless = MachineRoomNearby(averagely, lambda queue: "", room_of_member)
    with pytest.raises(InvalidArgument, match="the machine room of"):
        homeless([MessageQueue("t", "a", 0)], ["east-1"], "east-1")
    with pytest.raises(InvalidArgument, match="virtual_nodes"):
        ConsistentHash(-1)
