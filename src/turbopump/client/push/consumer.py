"""The push consumer: a member of a group whose handlers are called with the messages of its topics."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self, TypeVar, Unpack

from turbopump.client import rules
from turbopump.client.discovery import defaults
from turbopump.client.discovery import name_servers as discovered
from turbopump.client.errors import InvalidArgument, NotRunning
from turbopump.client.files import FileAccess, SystemFiles
from turbopump.client.group.listeners import QueueListeners, QueuesListener
from turbopump.client.group.subscription import ALL, TAGS_OR, Subscription, choice
from turbopump.client.instance import instances
from turbopump.client.message import MessageQueue
from turbopump.client.namespace import wrap
from turbopump.client.observe.hooks import ConsumeHook, Filter
from turbopump.client.observe.telemetry import consume_hooks
from turbopump.client.observe.trace_hooks import ConsumeTraceHook
from turbopump.client.observe.trace_sender import TraceSender
from turbopump.client.options import ConsumerOptions
from turbopump.client.push.handlers import Handler, TagHandlers
from turbopump.client.push.member import PushMember, PushPlan
from turbopump.client.queue_names import QueueNames
from turbopump.client.settings import ConsumerSettings, MessageModel, made
from turbopump.client.world import World

log = logging.getLogger(__name__)

REFUSED_GROUP = "DEFAULT_CONSUMER"

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class _Registration:
    """One call of `on`."""

    subscription: Subscription
    handler: Handler
    ordered: bool
    broadcast: bool


class Consumer:
    """Calls handlers with messages, as a member of a group.

    >>> consumer = Consumer("billing", name_servers="127.0.0.1:9876")
    >>> @consumer.on("OrderTopic", tags="paid || refunded")
    ... async def bill(message): ...
    >>> await consumer.run()                                          # until SIGINT or SIGTERM

    A handler that returns has consumed what it was given. One that raises gets it again later, after a time
    that grows with each failure, at most `max_reconsume_times` times; then it goes to the group's dead
    letters, `%DLQ%<group>`. `RetryLater` chooses another time, or none. Every message is delivered at least
    once: after a failure, a restart or when members join and leave, it may come again.

    Handlers are `async def`, which run on the event loop, or `def`, which run in threads: at most
    `consume_thread_max` of each at a time. One that blocks belongs in a `def`: on the loop it would hold up
    everything else. A parameter with a type gets the body decoded (see `on`).

    A group begins, where it has never been, as `consume_from_where` says: LAST_OFFSET only sees what comes
    from now on, FIRST_OFFSET all that is kept, TIMESTAMP what was stored since `consume_timestamp`. Where the
    group has been once, it goes on there. A broker that still has a queue's first message in memory takes a
    new group for one that has seen nothing: LAST_OFFSET is then the beginning, as with Apache's. A new or
    empty queue is always read from its first message on, also when that arrives while the consumer starts.

    All members of a group must subscribe to the same topics with the same expressions. `filters` are
    functions that say of a message whether it is wanted, on the event loop; one that is not counts as
    consumed.
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: str | Sequence[str] | None = None,
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[Filter] = (),
        world: World | None = None,
        disk: FileAccess | None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> None:
        self.settings = made(ConsumerSettings, settings, defaults())
        _check_group(group)
        _check_crew(self.settings.consume_thread_min, self.settings.consume_thread_max)
        self.group = group
        self._name_servers = discovered(name_servers, domain=self.settings.name_server_domain)
        self._hooks = (*hooks, *consume_hooks(self.settings.telemetry))
        self._world = world or World()
        self._disk = disk or SystemFiles()
        self._wishes: dict[str, tuple[_Registration, ...]] = {}  # by topic; several have tags of their own
        self._listeners = QueueListeners(QueueNames(self.settings.namespace))
        self._filters = tuple(filters)
        self._crew = (self.settings.consume_thread_min, self.settings.consume_thread_max)
        self._engine: PushMember | None = None
        self._was_started = False
        self._stack = contextlib.AsyncExitStack()

    # What is consumed

    def on(
        self,
        topic: str,
        tags: str = ALL,
        *,
        sql: str | None = None,
        module: str | None = None,
        ordered: bool = False,
        batch: int | None = None,
        broadcast: bool = False,
        auto_commit: bool = True,
        replace: bool = False,
    ) -> Callable[[F], F]:
        """Makes a function the handler of a topic.

        >>> @consumer.on("OrderTopic", batch=32)
        ... def store(orders: list[Order]): ...

        `tags` are separated by `||`, `*` is all; `sql` is an expression over properties instead, for brokers
        that have it switched on; `module` names a filter module of a Turbopump broker. With `batch` the
        handler gets a list of at most so many messages. `ordered` delivers each queue's messages one after
        the other, in order: a failure holds up the queue and is tried again. `broadcast` gives each message
        to every member of the group, once, and keeps offsets in a file of this machine. A consumer is ordered
        or not, and broadcasting or not, for all its topics.

        A topic can have several handlers when each has tags that no other has: a message goes to the handler
        of its tag, and the group subscribes to all these tags. Anything else (a tag twice, `*`, `sql`,
        `module`, `auto_commit=False`) is refused, unless `replace=True` puts it in place of the topic's
        handlers.

        An ordered handler with `auto_commit=False` decides what is done: what it takes is kept, and begins
        anew after a restart, until it returns `ConsumeStatus.COMMIT`. `ROLLBACK` brings all since the last
        commit again after a pause. It must commit before `pull_threshold_for_queue` messages are kept.

        What a parameter gets follows from its annotation: none or `MessageExt` the message, `bytes` and `str`
        the body, anything else (dataclass, msgspec struct, pydantic model, dict) the body read as JSON. A
        body that does not fit is a failed delivery (UnreadableMessage).
        """

        def register(handler: F) -> F:
            self.subscribe(
                topic,
                handler,
                tags,
                sql=sql,
                module=module,
                ordered=ordered,
                batch=batch,
                broadcast=broadcast,
                auto_commit=auto_commit,
                replace=replace,
            )
            return handler

        return register

    def subscribe(
        self,
        topic: str,
        handler: Callable[..., Any],
        tags: str = ALL,
        *,
        sql: str | None = None,
        module: str | None = None,
        ordered: bool = False,
        batch: int | None = None,
        broadcast: bool = False,
        auto_commit: bool = True,
        replace: bool = False,
    ) -> None:
        """The same as `on` without the decorator, also while the consumer runs."""
        if self._was_started and self._engine is None:
            raise NotRunning("this consumer is closed; make a new one")
        if not auto_commit and not ordered:
            raise InvalidArgument("auto_commit=False is for ordered handlers: others commit each message")
        subscription = self._subscription(topic, tags, sql, module)
        wish = _Registration(
            subscription,
            Handler(handler, self._batch(batch), auto_commit),
            ordered,
            broadcast or self._broadcasts_all,
        )
        beside = () if replace else self._wishes.get(topic, ())
        self._check_same(wish, beside, topic)
        _check_beside(wish, beside, topic)
        self._wishes[topic] = (*beside, wish)
        if self._engine is not None:
            self._engine.subscribe(*_together(self._wishes[topic]))
            self._engine.announce_soon(subscription.topic)

    async def unsubscribe(self, topic: str) -> None:
        """Its queues go to other members, with what was consumed committed."""
        if self._wishes.pop(topic, None) is not None and self._engine is not None:
            await self._engine.unsubscribe(wrap(self.settings.namespace, topic))

    def on_queues_changed(self, topic: str, callback: QueuesListener) -> None:
        """Calls back when other queues of the topic are ours than before.

        `callback(topic, queues, mine)` gets all queues that can be read and those that are ours; it may be
        `def` (it runs in a thread) or `async def`.
        """
        rules.check_topic(topic)
        self._listeners.add(wrap(self.settings.namespace, topic), callback)

    # Life

    async def start(self) -> None:
        """Returns when the brokers know of this member. Raises NoNameServer, or Refused when a broker cannot
        serve an expression. A consumer starts once; after `close` make a new one.
        """
        if self._was_started:
            raise NotRunning(f"consumer {self.group} was started before; make a new one")
        if not self._wishes:
            raise InvalidArgument("a consumer needs a handler: use @consumer.on(topic) or subscribe")
        self._was_started = True
        async with contextlib.AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        shared = instances()
        instance = await shared.take(
            self.settings,
            self._name_servers,
            self._world,
            fixed_name=self.is_broadcast,
            is_stream=self.settings.enable_stream_request_type,
        )
        stack.push_async_callback(shared.give_back, instance)
        group = wrap(self.settings.namespace, self.group)
        plan = PushPlan(group, self.is_ordered, self.is_broadcast, self.settings)
        hooks = self._hooks
        if self.settings.enable_trace:
            tracing = TraceSender(instance, self.settings, self.group, "CONSUME")
            await tracing.start()
            stack.push_async_callback(tracing.close)
            hooks = (*hooks, ConsumeTraceHook(tracing, self.settings.consume_timeout))
        engine = PushMember(plan, instance, hooks, self._disk, self._listeners, self._filters)
        engine.crew.least, engine.crew.most = self._crew
        for wishes in self._wishes.values():
            engine.subscribe(*_together(wishes))
        stack.push_async_callback(engine.stop)
        await engine.start()
        self._engine = engine

    async def close(self) -> None:
        """Takes no new messages, waits up to `await_termination_when_shutdown` seconds for handlers at work,
        commits and leaves the group. What was fetched and not begun is consumed by others, or next time.
        """
        self._was_started = True
        stack, self._stack = self._stack, contextlib.AsyncExitStack()
        try:
            await stack.aclose()
        finally:
            self._engine = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self) -> None:
        """Consumes until SIGINT or SIGTERM (or until this call is cancelled); then closes."""
        enough = asyncio.Event()
        loop = asyncio.get_running_loop()
        caught = [number for number in (signal.SIGINT, signal.SIGTERM) if _catch(loop, number, enough.set)]
        try:
            if self._engine is None:
                await self.start()
            await enough.wait()
        finally:
            for number in caught:
                loop.remove_signal_handler(number)
            await self.close()

    # While it runs

    def pause(self) -> None:
        """Fetches no more messages; handlers go on with those that are here. The group keeps its queues."""
        self._running.pause()

    def resume(self) -> None:
        self._running.resume()

    @property
    def is_paused(self) -> bool:
        return self._engine is not None and self._engine.is_paused

    @property
    def workers(self) -> tuple[int, int]:
        """How many handlers are kept ready and how many may be at work at a time. Can be set at any time.

        >>> consumer.workers = (4, 64)
        """
        return self._crew

    @workers.setter
    def workers(self, crew: tuple[int, int]) -> None:
        least, most = crew
        _check_crew(least, most)
        self._crew = (least, most)
        if self._engine is not None:
            self._engine.resize(least, most)

    def queues(self) -> tuple[MessageQueue, ...]:
        """Those that are ours now, without the retry topic's."""
        engine = self._running
        topics = {wish.subscription.topic for wish in self._all_wishes()}
        return engine.as_users_know(queue for queue in engine.queues.ours if queue.topic in topics)

    @property
    def client_id(self) -> str:
        return self._running.client_id

    @property
    def is_ordered(self) -> bool:
        return any(wish.ordered for wish in self._all_wishes())

    @property
    def is_broadcast(self) -> bool:
        return self._broadcasts_all or any(wish.broadcast for wish in self._all_wishes())

    @property
    def _running(self) -> PushMember:
        if self._engine is None:
            raise NotRunning(f"consumer {self.group} is not running; use `async with` or start()")
        return self._engine

    @property
    def _broadcasts_all(self) -> bool:
        return self.settings.message_model is MessageModel.BROADCASTING

    def _subscription(self, topic: str, tags: str, sql: str | None, module: str | None) -> Subscription:
        if not isinstance(topic, str):
            raise InvalidArgument(f"a topic is a name, not {topic!r}; write @consumer.on('topic')")
        rules.check_topic(topic)
        expression, kind = choice(tags, sql, module)
        return Subscription(wrap(self.settings.namespace, topic), expression, kind=kind)

    def _batch(self, batch: int | None) -> int | None:
        if batch is None:
            size = self.settings.consume_message_batch_max_size
            return size if size > 1 else None
        if not isinstance(batch, int) or not 1 <= batch <= 1024:
            raise InvalidArgument(f"batch must be between 1 and 1024, not {batch}")
        return batch

    def _all_wishes(self) -> Iterator[_Registration]:
        return chain.from_iterable(self._wishes.values())

    def _check_same(self, wish: _Registration, beside: tuple[_Registration, ...], topic: str) -> None:
        elsewhere = chain.from_iterable(wishes for name, wishes in self._wishes.items() if name != topic)
        others = [*elsewhere, *beside]
        if any(other.ordered != wish.ordered for other in others):
            raise InvalidArgument("a consumer is ordered or not for all its topics; make two consumers")
        if any(other.broadcast != wish.broadcast for other in others):
            raise InvalidArgument("a consumer broadcasts or not for all its topics; make two consumers")
        if self._engine is not None and (wish.ordered, wish.broadcast) != self._engine.manner:
            raise InvalidArgument("how a running consumer delivers cannot change; make another consumer")


def _check_beside(wish: _Registration, beside: tuple[_Registration, ...], topic: str) -> None:
    """Refuses a handler when it would not be clear which of the topic's handlers a message is for."""
    if not beside:
        return
    advice = "; give each handler tags of its own, or replace the handlers of the topic with replace=True"
    if not all(one.subscription.tags for one in (wish, *beside)):
        given = " and ".join(repr(one.subscription.text) for one in (*beside, wish))
        raise InvalidArgument(f"the handlers of topic {topic} must differ by tag, got {given}{advice}")
    taken = {tag for one in beside for tag in one.subscription.tags}
    if twice := sorted(taken.intersection(wish.subscription.tags)):
        raise InvalidArgument(f"topic {topic} has a handler for tag {', '.join(twice)} already{advice}")
    if not all(one.handler.commits for one in (wish, *beside)):
        raise InvalidArgument(
            f"a handler with auto_commit=False must be the only one of its topic, got two for {topic}; "
            "make two consumers"
        )


def _together(wishes: tuple[_Registration, ...]) -> tuple[Subscription, Handler | TagHandlers]:
    """What the group subscribes to, and what handles it."""
    first, *more = wishes
    if not more:
        return first.subscription, first.handler
    by_tag = {tag: wish.handler for wish in wishes for tag in wish.subscription.tags}
    return Subscription(first.subscription.topic, TAGS_OR.join(by_tag)), TagHandlers(by_tag)


def _catch(loop: asyncio.AbstractEventLoop, number: int, call: Callable[[], None]) -> bool:
    """Not every system can, and only the main thread may."""
    try:
        loop.add_signal_handler(number, call)
    except (NotImplementedError, RuntimeError, ValueError):
        return False
    return True


def _check_group(group: str) -> None:
    rules.check_group(group)
    if group == REFUSED_GROUP:
        raise InvalidArgument(f"group {group} is nobody's; name your own")


def _check_crew(least: int, most: int) -> None:
    if not 1 <= least <= most <= 1000:
        raise InvalidArgument(f"workers must be 1 <= least <= most <= 1000, not {least} and {most}")
