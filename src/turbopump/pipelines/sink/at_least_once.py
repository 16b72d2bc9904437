"""Writes rows at least once: batch sends, each awaited before the task ends.

In: the Arrow batches of a task. Out: the number of messages that brokers have acknowledged. What is not
acknowledged is sent again for a while, then the task fails and Spark repeats it: so a message may be stored
twice. Works with every broker, Apache's too. Rows with a sharding key keep their order within a task.
"""

from collections.abc import Iterable
from typing import Any

from turbopump.client.admin.admin import Admin
from turbopump.client.errors import ClientError
from turbopump.client.message import Message, MessageQueue, SendStatus
from turbopump.client.produce.batches import prepared_batch
from turbopump.client.produce.packer import MessagePacker
from turbopump.client.produce.prepared_send import PreparedSend
from turbopump.client.produce.sender import Pick
from turbopump.pipelines.sink.connections import ConnectionCache, retry_while_unavailable
from turbopump.pipelines.sink.frames import Frame, Lane, lanes
from turbopump.pipelines.sink.row_pipeline import new_key_prefix, send_all
from turbopump.pipelines.sink.rows import MessageRows
from turbopump.pipelines.sink.settings import SinkOptions
from turbopump.protocol import properties
from turbopump.runtime.tasks import call_concurrently

GROUP = "spark-rocketmq-sink"
MAX_CONCURRENT_LANES = 4


class StoredUnsafely(ClientError, OSError):
    """The broker stored the message, but could not sync or replicate it as configured."""


class RowSender:
    """Sends rows from this process to one cluster."""

    def __init__(self, sink: SinkOptions) -> None:
        self._sink = sink
        self._admin = Admin(sink.name_servers, **sink.client_options)
        self._sender = self._admin.producer(GROUP)

    async def close(self) -> None:
        await self._sender.close()
        await self._admin.close()

    def key_prefix(self) -> str:
        return new_key_prefix(self._admin.clock, self._admin.chance)

    async def send(self, rows: MessageRows, before: int) -> None:
        """Sends rows, and returns when brokers have stored all of them."""
        queues = {topic: await self._queue_count(topic) for topic in rows.topics}

        async def send_lane(lane: Lane) -> None:
            for frame in lane.frames:
                await self._deliver(frame, lane.queue)

        await call_concurrently(send_lane, lanes(rows, queues), MAX_CONCURRENT_LANES)

    async def _queue_count(self, topic: str) -> int:
        name = self._sender.packer.template(topic).topic
        route = await self._retry(lambda: self._sender.route(name, self._sink.patience_s))
        return len(route.publish)

    async def _deliver(self, frame: Frame, queue: int | None) -> None:
        prepared = prepared_of(self._sender.packer, frame)
        pick = None if queue is None else by_position(queue)
        result = await self._retry(lambda: self._sender.deliver(prepared, self._sink.patience_s, pick))
        if result.status is not SendStatus.SEND_OK:
            raise StoredUnsafely(
                f"broker {result.queue.broker} answered {result.status.name} for topic {frame.topic}"
            )

    async def _retry(self, ask: Any) -> Any:
        return await retry_while_unavailable(ask, self._sink.patience_s, self._admin.clock)


def prepared_of(packer: MessagePacker, frame: Frame) -> PreparedSend:
    if frame.alone is None:
        return prepared_batch(packer, frame.topic, frame.body)
    key = properties.find(frame.alone, properties.UNIQUE_KEY) or ""
    return PreparedSend(Message(frame.topic, b""), packer.template(frame.topic), frame.body, frame.alone, key)


def by_position(queue: int) -> Pick:
    """Returns a queue selector that picks the queue at this position, modulo the number of queues."""

    def pick(queues: Any) -> MessageQueue:
        found: MessageQueue = queues[queue % len(queues)]
        return found

    return pick


_senders: ConnectionCache[RowSender] = ConnectionCache()


def write(sink: SinkOptions, batches: Iterable[Any]) -> int:
    """Sends all rows of a task, and returns how many there were."""
    sender = _senders.get(sink, lambda: RowSender(sink))
    try:
        return send_all(batches, sink.topic, sender.key_prefix, sender.send)
    except BaseException:
        _senders.drop(sink)
        raise
