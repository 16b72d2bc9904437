"""`Cluster`: the embedded cluster for blocking tests, and its clients.

The servers run in a thread. With the real clock the clients are plain blocking clients of this library, over
the event loop that all of them share. In virtual time they run in the loop of their cluster, which has the
virtual clock.
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
from turbopump.protocol.permissions import READ_WRITE
from turbopump.testing.cluster import (
    PRODUCER_GROUP,
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

    `brokers`: their number; they are called broker-a, broker-b … `settings`: of the brokers, by Apache's
    names: `{"messageDelayLevel": "1s 2s"}`; ValueError for what a broker would not accept. `clock`: "real",
    or "virtual" for a time that passes only while a call waits for it; `start` is its first moment (now),
    `seed` that of its random numbers.

    `async with Cluster()` returns an `AsyncCluster` in the running event loop, whose methods are awaited.
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

    # Start and stop

    def start(self) -> None:
        """Starts the cluster, as `with` does. Does nothing if it is running."""
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
        """Closes the clients that are still open, then the servers. Does nothing if it is not running."""
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
            raise NotRunning("the cluster is not running; use `with Cluster() as cluster`")
        return self._thread.call(coroutine)

    # Addresses and brokers

    @property
    def name_servers(self) -> str:
        """The name server's host:port, for `name_servers` of clients and namesrvAddr of Java clients.

        In virtual time only the clients of the cluster can reach it.
        """
        return self._core.name_servers

    @property
    def brokers(self) -> tuple[str, ...]:
        """Names of the brokers: broker-a, broker-b …"""
        return self._core.brokers

    def stop_broker(self, broker: str | int = 0) -> None:
        """Stops a broker in order: answers requests under way and unregisters from the name server."""
        self._call(self._core.stop_broker(broker))

    def kill_broker(self, broker: str | int = 0) -> None:
        """Kills a broker as SIGKILL does: connections break, no unregistration, only its files remain."""
        self._call(self._core.kill_broker(broker))

    def start_broker(self, broker: str | int = 0) -> None:
        """Starts a stopped or killed broker at the same address with its files; does nothing if it runs."""
        self._call(self._core.start_broker(broker))

    def restart_broker(self, broker: str | int = 0) -> None:
        """Stops a broker in order and starts it again."""
        self._call(self._core.restart_broker(broker))

    # Clients

    def producer(self, group: str = PRODUCER_GROUP, **settings: Any) -> "Producer":
        """Returns a `turbopump.Producer` of this cluster, to be used by `with`. Takes any of its settings."""
        from turbopump import Producer

        given = {**self._core.client_settings.of_producer(settings), **self._clients()}
        return self._keep(self._here(Producer)(group, **given))

    def consumer(self, group: str, **settings: Any) -> "Consumer":
        """Returns a `turbopump.Consumer` of this cluster: add handlers by `on`, then use `with`, or `start`.

        A new group begins with the first message of a topic.
        """
        return self._consumer((), group, settings)

    def self_starting_consumer(self, group: str, **settings: Any) -> "Consumer":
        """Returns a consumer that starts with its first handler, as the fixture `consumer` does."""
        return self._consumer((_SelfStarting,), group, settings)

    def _consumer(self, more: tuple[type, ...], group: str, settings: Mapping[str, Any]) -> "Consumer":
        from turbopump import Consumer

        given = {**self._core.client_settings.of_consumer(settings), **self._clients()}
        return self._keep(self._here(Consumer, *more)(group, **given))

    def pull_consumer(
        self, group: str, topics: Sequence[str] | Mapping[str, str] = (), **settings: Any
    ) -> "PullConsumer":
        """Returns a `turbopump.PullConsumer` of this cluster, to be used by `with`.

        A new group begins with the first message of a topic.
        """
        from turbopump import PullConsumer

        given = {**self._core.client_settings.of_pull_consumer(settings), **self._clients()}
        return self._keep(self._here(PullConsumer)(group, topics=topics, **given))

    def admin(self) -> "Admin":
        """Returns a `turbopump.Admin` of this cluster, to be used by `with`."""
        from turbopump import Admin

        return self._keep(self._here(Admin)(**self._clients()))

    @contextlib.contextmanager
    def as_default(self) -> Iterator[None]:
        """Connects blocking clients created in the `with` block to this cluster, whatever their addresses.

        Any code may create them; their `name_servers` is ignored, so the program under test needs no change.

        >>> with cluster.as_default():
        ...     program.main()
        """
        from turbopump.testing.redirection import redirected, redirected_faces

        with redirected(self._clients, self._core.watch), redirected_faces(self._here, self._keep):
            yield

    def kill_client(self, client: object) -> None:
        """Kills a client as SIGKILL does: connections break, it sends nothing more. Only in virtual time.

        There each client has its own address.
        """
        self._call(_done(lambda: self._core.kill_client(client)))

    def cut_off(self, client: object) -> None:
        """Cuts a client off the network: nothing passes, and no side is notified. Only in virtual time."""
        self._call(_done(lambda: self._core.cut_off(client)))

    def rejoin(self, client: object) -> None:
        """Ends `cut_off`: the client can reach the servers again."""
        self._call(_done(lambda: self._core.rejoin(client)))

    def _clients(self) -> dict[str, Any]:
        if self._core.is_virtual:
            return self._core.client_settings.of_client()
        return {"name_servers": self.name_servers, "world": None}

    def _here(self, face: type[F], *more: type) -> type[F]:
        """Returns the client class with the mixins `more`, and in virtual time `_OnThread`."""
        if self._core.is_virtual:
            more = (*more, _OnThread)
        return type(face.__name__, (*more, face), {"_thread": self._thread}) if more else face

    def _keep(self, client: T) -> T:
        self._made.append(client)
        return client

    # Topics and messages

    def new_topic(self, prefix: str = "topic") -> str:
        """Returns a topic name not yet used in this process. The first send creates the topic."""
        return self._core.new_topic(prefix)

    def new_group(self, prefix: str = "group") -> str:
        """Returns a group name not yet used in this process."""
        return self._core.new_group(prefix)

    def create_topic(
        self, topic: str = "", *, queues: int = 4, ordered: bool = False, permission: int = READ_WRITE
    ) -> str:
        """Creates a topic on every running broker; without a name, a new one. Returns the name."""
        return self._call(
            self._core.create_topic(topic, queues=queues, ordered=ordered, permission=permission)
        )

    def messages(self, topic: str) -> list[MessageExt]:
        """Returns all messages stored in a topic on running brokers, in the order of storing.

        Any topic: also %RETRY%group, %DLQ%group and system topics.
        """
        return self._call(self._core.messages(topic))

    def dead_letters(self, group: str) -> list[MessageExt]:
        """Returns the dead letters of a group."""
        return self._call(self._core.dead_letters(group))

    # Waiting

    def wait_until(self, condition: Callable[[], object], timeout: float = WAIT_S) -> None:
        """Waits until `condition()` is true. Raises TimeoutError after `timeout` seconds of the cluster."""
        clock = self._core.clock
        deadline = clock.monotonic() + timeout
        while not condition():  # in the thread of the test, to which its objects belong
            if clock.monotonic() >= deadline:
                raise TimeoutError(not_in_time(timeout))
            self._call(clock.sleep(self._core.poll_s))

    def wait_until_consumed(
        self, group: str, topic: str, timeout: float = WAIT_S, expected: Expected = ()
    ) -> None:
        """Waits until the group has committed the end of each queue of the topic and the group's retry topic.

        Raises an exception of a handler of the group, unless it is `expected`: an exception class, a tuple of
        them, or `Exception` for all. A message that failed as expected counts as consumed as soon as it waits
        for its next delivery. Raises NotConsumed, an AssertionError, after the timeout. The offsets of a
        broadcasting group are not visible here.
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
                raise  # an exception of the handler
            raise NotConsumed(group, behind, timeout) from None
        failures.check(group, topic, expected)

    # Time

    @property
    def clock(self) -> "ClusterClock":
        """The cluster's clock: `now()`, `now_ms()`, and in virtual time `advance(seconds)`."""
        return ClusterClock(self)

    def now(self) -> datetime:
        """Returns the cluster's time, real or virtual, as a datetime in UTC."""
        return self._core.now()

    def advance(self, by: timedelta | float | None = None, **parts: float) -> None:
        """Advances virtual time: `advance(90)`, `advance(hours=2, minutes=5)`. Runs due timers in order.

        Only in virtual time.
        """
        self._call(self._core.advance(by, **parts))


class ClusterClock:
    """Reads the time of a cluster, and advances it if it is virtual."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def now(self) -> datetime:
        return self._cluster.now()

    def now_ms(self) -> int:
        """Returns milliseconds since 1970, as in the timestamps of messages."""
        return self._cluster._core.clock.now_ms()

    def advance(self, seconds: float) -> None:
        self._cluster.advance(seconds)


def _standing_loop() -> VirtualLoop:
    """Returns a loop with virtual time, which passes only while a thread waits for a call to the loop."""
    return VirtualLoop(by_itself=False)


class _OnThread(Face[C]):
    """Mixin for a blocking client whose async core runs in the event loop of its cluster.

    Others run in the loop that all blocking clients share.
    """

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
    """Mixin that starts a blocking consumer when its first handler is registered."""

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
    """Coroutine that calls `what`, to run it in the loop's thread, which owns the state that it changes."""
    what()


async def _next(items: AsyncIterator[T], end: object) -> T | object:
    return await anext(items, end)
