"""The blocking push consumer.

Written by scripts/faces.py from turbopump.client.push.consumer: change that.
"""

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from turbopump.client.blocking.running import Running
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
class Consumer(Running[AsyncConsumer]):
    """Calls handlers with messages, as a member of a group.

    >>> consumer = Consumer("billing", name_servers="127.0.0.1:9876")
    >>> @consumer.on("OrderTopic", tags="paid || refunded")
    ... def bill(message): ...
    >>> consumer.run()                                          # until SIGINT or SIGTERM

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

    _goes_on_after_fork = False

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
        """All settings, with the defaults."""
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
        """The same as `on` without the decorator, also while the consumer runs."""
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
        """Its queues go to other members, with what was consumed committed."""
        self._run(lambda core: core.unsubscribe(topic))
        self._note(("unsubscribe", topic), lambda core: core.unsubscribe(topic))

    def on_queues_changed(self, topic: str, callback: QueuesListener) -> None:
        """Calls back when other queues of the topic are ours than before.

        `callback(topic, queues, mine)` gets all queues that can be read and those that are ours; it may be
        `def` (it runs in a thread) or `async def`.
        """
        self._call(lambda core: core.on_queues_changed(topic, callback))
        self._note(
            ("on_queues_changed", topic, callback), lambda core: core.on_queues_changed(topic, callback)
        )

    def start(self) -> None:
        """Returns when the brokers know of this member. Raises NoNameServer, or Refused when a broker cannot
        serve an expression. A consumer starts once; after `close` make a new one.
        """
        self._start(lambda core: core.start())

    def close(self) -> None:
        """Takes no new messages, waits up to `await_termination_when_shutdown` seconds for handlers at work,
        commits and leaves the group. What was fetched and not begun is consumed by others, or next time.
        """
        self._close()

    def pause(self) -> None:
        """Fetches no more messages; handlers go on with those that are here. The group keeps its queues."""
        self._call(lambda core: core.pause())

    def resume(self) -> None:
        self._call(lambda core: core.resume())

    @property
    def is_paused(self) -> bool:
        return self._call(lambda core: core.is_paused)

    @property
    def workers(self) -> tuple[int, int]:
        """How many handlers are kept ready and how many may be at work at a time. Can be set at any time.

        >>> consumer.workers = (4, 64)
        """
        return self._call(lambda core: core.workers)

    @workers.setter
    def workers(self, crew: tuple[int, int]) -> None:
        self._call(lambda core: setattr(core, "workers", crew))

    def queues(self) -> tuple[MessageQueue, ...]:
        """Those that are ours now, without the retry topic's."""
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
