"""A pull consumer as its group, its brokers and tools see it: which queues are ours, who reads them, what is
committed of them.

Wires what others do: `division.py` says which queues are ours, `prefetch.py` fills a shelf for each of them,
`shelf.py` knows what was given out and may be committed. What the user calls is in `pull_consumer.py`. Names
in here are those on the wire, with the namespace; what the user's callbacks get is without it.
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
from turbopump.client.group.offsets import GroupOffsets, OffsetStore, local_offsets
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
from turbopump.client.instance import ClientInstance, complain, keep_running
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.observe.hooks import Filter
from turbopump.client.pull.prefetch import Prefetcher
from turbopump.client.pull.prefetch_buffer import PrefetchBuffer, PrefetchBuffers
from turbopump.client.pull.puller import Puller
from turbopump.client.push.process_queue import CacheLimits
from turbopump.client.queue_names import QueueNames
from turbopump.client.settings import MessageModel, PullSettings
from turbopump.protocol import bodies
from turbopump.protocol.codes import VERSION, version_name
from turbopump.protocol.errors import SystemFailure
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

NEXT_S = 0.2  # until a scheduled callback is called again, if it does not say
NEXT_AFTER_FAILURE_S = 1.0

Scheduled = Callable[[MessageQueue], float | Awaitable[float | None] | None]
"""Called for one queue; says after how many seconds to call again, or nothing: 0.2."""


class ReadMode(Enum):
    UNDECIDED = "neither"
    SUBSCRIBED = "subscribe"
    ASSIGNED = "assign"


class PullMember:
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
        self.room = asyncio.Event()
        limits = CacheLimits(
            settings.pull_threshold_for_queue,
            settings.pull_threshold_size_for_queue,
            settings.consume_max_span,
        )
        self.shelves = PrefetchBuffers(
            limits, settings.pull_threshold_for_all, settings.pull_batch_size, clock.now_ms
        )
        self._assigned: tuple[MessageQueue, ...] = ()
        self._schedules: dict[str, Scheduled] = {}
        self._queues_seen: dict[str, tuple[MessageQueue, ...]] = {}
        self._workers: dict[MessageQueue, asyncio.Task[None]] = {}
        self._stack = contextlib.AsyncExitStack()
        self._is_running = False

    # Life

    async def start(self, instance: ClientInstance) -> None:
        """Returns when the brokers know us and our queues are being read."""
        self._instance = instance
        self._started_ms = self.clock.now_ms()
        routes, client = instance.routes, instance.client
        versions = instance.heartbeats.versions
        self.puller = Puller(client, routes, self.group, lite=True, versions=versions)
        self.offsets = self._make_offsets(instance)
        self._beginning = StartOffset(self.offsets, self.puller, self.settings, self._started_ms)
        self._prefetch = Prefetcher(
            self.puller,
            self.names,
            self.shelves,
            self.settings,
            self.clock,
            self.move,
            self.arrived,
            self.room,
            self._filters,
        )
        self._division = Rebalancer(self, self._share_of)
        strategy = self.settings.allocate_message_queue_strategy
        self._group_share = GroupAssignment(instance, self.group, strategy, self.is_broadcast)
        for subscription in self.subscriptions.values():
            await check_expression(instance, self.settings, self.group, subscription)
        await instance.join_consumer(self)
        self._is_running = True
        self._stack.push_async_callback(instance.leave_consumer, self.group)
        self._stack.push_async_callback(self._commit_finally)
        if self.settings.auto_commit:
            keep_running(self._stack, self._commit_regularly())
        self._stack.push_async_callback(self._end_workers)
        keep_running(self._stack, self._watch_topics())
        await self._division.balance()
        keep_running(self._stack, self._division.keep())

    async def stop(self) -> None:
        """Commits what is done (with `auto_commit`) and leaves the group."""
        self._is_running = False
        await self._stack.aclose()

    @property
    def is_broadcast(self) -> bool:
        return self.settings.message_model is MessageModel.BROADCASTING

    def _make_offsets(self, instance: ClientInstance) -> OffsetStore:
        if not self.is_broadcast:
            return GroupOffsets(instance.client, instance.routes, self.group, instance.heartbeats.tell)
        directory = self.settings.local_offset_store_dir
        return local_offsets(self._disk, directory, instance.client_id, self.group)

    # What to read

    async def subscribe(self, wanted: Subscription, callback: Scheduled | None = None) -> None:
        if self._is_running:
            await check_expression(self._instance, self.settings, self.group, wanted)
        self.note(wanted, callback)
        await self._follow()

    def note(self, wanted: Subscription, callback: Scheduled | None = None) -> None:
        """As `subscribe`, before the start."""
        self._enter(ReadMode.SUBSCRIBED)
        self._schedules.pop(wanted.topic, None)
        if callback is not None:
            self._schedules[wanted.topic] = callback
        self.subscriptions[wanted.topic] = wanted
        self._begin_anew(wanted.topic)

    async def unsubscribe(self, topic: str) -> None:
        self.subscriptions.pop(topic, None)
        self._assigned = tuple(queue for queue in self._assigned if queue.topic != topic)
        await self._follow()
        self._schedules.pop(topic, None)

    async def assign(self, queues: tuple[MessageQueue, ...], wanted: Mapping[str, Subscription]) -> None:
        self._enter(ReadMode.ASSIGNED)
        before = self.subscriptions
        self._assigned = queues
        self.subscriptions = dict(wanted)
        for topic in wanted:
            if topic in before and before[topic].text != wanted[topic].text:
                self._begin_anew(topic)
        await self._follow()

    def _enter(self, mode: ReadMode) -> None:
        if self.mode not in (ReadMode.UNDECIDED, mode):
            raise InvalidArgument(
                f"this consumer uses {self.mode.value} already, one consumer cannot use {mode.value} too: "
                "make another one, of another group"
            )
        self.mode = mode

    def _begin_anew(self, topic: str) -> None:
        """The topic is read in another way from now on."""
        for shelf in self.shelves:
            if shelf.queue.topic == topic:
                self._put_up(shelf.emptied())

    async def _follow(self) -> None:
        """What we want has changed: brokers are told, and what is ours is read."""
        if self._is_running:
            if not await self._instance.heartbeats.announce():
                self._instance.heartbeats.renew()
            await self._division.balance()

    # Which queues are ours (`division.Holder`)

    def topics(self) -> Collection[str]:
        return tuple(self.subscriptions)

    def held(self) -> Collection[MessageQueue]:
        return self.shelves.queues

    async def take(self, queue: MessageQueue) -> bool:
        try:
            start = await self._beginning.of(queue)
        except FAILURES as error:
            self._failures.log(queue, "Where to begin in %s cannot be known yet: %s", queue, error)
            return False
        if queue.topic in self.subscriptions:
            self._put_up(PrefetchBuffer(queue, start))
        return True

    async def drop(self, queue: MessageQueue) -> None:
        shelf = self._take_down(queue)
        if shelf is not None:
            await self._commit_one(shelf)

    def divided(self, topic: str, share: Assignment) -> None:
        self._queues_seen[topic] = share.queues
        self._tell(topic, share.queues)

    async def _share_of(self, topic: str) -> Assignment:
        if self.mode is ReadMode.ASSIGNED:
            mine = tuple(queue for queue in self._assigned if queue.topic == topic)
            return Assignment(mine, mine)
        return await self._group_share(topic)

    def move(self, queue: MessageQueue, offset: int) -> None:
        """Goes on there, if the queue is ours; what is held of it is forgotten."""
        before = self.shelves.find(queue)
        if before is not None:
            shelf = PrefetchBuffer(queue, offset)
            shelf.paused = before.paused
            self._put_up(shelf)

    def _put_up(self, shelf: PrefetchBuffer) -> None:
        """Instead of what the queue had."""
        queue = shelf.queue
        self._take_down(queue)
        self.shelves.add(shelf)
        callback = self._schedules.get(queue.topic)
        work = (
            self._prefetch.fill(shelf, self.subscriptions[queue.topic])
            if callback is None
            else self._call_regularly(queue, callback)
        )
        worker = self._workers[queue] = asyncio.get_running_loop().create_task(work)
        worker.add_done_callback(lambda task: self._worker_ended(shelf, task))

    def _take_down(self, queue: MessageQueue) -> PrefetchBuffer | None:
        worker = self._workers.pop(queue, None)
        if worker is not None:
            worker.cancel()
        self.room.set()
        return self.shelves.remove(queue)

    def _worker_ended(self, shelf: PrefetchBuffer, task: asyncio.Task[None]) -> None:
        """A loop that died by a fault of ours is begun anew, from what was committed."""
        complain(task)
        if not task.cancelled() and self.shelves.find(shelf.queue) is shelf:
            self._take_down(shelf.queue)

    async def _end_workers(self) -> None:
        tasks = list(self._workers.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.listeners.close()

    # Commits

    async def _commit_regularly(self) -> None:
        while True:
            await self.clock.sleep(self.settings.auto_commit_interval)
            done = {shelf.queue: shelf.done for shelf in self.shelves if not self._is_users(shelf)}
            with contextlib.suppress(*FAILURES):  # the next one mends it
                await self.offsets.persist(done)

    async def _commit_finally(self) -> None:
        await asyncio.gather(*(self._commit_one(shelf) for shelf in self.shelves))

    async def _commit_one(self, shelf: PrefetchBuffer) -> None:
        """What is done of a queue that is given up."""
        if self._is_users(shelf):
            return
        try:
            await self.offsets.commit(shelf.queue, shelf.done)
        except FAILURES as error:
            log.warning("Offset %d of %s is not committed: %s", shelf.done, shelf.queue, error)

    def _is_users(self, shelf: PrefetchBuffer) -> bool:
        """The user commits it, not we."""
        return not self.settings.auto_commit or shelf.queue.topic in self._schedules

    # Calling the user

    async def _call_regularly(self, queue: MessageQueue, callback: Scheduled) -> None:
        while True:
            try:
                next_s = await call_user(callback, self.names.shown(queue))
            except Exception:
                log.exception("The scheduled callback failed with %s", queue)
                next_s = NEXT_AFTER_FAILURE_S
            await self.clock.sleep(float(next_s) if isinstance(next_s, int | float) else NEXT_S)

    async def _watch_topics(self) -> None:
        while True:
            for topic in self.listeners.topics:
                with contextlib.suppress(*FAILURES):
                    await self._look_at(topic)
            await self.clock.sleep(self.settings.topic_metadata_check_interval)

    async def _look_at(self, topic: str) -> None:
        queues = await readable_queues(self._instance, topic)
        before = self._queues_seen.get(topic)
        self._queues_seen[topic] = queues
        if before is not None and set(before) != set(queues):
            self._tell(topic, queues)
            self._division.look_again()

    def _tell(self, topic: str, queues: tuple[MessageQueue, ...]) -> None:
        self.listeners.tell(topic, queues, (queue for queue in self.shelves.queues if queue.topic == topic))

    # What brokers and tools ask (`instance.Consuming`)

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
        self._division.look_again()

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            log.info("Group %s goes on in %s at offset %d", self.group, queue, offset)
            self.move(queue, offset)

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return {shelf.queue: shelf.done for shelf in self.shelves if shelf.queue.topic == topic}

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
        told.mqTable = {shelf.queue.to_wire(): shelf.to_wire() for shelf in self.shelves}
        return told

    async def consume_directly(self, message: MessageExt) -> bodies.ConsumeMessageDirectlyResult:
        raise SystemFailure(f"group {self.group} pulls: it has no listener that could consume a message")

    # Small things

    def shelf(self, queue: MessageQueue) -> PrefetchBuffer:
        found = self.shelves.find(self.names.on_wire(queue))
        if found is None:
            raise InvalidArgument(f"{queue} is not read by this consumer; `assignment()` tells what is")
        return found

    def those(self, queues: Iterable[MessageQueue] | None) -> list[PrefetchBuffer]:
        """Of these queues, or all."""
        return list(self.shelves) if queues is None else [self.shelf(queue) for queue in queues]
