"""`Cluster`: the embedded cluster for blocking tests. Its servers run in a thread."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Self

from turbopump.client.blocking.face import Face
from turbopump.client.message import MessageExt
from turbopump.protocol.permissions import READ_WRITE
from turbopump.testing.blocking_clients import ClusterClients
from turbopump.testing.cluster import (
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


class Cluster(ClusterClients):
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
        super().__init__(AsyncCluster(brokers, clock=clock, start=start, settings=settings, seed=seed))

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
