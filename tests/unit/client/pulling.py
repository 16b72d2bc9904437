"""Pull consumers for tests: of group `readers`, from the first message of `orders` on."""

from typing import Any

from tests.unit.admin.kit import NAMESRV, MemoryCluster

from turbopump.client.group.offsets import GroupOffsets
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.pull.consumer import PullConsumer
from turbopump.client.settings import ConsumeFromWhere
from turbopump.client.world import World
from turbopump.protocol.codes import ResponseCode
from turbopump.remoting.router import Answer, Request
from turbopump.runtime.chance import Chance

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
QUEUES = tuple(MessageQueue("orders", "broker-a", number) for number in range(4))


def consumer(town: MemoryCluster, *, seed: int = 1, group: str = "readers", **settings: Any) -> PullConsumer:
    world = World(town.network, town.clock, Chance(seed))
    wanted: dict[str, Any] = {"topics": ["orders"], "consume_from_where": FIRST} | settings
    return PullConsumer(group, name_servers=NAMESRV, world=world, **wanted)


async def sent(town: MemoryCluster, count: int, start: int = 0, **message: Any) -> list[str]:
    texts = [f"{number:03}" for number in range(start, start + count)]
    for text in texts:
        await town.send("orders", text.encode(), **message)
    return texts


async def all_of(reader: PullConsumer, timeout: float = 1.0) -> list[MessageExt]:  # noqa: ASYNC109
    found: list[MessageExt] = []
    while messages := await reader.poll(timeout):
        found += messages
    return found


def texts_of(messages: list[MessageExt]) -> list[str]:
    return sorted(message.text for message in messages)


async def committed(town: MemoryCluster, group: str = "readers") -> list[int | None]:
    offsets = GroupOffsets(town.admin.client, town.admin.routes, group)
    return [await offsets.query(queue) for queue in QUEUES]


def nothing_known(request: Request[None]) -> Answer:
    return Answer({}, code=ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info in name server")
