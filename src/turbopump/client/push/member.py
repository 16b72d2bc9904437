"""What runs between a consumer's start and its end: it is wired here, and answers what brokers ask.

Offsets are kept every five seconds, with each pull, when a queue is given up and at the end; a message counts
as done only when its handler took it or its broker took it back.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from turbopump.client.files import FileAccess
from turbopump.client.group.consume_stats import TopicConsumeStats
from turbopump.client.group.expressions import check_expression
from turbopump.client.group.listeners import QueueListeners
from turbopump.client.group.offsets import GroupOffsets, OffsetStore, local_offsets
from turbopump.client.group.rebalancer import Assignment, GroupAssignment
from turbopump.client.group.running_info import running_info, settings_as_text, stacks
from turbopump.client.group.send_back import SendBack
from turbopump.client.group.start_offset import StartOffset
from turbopump.client.group.subscription import Subscription
from turbopump.client.instance import ClientInstance, complain, end, keep_running
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.observe.hooks import ConsumeHook, Filter
from turbopump.client.produce.sender import Sender
from turbopump.client.pull.puller import Puller
from turbopump.client.push.assigned_queues import AssignedQueues
from turbopump.client.push.concurrent import ConcurrentDelivery
from turbopump.client.push.direct_consume import consume_directly
from turbopump.client.push.handler_invoker import HandlerInvoker
from turbopump.client.push.handlers import Handler, TagHandlers
from turbopump.client.push.locks import OrderedQueueLocks
from turbopump.client.push.ordered import OrderedDelivery, OrderedLimits
from turbopump.client.push.process_queue import CacheLimits
from turbopump.client.push.pull_loop import PullLoop, PullLoopSettings
from turbopump.client.push.workers import WorkerPoolSize
from turbopump.client.queue_names import QueueNames
from turbopump.client.routes import RoundRobin
from turbopump.client.settings import ConsumerSettings
from turbopump.protocol import bodies
from turbopump.protocol.codes import VERSION, version_name
from turbopump.protocol.errors import TopicNotFound
from turbopump.protocol.names import retry_topic

log = logging.getLogger(__name__)

FIRST_RENEWAL_S = 1.0
RECONSUME_TIMES = 16  # deliveries after the first, unless told otherwise
NO_END = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class PushPlan:
    """What is consumed, and how. Names are those on the wire."""

    group: str
    ordered: bool
    broadcast: bool
    settings: ConsumerSettings

    @property
    def max_reconsume_times(self) -> int:
        given = self.settings.max_reconsume_times
        return given if given >= 0 else NO_END if self.ordered else RECONSUME_TIMES


class PushMember:
    """A running consumer. `start` once, `stop` once."""

    def __init__(
        self,
        plan: PushPlan,
        instance: ClientInstance,
        hooks: Sequence[ConsumeHook],
        disk: FileAccess,
        listeners: QueueListeners,
        filters: Sequence[Filter] = (),
    ) -> None:
        self._plan = plan
        self._names = QueueNames(plan.settings.namespace)
        self._instance = instance
        self._clock = instance.world.clock
        self._started_ms = self._clock.now_ms()
        self._handlers: dict[str, Handler | TagHandlers] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._heard: dict[str, Subscription] = {}  # those that brokers know of
        self._figures: dict[str, TopicConsumeStats] = {}
        self._listeners = listeners
        self._filters = filters
        self._stack = contextlib.AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._telling = asyncio.Lock()
        self.is_paused = False
        settings = plan.settings
        self.crew = WorkerPoolSize(settings.consume_thread_min, settings.consume_thread_max)
        self._limits = self._limits_of_queue(1)
        self._puller = Puller(instance.client, instance.routes, plan.group)
        self._locks = self._make_locks()
        self._offsets = self._make_offsets(disk)
        self._start_of = StartOffset(self._offsets, self._puller, settings, self._started_ms).of
        self._deliveries = self._make_deliveries(
            HandlerInvoker(plan.group, self._handlers, hooks, plan.ordered, settings.namespace)
        )
        self.queues = self._make_queues(self._make_pulling())
        if not plan.broadcast:
            self._subscribe(retry_topic(plan.group), Subscription(retry_topic(plan.group)))

    # Life

    async def start(self) -> None:
        """Returns when the brokers know us."""
        settings = self._plan.settings
        await self._check_expressions()
        self._stack.push_async_callback(self._listeners.close)
        self._stack.push_async_callback(self._leave)
        await self._instance.join_consumer(self)
        self._heard = dict(self._subscriptions)
        self._stack.push_async_callback(self.queues.leave_all)
        keep_running(self._stack, self._persist_regularly(settings.persist_consumer_offset_interval))
        self._stack.push_async_callback(self._deliveries.stop, settings.await_termination_when_shutdown)
        if self._locks is not None:
            keep_running(self._stack, self._renew_locks(self._locks, settings.rebalance_lock_interval))
        keep_running(self._stack, self._expire_regularly(settings.consume_timeout))
        self._stack.push_async_callback(self.queues.pull_no_more)
        keep_running(self._stack, self.queues.keep_balanced())

    async def stop(self) -> None:
        """Pulls no more, lets handlers finish what they have in hand, commits, and leaves the group."""
        for task in list(self._tasks):
            await end(task)
        await self._stack.aclose()

    async def _leave(self) -> None:
        if self._instance.consumers.get(self.group) is self:
            await self._instance.leave_consumer(self.group)

    def resize(self, least: int, most: int) -> None:
        self.crew.least, self.crew.most = least, most
        self._deliveries.resize()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self.queues.look_soon()

    # Subscriptions

    def subscribe(self, subscription: Subscription, handler: Handler | TagHandlers) -> None:
        """Also while it runs: then the brokers hear of it at once."""
        self._handlers[self._names.shown_topic(subscription.topic)] = handler
        self._subscribe(subscription.topic, subscription)

    def announce_soon(self, topic: str) -> None:
        self._do(self._announce(topic))

    async def unsubscribe(self, topic: str) -> None:
        """Its queues are given up, and the brokers hear of it."""
        self._subscriptions.pop(topic, None)
        await self.queues.balance()
        self._handlers.pop(self._names.shown_topic(topic), None)
        await self._tell_brokers()

    def _subscribe(self, topic: str, subscription: Subscription) -> None:
        self._subscriptions[topic] = replace(subscription, version=self._clock.now_ms())

    async def _announce(self, topic: str) -> None:
        await self._tell_brokers()
        self.queues.pull_again(topic)
        self.queues.look_soon()

    async def _tell_brokers(self) -> None:
        """Pulls use a subscription when the brokers have heard it: before, they would refuse them."""
        async with self._telling:
            subscriptions = dict(self._subscriptions)
            if subscriptions == self._heard:  # with the heartbeat that someone else wanted
                return
            if not await self._instance.heartbeats.announce():
                self._instance.heartbeats.renew()
            self._heard = subscriptions

    def as_users_know(self, queues: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
        """In order, without namespace."""
        return self._names.all_shown(tuple(sorted(queues)))

    async def _check_expressions(self) -> None:
        """Raises Refused when a broker cannot choose by one of them. A topic may come later; then its broker
        says by its pulls what it can.
        """
        for subscription in self._subscriptions.values():
            with contextlib.suppress(TopicNotFound):
                await check_expression(self._instance, self._plan.settings, self.group, subscription)

    # What brokers and tools ask

    @property
    def group(self) -> str:
        return self._plan.group

    @property
    def manner(self) -> tuple[bool, bool]:
        """Ordered, broadcasting."""
        return self._plan.ordered, self._plan.broadcast

    @property
    def client_id(self) -> str:
        return self._instance.client_id

    def topics(self) -> Sequence[str]:
        return list(self._subscriptions)

    def describe(self) -> bodies.ConsumerData:
        settings = self._plan.settings
        return bodies.ConsumerData(
            groupName=self.group,
            consumeType="CONSUME_PASSIVELY",
            messageModel=self._model,
            consumeFromWhere=settings.consume_from_where.name,
            subscriptionDataSet=[one.to_wire() for one in self._subscriptions.values()],
            unitMode=settings.unit_mode,
        )

    def members_changed(self) -> None:
        self.queues.look_soon()

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            await self.queues.move(queue, offset)

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return {queue: at for queue, at in self.queues.positions().items() if queue.topic == topic}

    def running_info(self, with_stacks: bool) -> bodies.ConsumerRunningInfo:
        told = running_info(
            self._properties(),
            self._subscriptions.values(),
            self.queues.ours,
            self._figures,
            self._clock.monotonic(),
        )
        if with_stacks:
            told.jstack = stacks()
        return told

    async def consume_directly(self, message: MessageExt) -> bodies.ConsumeMessageDirectlyResult:
        one = structs.replace(message, namespace=self._plan.settings.namespace)
        return await consume_directly(self._deliveries.calling, one, self._clock)

    @property
    def _model(self) -> str:
        return "BROADCASTING" if self._plan.broadcast else "CLUSTERING"

    def _properties(self) -> dict[str, str]:
        """All settings by our names, in our units, and by Apache's what its consumers tell."""
        settings = self._plan.settings
        return settings_as_text(settings) | {
            "PROP_NAMESERVER_ADDR": ";".join(self._instance.name_servers.addresses),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CLIENT_VERSION": version_name(VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_THREADPOOL_CORE_SIZE": str(self.crew.least),
            "PROP_CONSUMEORDERLY": str(self._plan.ordered).lower(),
            "consumerGroup": self.group,
            "messageModel": self._model,
            "consumeFromWhere": settings.consume_from_where.name,
            "consumeThreadMin": str(self.crew.least),
            "consumeThreadMax": str(self.crew.most),
            "consumeMessageBatchMaxSize": str(settings.consume_message_batch_max_size),
            "pullBatchSize": str(settings.pull_batch_size),
            "maxReconsumeTimes": str(self._plan.max_reconsume_times),
        }

    # Regular work

    async def _persist_regularly(self, interval_s: float) -> None:
        while True:
            await self._clock.sleep(interval_s)
            await self._offsets.persist(self.queues.positions())

    async def _renew_locks(self, locks: OrderedQueueLocks, interval_s: float) -> None:
        await self._clock.sleep(FIRST_RENEWAL_S)
        while True:
            await locks.renew({queue: held for queue, held in self.queues.ours.items() if not held.leaving})
            await self._clock.sleep(interval_s)

    async def _expire_regularly(self, timeout_s: float) -> None:
        while True:
            await self._clock.sleep(timeout_s)
            await self._deliveries.expire(list(self.queues.ours.values()), timeout_s)

    def _divided(self, topic: str, share: Assignment) -> None:
        """A topic's limits are shared by its queues, and brokers hear the subscription with a new version."""
        self._limits = self._limits_of_queue(len(self.queues.ours))
        subscription = self._subscriptions.get(topic)
        if subscription is not None:
            newer = replace(subscription, version=max(self._clock.now_ms(), subscription.version + 1))
            self._subscriptions[topic] = newer
            self._do(self._tell_brokers())
        self._listeners.tell(topic, share.queues, (one for one in self.queues.ours if one.topic == topic))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(complain)

    # The parts

    def _figures_of(self, topic: str) -> TopicConsumeStats:
        found = self._figures.get(topic)
        if found is None:
            found = self._figures[topic] = TopicConsumeStats()
        return found

    def _limits_of_queue(self, queues: int) -> CacheLimits:
        settings = self._plan.settings
        messages, size = settings.pull_threshold_for_queue, settings.pull_threshold_size_for_queue
        if settings.pull_threshold_for_topic > 0:
            messages = max(1, settings.pull_threshold_for_topic // max(queues, 1))
        if settings.pull_threshold_size_for_topic > 0:
            size = max(1, settings.pull_threshold_size_for_topic // max(queues, 1))
        span = None if self._plan.ordered else settings.consume_concurrently_max_span
        return CacheLimits(messages, size, span)

    def _make_locks(self) -> OrderedQueueLocks | None:
        if not self._plan.ordered or self._plan.broadcast:
            return None
        instance = self._instance
        return OrderedQueueLocks(
            instance.client,
            instance.routes,
            self._clock,
            self.group,
            instance.client_id,
            self._plan.settings.rebalance_lock_max_live_time,
        )

    def _make_offsets(self, disk: FileAccess) -> OffsetStore:
        instance = self._instance
        if not self._plan.broadcast:
            return GroupOffsets(instance.client, instance.routes, self.group, instance.heartbeats.tell)
        directory = self._plan.settings.local_offset_store_dir
        return local_offsets(disk, directory, instance.client_id, self.group)

    def _make_deliveries(self, calling: HandlerInvoker) -> "ConcurrentDelivery | OrderedDelivery":
        settings = self._plan.settings
        send_back = None if self._plan.broadcast else self._make_send_back()
        if not self._plan.ordered:
            return ConcurrentDelivery(calling, send_back, self._clock, self._figures_of, self.crew)
        patience = OrderedLimits(
            settings.suspend_current_queue_time,
            settings.max_time_consume_continuously,
            self._plan.max_reconsume_times,
        )
        return OrderedDelivery(
            calling, send_back, self._locks, self._clock, self._figures_of, self.crew, patience
        )

    def _make_send_back(self) -> SendBack:
        instance = self._instance
        sender = Sender(
            instance.client,
            instance.routes,
            self._clock,
            instance.unique_ids,
            RoundRobin(instance.world.chance),
            chance=instance.world.chance,
        )
        return SendBack(sender, self.group, self._plan.max_reconsume_times)

    def _make_pulling(self) -> PullLoop:
        settings = self._plan.settings
        manner = PullLoopSettings(
            settings.pull_batch_size,
            settings.pull_batch_size_in_bytes,
            settings.pull_interval,
            settings.pull_time_delay_when_exception,
            settings.post_subscription_when_pull,
            commits=not self._plan.broadcast,
            decompresses=settings.decode_decompress_body,
            hold_s=self._instance.world.hold_s,
        )
        locks = self._locks
        return PullLoop(
            self._puller,
            self._instance.routes,
            self._instance.heartbeats,
            self._clock,
            manner,
            subscription=lambda topic: self._heard.get(topic),
            figures=self._figures_of,
            take_in=self._deliveries.submit,
            moved=lambda queue, offset: self.queues.move(queue, offset),
            limits=lambda: self._limits,
            is_paused=lambda: self.is_paused,
            is_locked=lambda held: locks is None or locks.is_valid(held),
            namespace=settings.namespace,
            filters=self._filters,
        )

    def _make_queues(self, pulling: PullLoop) -> AssignedQueues:
        settings = self._plan.settings
        instance, broadcast = self._instance, self._plan.broadcast
        return AssignedQueues(
            self.group,
            self._clock,
            self._offsets,
            self._deliveries,
            start_of=self._start_of,
            pull=pulling.run,
            topics=self.topics,
            is_paused=lambda: self.is_paused,
            divided=self._divided,
            locks=self._locks,
            share_of=GroupAssignment(
                instance, self.group, settings.allocate_message_queue_strategy, is_broadcast=broadcast
            ),
            interval_s=settings.rebalance_wait_interval,
        )
