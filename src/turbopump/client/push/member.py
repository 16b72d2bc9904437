"""A running push consumer as a member of its group: wires its parts, and answers brokers and tools.

Offsets are committed every five seconds, with pulls while no message is unfinished, when a queue is given up
and at the end; a message counts as done only when its handler has consumed it, or its broker has taken it
back.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from turbopump.client.files import FileAccess
from turbopump.client.group.consume_stats import TopicConsumeStats
from turbopump.client.group.expressions import check_expression
from turbopump.client.group.listeners import QueueListeners
from turbopump.client.group.offsets import offset_store
from turbopump.client.group.rebalancer import Assignment, GroupAssignment
from turbopump.client.group.running_info import running_info, settings_as_text, stacks
from turbopump.client.group.send_back import send_back_for
from turbopump.client.group.start_offset import StartOffset
from turbopump.client.group.subscription import Subscription
from turbopump.client.instance import ClientInstance, keep_running
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.observe.hooks import ConsumeHook, Filter
from turbopump.client.pull.puller import Puller
from turbopump.client.pull.wanted_messages import WantedMessages
from turbopump.client.push.assigned_queues import AssignedQueues
from turbopump.client.push.concurrent import ConcurrentDelivery
from turbopump.client.push.direct_consume import consume_directly
from turbopump.client.push.handler_invoker import HandlerInvoker
from turbopump.client.push.handlers import Handler, TagHandlers
from turbopump.client.push.locks import OrderedQueueLocks
from turbopump.client.push.ordered import OrderedDelivery, OrderedLimits
from turbopump.client.push.process_queue import CacheLimits
from turbopump.client.push.pull_loop import PullGate, PullLoop, PullLoopSettings
from turbopump.client.push.workers import WorkerPoolSize
from turbopump.client.queue_names import QueueNames
from turbopump.client.settings import ConsumerSettings
from turbopump.protocol import bodies
from turbopump.protocol.codes import VERSION, version_name
from turbopump.protocol.errors import TopicNotFound
from turbopump.protocol.names import retry_topic
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

FIRST_RENEWAL_S = 1.0
AWAY_RENEWAL_S = 3.0  # between tries to get locks from a broker whose master is away
RECONSUME_TIMES = 16  # deliveries after the first, unless the settings say otherwise
UNLIMITED_TIMES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class PushPlan:
    """What a push consumer is: its group on the wire, ordered or not, broadcasting or not, its settings."""

    group: str
    ordered: bool
    broadcast: bool
    settings: ConsumerSettings

    @property
    def max_reconsume_times(self) -> int:
        given = self.settings.max_reconsume_times
        return given if given >= 0 else UNLIMITED_TIMES if self.ordered else RECONSUME_TIMES


class PushMember:
    """A push consumer as a member of its group, with all its parts. `start` once, `stop` once."""

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
        self._announced: dict[str, Subscription] = {}  # those that brokers know
        self._stats: dict[str, TopicConsumeStats] = {}
        self._listeners = listeners
        self._filters = filters
        self._stack = contextlib.AsyncExitStack()
        self._tasks = Tasks(log)
        self._announcements = Tasks(log)
        self._announcing = asyncio.Lock()
        self.is_paused = False
        settings = plan.settings
        self.pool_size = WorkerPoolSize(settings.consume_thread_min, settings.consume_thread_max)
        self._limits = self._limits_of_queue(1)
        self._puller = Puller(instance.client, instance.routes, plan.group)
        self._locks = self._make_locks()
        self._offsets = offset_store(instance, plan.group, plan.broadcast, settings, disk)
        self._start_of = StartOffset(self._offsets, self._puller, settings, self._started_ms).of
        self._deliveries = self._make_deliveries(
            HandlerInvoker(plan.group, self._handlers, hooks, plan.ordered, settings.namespace)
        )
        self.queues = self._make_queues(self._make_pull_loop())
        if not plan.broadcast:
            self._subscribe(retry_topic(plan.group), Subscription(retry_topic(plan.group)))

    # Start and stop

    async def start(self) -> None:
        """Joins the group; returns when the brokers know this member."""
        settings = self._plan.settings
        await self._check_expressions()
        self._stack.push_async_callback(self._listeners.close)
        self._stack.push_async_callback(self._leave)
        await self._instance.join_consumer(self)
        self._announced = dict(self._subscriptions)
        self._stack.push_async_callback(self.queues.leave_all)
        keep_running(
            self._stack, self._tasks, self._persist_regularly(settings.persist_consumer_offset_interval)
        )
        self._stack.push_async_callback(self._deliveries.stop, settings.await_termination_when_shutdown)
        if self._locks is not None:
            keep_running(
                self._stack, self._tasks, self._renew_locks(self._locks, settings.rebalance_lock_interval)
            )
        keep_running(self._stack, self._tasks, self._expire_regularly(settings.consume_timeout))
        self._stack.push_async_callback(self.queues.stop_pulling)
        keep_running(self._stack, self._tasks, self.queues.run())

    async def stop(self) -> None:
        """Stops pulling, waits a limited time for running handlers, commits, and leaves the group."""
        await self._announcements.close()
        await self._stack.aclose()

    async def _leave(self) -> None:
        if self._instance.consumers.get(self.group) is self:
            await self._instance.leave_consumer(self.group)

    def resize(self, min_workers: int, max_workers: int) -> None:
        self.pool_size.min_workers, self.pool_size.max_workers = min_workers, max_workers
        self._deliveries.resize()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self.queues.rebalance_soon()

    # Subscriptions

    def subscribe(self, subscription: Subscription, handler: Handler | TagHandlers) -> None:
        """Adds or replaces a subscription and its handler, also while running; then call `announce_soon`."""
        self._handlers[self._names.shown_topic(subscription.topic)] = handler
        self._subscribe(subscription.topic, subscription)

    def announce_soon(self, topic: str) -> None:
        self._announcements.start(self._announce(topic))

    async def unsubscribe(self, topic: str) -> None:
        """Gives up the queues of a topic, with a commit of their offsets, and tells the brokers."""
        self._subscriptions.pop(topic, None)
        await self.queues.rebalance()
        self._handlers.pop(self._names.shown_topic(topic), None)
        await self._tell_brokers()

    def _subscribe(self, topic: str, subscription: Subscription) -> None:
        self._subscriptions[topic] = replace(subscription, version=self._clock.now_ms())

    async def _announce(self, topic: str) -> None:
        await self._tell_brokers()
        self.queues.pull_again(topic)
        self.queues.rebalance_soon()

    async def _tell_brokers(self) -> None:
        """Announces changed subscriptions by a heartbeat; only after that do pulls use them.

        Brokers refuse pulls with subscriptions that they do not know.
        """
        async with self._announcing:
            subscriptions = dict(self._subscriptions)
            if subscriptions == self._announced:  # another caller's heartbeat has announced them
                return
            if not await self._instance.heartbeats.announce():
                self._instance.heartbeats.renew()
            self._announced = subscriptions

    def as_users_know(self, queues: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
        """Returns the queues sorted, with topic names without the namespace."""
        return self._names.all_shown(tuple(sorted(queues)))

    async def _check_expressions(self) -> None:
        """Asks brokers about subscriptions that are not by tags; raises Refused if one is not supported.

        A topic that does not exist yet is not checked: its broker refuses the pulls later.
        """
        for subscription in self._subscriptions.values():
            with contextlib.suppress(TopicNotFound):
                await check_expression(self._instance, self._plan.settings, self.group, subscription)

    # Requests of brokers and tools

    @property
    def group(self) -> str:
        return self._plan.group

    @property
    def delivery_mode(self) -> tuple[bool, bool]:
        """Whether the consumer is ordered, and whether it broadcasts."""
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
        self.queues.rebalance_soon()

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
            self._stats,
            self._clock.monotonic(),
        )
        if with_stacks:
            told.jstack = stacks()
        return told

    async def consume_directly(self, message: MessageExt) -> bodies.ConsumeMessageDirectlyResult:
        one = structs.replace(message, namespace=self._plan.settings.namespace)
        return await consume_directly(self._deliveries.invoker, one, self._clock)

    @property
    def _model(self) -> str:
        return "BROADCASTING" if self._plan.broadcast else "CLUSTERING"

    def _properties(self) -> dict[str, str]:
        """Returns the properties of the running info: our settings, and what Apache's consumers report."""
        settings = self._plan.settings
        return settings_as_text(settings) | {
            "PROP_NAMESERVER_ADDR": ";".join(self._instance.name_servers.addresses),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CLIENT_VERSION": version_name(VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_THREADPOOL_CORE_SIZE": str(self.pool_size.min_workers),
            "PROP_CONSUMEORDERLY": str(self._plan.ordered).lower(),
            "consumerGroup": self.group,
            "messageModel": self._model,
            "consumeFromWhere": settings.consume_from_where.name,
            "consumeThreadMin": str(self.pool_size.min_workers),
            "consumeThreadMax": str(self.pool_size.max_workers),
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
            await self._clock.sleep(min(interval_s, AWAY_RENEWAL_S) if locks.is_waiting else interval_s)

    async def _expire_regularly(self, timeout_s: float) -> None:
        while True:
            await self._clock.sleep(timeout_s)
            await self._deliveries.expire(list(self.queues.ours.values()), timeout_s)

    def assignment_changed(self, topic: str, assignment: Assignment) -> None:
        """Sets the limits per held queue, announces the topic's subscription again, notifies listeners."""
        self._limits = self._limits_of_queue(len(self.queues.ours))
        subscription = self._subscriptions.get(topic)
        if subscription is not None:
            newer = replace(subscription, version=max(self._clock.now_ms(), subscription.version + 1))
            self._subscriptions[topic] = newer
            self._announcements.start(self._tell_brokers())
        self._listeners.notify(
            topic, assignment.queues, (one for one in self.queues.ours if one.topic == topic)
        )

    # The parts

    def _stats_of(self, topic: str) -> TopicConsumeStats:
        found = self._stats.get(topic)
        if found is None:
            found = self._stats[topic] = TopicConsumeStats()
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

    def _make_deliveries(self, invoker: HandlerInvoker) -> "ConcurrentDelivery | OrderedDelivery":
        settings = self._plan.settings
        send_back = None
        if not self._plan.broadcast:
            send_back = send_back_for(self._instance, self.group, self._plan.max_reconsume_times)
        if not self._plan.ordered:
            return ConcurrentDelivery(invoker, send_back, self._clock, self._stats_of, self.pool_size)
        patience = OrderedLimits(
            settings.suspend_current_queue_time,
            settings.max_time_consume_continuously,
            self._plan.max_reconsume_times,
        )
        return OrderedDelivery(
            invoker, send_back, self._locks, self._clock, self._stats_of, self.pool_size, patience
        )

    def _make_pull_loop(self) -> PullLoop:
        settings = self._plan.settings
        manner = PullLoopSettings(
            settings.pull_batch_size,
            settings.pull_batch_size_in_bytes,
            settings.pull_interval,
            settings.pull_time_delay_when_exception,
            settings.post_subscription_when_pull,
            commits=not self._plan.broadcast,
            hold_s=self._instance.world.hold_s,
        )
        gate = PullGate(
            self._clock,
            is_paused=lambda: self.is_paused,
            limits=lambda: self._limits,
            locks=self._locks,
            unlocked_s=settings.pull_time_delay_when_exception,
        )
        return PullLoop(
            self._puller,
            self._instance.heartbeats,
            self._clock,
            manner,
            gate,
            WantedMessages(self._names, self._filters, settings.decode_decompress_body),
            subscription=lambda topic: self._announced.get(topic),
            stats=self._stats_of,
            on_messages=self._deliveries.submit,
            moved=lambda queue, offset: self.queues.move(queue, offset),
        )

    def _make_queues(self, pull_loop: PullLoop) -> AssignedQueues:
        settings = self._plan.settings
        instance, broadcast = self._instance, self._plan.broadcast
        return AssignedQueues(
            self,
            self._clock,
            self._offsets,
            self._deliveries,
            start_of=self._start_of,
            pull=pull_loop.run,
            locks=self._locks,
            assignment_of=GroupAssignment(
                instance, self.group, settings.allocate_message_queue_strategy, is_broadcast=broadcast
            ),
            interval_s=settings.rebalance_wait_interval,
        )
