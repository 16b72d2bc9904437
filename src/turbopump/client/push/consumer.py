"""The push consumer: a member of a group that calls handlers with the messages of its topics."""

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
from turbopump.client.group.subscription import ALL, TAGS_OR, Subscription, parse_expression
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
    """A handler that was registered with `on` or `subscribe`."""

    subscription: Subscription
    handler: Handler
    ordered: bool
    broadcast: bool


class Consumer:
    """Calls handlers with messages of their topics, as a member of a consumer group.

    >>> consumer = Consumer("billing", name_servers="127.0.0.1:9876")
    >>> @consumer.on("OrderTopic", tags="paid || refunded")
    ... async def bill(message): ...
    >>> await consumer.run()                                          # until SIGINT or SIGTERM

    A handler that returns has consumed its message. When it raises, the message is delivered again after a
    delay that grows with each failure, at most `max_reconsume_times` times; then it goes to the group's dead
    letters, `%DLQ%<group>`. `RetryLater` chooses another delay, or none. Every message is delivered at least
    once: after a failure, a restart or a rebalance it may be delivered again.

    Handlers are `async def`, which run on the event loop, or `def`, which run in threads: at most
    `consume_thread_max` of each at a time. Write `def` for a handler that blocks: on the loop it would hold
    up everything else. A parameter with a type gets the body decoded (see `on`).

    A group that never committed in a queue begins where `consume_from_where` says: LAST_OFFSET reads only new
    messages, FIRST_OFFSET all that are stored, TIMESTAMP those stored since `consume_timestamp`. Otherwise it
    continues at its committed offset. While a broker still has a queue's first message in memory, LAST_OFFSET
    begins there for a new group, as with Apache's clients. A new or empty queue is always read from its first
    message on, even if that arrives while the consumer starts.

    All members of a group must subscribe to the same topics with the same expressions. `filters` are
    functions, called on the event loop, that return whether a message is wanted; an unwanted one counts as
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
        _check_workers(self.settings.consume_thread_min, self.settings.consume_thread_max)
        self.group = group
        self._name_servers = discovered(name_servers, domain=self.settings.name_server_domain)
        self._hooks = (*hooks, *consume_hooks(self.settings.telemetry))
        self._world = world or World()
        self._disk = disk or SystemFiles()
        self._registrations: dict[
            str, tuple[_Registration, ...]
        ] = {}  # topic → handlers; several must differ by tag
        self._listeners = QueueListeners(QueueNames(self.settings.namespace))
        self._filters = tuple(filters)
        self._pool_size = (self.settings.consume_thread_min, self.settings.consume_thread_max)
        self._member: PushMember | None = None
        self._was_started = False
        self._stack = contextlib.AsyncExitStack()

    # Subscriptions

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
        """Returns a decorator that registers a function as the handler of a topic.

        >>> @consumer.on("OrderTopic", batch=32)
        ... def store(orders: list[Order]): ...

        `tags` are separated by `||`, `*` is all; `sql` is an expression over properties instead, for brokers
        that have it switched on; `module` names a filter module of a Turbopump broker. With `batch` the
        handler gets a list of at most that many messages. `ordered` delivers each queue's messages one after
        the other, in order: a failed one holds up the queue and is delivered again. `broadcast` delivers each
        message to every member of the group, once, and keeps offsets in a file of this machine. A consumer is
        ordered or not, and broadcasting or not, for all its topics.

        A topic can have several handlers when each has tags that no other has: a message goes to the handler
        of its tag, and the group subscribes to all these tags. Anything else (a tag twice, `*`, `sql`,
        `module`, `auto_commit=False`) is refused, unless `replace=True` replaces the topic's handlers.

        An ordered handler with `auto_commit=False` commits itself: its messages stay uncommitted, and are
        delivered again after a restart, until it returns `ConsumeStatus.COMMIT`. `ROLLBACK` delivers all
        since the last commit again after a pause. It must commit before `pull_threshold_for_queue` messages
        are uncommitted.

        The annotation of a parameter decides what it gets: without one or with `MessageExt` the message, with
        `bytes` and `str` the body, with anything else (dataclass, msgspec struct, pydantic model, dict) the
        body read as JSON. A body that does not fit is a failed delivery (UnreadableMessage).
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
        """Registers a handler of a topic, also while the consumer runs; the arguments are those of `on`."""
        if self._was_started and self._member is None:
            raise NotRunning("this consumer is closed: make a new one")
        if not auto_commit and not ordered:
            raise InvalidArgument("auto_commit=False needs ordered=True: other handlers commit each message")
        subscription = self._subscription(topic, tags, sql, module)
        registration = _Registration(
            subscription,
            Handler(handler, self._batch(batch), auto_commit),
            ordered,
            broadcast or self._broadcasts_all,
        )
        existing = () if replace else self._registrations.get(topic, ())
        self._check_same(registration, existing, topic)
        _check_existing(registration, existing, topic)
        self._registrations[topic] = (*existing, registration)
        if self._member is not None:
            self._member.subscribe(*_combined(self._registrations[topic]))
            self._member.announce_soon(subscription.topic)

    async def unsubscribe(self, topic: str) -> None:
        """Stops consuming a topic: commits what was consumed, and leaves its queues to other members."""
        if self._registrations.pop(topic, None) is not None and self._member is not None:
            await self._member.unsubscribe(wrap(self.settings.namespace, topic))

    def on_queues_changed(self, topic: str, callback: QueuesListener) -> None:
        """Registers a callback, called when this consumer gets or loses queues of the topic in a rebalance.

        `callback(topic, queues, mine)` gets all readable queues and those of this consumer; it may be `def`
        (it runs in a thread) or `async def`.
        """
        rules.check_topic(topic)
        self._listeners.add(wrap(self.settings.namespace, topic), callback)

    # Start and close

    async def start(self) -> None:
        """Joins the group; returns when the brokers know this member.

        Raises NoNameServer, or Refused when a broker does not support an expression. A consumer starts once;
        after `close` make a new one.
        """
        if self._was_started:
            raise NotRunning(f"consumer {self.group} was started before: make a new one")
        if not self._registrations:
            raise InvalidArgument("a consumer must have a handler: use @consumer.on(topic) or subscribe")
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
            trace_sender = TraceSender(instance, self.settings, self.group, "CONSUME")
            await trace_sender.start()
            stack.push_async_callback(trace_sender.close)
            hooks = (*hooks, ConsumeTraceHook(trace_sender, self.settings.consume_timeout))
        member = PushMember(plan, instance, hooks, self._disk, self._listeners, self._filters)
        member.pool_size.min_workers, member.pool_size.max_workers = self._pool_size
        for registrations in self._registrations.values():
            member.subscribe(*_combined(registrations))
        stack.push_async_callback(member.stop)
        await member.start()
        self._member = member

    async def close(self) -> None:
        """Stops fetching, waits for running handlers, commits, and leaves the group.

        It waits up to `await_termination_when_shutdown` seconds. Messages that were fetched and not delivered
        yet are consumed by other members, or after the next start.
        """
        self._was_started = True
        stack, self._stack = self._stack, contextlib.AsyncExitStack()
        try:
            await stack.aclose()
        finally:
            self._member = None

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
            if self._member is None:
                await self.start()
            await enough.wait()
        finally:
            for number in caught:
                loop.remove_signal_handler(number)
            await self.close()

    # Control

    def pause(self) -> None:
        """Stops fetching messages; handlers continue with those that were fetched. The queues are kept."""
        self._running.pause()

    def resume(self) -> None:
        """Fetches messages again after `pause`."""
        self._running.resume()

    @property
    def is_paused(self) -> bool:
        return self._member is not None and self._member.is_paused

    @property
    def workers(self) -> tuple[int, int]:
        """How many workers are kept ready and how many may work at the same time. Can be set at any time.

        >>> consumer.workers = (4, 64)
        """
        return self._pool_size

    @workers.setter
    def workers(self, pool_size: tuple[int, int]) -> None:
        min_workers, max_workers = pool_size
        _check_workers(min_workers, max_workers)
        self._pool_size = (min_workers, max_workers)
        if self._member is not None:
            self._member.resize(min_workers, max_workers)

    def queues(self) -> tuple[MessageQueue, ...]:
        """Returns the queues that this consumer reads now, without those of the retry topic."""
        member = self._running
        topics = {registration.subscription.topic for registration in self._all_registrations()}
        return member.as_users_know(queue for queue in member.queues.ours if queue.topic in topics)

    @property
    def client_id(self) -> str:
        return self._running.client_id

    @property
    def is_ordered(self) -> bool:
        return any(registration.ordered for registration in self._all_registrations())

    @property
    def is_broadcast(self) -> bool:
        return self._broadcasts_all or any(
            registration.broadcast for registration in self._all_registrations()
        )

    @property
    def _running(self) -> PushMember:
        if self._member is None:
            raise NotRunning(f"consumer {self.group} is not running: use `async with` or start()")
        return self._member

    @property
    def _broadcasts_all(self) -> bool:
        return self.settings.message_model is MessageModel.BROADCASTING

    def _subscription(self, topic: str, tags: str, sql: str | None, module: str | None) -> Subscription:
        if not isinstance(topic, str):
            raise InvalidArgument(f"topic must be text, got {topic!r}: write @consumer.on('topic')")
        rules.check_topic(topic)
        expression, kind = parse_expression(tags, sql, module)
        return Subscription(wrap(self.settings.namespace, topic), expression, kind=kind)

    def _batch(self, batch: int | None) -> int | None:
        if batch is None:
            size = self.settings.consume_message_batch_max_size
            return size if size > 1 else None
        if not isinstance(batch, int) or not 1 <= batch <= 1024:
            raise InvalidArgument(f"batch must be between 1 and 1024, got {batch}")
        return batch

    def _all_registrations(self) -> Iterator[_Registration]:
        return chain.from_iterable(self._registrations.values())

    def _check_same(
        self, registration: _Registration, existing: tuple[_Registration, ...], topic: str
    ) -> None:
        elsewhere = chain.from_iterable(
            registrations for name, registrations in self._registrations.items() if name != topic
        )
        others = [*elsewhere, *existing]
        if any(other.ordered != registration.ordered for other in others):
            raise InvalidArgument(
                "a consumer must be ordered for all its topics or for none: make two consumers"
            )
        if any(other.broadcast != registration.broadcast for other in others):
            raise InvalidArgument(
                "a consumer must broadcast for all its topics or for none: make two consumers"
            )
        if (
            self._member is not None
            and (registration.ordered, registration.broadcast) != self._member.delivery_mode
        ):
            raise InvalidArgument(
                "ordered and broadcast must stay as they are while the consumer runs: make another consumer"
            )


def _check_existing(registration: _Registration, existing: tuple[_Registration, ...], topic: str) -> None:
    """Raises InvalidArgument when a message could be meant for several of the topic's handlers."""
    if not existing:
        return
    advice = "; give each handler tags of its own, or replace the handlers of the topic with replace=True"
    if not all(one.subscription.tags for one in (registration, *existing)):
        given = " and ".join(repr(one.subscription.text) for one in (*existing, registration))
        raise InvalidArgument(f"the handlers of topic {topic} must differ by tag, got {given}{advice}")
    taken = {tag for one in existing for tag in one.subscription.tags}
    if twice := sorted(taken.intersection(registration.subscription.tags)):
        raise InvalidArgument(f"topic {topic} has a handler for tag {', '.join(twice)} already{advice}")
    if not all(one.handler.commits for one in (registration, *existing)):
        raise InvalidArgument(
            f"a handler with auto_commit=False must be the only one of its topic, got two for {topic}; "
            "make two consumers"
        )


def _combined(registrations: tuple[_Registration, ...]) -> tuple[Subscription, Handler | TagHandlers]:
    """Returns the subscription of all handlers of a topic, and its handler or their dispatch by tag."""
    first, *more = registrations
    if not more:
        return first.subscription, first.handler
    by_tag = {
        tag: registration.handler for registration in registrations for tag in registration.subscription.tags
    }
    return Subscription(first.subscription.topic, TAGS_OR.join(by_tag)), TagHandlers(by_tag)


def _catch(loop: asyncio.AbstractEventLoop, number: int, call: Callable[[], None]) -> bool:
    """Installs a signal handler; False where the system or the thread does not allow it."""
    try:
        loop.add_signal_handler(number, call)
    except (NotImplementedError, RuntimeError, ValueError):
        return False
    return True


def _check_group(group: str) -> None:
    rules.check_group(group)
    if group == REFUSED_GROUP:
        raise InvalidArgument(f"group must be a name of your own, got {group}")


def _check_workers(min_workers: int, max_workers: int) -> None:
    if not 1 <= min_workers <= max_workers <= 1000:
        raise InvalidArgument(
            f"workers must be two numbers with 1 <= min <= max <= 1000, got {min_workers} and {max_workers}"
        )
