"""What a topic holds, read from the broker by our client, and topics made for a test."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from tests.interop import peers, topics

from turbopump.client.admin import Admin as AsyncAdmin
from turbopump.client.group.subscription import Subscription
from turbopump.client.message import MessageExt, MessageQueue

PATIENCE_S, POLL_S = 30.0, 0.2


def make_topic(cluster: peers.Cluster, topic: str, queues: int = 4) -> None:
    topics.create(cluster, topic, queues)


def messages(cluster: peers.Cluster, topic: str) -> list[MessageExt]:
    """All of them, queue by queue."""
    return asyncio.run(_messages(cluster.namesrv, topic))


def messages_once_there(cluster: peers.Cluster, topic: str, count: int) -> list[MessageExt]:
    """As soon as there are so many: those that are delayed come later, and Apache's broker acknowledges a
    message before its queue shows it.
    """
    deadline = time.monotonic() + PATIENCE_S
    while len(found := messages(cluster, topic)) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages: {found}"
        time.sleep(POLL_S)
    return found


def bodies(cluster: peers.Cluster, topic: str, least: int = 0) -> Counter[str]:
    return Counter(message.text for message in messages_once_there(cluster, topic, least))


async def _messages(namesrv: str, topic: str) -> list[MessageExt]:
    found = []
    async with AsyncAdmin(namesrv) as admin:
        route = await admin.routes.find(topic)
        for queue in route.subscribe:
            found += await _of_queue(admin, queue)
    return found


async def _of_queue(admin: AsyncAdmin, queue: MessageQueue) -> list[MessageExt]:
    at, end = await admin.queues.min_offset(queue), await admin.queues.max_offset(queue)
    found: list[MessageExt] = []
    async for part in admin.messages.pulls(queue, at, end):
        found += part.messages(queue, Subscription(queue.topic))
    return found
