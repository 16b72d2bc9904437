"""Steps of tests in which another member of a group becomes the leader."""

import json
from typing import Any

from tests.unit.broker_group.kit import Group
from tests.unit.replication.kit import BrokerDesk, Node

from turbopump.protocol.codes import RequestCode


async def desk_of_leader(world: Group) -> BrokerDesk:
    return BrokerDesk(world, await world.leader())


async def next_leader(world: Group) -> BrokerDesk:
    """Kills the leader without a warning; returns the next one."""
    await (await world.leader()).kill()
    return await desk_of_leader(world)


async def bodies(
    world: Group, node: Node, topic: str = "T", queue_id: int = 0, first: int = 0
) -> list[bytes]:
    """Returns all messages of a queue from `first` on, as a consumer gets them."""
    found: list[bytes] = []
    while more := await world.pull(node, topic, queue_id, first + len(found)):
        found += more
    return found


async def offset_of(desk: BrokerDesk, group: str = "CG") -> int:
    """Returns what a group has committed in the first queue of T."""
    ext = {"consumerGroup": group, "topic": "T", "queueId": 0}
    return int(((await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)).ext or {})["offset"])


async def commit_offset(desk: BrokerDesk, offset: int, group: str = "CG") -> None:
    ext = {"consumerGroup": group, "topic": "T", "queueId": 0, "commitOffset": offset}
    assert (await desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)).code == 0


async def topics_of(desk: BrokerDesk) -> dict[str, Any]:
    answer = await desk.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    table: dict[str, Any] = json.loads(answer.body)["topicConfigTable"]
    return table
