"""The pull consumer: gives out messages when the program asks for them.

It reads queues that the group divides among its members, or queues that the program names; and it makes
single pulls from any queue. This is what users call; `member.py` does the work. What is never here: listeners
and threads.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Self, Unpack

from msgspec.structs import replace

from turbopump.client import discovery, rules
from turbopump.client.errors import InvalidArgument, NotRunning
from turbopump.client.files import FileAccess, SystemFiles
from turbopump.client.group.listeners import QueuesListener
from turbopump.client.group.send_back import send_back_for
from turbopump.client.group.subscription import ALL
from turbopump.client.instance import ClientInstance, instances
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.observe.hooks import ConsumeContext, ConsumeHook, Filter, run_after, run_before
from turbopump.client.observe.telemetry import receive_hooks
from turbopump.client.observe.trace_hooks import ConsumeTraceHook
from turbopump.client.observe.trace_sender import TraceSender
from turbopump.client.options import PullOptions
from turbopump.client.pull.member import PullMember, Scheduled
from turbopump.client.pull.puller import PullStatus
from turbopump.client.pull.single_pulls import Pulled, SinglePulls
from turbopump.client.settings import PullSettings, made
from turbopump.client.times import Time, past_ms
from turbopump.client.world import World

__all__ = ["PullConsumer", "PullStatus", "Pulled"]


class PullConsumer(SinglePulls):
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
    call gave out, so it is delivered again. A group that never committed begins where `consume_from_where`
    says.

    With `message_model=MessageModel.BROADCASTING` each member reads all queues and keeps its offsets in a
    file below `local_offset_store_dir`, one for each `instance_name` of a host.

    `hooks` are called when messages are given out, `before` and `after` at once, because only the program
    knows what becomes of the messages. `filters` are functions, called on the event loop, that return whether
    a message is wanted; an unwanted one counts as consumed.

    Only one task may read: two that poll in turns would count each other's messages as done.

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
        self._trace_sender: TraceSender | None = None
        self._world = world or World()
        self._member = PullMember(
            group, self.settings, self._world.clock, disk or SystemFiles(), tuple(filters)
        )
        self._instance: ClientInstance | None = None
        self._is_closed = False
        wanted = topics if isinstance(topics, Mapping) else dict.fromkeys(_list(topics), ALL)
        for topic, expression in wanted.items():
            self._member.note(self._subscription(topic, expression, None))

    # Start and close

    async def start(self) -> None:
        """Joins the group and starts reading; returns when the brokers know this consumer.

        `async with` calls it. Raises NoNameServer when none can be reached.
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
                self._trace_sender = TraceSender(instance, self.settings, self.group, "CONSUME")
                await self._trace_sender.start()
                self._hooks = (*self._hooks, ConsumeTraceHook(self._trace_sender))
            await self._member.start(instance)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Commits what was given out (with `auto_commit`), leaves the group and closes. May be called again.

        An iteration in another task ends; a `poll` that waits raises NotRunning.
        """
        self._member.buffers.settle()
        await self._close()

    async def _close(self) -> None:
        self._is_closed = True
        self._member.arrived.set()
        await self._member.stop()
        if self._trace_sender is not None:
            await self._trace_sender.close()
        if self._instance is not None:
            await instances().give_back(self._instance)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._member.buffers.settle()
        await self._close()

    @property
    def is_running(self) -> bool:
        return self._instance is not None and not self._is_closed

    # What to read

    async def subscribe(
        self, topic: str, tags: str = ALL, *, sql: str | None = None, module: str | None = None
    ) -> None:
        """Reads this topic as a member of the group; a topic that is subscribed already gets the new tags.

        `sql` instead of tags chooses by properties, at brokers with SQL92; others refuse it. `module` names a
        filter module of a Turbopump broker. May be called before the start and after it; then it returns when
        the brokers know and this consumer's queues are being read. Raises InvalidArgument after `assign`: a
        consumer uses one or the other.

            await consumer.subscribe("OrderTopic", "paid || refunded")
            await consumer.subscribe("OrderTopic", sql="price > 10 AND region = 'EU'")
        """
        await self._member.subscribe(self._subscription(topic, tags, sql, module))

    async def unsubscribe(self, topic: str) -> None:
        """Stops reading the topic; fetched messages that were not given out yet are dropped."""
        await self._member.unsubscribe(self._names.topic(topic))

    async def assign(
        self,
        queues: Iterable[MessageQueue],
        tags: str = ALL,
        *,
        sql: str | None = None,
        module: str | None = None,
    ) -> None:
        """Reads exactly these queues from now on, independent of other members of the group.

        Queues that were assigned before and still are continue at their position. Each new one begins where
        the group committed, or where `consume_from_where` says; `seek` moves it. Raises InvalidArgument after
        `subscribe`, and for no queue at all.

            await consumer.assign(await consumer.queues("OrderTopic"))
        """
        wanted = tuple(sorted({self._names.on_wire(queue) for queue in queues}))
        if not wanted:
            raise InvalidArgument(
                "assign needs at least one queue, got none: to stop reading call `unsubscribe(topic)`"
            )
        topics = {queue.topic: self._subscription(queue.topic, tags, sql, module) for queue in wanted}
        await self._member.assign(wanted, topics)

    def assignment(self) -> tuple[MessageQueue, ...]:
        """Returns the queues that this consumer reads now, sorted."""
        return self._names.all_shown(self._member.buffers.queues)

    # Reading

    async def poll(self, timeout: float | None = None) -> list[MessageExt]:
        """Returns up to `pull_batch_size` messages of one queue; [] when none came within `timeout` seconds.

        Without `timeout` it waits up to `poll_timeout`. What earlier calls gave out counts as done now (see
        the class about commits). Queues take turns.

            for message in await consumer.poll(timeout=1):
                print(message.text)
        """
        wait_s = self.settings.poll_timeout if timeout is None else rules.check_seconds(timeout)
        if wait_s < 0:
            raise InvalidArgument(f"timeout must be at least 0, got {wait_s}")
        self._running()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                return await self._next(self.settings.pull_batch_size)
        self._running()
        return self._give(self.settings.pull_batch_size)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        """Waits for the next message and returns it; the iteration ends when the consumer is closed."""
        self._running()
        try:
            return (await self._next(1))[0]
        except NotRunning:
            raise StopAsyncIteration from None

    async def _next(self, max_count: int) -> list[MessageExt]:
        self._member.buffers.settle()
        while not (given := self._give(max_count)):
            self._member.arrived.clear()
            await self._member.arrived.wait()
            self._running()
        return given

    def give_back(self, messages: Sequence[MessageExt]) -> None:
        """Moves each queue back to the first of these messages: it and all later ones are given out again.

        For unused messages of the last call. A queue that is no longer assigned is skipped.
        """
        first = {(one.record.topic, one.queue.broker, one.queue.id): one.offset for one in reversed(messages)}
        for place, offset in first.items():
            self._member.move(MessageQueue(*place), offset)

    def _give(self, max_count: int) -> list[MessageExt]:
        given = self._member.buffers.take(max_count)
        if given:
            self._member.capacity_freed.set()
            if self._hooks:
                self._run_hooks(given)
        return given

    def _run_hooks(self, given: list[MessageExt]) -> None:
        """Calls `before` and `after` of the hooks with success: only the program knows the real outcome."""
        namespace = self._names.namespace
        context = ConsumeContext(self._member.group, tuple(given), given[0].queue, namespace=namespace)
        run_before(self._hooks, context)
        context.success, context.status = True, "CONSUME_SUCCESS"
        run_after(self._hooks, context)

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Stops fetching and giving out messages of these queues (default: all assigned now) until `resume`.

        The queues stay assigned to this consumer.
        """
        for buffer in self._member.buffers_of(queues):
            self._member.buffers.pause(buffer, True)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Fetches and gives out messages of these queues (default: all assigned now) again after `pause`."""
        for buffer in self._member.buffers_of(queues):
            self._member.buffers.pause(buffer, False)
        self._member.capacity_freed.set()
        self._member.arrived.set()

    # Positions

    def position(self, queue: MessageQueue) -> int:
        """Returns the offset of the next message to be given out of an assigned queue."""
        return self._member.buffer(queue).position

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continues at this offset of an assigned queue; its fetched messages are dropped.

        Raises InvalidArgument for an offset that the queue does not have; its end is allowed.
        """
        self._running()
        self._member.buffer(queue)
        low, high = await self.min_offset(queue), await self.max_offset(queue)
        if not low <= offset <= high:
            raise InvalidArgument(f"offset must be between {low} and {high} for {queue}, got {offset}")
        self._member.move(self._names.on_wire(queue), offset)

    async def seek_to_begin(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continues at the first message of these queues (default: all that are assigned)."""
        await self._seek_each(queues, self.min_offset)

    async def seek_to_end(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continues behind the last message of these queues (default: all that are assigned)."""
        await self._seek_each(queues, self.max_offset)

    async def seek_to_time(self, when: Time, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continues at the first message stored at that time or later, else at the end; default: all queues.

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
        wanted = [buffer.queue for buffer in self._member.buffers_of(queues)]
        offsets = await asyncio.gather(*(where(queue) for queue in wanted))
        for queue, offset in zip(wanted, offsets, strict=True):
            self._member.move(queue, offset)

    # Commits

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commits offsets to the brokers and returns when they have them. Raises Refused or OSError.

        When broadcasting they go to the local file; a failed write is only logged.

        Without offsets: everything that was given out so far, in all assigned queues. An offset is that of
        the next message to read; the queue may be any.

            await consumer.commit()
            await consumer.commit({message.queue: message.offset + 1})
        """
        self._running()
        if offsets is None:
            self._member.buffers.settle()
            offsets = {buffer.queue: buffer.done for buffer in self._member.buffers}
        for queue, offset in offsets.items():
            if offset < 0:
                raise InvalidArgument(f"an offset must be at least 0, got {offset} for {queue}")
        commit, on_wire = self._member.offsets.commit, self._names.on_wire
        await asyncio.gather(*(commit(on_wire(queue), offset) for queue, offset in offsets.items()))

    async def committed(self, queue: MessageQueue) -> int | None:
        """Returns the committed offset; without one, 0 in a new queue, the end of an empty one, else None.

        Without a commit the broker decides between these; when broadcasting it is always None.
        """
        self._running()
        return await self._member.offsets.query(self._names.on_wire(queue))

    # Send-backs

    async def send_back(self, message: MessageExt, delay_level: int = 0) -> None:
        """Sends a message back to its broker, to be delivered to the group again later.

        The delay grows each time; after `max_reconsume_times` the message goes to the group's dead-letter
        topic.

        `delay_level`: 1 to 18 chooses the delay, 0 leaves it to the broker, -1 means dead letter at once.
        Copies come through the topic `%RETRY%<group>`: subscribe to it too, if this consumer is to read them.
        Raises ConnectionError when no broker accepted it.
        """
        back = send_back_for(self._running(), self._member.group, self.settings.max_reconsume_times)
        if not await back.send(replace(message, queue=self._names.on_wire(message.queue)), delay_level):
            raise ConnectionError(f"message {message.message_id} could not be sent back now; try again later")

    # Callbacks

    def on_queues_changed(self, topic: str, callback: QueuesListener) -> None:
        """Registers a callback for changes of the topic's queues, and of those that this consumer reads.

        `callback(topic, queues, mine)` gets all readable queues and those of this consumer; it may be `def`
        (it runs in a thread) or `async def`. Checks every `topic_metadata_check_interval`, and at each
        rebalance of the group.
        """
        rules.check_topic(topic)
        self._member.listeners.add(self._names.topic(topic), callback)

    async def schedule(self, topic: str, callback: Scheduled) -> None:
        """Calls `callback(queue)` for each assigned queue of the topic, again after the seconds it returns.

        If it returns None, that is 0.2 s. There is one call at a time for each queue. The callback pulls and
        commits by itself, with `pull` and `commit`. After an exception, which is logged, the next call comes
        in a second. Like `subscribe`, this joins the group; `unsubscribe` ends it.

            async def look(queue):
                result = await consumer.pull(queue, await consumer.committed(queue) or 0)
                work(result.messages)
                await consumer.commit({queue: result.next_offset})
                return 0 if result.messages else 5

            await consumer.schedule("OrderTopic", look)
        """
        await self._member.subscribe(self._subscription(topic, ALL, None), callback)


def _list(topics: Sequence[str]) -> Sequence[str]:
    return [topics] if isinstance(topics, str) else topics


def _check_waits(settings: PullSettings) -> None:
    if settings.consumer_timeout_when_suspend < settings.broker_suspend_max_time:
        raise InvalidArgument(
            "consumer_timeout_when_suspend must be at least broker_suspend_max_time, got "
            f"{settings.consumer_timeout_when_suspend} and {settings.broker_suspend_max_time}"
        )
