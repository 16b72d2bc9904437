"""Single pulls: reads any queue of a topic from any offset, without a position and without a commit.

The half of `PullConsumer` that Apache has as a class of its own, DefaultMQPullConsumer.
"""

from dataclasses import dataclass

from turbopump.client import rules
from turbopump.client.errors import InvalidArgument, NotRunning
from turbopump.client.group.rebalancer import readable_queues
from turbopump.client.group.subscription import ALL, Subscription, parse_expression
from turbopump.client.instance import ClientInstance
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.pull.member import PullMember
from turbopump.client.pull.puller import PullStatus
from turbopump.client.queue_names import QueueNames
from turbopump.client.settings import PullSettings
from turbopump.client.times import Time, past_ms
from turbopump.client.world import World


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of one `pull`: its status, its messages, and offsets of the queue."""

    status: PullStatus
    messages: list[MessageExt]
    next_offset: int
    """Where the next pull begins."""
    min_offset: int
    """The offset of the first message that the queue still has."""
    max_offset: int
    """The offset that the queue's next message will have."""


class SinglePulls:
    """Base of `PullConsumer` that reads any queue from any offset by single pulls, without commits."""

    settings: PullSettings
    _member: PullMember
    _world: World
    _instance: ClientInstance | None
    _is_closed: bool

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Returns all readable queues of the topic. Raises TopicNotFound."""
        rules.check_topic(topic)
        found = await readable_queues(self._running(), self._names.topic(topic))
        return self._names.all_shown(found)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        n: int | None = None,
        expression: str = ALL,
        wait: float = 0.0,
        *,
        sql: str | None = None,
        module: str | None = None,
    ) -> Pulled:
        """Pulls once: at most `n` messages (default `pull_batch_size`) of the queue from `offset` on.

        When there are none, the broker waits for one up to `wait` seconds. The pull moves no position and
        commits nothing: call `commit({queue: result.next_offset})`. Raises Refused or OSError.

            offset = await consumer.committed(queue) or 0
            result = await consumer.pull(queue, offset, 32, "paid", wait=20)
            for message in result.messages: ...
        """
        self._running()
        if offset < 0 or (n is not None and n <= 0):
            raise InvalidArgument(f"offset must be at least 0 and n at least 1, got {offset} and {n}")
        settings = self.settings
        patience_s = settings.consumer_pull_timeout
        if wait > 0:
            patience_s = wait + settings.consumer_timeout_when_suspend - settings.broker_suspend_max_time
        subscription = self._subscription(queue.topic, expression, sql, module)
        result = await self._member.puller.pull(
            self._names.on_wire(queue),
            offset,
            subscription.text,
            n or settings.pull_batch_size,
            wait,
            kind=subscription.kind,
            max_bytes=settings.pull_batch_size_in_bytes,
            timeout_s=patience_s,
        )
        messages = result.messages(self._names.shown(queue), subscription, self._names.namespace)
        return Pulled(result.status, messages, result.next_offset, result.min_offset, result.max_offset)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Returns the offset of the first message that the queue still has."""
        self._running()
        return await self._member.puller.min_offset(self._names.on_wire(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Returns the offset that the queue's next message will have."""
        self._running()
        return await self._member.puller.max_offset(self._names.on_wire(queue))

    async def offset_at(self, queue: MessageQueue, when: Time) -> int:
        """Returns the offset of the first message stored at that time or later; if there is none, the end.

        Brokers of 4.x return the nearest message, before or after that time.
        """
        self._running()
        return await self._member.puller.offset_at(
            self._names.on_wire(queue), past_ms(when, self._world.clock.now_ms())
        )

    @property
    def _names(self) -> QueueNames:
        return self._member.names

    def _subscription(
        self, topic: str, tags: str, sql: str | None = None, module: str | None = None
    ) -> Subscription:
        rules.check_topic(topic)
        expression, kind = parse_expression(tags, sql, module)
        return Subscription(self._names.topic(topic), expression, self._world.clock.now_ms(), kind)

    def _running(self) -> ClientInstance:
        if self._is_closed:
            raise NotRunning("this consumer is closed; make a new one")
        if self._instance is None:
            raise NotRunning("this consumer is not started: use `async with` or start()")
        return self._instance
