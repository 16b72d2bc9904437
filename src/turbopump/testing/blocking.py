"""`Cluster`: the embedded cluster for blocking tests, and the clients that it gives out.

The servers live in a thread. With the real clock the clients are plain blocking clients of this library, over
the loop that all of them share. In virtual time they live in the loop of their cluster, which alone knows
what time it is.
"""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from turbopump.client import background
from turbopump.client.blocking.face import Core, Face
from turbopump.client.errors import NotRunning
from turbopump.client.message import MessageExt
from turbopump.testing.cluster import (
    PRODUCER_GROUP,
    READ_AND_WRITE,
    WAIT_S,
    AsyncCluster,
    ClockKind,
    NotConsumed,
    commit_now,
    not_in_time,
)
from turbopump.testing.failures import Expected
from turbopump.testing.loop import VirtualLoop
from turbopump.testing.thread import LoopThread

if TYPE_CHECKING:
    from turbopump import Admin, Consumer, Producer, PullConsumer

T = TypeVar("T")
C = TypeVar("C", bound=Core)
F = TypeVar("F", bound=Face[Any])


class Cluster:
    """A name server and brokers in this process, started in milliseconds, in memory.

    >>> with Cluster() as cluster, cluster.producer() as producer:
    ...     receipt = producer.send(Message("orders", b"paid"))
    ...     [message.body for message in cluster.messages("orders")]
    [b'paid']

    `brokers`: how many; they are called broker-a, broker-b … `settings`: of the brokers, by Apache's names:
    `{"messageDelayLevel": "1s 2s"}`; what a broker would not take is a ValueError. `clock`: "real", or
    "virtual" for a time that passes only when a call waits for it; `start` is when it begins (now), `seed`
    what its chances are drawn from.

    `async with Cluster()` gives an `AsyncCluster`: the same in the running event loop, to be awaited.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        clock: ClockKind = "real",
        start: datetime | None = None,
        settings: Mapping[str, str | bool | float] | None = None,
        seed: int = 0,
    ) -> None:
        self._core = AsyncCluster(brokers, clock=clock, start=start, settings=settings, seed=seed)
        self._thread: LoopThread | None = None
        self._made: list[Any] = []

    # Life

    def start(self) -> None:
        """`with` does it. Nothing when it runs already."""
        if self._thread is not None:
            return
        make_loop = _standing_loop if self._core.is_virtual else asyncio.SelectorEventLoop
        self._thread = LoopThread(make_loop)
        try:
            self._call(self._core.start())
        except BaseException:
            self._thread.close()
            self._thread = None
            raise

    def close(self) -> None:
        """Closes the clients that are still open, then the servers. Once more does nothing."""
        thread = self._thread
        if thread is None:
            return
        try:
            while self._made:
                self._made.pop().close()
            self._call(self._core.close())
        finally:
            self._thread = None
            thread.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> AsyncCluster:
        return await self._core.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await self._core.close()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            coroutine.close()
            raise NotRunning("the cluster does not run; use `with Cluster() as cluster`")
        return self._thread.call(coroutine)

    # Addresses and brokers

    @property
    def name_servers(self) -> str:
        """What clients are given as `name_servers`, and Java's as namesrvAddr. In virtual time nobody but
        the clients of the cluster can reach them.
        """
        return self._core.name_servers

    @property
    def brokers(self) -> tuple[str, ...]:
        """Names of the brokers: broker-a, broker-b …"""
        return self._core.brokers

    def stop_broker(self, broker: str | int = 0) -> None:
        """Orderly: requests under way are answered, name servers hear of it."""
        self._call(self._core.stop_broker(broker))

    def kill_broker(self, broker: str | int = 0) -> None:
        """As by SIGKILL: connections break, nobody is told, and what was not yet written is lost."""
        self._call(self._core.kill_broker(broker))

    def start_broker(self, broker: str | int = 0) -> None:
        """One that was stopped or killed: at the same address, with what it had stored."""
        self._call(self._core.start_broker(broker))

    def restart_broker(self, broker: str | int = 0) -> None:
        """Orderly down and up again."""
        self._call(self._core.restart_broker(broker))

    # Clients

    def producer(self, group: str = PRODUCER_GROUP, **settings: Any) -> "Producer":
        """A `turbopump.Producer` of this cluster, to be used by `with`. Any of its settings can be given."""
        from turbopump import Producer

        given = {**self._core.settings_of_producers(settings), **self._clients()}
        return self._keep(self._here(Producer)(group, **given))

    def consumer(self, group: str, **settings: Any) -> "Consumer":
        """A `turbopump.Consumer` of this cluster: add handlers by `on`, then use it by `with`, or `start` it.
        A new group begins with the first message of a topic.
        """
        return self._consumer((), group, settings)

    def self_starting_consumer(self, group: str, **settings: Any) -> "Consumer":
        """One that starts when it gets its first handler: what the fixture `consumer` is."""
        return self._consumer((_SelfStarting,), group, settings)

    def _consumer(self, more: tuple[type, ...], group: str, settings: Mapping[str, Any]) -> "Consumer":
        from turbopump import Consumer

        given = {**self._core.settings_of_consumers(settings), **self._clients()}
        return self._keep(self._here(Consumer, *more)(group, **given))

    def pull_consumer(
        self, group: str, topics: Sequence[str] | Mapping[str, str] = (), **settings: Any
    ) -> "PullConsumer":
        """A `turbopump.PullConsumer` of this cluster, to be used by `with`. A new group begins with the first
        message of a topic.
        """
        from turbopump import PullConsumer

        given = {**self._core.settings_of_pull_consumers(settings), **self._clients()}
        return self._keep(self._here(PullConsumer)(group, topics=topics, **given))

    def admin(self) -> "Admin":
        """A `turbopump.Admin` of this cluster, to be used by `with`."""
        from turbopump import Admin

        return self._keep(self._here(Admin)(**self._clients()))

    @contextlib.contextmanager
    def as_default(self) -> Iterator[None]:
        """Blocking clients that are made meanwhile, by whomever, belong to this cluster, whatever addresses
        they are given: the program under test need not know.

        >>> with cluster.as_default():
        ...     program.main()
        """
        from turbopump.testing.adoption import adopted, adopted_faces

        with adopted(self._clients, self._core.watch), adopted_faces(self._here, self._keep):
            yield

    def kill_client(self, client: object) -> None:
        """As if its process were killed: its connections break, and it will not be heard of again.

        Only in virtual time, where each client has an address of its own.
        """
        self._call(_done(lambda: self._core.kill_client(client)))

    def cut_off(self, client: object) -> None:
        """As if its cable were pulled: nothing passes any more, and nobody is told. Only in virtual time."""
        self._call(_done(lambda: self._core.cut_off(client)))

    def rejoin(self, client: object) -> None:
        """Ends `cut_off`."""
        self._call(_done(lambda: self._core.rejoin(client)))

    def _clients(self) -> dict[str, Any]:
        if self._core.is_virtual:
            return self._core.settings_of_clients()
        return {"name_servers": self.name_servers, "world": None}

    def _here(self, face: type[F], *more: type) -> type[F]:
        """In virtual time the same class with its work done in our thread."""
        if self._core.is_virtual:
            more = (*more, _OnThread)
        return type(face.__name__, (*more, face), {"_thread": self._thread}) if more else face

    def _keep(self, client: T) -> T:
        self._made.append(client)
        return client

    # Topics and messages

    def new_topic(self, prefix: str = "topic") -> str:
        """A name that no one has used in this process. Topics come into being with the first send."""
        return self._core.new_topic(prefix)

    def new_group(self, prefix: str = "group") -> str:
        """The same for a group."""
        return self._core.new_group(prefix)

    def create_topic(
        self, topic: str = "", *, queues: int = 4, ordered: bool = False, permission: int = READ_AND_WRITE
    ) -> str:
        """On every broker that is up; without a name, one that is new. Returns the name."""
        return self._call(
            self._core.create_topic(topic, queues=queues, ordered=ordered, permission=permission)
        )

    def messages(self, topic: str) -> list[MessageExt]:
        """Everything stored in a topic on brokers that are up, in the order of storing.

        Any topic: also %RETRY%group, %DLQ%group and the system's.
        """
        return self._call(self._core.messages(topic))

    def dead_letters(self, group: str) -> list[MessageExt]:
        """What a group has given up."""
        return self._call(self._core.dead_letters(group))

    # Waiting

    def wait_until(self, condition: Callable[[], object], timeout: float = WAIT_S) -> None:
        """Looks again and again until `condition()` is true. Raises TimeoutError; seconds of the cluster."""
        clock = self._core.clock
        deadline = clock.monotonic() + timeout
        while not condition():  # in the thread of the test, where all it uses is at home
            if clock.monotonic() >= deadline:
                raise TimeoutError(not_in_time(timeout))
            self._call(clock.sleep(self._core.look_s))

    def wait_until_consumed(
        self, group: str, topic: str, timeout: float = WAIT_S, expected: Expected = ()
    ) -> None:
        """Until the group has committed the end of each queue of the topic and of its own retry topic.

        Raises what a handler of the group raised, unless it is `expected`: an exception class, a tuple of
        them, or `Exception` for all. A message that failed as expected counts as dealt with as soon as it
        waits for its next delivery. Raises NotConsumed, an AssertionError, when the time is over. A
        broadcasting group commits nothing that could be seen here.
        """
        behind: list[str] = []

        failures = self._core.failures

        def is_done() -> bool:
            failures.check(group, topic, expected)
            for client in self._made:
                if isinstance(client, Face):
                    client._run(lambda core: commit_now(core, group))
            behind[:] = self._call(self._core.behind(group, topic))
            return not behind

        try:
            self.wait_until(is_done, timeout)
        except TimeoutError as error:
            if str(error) != not_in_time(timeout):
                raise  # the handler's
            raise NotConsumed(group, behind, timeout) from None
        failures.check(group, topic, expected)

    # Time

    @property
    def clock(self) -> "ClusterClock":
        return ClusterClock(self)

    def now(self) -> datetime:
        """The cluster's time."""
        return self._core.now()

    def advance(self, by: timedelta | float | None = None, **parts: float) -> None:
        """`advance(90)`, `advance(hours=2, minutes=5)`: all that is due on the way happens, in its order.

        Only in virtual time.
        """
        self._call(self._core.advance(by, **parts))


class ClusterClock:
    """What time it is for a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def now(self) -> datetime:
        return self._cluster.now()

    def now_ms(self) -> int:
        """Milliseconds since 1970, as messages are stamped."""
        return self._cluster._core.clock.now_ms()

    def advance(self, seconds: float) -> None:
        self._cluster.advance(seconds)


def _standing_loop() -> VirtualLoop:
    """Time stands still unless a call waits."""
    return VirtualLoop(by_itself=False)


class _OnThread(Face[C]):
    """A blocking client whose core lives in the loop of its cluster, not in the one that others share."""

    _thread: LoopThread

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        background.refuse_inside_loop(coroutine)
        return self._thread.call(coroutine)

    def _submit(self, call: Callable[[C], Awaitable[T]]) -> concurrent.futures.Future[T]:
        return self._thread.submit(self._awaited(self._core, call))

    def _keep(self, core: C) -> background.OpenClient:
        return background.OpenClient(core.close, self._patience_s)  # the cluster closes it

    def _iterate(self, items: Callable[[C], AsyncIterator[T]]) -> Iterator[T]:
        walk = self._called_items(items)
        end = object()
        while (item := self._wait(_next(walk, end))) is not end:
            yield item  # type: ignore[misc]


class _SelfStarting:
    """Of a blocking consumer."""

    def on(self, *args: Any, **options: Any) -> Callable[[T], T]:
        register: Callable[[T], T] = super().on(*args, **options)  # type: ignore[misc]

        def started(handler: T) -> T:
            register(handler)
            self._start_once()
            return handler

        return started

    def subscribe(self, *args: Any, **options: Any) -> None:
        super().subscribe(*args, **options)  # type: ignore[misc]
        self._start_once()

    def _start_once(self) -> None:
        if self._open is None:  # type: ignore[attr-defined]
            self.__enter__()  # type: ignore[attr-defined]


async def _done(what: Callable[[], None]) -> None:
    """In the loop, which owns what it changes."""
    what()


async def _next(items: AsyncIterator[T], end: object) -> T | object:
    return await anext(items, end)
