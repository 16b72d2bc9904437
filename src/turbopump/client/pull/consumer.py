"""The pull consumer: messages when the program asks for them, from queues that the group divides among its
members or that the program names itself; and single pulls from anywhere.

Here is what users call; the work behind it is in `pull_member.py`. What is never here: listeners and threads.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, Unpack

from msgspec.structs import replace

from turbopump.client import discovery, rules
from turbopump.client.errors import InvalidArgument, NotRunning
from turbopump.client.files import FileAccess, SystemFiles
from turbopump.client.group.listeners import QueuesListener
from turbopump.client.group.rebalancer import readable_queues
from turbopump.client.group.send_back import SendBack
from turbopump.client.group.subscription import ALL, Subscription, choice
from turbopump.client.instance import ClientInstance, instances
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.observe.hooks import ConsumeContext, ConsumeHook, Filter, run_after, run_before
from turbopump.client.observe.telemetry import receive_hooks
from turbopump.client.observe.trace_hooks import ConsumeTraceHook
from turbopump.client.observe.trace_sender import TraceSender
from turbopump.client.options import PullOptions
from turbopump.client.produce.sender import Sender
from turbopump.client.pull.member import PullMember, Scheduled
from turbopump.client.pull.puller import PullStatus
from turbopump.client.queue_names import QueueNames
from turbopump.client.routes import RoundRobin
from turbopump.client.settings import PullSettings, made
from turbopump.client.times import Time, past_ms
from turbopump.client.world import World

__all__ = ["PullConsumer", "PullStatus", "Pulled"]


@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer to one pull."""

    status: PullStatus
    messages: list[MessageExt]
    next_offset: int
    """Where the next pull begins."""
    min_offset: int
    """The queue's first message that is still there."""
    max_offset: int
    """The offset that the queue's next message will have."""


class PullConsumer:
    """Reads messages when you ask for them, as a member of a group or from queues of your choice.

    As a member: the group's queues are divided among its members, and each message is read by one of them.

        async with PullConsumer("audit", topics=["OrderTopic"], name_servers="127.0.0.1:9876") as consumer:
            await consumer.seek_to_time("2026-11-01T00:00:00Z")
            async for message in consumer:
                print(message.topic, message.text)

    With queues of your own choice, and offsets committed when you say so:

        async with PullConsumer("audit", auto_commit=False) as consumer:
            await consumer.assign(await consumer.queues("OrderTopic"))
            while messages := await consumer.poll(timeout=1):
                work(messages)
                await consumer.commit()

    Commits: with `auto_commit` (the default), what a call of `poll` or a step of the iteration gave out
    counts as done when the *next* call begins, and is committed within `auto_commit_interval`. Leaving the
    `async with` block normally commits the rest too; leaving it by an exception does not commit what the last
    call gave out, so it comes again. A group that never committed begins as `consume_from_where` says.

    With `message_model=MessageModel.BROADCASTING` each member reads all queues and keeps its offsets in a
    file below `local_offset_store_dir`, one for each `instance_name` of a host.

    `hooks` are called when messages are given out, `before` and `after` at once: what becomes of them is the
    program's matter. `filters` are functions that say of a message whether it is wanted, on the event loop;
    one that is not counts as consumed.

    One task reads at a time: two that poll in turns would count each other's messages as done.

    `topics` is a list of topics, or a mapping from topic to an expression over tags such as `"paid || open"`.
    All other keyword arguments are the settings of docs/settings.md.
    """

    def __init__(
        self,
        group: str,
        *,
        topics: Sequence[str] | Mapping[str, str] = (),
        name_servers: str | Sequence[str] | None = None,
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[Filter] = (),
        world: World | None = None,
        disk: FileAccess | None = None,
        **settings: Unpack[PullOptions],
    ) -> None:
        self.settings = made(PullSettings, settings, discovery.defaults())
        _check_waits(self.settings)
        rules.check_group(group)
        self.group = group
        self._name_servers = discovery.name_servers(name_servers, domain=self.settings.name_server_domain)
        self._hooks = (*hooks, *receive_hooks(self.settings.telemetry))
        self._tracing: TraceSender | None = None
        self._world = world or World()
        self._member = PullMember(
            group, self.settings, self._world.clock, disk or SystemFiles(), tuple(filters)
        )
        self._instance: ClientInstance | None = None
        self._is_closed = False
        wanted = topics if isinstance(topics, Mapping) else dict.fromkeys(_list(topics), ALL)
        for topic, expression in wanted.items():
            self._member.note(self._subscription(topic, expression, None))

    # Life

    async def start(self) -> None:
        """Returns when the brokers know us and the queues that are ours are being read. `async with` does it.

        Raises NoNameServer when none can be reached.
        """
        if self._is_closed:
            raise NotRunning("this consumer is closed; make a new one")
        if self._instance is not None:
            return
        shared = instances()
        instance = self._instance = await shared.take(
            self.settings,
            self._name_servers,
            self._world,
            fixed_name=self._member.is_broadcast,
            is_stream=self.settings.enable_stream_request_type,
        )
        try:
            if self.settings.enable_trace:
                self._tracing = TraceSender(instance, self.settings, self.group, "CONSUME")
                await self._tracing.start()
                self._hooks = (*self._hooks, ConsumeTraceHook(self._tracing))
            await self._member.start(instance)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Commits what was given out (with `auto_commit`), leaves the group and closes. Again: nothing.

        An iteration that runs elsewhere ends; a `poll` that waits raises NotRunning.
        """
        self._member.shelves.settle()
        await self._close()

    async def _close(self) -> None:
        self._is_closed = True
        self._member.arrived.set()
        await self._member.stop()
        if self._tracing is not None:
            await self._tracing.close()
        if self._instance is not None:
            await instances().give_back(self._instance)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._member.shelves.settle()
        await self._close()

    @property
    def is_running(self) -> bool:
        return self._instance is not None and not self._is_closed

    # What to read

    async def subscribe(
        self, topic: str, tags: str = ALL, *, sql: str | None = None, module: str | None = None
    ) -> None:
        """Reads this topic too, as a member of the group; one that is subscribed already gets other tags.

        `sql` instead of tags chooses by properties, where brokers know SQL92; others refuse it. `module`
        names a filter module of a Turbopump broker. Before the start or after it; then it returns when the
        brokers know and our queues are being read. Raises InvalidArgument after `assign`: a consumer does one
        or the other.

            await consumer.subscribe("OrderTopic", "paid || refunded")
            await consumer.subscribe("OrderTopic", sql="price > 10 AND region = 'EU'")
        """
        await self._member.subscribe(self._subscription(topic, tags, sql, module))

    async def unsubscribe(self, topic: str) -> None:
        """Reads the topic no more; messages of it that are held and were not given out are forgotten."""
        await self._member.unsubscribe(self._names.topic(topic))

    async def assign(
        self,
        queues: Iterable[MessageQueue],
        tags: str = ALL,
        *,
        sql: str | None = None,
        module: str | None = None,
    ) -> None:
        """Reads exactly these queues from now on, whatever other members of the group do.

        Queues that were assigned before and still are go on where they were. Each new one begins where the
        group committed, or as `consume_from_where` says; `seek` moves it. Raises InvalidArgument after
        `subscribe`, and for no queue at all.

            await consumer.assign(await consumer.queues("OrderTopic"))
        """
        wanted = tuple(sorted({self._names.on_wire(queue) for queue in queues}))
        if not wanted:
            raise InvalidArgument("assign needs at least one queue; `unsubscribe(topic)` reads no more")
        topics = {queue.topic: self._subscription(queue.topic, tags, sql, module) for queue in wanted}
        await self._member.assign(wanted, topics)

    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that this consumer reads now, in order."""
        return self._names.all_shown(self._member.shelves.queues)

    @property
    def _names(self) -> QueueNames:
        return self._member.names

    def _subscription(
        self, topic: str, tags: str, sql: str | None = None, module: str | None = None
    ) -> Subscription:
        rules.check_topic(topic)
        expression, kind = choice(tags, sql, module)
        return Subscription(self._names.topic(topic), expression, self._world.clock.now_ms(), kind)

    # Reading

    async def poll(self, timeout: float | None = None) -> list[MessageExt]:
        """Messages of one queue, at most `pull_batch_size`, waiting for them up to `timeout` seconds
        (`poll_timeout`, when not given). Empty: nothing came.

        What earlier calls gave out counts as done now (see the class about commits). Queues take turns.

            for message in await consumer.poll(timeout=1):
                print(message.text)
        """
        wait_s = self.settings.poll_timeout if timeout is None else rules.check_seconds(timeout)
        if wait_s < 0:
            raise InvalidArgument(f"poll waits 0 seconds or more, not {wait_s}")
        self._running()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                return await self._next(self.settings.pull_batch_size)
        self._running()
        return self._give(self.settings.pull_batch_size)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        """The next message, waiting for it as long as it takes; the end when the consumer is closed."""
        self._running()
        try:
            return (await self._next(1))[0]
        except NotRunning:
            raise StopAsyncIteration from None

    async def _next(self, most: int) -> list[MessageExt]:
        self._member.shelves.settle()
        while not (given := self._give(most)):
            self._member.arrived.clear()
            await self._member.arrived.wait()
            self._running()
        return given

    def give_back(self, messages: Sequence[MessageExt]) -> None:
        """Messages of the last call that were not used after all: they come again, and those behind them."""
        first = {(one.record.topic, one.queue.broker, one.queue.id): one.offset for one in reversed(messages)}
        for place, offset in first.items():
            self._member.move(MessageQueue(*place), offset)

    def _give(self, most: int) -> list[MessageExt]:
        given = self._member.shelves.take(most)
        if given:
            self._member.room.set()
            if self._hooks:
                self._run_hooks(given)
        return given

    def _run_hooks(self, given: list[MessageExt]) -> None:
        """As Apache's: with success, for what becomes of the messages is the program's matter."""
        namespace = self._names.namespace
        context = ConsumeContext(self._member.group, tuple(given), given[0].queue, namespace=namespace)
        run_before(self._hooks, context)
        context.success, context.status = True, "CONSUME_SUCCESS"
        run_after(self._hooks, context)

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Gives out nothing of these queues (of all that are ours) until `resume`; they stay ours."""
        for shelf in self._member.those(queues):
            self._member.shelves.pause(shelf, True)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Goes on with these queues, or with all."""
        for shelf in self._member.those(queues):
            self._member.shelves.pause(shelf, False)
        self._member.room.set()
        self._member.arrived.set()

    # Positions

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that will be given out of this queue."""
        return self._member.shelf(queue).position

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Goes on at this offset of the queue, which must be ours. What is held of it is forgotten.

        Raises InvalidArgument for an offset that the queue does not have; its end is allowed.
        """
        self._running()
        self._member.shelf(queue)
        low, high = await self.min_offset(queue), await self.max_offset(queue)
        if not low <= offset <= high:
            raise InvalidArgument(f"{queue} has offsets {low} to {high}, not {offset}")
        self._member.move(self._names.on_wire(queue), offset)

    async def seek_to_begin(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Goes on at the first message that is there, in these queues or all that are ours."""
        await self._seek_each(queues, self.min_offset)

    async def seek_to_end(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Goes on behind the last message, in these queues or all that are ours."""
        await self._seek_each(queues, self.max_offset)

    async def seek_to_time(self, when: Time, queues: Iterable[MessageQueue] | None = None) -> None:
        """Goes on at the first message stored at that time or later, in these queues or all that are ours.

        `when` is a datetime with a time zone, a negative timedelta from now, milliseconds since 1970, ISO
        text with a zone, or an age such as `10m`.

            await consumer.seek_to_time("2026-11-01T00:00:00Z")
            await consumer.seek_to_time(-timedelta(hours=2))
        """
        time_ms = past_ms(when, self._world.clock.now_ms())
        await self._seek_each(queues, lambda queue: self._member.puller.offset_at(queue, time_ms))

    async def _seek_each(
        self, queues: Iterable[MessageQueue] | None, where: Callable[[MessageQueue], Awaitable[int]]
    ) -> None:
        self._running()
        wanted = [shelf.queue for shelf in self._member.those(queues)]
        offsets = await asyncio.gather(*(where(queue) for queue in wanted))
        for queue, offset in zip(wanted, offsets, strict=True):
            self._member.move(queue, offset)

    # Commits

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Tells the brokers how far the group is; returns when they have it. Raises Refused or OSError.

        Without offsets: everything that was given out so far, in all queues that are ours. An offset is that
        of the next message to read, for any queue.

            await consumer.commit()
            await consumer.commit({message.queue: message.offset + 1})
        """
        self._running()
        if offsets is None:
            self._member.shelves.settle()
            offsets = {shelf.queue: shelf.done for shelf in self._member.shelves}
        for queue, offset in offsets.items():
            if offset < 0:
                raise InvalidArgument(f"an offset is 0 or more: {queue} cannot be committed at {offset}")
        commit, on_wire = self._member.offsets.commit, self._names.on_wire
        await asyncio.gather(*(commit(on_wire(queue), offset) for queue, offset in offsets.items()))

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group goes on in this queue, as its broker knows.

        Of a group that never committed there: 0 while the queue is new, its end when it is empty, else None.
        """
        self._running()
        return await self._member.offsets.query(self._names.on_wire(queue))

    # Queues and single pulls

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of the topic that can be read. Raises TopicNotFound."""
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
        """One pull: at most `n` messages (`pull_batch_size`) of the queue from that offset on.

        When there are none, the broker waits for one up to `wait` seconds. Nothing is remembered and nothing
        committed: `commit({queue: result.next_offset})` does. Raises Refused or OSError.

            offset = await consumer.committed(queue) or 0
            result = await consumer.pull(queue, offset, 32, "paid", wait=20)
            for message in result.messages: ...
        """
        self._running()
        if offset < 0 or (n is not None and n <= 0):
            raise InvalidArgument(f"a pull begins at 0 or later and asks for 1 or more, not {offset} and {n}")
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
        """The offset of the first message that is still there."""
        self._running()
        return await self._member.puller.min_offset(self._names.on_wire(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message will have."""
        self._running()
        return await self._member.puller.max_offset(self._names.on_wire(queue))

    async def offset_at(self, queue: MessageQueue, when: Time) -> int:
        """The offset of the first message stored at that time or later."""
        self._running()
        return await self._member.puller.offset_at(
            self._names.on_wire(queue), past_ms(when, self._world.clock.now_ms())
        )

    async def send_back(self, message: MessageExt, delay_level: int = 0) -> None:
        """The message is to come again later: its broker keeps a copy for the group, with a delay that grows
        each time, and after `max_reconsume_times` in the group's dead-letter topic.

        `delay_level`: 1 to 18 chooses the delay, 0 leaves it to the broker, -1 means dead letter at once.
        Copies come through the topic `%RETRY%<group>`: subscribe to it too, if this consumer is to read them.
        Raises ConnectionError when nobody would take it.
        """
        instance = self._running()
        world = self._world
        choice = RoundRobin(world.chance)
        sender = Sender(
            instance.client,
            instance.routes,
            world.clock,
            instance.unique_ids,
            choice,
            chance=world.chance,
        )
        back = SendBack(sender, self._member.group, self.settings.max_reconsume_times)
        if not await back.send(replace(message, queue=self._names.on_wire(message.queue)), delay_level):
            raise ConnectionError(f"message {message.message_id} could not be sent back now; try again later")

    # Being called

    def on_queues_changed(self, topic: str, callback: QueuesListener) -> None:
        """Calls back when the topic has other queues than before, or other ones of them are ours.

        `callback(topic, queues, mine)` gets all queues that can be read and those that are ours; it may be
        `def` (it runs in a thread) or `async def`. Looks every `topic_metadata_check_interval`, and whenever
        the group divides its queues anew.
        """
        rules.check_topic(topic)
        self._member.listeners.add(self._names.topic(topic), callback)

    async def schedule(self, topic: str, callback: Scheduled) -> None:
        """Calls back for each queue of the topic that is ours, again and again, one call at a time for each.

        `callback` gets the queue and says after how many seconds it wants to be called again; None is 0.2. It
        pulls and commits by itself, with `pull` and `commit`. After an exception, which is logged, the next
        call comes in a second. As `subscribe`, this makes us a member of the group; `unsubscribe` ends it.

            async def look(queue):
                result = await consumer.pull(queue, await consumer.committed(queue) or 0)
                work(result.messages)
                await consumer.commit({queue: result.next_offset})
                return 0 if result.messages else 5

            await consumer.schedule("OrderTopic", look)
        """
        await self._member.subscribe(self._subscription(topic, ALL, None), callback)

    def _running(self) -> ClientInstance:
        if self._is_closed:
            raise NotRunning("this consumer is closed; make a new one")
        if self._instance is None:
            raise NotRunning("this consumer is not started: use `async with` or start()")
        return self._instance


def _list(topics: Sequence[str]) -> Sequence[str]:
    return [topics] if isinstance(topics, str) else topics


def _check_waits(settings: PullSettings) -> None:
    if settings.consumer_timeout_when_suspend < settings.broker_suspend_max_time:
        raise InvalidArgument(
            f"consumer_timeout_when_suspend ({settings.consumer_timeout_when_suspend}) must not be shorter "
            f"than broker_suspend_max_time ({settings.broker_suspend_max_time})"
        )
