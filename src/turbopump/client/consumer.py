"""The push consumer: a member of a group that pulls its share of the queues and hands messages to a listener.

Three loops: heartbeats (`membership.py`), the division of queues (`rebalance.py`), and a pull loop for each
queue that is ours. Offsets are committed every five seconds, with each pull, when a queue is given up and at
the end; a message is counted as done only when `consuming.py` says so. This module wires them and answers
what brokers ask of a consumer.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from turbopump.client.consuming import Consuming, Listener
from turbopump.client.figures import TopicFigures
from turbopump.client.instance import Instance, complain, end, instances
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.offsets import GroupOffsets
from turbopump.client.process_queue import CacheLimits, ProcessQueue
from turbopump.client.pull import BATCH, Puller, PullResult, PullStatus
from turbopump.client.rebalance import Strategy, averagely, share, shift
from turbopump.client.routes import QueueChoice
from turbopump.client.running_info import running_info
from turbopump.client.send_back import MAX_RECONSUME_TIMES, SendBack
from turbopump.client.sender import Sender
from turbopump.client.settings import ClientSettings, ConsumeFromWhere
from turbopump.client.subscription import Subscription
from turbopump.client.world import World
from turbopump.protocol import bodies
from turbopump.protocol.codes import VERSION, version_name
from turbopump.protocol.errors import (
    BrokenBody,
    BrokenRecord,
    FlowControl,
    Refused,
    SubscriptionNotFound,
    SubscriptionNotLatest,
    TopicNotFound,
)
from turbopump.protocol.names import retry_topic
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.runtime.network import Network

log = logging.getLogger(__name__)

BALANCE_S = 20.0
UNBALANCED_S = 1.0  # something could not be had: look again soon
COMMIT_S = 5.0
FULL_S = 0.05
FLOW_CONTROL_S = 0.02
FAILED_PULL_S = 1.0

FAILURES = (OSError, Refused, BrokenBody, BrokenRecord)
"""What a broker or the way to it may cause. It is told, and tried again."""


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Names and defaults are Apache's, in Python's spelling."""

    group: str
    subscriptions: Mapping[str, str]
    """Topic to expression over tags: `*`, or `A || B`."""
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp_ms: int = 0
    consume_concurrency: int = 20
    consume_message_batch_max_size: int = 1
    pull_batch_size: int = BATCH
    max_reconsume_times: int = MAX_RECONSUME_TIMES
    cache: CacheLimits = field(default_factory=CacheLimits)
    allocate: Strategy = averagely
    stop_patience_s: float = 30.0
    """How long `stop` waits for listeners that are at work."""


class PushConsumer:
    """Consumes as a member of a group, clustering, in no particular order.

    Example:

        async def listen(messages: Sequence[MessageExt]) -> ConsumeStatus:
            for message in messages:
                print(message.body)
            return ConsumeStatus.CONSUME_SUCCESS

        config = ConsumerConfig("readers", {"orders": "*"})
        async with PushConsumer(config, listen, ["127.0.0.1:9876"], SystemNetwork(), SystemClock()):
            await asyncio.sleep(60)

    What the listener raises, or answers with RECONSUME_LATER, is delivered again later, at most
    `max_reconsume_times` times; then it goes to the group's dead-letter topic.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        listener: Listener,
        name_servers: Sequence[str],
        network: Network,
        clock: Clock,
        chance: Chance | None = None,
    ) -> None:
        self.config = config
        self._name_servers = tuple(name_servers)
        self._world = World(network, clock, chance or Chance())
        self._clock = clock
        self._listener = listener
        self._figures: dict[str, TopicFigures] = {}
        self._held: dict[MessageQueue, ProcessQueue] = {}
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}
        self._due = asyncio.Event()
        self._stack = contextlib.AsyncExitStack()
        self._started_ms = clock.now_ms()
        wanted = {**config.subscriptions, retry_topic(config.group): "*"}
        self._subscriptions = {
            topic: Subscription(topic, expression, self._started_ms) for topic, expression in wanted.items()
        }

    # Life

    async def start(self) -> None:
        """Returns when the brokers know us. Raises NoNameServer when none can be reached."""
        shared = instances()
        self._instance = instance = await shared.take(ClientSettings(), self._name_servers, self._world)
        self._stack.push_async_callback(shared.give_back, instance)
        self.client_id = instance.client_id
        self._routes = instance.routes
        self._puller = Puller(instance.client, instance.routes, self.config.group)
        self._offsets = GroupOffsets(instance.client, instance.routes, self.config.group)
        self._consuming = self._make_consuming(instance)
        await instance.join_consumer(self)
        self._stack.push_async_callback(instance.leave_consumer, self.config.group)
        self._stack.push_async_callback(self._commit)
        self._keep_running(self._commit_regularly())
        self._stack.push_async_callback(self._consuming.stop, self.config.stop_patience_s)
        self._stack.push_async_callback(self._pull_no_more)
        self._keep_running(self._balance_regularly())

    async def stop(self) -> None:
        """Pulls no more, lets listeners finish what they have in hand, commits, and leaves the group."""
        await self._stack.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _keep_running(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(complain)
        self._stack.push_async_callback(end, task)

    def _make_consuming(self, instance: Instance) -> Consuming:
        sender = Sender(
            instance.client,
            instance.routes,
            self._clock,
            instance.unique_ids,
            QueueChoice(self._world.chance),
        )
        config = self.config
        return Consuming(
            self._listener,
            SendBack(sender, config.group, config.max_reconsume_times),
            self._clock,
            self._figures_of,
            config.consume_concurrency,
            config.consume_message_batch_max_size,
        )

    # What brokers and tools ask

    @property
    def group(self) -> str:
        return self.config.group

    def topics(self) -> Iterable[str]:
        return self._subscriptions

    def describe(self) -> bodies.ConsumerData:
        return bodies.ConsumerData(
            groupName=self.config.group,
            consumeType="CONSUME_PASSIVELY",
            messageModel="CLUSTERING",
            consumeFromWhere=self.config.consume_from_where.name,
            subscriptionDataSet=[one.to_wire() for one in self._subscriptions.values()],
        )

    def members_changed(self) -> None:
        self._due.set()

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            if queue in self._held:
                await self._move(queue, offset)

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return {queue: held.committable for queue, held in self._held.items() if queue.topic == topic}

    def running_info(self, with_stacks: bool) -> bodies.ConsumerRunningInfo:
        return running_info(
            self._properties(),
            self._subscriptions.values(),
            self._held,
            self._figures,
            self._clock.monotonic(),
        )

    async def consume_directly(self, message: MessageExt) -> bodies.ConsumeMessageDirectlyResult:
        return await self._consuming.directly(message)

    # Which queues are ours

    async def _balance_regularly(self) -> None:
        while True:
            self._due.clear()
            pause_s = BALANCE_S if await self._balance() else UNBALANCED_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._due.wait()

    async def _balance(self) -> bool:
        """True when we hold exactly what is ours."""
        return all([await self._balance_topic(topic) for topic in self._subscriptions])

    async def _balance_topic(self, topic: str) -> bool:
        try:
            queues = await self._queues(topic)
            members = await self._instance.heartbeats.members(self.config.group, topic)
        except FAILURES as error:
            log.info("Queues of %s cannot be divided now: %s", topic, error)
            return False
        if self.client_id not in members:  # then our queues are others' by now, until we are back
            self._instance.heartbeats.renew()
        mine = share(queues, members, self.client_id, self.config.allocate)
        change = shift([queue for queue in self._held if queue.topic == topic], mine)
        await asyncio.gather(*(self._drop(queue) for queue in change.dropped))
        taken = await asyncio.gather(*(self._take(queue) for queue in change.taken))
        if change.dropped or any(taken):
            log.info("Group %s, topic %s: %d queues are ours", self.config.group, topic, len(mine))
        return self.client_id in members and all(taken)

    async def _queues(self, topic: str) -> tuple[MessageQueue, ...]:
        with contextlib.suppress(OSError):  # then what was known serves
            await self._routes.refresh(topic)
        return (await self._routes.find(topic)).subscribe

    async def _take(self, queue: MessageQueue) -> bool:
        try:
            start = await self._start_of(queue)
        except FAILURES as error:
            log.warning("Where to begin in %s cannot be known yet: %s", queue, error)
            return False
        held = self._held[queue] = ProcessQueue(start)
        pull = self._pulls[queue] = asyncio.get_running_loop().create_task(self._pull_regularly(queue, held))
        pull.add_done_callback(lambda task: self._pull_ended(queue, held, task))
        return True

    async def _start_of(self, queue: MessageQueue) -> int:
        stored = await self._offsets.query(queue)
        if stored is not None:
            return stored
        is_retry = queue.topic == retry_topic(self.config.group)
        match self.config.consume_from_where:
            case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
                return 0  # the broker's first answer corrects it
            case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP if not is_retry:
                return await self._puller.offset_at(queue, self.config.consume_timestamp_ms)
            case ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET if is_retry:
                return 0
            case _:
                return await self._puller.max_offset(queue)

    async def _drop(self, queue: MessageQueue) -> None:
        """The queue is another's, who goes on where we committed."""
        held = self._give_up(queue)
        await self._commit_one(queue, held.committable)

    async def _move(self, queue: MessageQueue, offset: int) -> None:
        """The group is to go on elsewhere in this queue: give it up, and take it again from there."""
        self._give_up(queue)
        log.info("Group %s goes on in %s at offset %d", self.config.group, queue, offset)
        await self._commit_one(queue, offset)
        self._due.set()

    def _give_up(self, queue: MessageQueue) -> ProcessQueue:
        held = self._held.pop(queue)
        held.dropped = True
        pull = self._pulls.pop(queue)
        if pull is not asyncio.current_task():
            pull.cancel()
        return held

    def _pull_ended(self, queue: MessageQueue, held: ProcessQueue, task: asyncio.Task[None]) -> None:
        """A loop that died by a fault of ours is begun anew, from what was committed."""
        complain(task)
        if not task.cancelled() and task.exception() is not None and self._held.get(queue) is held:
            self._give_up(queue)

    async def _pull_no_more(self) -> None:
        pulls = list(self._pulls.values())
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)

    # Pulling

    async def _pull_regularly(self, queue: MessageQueue, held: ProcessQueue) -> None:
        while not held.dropped:
            if held.is_full(self.config.cache):
                await self._clock.sleep(FULL_S)
                continue
            try:
                result = await self._pull(queue, held)
            except FlowControl:
                await self._clock.sleep(FLOW_CONTROL_S)
            except (SubscriptionNotFound, SubscriptionNotLatest):
                self._instance.heartbeats.renew()
                await self._clock.sleep(FAILED_PULL_S)
            except FAILURES as error:
                log.info("Pulling %s failed, trying again: %s", queue, error)
                self._routes.doubt(queue.topic)
                await self._clock.sleep(FAILED_PULL_S)
            else:
                if result.status is PullStatus.OFFSET_ILLEGAL:
                    await self._move(queue, result.next_offset)
                    return
                self._take_in(queue, held, result)

    async def _pull(self, queue: MessageQueue, held: ProcessQueue) -> PullResult:
        held.last_pull_ms = self._clock.now_ms()
        began_s = self._clock.monotonic()
        version = self._subscriptions[queue.topic].version
        result = await self._puller.pull_as_member(
            queue, held.next_offset, version, held.committable, self.config.pull_batch_size
        )
        now_s = self._clock.monotonic()
        figures = self._figures_of(queue.topic)
        figures.pulls.add(now_s, 1, (now_s - began_s) * 1000)
        figures.pulled.add(now_s, len(result.records))
        return result

    def _take_in(self, queue: MessageQueue, held: ProcessQueue, result: PullResult) -> None:
        wanted = result.messages(queue, self._subscriptions[queue.topic])
        held.put([message.record for message in wanted], result.next_offset)
        self._consuming.submit(held, wanted)

    def _figures_of(self, topic: str) -> TopicFigures:
        return self._figures.setdefault(topic, TopicFigures())

    # Offsets

    async def _commit_regularly(self) -> None:
        while True:
            await self._clock.sleep(COMMIT_S)
            for queue, held in list(self._held.items()):
                with contextlib.suppress(OSError, TopicNotFound):
                    await self._offsets.tell(queue, held.committable)

    async def _commit(self) -> None:
        await asyncio.gather(
            *(self._commit_one(queue, held.committable) for queue, held in self._held.items())
        )

    async def _commit_one(self, queue: MessageQueue, offset: int) -> None:
        try:
            await self._offsets.commit(queue, offset)
        except (OSError, Refused) as error:
            log.warning("Offset %d of %s is not committed: %s", offset, queue, error)

    def _properties(self) -> dict[str, str]:
        config = self.config
        return {
            "PROP_NAMESERVER_ADDR": ";".join(self._instance.name_servers.addresses),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CLIENT_VERSION": version_name(VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_THREADPOOL_CORE_SIZE": str(config.consume_concurrency),
            "PROP_CONSUMEORDERLY": "false",
            "consumerGroup": config.group,
            "messageModel": "CLUSTERING",
            "consumeFromWhere": config.consume_from_where.name,
            "consumeMessageBatchMaxSize": str(config.consume_message_batch_max_size),
            "pullBatchSize": str(config.pull_batch_size),
            "maxReconsumeTimes": str(config.max_reconsume_times),
        }
