"""The blocking push consumer.

Written by scripts/faces.py from turbopump.client.push.consumer: change that.
"""

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from turbopump.client.blocking.consumer_face import ConsumerFace
from turbopump.client.files import FileAccess
from turbopump.client.group.listeners import QueuesListener
from turbopump.client.group.subscription import ALL
from turbopump.client.message import MessageQueue
from turbopump.client.observe.hooks import ConsumeHook, Filter
from turbopump.client.options import ConsumerOptions
from turbopump.client.push.consumer import Consumer as AsyncConsumer
from turbopump.client.push.consumer import F
from turbopump.client.settings import ConsumerSettings
from turbopump.client.signature import spelled_out
from turbopump.client.world import World

__all__ = ["Consumer"]


@spelled_out(ConsumerSettings)
class Consumer(ConsumerFace[AsyncConsumer]):
    """Calls handlers with messages of their topics, as a member of a consumer group.

    >>> consumer = Consumer("billing", name_servers="127.0.0.1:9876")
    >>> @consumer.on("OrderTopic", tags="paid || refunded")
    ... def bill(message): ...
    >>> consumer.run()                                          # until SIGINT or SIGTERM

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

    _restarts_after_fork = False

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
        super().__init__(
            lambda: AsyncConsumer(
                group,
                name_servers=name_servers,
                hooks=hooks,
                filters=filters,
                world=world,
                disk=disk,
                **settings,
            )
        )

    @property
    def group(self) -> str:
        """Its group."""
        return self._core.group

    @property
    def settings(self) -> ConsumerSettings:
        """All settings, defaults included."""
        return self._core.settings

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
            self._call(
                lambda core: core.on(
                    topic,
                    tags,
                    sql=sql,
                    module=module,
                    ordered=ordered,
                    batch=batch,
                    broadcast=broadcast,
                    auto_commit=auto_commit,
                    replace=replace,
                )(handler)
            )
            self._note(
                ("on", topic, tags),
                lambda core: core.on(
                    topic,
                    tags,
                    sql=sql,
                    module=module,
                    ordered=ordered,
                    batch=batch,
                    broadcast=broadcast,
                    auto_commit=auto_commit,
                    replace=replace,
                )(handler),
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
        self._call(
            lambda core: core.subscribe(
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
        )
        self._note(
            ("subscribe", topic, tags),
            lambda core: core.subscribe(
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
            ),
        )

    def unsubscribe(self, topic: str) -> None:
        """Stops consuming a topic: commits what was consumed, and leaves its queues to other members."""
        self._run(lambda core: core.unsubscribe(topic))
        self._note(("unsubscribe", topic), lambda core: core.unsubscribe(topic))

    def on_queues_changed(self, topic: str, callback: QueuesListener) -> None:
        """Registers a callback, called when this consumer gets or loses queues of the topic in a rebalance.

        `callback(topic, queues, mine)` gets all readable queues and those of this consumer; it may be `def`
        (it runs in a thread) or `async def`.
        """
        self._call(lambda core: core.on_queues_changed(topic, callback))
        self._note(
            ("on_queues_changed", topic, callback), lambda core: core.on_queues_changed(topic, callback)
        )

    def start(self) -> None:
        """Joins the group; returns when the brokers know this member.

        Raises NoNameServer, or Refused when a broker does not support an expression. A consumer starts once;
        after `close` make a new one.
        """
        self._start(lambda core: core.start())

    def close(self) -> None:
        """Stops fetching, waits for running handlers, commits, and leaves the group.

        It waits up to `await_termination_when_shutdown` seconds. Messages that were fetched and not delivered
        yet are consumed by other members, or after the next start.
        """
        self._close()

    def pause(self) -> None:
        """Stops fetching messages; handlers continue with those that were fetched. The queues are kept."""
        self._call(lambda core: core.pause())

    def resume(self) -> None:
        """Fetches messages again after `pause`."""
        self._call(lambda core: core.resume())

    @property
    def is_paused(self) -> bool:
        return self._call(lambda core: core.is_paused)

    @property
    def workers(self) -> tuple[int, int]:
        """How many workers are kept ready and how many may work at the same time. Can be set at any time.

        >>> consumer.workers = (4, 64)
        """
        return self._call(lambda core: core.workers)

    @workers.setter
    def workers(self, pool_size: tuple[int, int]) -> None:
        self._call(lambda core: setattr(core, "workers", pool_size))

    def queues(self) -> tuple[MessageQueue, ...]:
        """Returns the queues that this consumer reads now, without those of the retry topic."""
        return self._call(lambda core: core.queues())

    @property
    def client_id(self) -> str:
        return self._call(lambda core: core.client_id)

    @property
    def is_ordered(self) -> bool:
        return self._call(lambda core: core.is_ordered)

    @property
    def is_broadcast(self) -> bool:
        return self._call(lambda core: core.is_broadcast)
