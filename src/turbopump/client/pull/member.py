"""A pull consumer as a member of its group: the queues it reads, and what is committed of them.

`rebalancer.py` says which queues belong to this member, `prefetch.py` fills a buffer for each of them, and
`prefetch_buffer.py` knows what was given out and may be committed. Users call `consumer.py`. Names in here
are those on the wire, with the namespace; the user's callbacks get them without it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum

from turbopump.client.counted_log import CountedLog
from turbopump.client.errors import InvalidArgument
from turbopump.client.files import FileAccess
from turbopump.client.group.expressions import check_expression
from turbopump.client.group.listeners import QueueListeners, call_user
from turbopump.client.group.offsets import offset_store
from turbopump.client.group.rebalancer import (
    FAILURES,
    Assignment,
    GroupAssignment,
    Rebalancer,
    readable_queues,
)
from turbopump.client.group.running_info import running_info
from turbopump.client.group.start_offset import StartOffset
from turbopump.client.group.subscription import Subscription
from turbopump.client.instance import ClientInstance, keep_running
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.observe.hooks import Filter
from turbopump.client.pull.prefetch import Prefetcher
from turbopump.client.pull.prefetch_buffer import PrefetchBuffer, PrefetchBuffers
from turbopump.client.pull.puller import Puller
from turbopump.client.pull.wanted_messages import WantedMessages
from turbopump.client.push.process_queue import CacheLimits
from turbopump.client.queue_names import QueueNames
from turbopump.client.settings import MessageModel, PullSettings
from turbopump.protocol import bodies
from turbopump.protocol.codes import VERSION, version_name
from turbopump.protocol.errors import SystemFailure
from turbopump.runtime.clock import Clock
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

NEXT_CALL_S = 0.2  # until a scheduled callback is called again, unless it returns a time
NEXT_CALL_AFTER_FAILURE_S = 1.0

Scheduled = Callable[[MessageQueue], float | Awaitable[float | None] | None]
"""Called for one queue; returns after how many seconds to call it again, None: 0.2."""


class ReadMode(Enum):
    """How a pull consumer gets its queues: by `subscribe` or by `assign`; a consumer uses one of the two."""

    UNDECIDED = "neither"
    SUBSCRIBED = "subscribe"
    ASSIGNED = "assign"


class PullMember:
    """A pull consumer as a member of its group: holds, reads and commits queues. `start` and `stop` once."""

    def __init__(
        self,
        group: str,
        settings: PullSettings,
        clock: Clock,
        disk: FileAccess,
        filters: Sequence[Filter] = (),
    ) -> None:
        self.names = QueueNames(settings.namespace)
        self._failures = CountedLog(log)
        self.group = self.names.topic(group)
        self.settings = settings
        self.clock = clock
        self._disk = disk
        self._filters = filters
        self.mode = ReadMode.UNDECIDED
        self.subscriptions: dict[str, Subscription] = {}
        self.listeners = QueueListeners(self.names)
        self.arrived = asyncio.Event()
        self.capacity_freed = asyncio.Event()
        limits = CacheLimits(
            settings.pull_threshold_for_queue,
            settings.pull_threshold_size_for_queue,
            settings.consume_max_span,
        )
        self.buffers = PrefetchBuffers(
            limits, settings.pull_threshold_for_all, settings.pull_batch_size, clock.now_ms
        )
        self._assigned: tuple[MessageQueue, ...] = ()
        self._schedules: dict[str, Scheduled] = {}
        self._queues_seen: dict[str, tuple[MessageQueue, ...]] = {}
        self._workers: dict[MessageQueue, asyncio.Task[None]] = {}
        self._worker_tasks = Tasks(log)
        self._tasks = Tasks(log)
        self._stack = contextlib.AsyncExitStack()
        self._is_running = False

    # Start and stop

    async def start(self, instance: ClientInstance) -> None:
        """Joins the group; returns when the brokers know this member and its queues are being read."""
        self._instance = instance
        self._started_ms = self.clock.now_ms()
        routes, client = instance.routes, instance.client
        versions = instance.heartbeats.versions
        self.puller = Puller(client, routes, self.group, lite=True, versions=versions)
        self.offsets = offset_store(instance, self.group, self.is_broadcast, self.settings, self._disk)
        self._start_offset = StartOffset(self.offsets, self.puller, self.settings, self._started_ms)
        self._prefetch = Prefetcher(
            self.puller,
            WantedMessages(self.names, self._filters),
            self.buffers,
            self.settings,
            self.clock,
            self.move,
            self.arrived,
            self.capacity_freed,
        )
        self._rebalancer = Rebalancer(self, self._assignment_of)
        strategy = self.settings.allocate_message_queue_strategy
        self._group_assignment = GroupAssignment(instance, self.group, strategy, self.is_broadcast)
        for subscription in self.subscriptions.values():
            await check_expression(instance, self.settings, self.group, subscription)
        await instance.join_consumer(self)
        self._is_running = True
        self._stack.push_async_callback(instance.leave_consumer, self.group)
        self._stack.push_async_callback(self._commit_finally)
        if self.settings.auto_commit:
            keep_running(self._stack, self._tasks, self._commit_regularly())
        self._stack.push_async_callback(self._end_workers)
        keep_running(self._stack, self._tasks, self._watch_topics())
        await self._rebalancer.rebalance()
        keep_running(self._stack, self._tasks, self._rebalancer.run())

    async def stop(self) -> None:
        """Commits what is done (with `auto_commit`) and leaves the group."""
        self._is_running = False
        await self._stack.aclose()

    @property
    def is_broadcast(self) -> bool:
        return self.settings.message_model is MessageModel.BROADCASTING

    # What to read

    async def subscribe(self, wanted: Subscription, callback: Scheduled | None = None) -> None:
        if self._is_running:
            await check_expression(self._instance, self.settings, self.group, wanted)
        self.note(wanted, callback)
        await self._apply_subscriptions()

    def note(self, wanted: Subscription, callback: Scheduled | None = None) -> None:
        """Adds or replaces a subscription without telling brokers; drops fetched messages of its topic."""
        self._enter(ReadMode.SUBSCRIBED)
        self._schedules.pop(wanted.topic, None)
        if callback is not None:
            self._schedules[wanted.topic] = callback
        self.subscriptions[wanted.topic] = wanted
        self._restart_topic(wanted.topic)

    async def unsubscribe(self, topic: str) -> None:
        self.subscriptions.pop(topic, None)
        self._assigned = tuple(queue for queue in self._assigned if queue.topic != topic)
        await self._apply_subscriptions()
        self._schedules.pop(topic, None)

    async def assign(self, queues: tuple[MessageQueue, ...], wanted: Mapping[str, Subscription]) -> None:
        self._enter(ReadMode.ASSIGNED)
        before = self.subscriptions
        self._assigned = queues
        self.subscriptions = dict(wanted)
        for topic in wanted:
            if topic in before and before[topic].text != wanted[topic].text:
                self._restart_topic(topic)
        await self._apply_subscriptions()

    def _enter(self, mode: ReadMode) -> None:
        if self.mode not in (ReadMode.UNDECIDED, mode):
            raise InvalidArgument(
                f"a consumer must use either subscribe or assign, got {mode.value} after {self.mode.value}: "
                "make another consumer, of another group"
            )
        self.mode = mode

    def _restart_topic(self, topic: str) -> None:
        """Drops the fetched messages of a topic and fetches again, because its subscription has changed."""
        for buffer in self.buffers:
            if buffer.queue.topic == topic:
                self._install(buffer.emptied())

    async def _apply_subscriptions(self) -> None:
        """Announces the subscriptions to the brokers and rebalances; does nothing before the start."""
        if self._is_running:
            if not await self._instance.heartbeats.announce():
                self._instance.heartbeats.renew()
            await self._rebalancer.rebalance()

    # Assigned queues (`rebalancer.QueueHolder`)

    def topics(self) -> Collection[str]:
        return tuple(self.subscriptions)

    def held(self) -> Collection[MessageQueue]:
        return self.buffers.queues

    async def take(self, queue: MessageQueue) -> bool:
        try:
            start = await self._start_offset.of(queue)
        except FAILURES as error:
            self._failures.log(queue, "Cannot determine the start offset of %s yet: %s", queue, error)
            return False
        if queue.topic in self.subscriptions:
            self._install(PrefetchBuffer(queue, start))
        return True

    async def drop(self, queue: MessageQueue) -> None:
        buffer = self._uninstall(queue)
        if buffer is not None:
            await self._commit_one(buffer)

    def assignment_changed(self, topic: str, assignment: Assignment) -> None:
        self._queues_seen[topic] = assignment.queues
        self._notify(topic, assignment.queues)

    async def _assignment_of(self, topic: str) -> Assignment:
        if self.mode is ReadMode.ASSIGNED:
            mine = tuple(queue for queue in self._assigned if queue.topic == topic)
            return Assignment(mine, mine)
        return await self._group_assignment(topic)

    def move(self, queue: MessageQueue, offset: int) -> None:
        """Continues an assigned queue at this offset and drops its fetched messages; ignores other queues."""
        before = self.buffers.find(queue)
        if before is not None:
            buffer = PrefetchBuffer(queue, offset)
            buffer.paused = before.paused
            self._install(buffer)

    def _install(self, buffer: PrefetchBuffer) -> None:
        """Replaces the buffer of a queue and starts its prefetch, or the scheduled callback of its topic."""
        queue = buffer.queue
        self._uninstall(queue)
        self.buffers.add(buffer)
        callback = self._schedules.get(queue.topic)
        work = (
            self._prefetch.fill(buffer, self.subscriptions[queue.topic])
            if callback is None
            else self._call_regularly(queue, callback)
        )
        worker = self._workers[queue] = self._worker_tasks.start(work, name=f"read {queue}")
        worker.add_done_callback(lambda task: self._worker_ended(buffer, task))

    def _uninstall(self, queue: MessageQueue) -> PrefetchBuffer | None:
        worker = self._workers.pop(queue, None)
        if worker is not None:
            worker.cancel()
        self.capacity_freed.set()
        return self.buffers.remove(queue)

    def _worker_ended(self, buffer: PrefetchBuffer, task: asyncio.Task[None]) -> None:
        """Gives up a queue whose loop ended: the next rebalance takes it again at the committed offset."""
        if not task.cancelled() and self.buffers.find(buffer.queue) is buffer:
            self._uninstall(buffer.queue)

    async def _end_workers(self) -> None:
        await self._worker_tasks.close()
        await self.listeners.close()

    # Commits

    async def _commit_regularly(self) -> None:
        while True:
            await self.clock.sleep(self.settings.auto_commit_interval)
            done = {
                buffer.queue: buffer.done for buffer in self.buffers if not self._is_committed_by_user(buffer)
            }
            with contextlib.suppress(*FAILURES):  # the next round commits it
                await self.offsets.persist(done)

    async def _commit_finally(self) -> None:
        await asyncio.gather(*(self._commit_one(buffer) for buffer in self.buffers))

    async def _commit_one(self, buffer: PrefetchBuffer) -> None:
        """Commits what is done of a queue, unless the user commits it; a failure is only logged."""
        if self._is_committed_by_user(buffer):
            return
        try:
            await self.offsets.commit(buffer.queue, buffer.done)
        except FAILURES as error:
            log.warning("Cannot commit offset %d of %s: %s", buffer.done, buffer.queue, error)

    def _is_committed_by_user(self, buffer: PrefetchBuffer) -> bool:
        """Returns whether the user commits the offsets of this queue."""
        return not self.settings.auto_commit or buffer.queue.topic in self._schedules

    # Callbacks of the user

    async def _call_regularly(self, queue: MessageQueue, callback: Scheduled) -> None:
        while True:
            try:
                next_s = await call_user(callback, self.names.shown(queue))
            except Exception:
                log.exception("The scheduled callback failed for %s", queue)
                next_s = NEXT_CALL_AFTER_FAILURE_S
            await self.clock.sleep(float(next_s) if isinstance(next_s, int | float) else NEXT_CALL_S)

    async def _watch_topics(self) -> None:
        while True:
            for topic in self.listeners.topics:
                with contextlib.suppress(*FAILURES):
                    await self._check_queues(topic)
            await self.clock.sleep(self.settings.topic_metadata_check_interval)

    async def _check_queues(self, topic: str) -> None:
        queues = await readable_queues(self._instance, topic)
        before = self._queues_seen.get(topic)
        self._queues_seen[topic] = queues
        if before is not None and set(before) != set(queues):
            self._notify(topic, queues)
            self._rebalancer.rebalance_soon()

    def _notify(self, topic: str, queues: tuple[MessageQueue, ...]) -> None:
        self.listeners.notify(topic, queues, (queue for queue in self.buffers.queues if queue.topic == topic))

    # Requests of brokers and tools (`instance.ConsumerMember`)

    def describe(self) -> bodies.ConsumerData:
        return bodies.ConsumerData(
            groupName=self.group,
            consumeType="CONSUME_ACTIVELY",
            messageModel=self.settings.message_model.name,
            consumeFromWhere=self.settings.consume_from_where.name,
            subscriptionDataSet=[one.to_wire() for one in self.subscriptions.values()],
            unitMode=self.settings.unit_mode,
        )

    def members_changed(self) -> None:
        self._rebalancer.rebalance_soon()

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            log.info("Group %s continues in %s at offset %d", self.group, queue, offset)
            self.move(queue, offset)

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return {buffer.queue: buffer.done for buffer in self.buffers if buffer.queue.topic == topic}

    def running_info(self, with_stacks: bool) -> bodies.ConsumerRunningInfo:
        own = {
            "PROP_NAMESERVER_ADDR": ";".join(self._instance.name_servers.addresses),
            "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
            "PROP_CLIENT_VERSION": version_name(VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_CONSUMEORDERLY": "false",
            "PROP_THREADPOOL_CORE_SIZE": "0",
            "consumerGroup": self.group,
            "messageModel": self.settings.message_model.name,
            "consumeFromWhere": self.settings.consume_from_where.name,
            "pullBatchSize": str(self.settings.pull_batch_size),
            "autoCommit": str(self.settings.auto_commit).lower(),
        }
        told = running_info(own, self.subscriptions.values(), {}, {}, self.clock.monotonic())
        told.mqTable = {buffer.queue.to_wire(): buffer.to_wire() for buffer in self.buffers}
        return told

    async def consume_directly(self, message: MessageExt) -> bodies.ConsumeMessageDirectlyResult:
        raise SystemFailure(f"group {self.group} pulls messages: it has no listener that could consume one")

    # Buffers

    def buffer(self, queue: MessageQueue) -> PrefetchBuffer:
        found = self.buffers.find(self.names.on_wire(queue))
        if found is None:
            raise InvalidArgument(f"queue must be assigned to this consumer, got {queue}: see `assignment()`")
        return found

    def buffers_of(self, queues: Iterable[MessageQueue] | None) -> list[PrefetchBuffer]:
        """Returns the buffers of these queues, None: all. Raises InvalidArgument if one is not assigned."""
        return list(self.buffers) if queues is None else [self.buffer(queue) for queue in queues]
