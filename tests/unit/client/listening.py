"""Push consumers for tests: of group `readers`, from the first message on, with a listener that remembers."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tests.unit.admin.kit import NAMESRV, Town

from turbopump.client.consumer import ConsumerConfig, PushConsumer
from turbopump.client.consuming import ConsumeStatus
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.offsets import GroupOffsets
from turbopump.client.settings import ConsumeFromWhere
from turbopump.runtime.chance import Chance

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Reader:
    """A listener that remembers what it got. `refuses` says which bodies it will not take."""

    def __init__(self, refuses: Callable[[bytes], bool] = lambda body: False) -> None:
        self.got: list[MessageExt] = []
        self.refuses = refuses
        self.pause_s = 0.0

    async def __call__(self, messages: Sequence[MessageExt]) -> ConsumeStatus:
        self.got += messages
        await asyncio.sleep(self.pause_s)
        if any(self.refuses(message.body) for message in messages):
            raise ValueError("not this one")
        return ConsumeStatus.CONSUME_SUCCESS

    @property
    def bodies(self) -> list[bytes]:
        return sorted(message.body for message in self.got)


def consumer(town: Town, reader: Reader, seed: int = 1, **config: Any) -> PushConsumer:
    wanted = {"group": "readers", "subscriptions": {"orders": "*"}, "consume_from_where": FIRST} | config
    return PushConsumer(ConsumerConfig(**wanted), reader, [NAMESRV], town.network, town.clock, Chance(seed))


async def committed(town: Town, topic: str = "orders", queues: int = 4) -> list[int | None]:
    offsets = GroupOffsets(town.admin.client, town.admin.routes, "readers")
    return [await offsets.query(MessageQueue(topic, "broker-a", number)) for number in range(queues)]
