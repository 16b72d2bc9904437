"""A whole cluster for tests, in their process: `AsyncCluster`, with `Cluster` as its blocking face.

    with Cluster() as cluster, cluster.producer() as producer:
        producer.send(Message("orders", b"paid"))
        assert [message.body for message in cluster.messages("orders")] == [b"paid"]

Starts in milliseconds, keeps everything in memory and leaves nothing behind. With the real clock the servers
listen on 127.0.0.1, so that any RocketMQ client can connect. With `clock="virtual"` the cluster and the
clients it makes have their own time, over a network in memory: two hours of delay take milliseconds.
"""

import asyncio
import contextlib
import itertools
import logging
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, Self, get_args

from turbopump.client.group.offsets import GroupOffsets
from turbopump.client.instance import instances
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.world import World
from turbopump.protocol.bodies import TopicConfig
from turbopump.protocol.names import retry_topic
from turbopump.protocol.permissions import READ_WRITE
from turbopump.remoting.limits import Limits
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.runtime.tasks import Tasks
from turbopump.testing.client_settings import ClusterClientSettings
from turbopump.testing.clients import AsyncClusterClients
from turbopump.testing.failures import Expected
from turbopump.testing.loop import VirtualClock, VirtualLoop
from turbopump.testing.network import MemoryNetwork
from turbopump.testing.servers import MAX_HOLD_S, EmbeddedBroker, EmbeddedServers, check_values
from turbopump.testing.settings import checked

log = logging.getLogger(__name__)

ClockKind = Literal["real", "virtual"]
WAIT_S = 10.0
MAX_BROKERS = 26  # broker-a to broker-z
POLL_S = 0.01  # between two checks of a condition
VIRTUAL_POLL_S = 0.1  # a check costs the same, a second less

ROUTES_AFTER_S = 20.0  # delay of changed routes for clients in virtual time, as in real time
SPARING_LIMITS = Limits(sweep_s=300.0)

_numbers = itertools.count(1)


class NotConsumed(AssertionError):
    """A group did not reach the end of a topic in time; the text names the queues where it is behind."""

    def __init__(self, group: str, behind: Sequence[str], timeout: float) -> None:
        super().__init__(f"after {timeout} s group {group} is still behind: {'; '.join(behind)}")


class AsyncCluster(AsyncClusterClients):
    """A name server and brokers in the caller's event loop, for `async with`; for arguments see `Cluster`.

    >>> async def main():
    ...     async with AsyncCluster() as cluster, cluster.producer() as producer:
    ...         await producer.send(Message("orders", b"paid"))
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
        super().__init__()
        self._brokers = brokers
        self._clock_kind = clock
        self._start = start
        check_shape(brokers, clock)
        self._settings = checked(settings or {})
        check_values(self._settings)
        self._seed = seed
        self._stack = contextlib.AsyncExitStack()
        self._tasks = Tasks(log)
        self._is_notifying = False
        self.world: World
        """Clock, network and random numbers of the cluster, for clients created without it."""

    # Start and stop

    async def start(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            self.world = self._make_world()
            on_change = self._routes_changed if self.is_virtual else None
            self._servers = EmbeddedServers(self._brokers, self._settings, self.world, on_change)
            stack.push_async_callback(self._servers.stop)
            stack.push_async_callback(self._tasks.close)
            await self._servers.start()
            offsets_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="turbopump-offsets-"))
            network = self._network if self.is_virtual else None
            self.client_settings = ClusterClientSettings(
                self.name_servers, self.world, network, offsets_dir, self.failures
            )
            self._admin = self.admin()
            stack.push_async_callback(self._admin.close)
            stack.push_async_callback(self._close_clients)
            self._stack = stack.pop_all()

    async def close(self) -> None:
        """Closes the clients that are still open, then the servers."""
        await self._stack.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _make_world(self) -> World:
        if self._clock_kind == "real":
            return World()
        if not isinstance(asyncio.get_running_loop(), VirtualLoop):
            raise RuntimeError(
                'AsyncCluster(clock="virtual") needs an event loop with virtual time: run the test by '
                'turbopump.testing.run_virtual(main()), or use `with Cluster(clock="virtual")`'
            )
        chance = Chance(self._seed)
        start = datetime.now(UTC) if self._start is None else self._start
        clock = VirtualClock(start_ms=round(start.timestamp() * 1000))
        self._network = MemoryNetwork(chance, silent_cuts=True)
        return World(self._network, clock, chance, SPARING_LIMITS, MAX_HOLD_S)

    def _routes_changed(self) -> None:
        """Schedules one notification of the clients, although the name server calls this for each topic."""
        if not self._is_notifying:
            self._is_notifying = True
            self._tasks.start(self._notify_of_routes(), name="notify clients of routes")

    async def _notify_of_routes(self) -> None:
        await asyncio.sleep(ROUTES_AFTER_S)
        self._is_notifying = False
        here = [one for one in instances().named.values() if one.world.clock is self.world.clock]
        await asyncio.gather(*(one.routes_changed() for one in here))

    @property
    def is_virtual(self) -> bool:
        return self._clock_kind == "virtual"

    # Addresses and brokers

    @property
    def name_servers(self) -> str:
        """The name server's host:port, for `name_servers` of clients and namesrvAddr of Java clients."""
        return self._servers.name_servers

    @property
    def brokers(self) -> tuple[str, ...]:
        """Names of the brokers: broker-a, broker-b …"""
        return tuple(broker.name for broker in self._servers.brokers)

    async def stop_broker(self, broker: str | int = 0) -> None:
        """Stops a broker in order: answers requests under way and unregisters from the name server."""
        await self._broker(broker).stop()

    async def kill_broker(self, broker: str | int = 0) -> None:
        """Kills a broker as SIGKILL does: connections break, no unregistration, only its files remain."""
        await self._broker(broker).kill()

    async def start_broker(self, broker: str | int = 0) -> None:
        """Starts a stopped or killed broker at the same address with its files; does nothing if it runs."""
        await self._broker(broker).start()

    async def restart_broker(self, broker: str | int = 0) -> None:
        await self.stop_broker(broker)
        await self.start_broker(broker)

    def _broker(self, which: str | int) -> EmbeddedBroker:
        brokers = self._servers.brokers
        for number, broker in enumerate(brokers):
            if which in (number, broker.name):
                return broker
        raise ValueError(f"there is no broker {which!r}; there are {', '.join(self.brokers)}")

    # Topics and messages

    def new_topic(self, prefix: str = "topic") -> str:
        """Returns a topic name not yet used in this process. The first send creates the topic."""
        return f"{prefix}-{next(_numbers)}"

    def new_group(self, prefix: str = "group") -> str:
        """Returns a group name not yet used in this process."""
        return self.new_topic(prefix)

    async def create_topic(
        self, topic: str = "", *, queues: int = 4, ordered: bool = False, permission: int = READ_WRITE
    ) -> str:
        """Creates a topic on every running broker; without a name, a new one. Returns the name."""
        name = topic or self.new_topic()
        config = TopicConfig(
            topicName=name,
            readQueueNums=queues,
            writeQueueNums=queues,
            perm=permission,
            order=ordered,
        )
        for broker in self._servers.brokers:
            if broker.is_up:
                await self._admin.topics.create(broker.address, config)
        return name

    async def messages(self, topic: str) -> list[MessageExt]:
        """Returns all messages stored in a topic on running brokers, in the order of storing.

        Any topic: also %RETRY%group, %DLQ%group and system topics.
        """
        found = [message for broker in self._servers.brokers for message in broker.messages(topic)]
        return sorted(found, key=lambda message: message.store_timestamp)

    async def dead_letters(self, group: str) -> list[MessageExt]:
        """Returns the dead letters of a group."""
        return await self.messages(f"%DLQ%{group}")

    # Waiting

    @property
    def poll_s(self) -> float:
        return VIRTUAL_POLL_S if self.is_virtual else POLL_S

    async def wait_until(
        self,
        condition: Callable[[], object | Awaitable[object]],
        timeout: float = WAIT_S,  # noqa: ASYNC109 - in the cluster's time
    ) -> None:
        """Waits until `condition()` is true. Raises TimeoutError after `timeout` seconds of the cluster."""
        clock = self.world.clock
        deadline = clock.monotonic() + timeout
        while not await _value(condition()):
            if clock.monotonic() >= deadline:
                raise TimeoutError(not_in_time(timeout))
            await clock.sleep(self.poll_s)

    async def wait_until_consumed(
        self,
        group: str,
        topic: str,
        timeout: float = WAIT_S,  # noqa: ASYNC109 - in the cluster's time
        expected: Expected = (),
    ) -> None:
        """Waits until the group has committed the end of each queue of the topic and the group's retry topic.

        Raises an exception of a handler of the group, unless it is `expected`: an exception class, a tuple of
        them, or `Exception` for all. A message that failed as expected counts as consumed as soon as it waits
        for its next delivery. Raises NotConsumed, an AssertionError, after the timeout. The offsets of a
        broadcasting group are not visible here.
        """
        behind: list[str] = []

        async def is_done() -> bool:
            self.failures.check(group, topic, expected)
            for client in self._made:
                await commit_now(client, group)
            behind[:] = await self.behind(group, topic)
            return not behind

        try:
            await self.wait_until(is_done, timeout)
        except TimeoutError as error:
            if str(error) != not_in_time(timeout):
                raise  # an exception of the handler
            raise NotConsumed(group, behind, timeout) from None
        self.failures.check(group, topic, expected)

    async def behind(self, group: str, topic: str) -> list[str]:
        """Describes queues of the topic and the group's retry topic whose end the group has not committed."""
        return [*await self._lag(group, topic), *await self._lag(group, retry_topic(group))]

    async def _lag(self, group: str, topic: str) -> list[str]:
        offsets = GroupOffsets(self._admin.client, self._admin.routes, group)
        behind = []
        for queue, end in self._ends(topic).items():
            committed = await offsets.query(queue) or 0
            if committed < end:
                behind.append(f"{topic} queue {queue.id} of {queue.broker} at {committed} of {end}")
        return behind

    def _ends(self, topic: str) -> dict[MessageQueue, int]:
        """Returns the next queue offset of each queue of the topic that has messages."""
        ends = {queue: end for broker in self._servers.brokers for queue, end in broker.ends(topic).items()}
        return {queue: end for queue, end in ends.items() if end}

    # Time

    @property
    def clock(self) -> Clock:
        return self.world.clock

    def now(self) -> datetime:
        """Returns the cluster's time, real or virtual, as a datetime in UTC."""
        return datetime.fromtimestamp(self.world.clock.now_ms() / 1000, UTC)

    async def advance(self, by: timedelta | float | None = None, **parts: float) -> None:
        """Advances virtual time: `advance(90)`, `advance(hours=2, minutes=5)`. Runs due timers in order."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise RuntimeError(
                'real time cannot be advanced; create the cluster with Cluster(clock="virtual")'
            )
        await asyncio.sleep(seconds_of(by, parts))
        await loop.rest()


def check_shape(brokers: int, clock: str) -> None:
    if isinstance(brokers, bool) or not isinstance(brokers, int) or not 1 <= brokers <= MAX_BROKERS:
        raise ValueError(f"brokers must be a whole number from 1 to {MAX_BROKERS}, got {brokers!r}")
    if clock not in get_args(ClockKind):
        raise ValueError(f"clock must be 'real' or 'virtual', got {clock!r}")


def not_in_time(timeout: float) -> str:
    return f"the condition did not become true within {timeout} s"


async def commit_now(client: object, group: str) -> None:
    """Commits the offsets of a push consumer of the group now; does nothing for any other client."""
    from turbopump.client.push.consumer import Consumer

    if isinstance(client, Consumer) and client.group == group and client._member is not None:
        engine = client._member
        await engine._offsets.persist(engine.queues.positions())


def seconds_of(by: timedelta | float | None, parts: Mapping[str, float]) -> float:
    whole = by if isinstance(by, timedelta) else timedelta(seconds=by or 0)
    seconds = (whole + timedelta(**parts)).total_seconds()
    if seconds < 0:
        raise ValueError("time can only be advanced: seconds must not be negative")
    return seconds


async def _value(found: object) -> object:
    return await found if isinstance(found, Awaitable) else found
