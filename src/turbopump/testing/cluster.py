"""A whole cluster for tests, in their own process: `AsyncCluster` does it, `Cluster` is its blocking face.

    with Cluster() as cluster, cluster.producer() as producer:
        producer.send(Message("orders", b"paid"))
        assert [message.body for message in cluster.messages("orders")] == [b"paid"]

Starts in milliseconds, keeps everything in memory and leaves nothing behind. With the real clock the servers
listen on 127.0.0.1, so that any RocketMQ client can connect. With `clock="virtual"` the cluster and the
clients it makes live in a time of their own, over a network in memory: two hours of delay are over at once.
"""

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, get_args

from turbopump.client.admin import Admin
from turbopump.client.group.offsets import GroupOffsets
from turbopump.client.instance import end as end_task
from turbopump.client.instance import instances
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.settings import ConsumeFromWhere
from turbopump.client.world import World
from turbopump.protocol.bodies import TopicConfig
from turbopump.protocol.names import retry_topic
from turbopump.remoting.limits import Limits
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.testing.failures import Expected, HandlerFailures
from turbopump.testing.loop import VirtualClock, VirtualLoop
from turbopump.testing.network import Host, MemoryNetwork
from turbopump.testing.servers import HOST, MAX_HOLD_S, EmbeddedBroker, Servers, check_values
from turbopump.testing.settings import checked

if TYPE_CHECKING:
    from turbopump.client.produce.producer import Producer
    from turbopump.client.pull.consumer import PullConsumer
    from turbopump.client.push.consumer import Consumer

T = TypeVar("T")

ClockKind = Literal["real", "virtual"]
PRODUCER_GROUP = "testing"
WAIT_S = 10.0
MAX_BROKERS = 26  # broker-a to broker-z
LOOK_S = 0.01  # between two looks at what is waited for
VIRTUAL_LOOK_S = 0.1  # a look costs the same, a second less
READ_AND_WRITE = 6

QUICK: Mapping[str, float] = {
    "persist_consumer_offset_interval": 0.1,
    "poll_name_server_interval": 1.0,
    "rebalance_wait_interval": 1.0,
}
"""Settings of consumers when seconds are real: nobody wants to wait for a commit or a new topic's queues."""
SPARING: Mapping[str, float] = {
    "heartbeat_broker_interval": 90.0,  # a broker takes those for gone that are silent for two minutes
    "poll_name_server_interval": 600.0,
}
"""And of all clients when they are not: a day has many intervals, and each costs real time. Clients hear of
other routes from the cluster, so they need not ask."""
SPARING_CONSUMERS: Mapping[str, float] = {
    **SPARING,
    "persist_consumer_offset_interval": 120.0,  # `wait_until_consumed` does not wait for it
    "rebalance_wait_interval": 600.0,  # brokers tell consumers of other members, as in real time
}
SPARING_PULLS: Mapping[str, float] = {
    **SPARING,
    "broker_suspend_max_time": MAX_HOLD_S - 20.0,  # a message ends the wait at once
    "consumer_timeout_when_suspend": MAX_HOLD_S - 10.0,
}
ROUTES_AFTER_S = 20.0  # clients of virtual time learn of other routes: when they would in real time
SPARING_LIMITS = Limits(sweep_s=300.0)

_numbers = itertools.count(1)


class NotConsumed(AssertionError):
    """A group did not come to the end of a topic in time. Names the queues where it is behind."""

    def __init__(self, group: str, behind: Sequence[str], timeout: float) -> None:
        super().__init__(f"after {timeout} s group {group} is still behind: {'; '.join(behind)}")


class AsyncCluster:
    """The cluster for `async with`. In the caller's event loop; `Cluster` tells of the arguments.

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
        self._brokers = brokers
        self._clock_kind = clock
        self._start = start
        check_shape(brokers, clock)
        self._settings = checked(settings or {})
        check_values(self._settings)
        self._seed = seed
        self._stack = contextlib.AsyncExitStack()
        self._made: list[_Closable] = []
        self.failures = HandlerFailures()
        """What handlers of its consumers raised."""
        self._hosts = itertools.count()
        self._telling: asyncio.Task[None] | None = None
        self._network: MemoryNetwork
        self.world: World
        """Time, network and chance of the cluster, for clients that are made by hand."""

    # Life

    async def start(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            self.world = self._make_world()
            told = self._routes_changed if self.is_virtual else None
            self._servers = Servers(self._brokers, self._settings, self.world, told)
            stack.push_async_callback(self._servers.stop)
            stack.push_async_callback(self._stop_telling)
            await self._servers.start()
            self._admin = self.admin()
            stack.push_async_callback(self._admin.close)
            self._offsets_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="turbopump-offsets-"))
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
        """Called by the name server, for each topic: clients look once."""
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell_of_routes())

    async def _tell_of_routes(self) -> None:
        await asyncio.sleep(ROUTES_AFTER_S)
        self._telling = None
        here = [one for one in instances().named.values() if one.world.clock is self.world.clock]
        await asyncio.gather(*(one.routes_changed() for one in here))

    async def _stop_telling(self) -> None:
        if self._telling is not None:
            await end_task(self._telling)

    @property
    def is_virtual(self) -> bool:
        return self._clock_kind == "virtual"

    # Addresses and brokers

    @property
    def name_servers(self) -> str:
        """What clients are given as `name_servers`, and Java's as namesrvAddr."""
        return self._servers.name_servers

    @property
    def brokers(self) -> tuple[str, ...]:
        """Names of the brokers: broker-a, broker-b …"""
        return tuple(broker.name for broker in self._servers.brokers)

    async def stop_broker(self, broker: str | int = 0) -> None:
        """Orderly: requests under way are answered, name servers hear of it."""
        await self._broker(broker).stop()

    async def kill_broker(self, broker: str | int = 0) -> None:
        """As by SIGKILL: connections break, nobody is told, and what was not yet written is lost."""
        await self._broker(broker).kill()

    async def start_broker(self, broker: str | int = 0) -> None:
        """One that was stopped or killed: at the same address, with what it had stored."""
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

    # Clients

    def producer(self, group: str = PRODUCER_GROUP, **settings: Any) -> "Producer":
        """To be used by `async with`, as one of `turbopump.aio`. Any setting of a producer can be given."""
        from turbopump.client.produce.producer import Producer

        return self._keep(Producer(group, **self.settings_of_producers(settings)))

    def consumer(self, group: str, **settings: Any) -> "Consumer":
        """Add handlers by `on`, then start it. A new group begins with the first message of a topic."""
        from turbopump.client.push.consumer import Consumer

        return self._keep(Consumer(group, **self.settings_of_consumers(settings)))

    def pull_consumer(
        self, group: str, topics: Sequence[str] | Mapping[str, str] = (), **settings: Any
    ) -> "PullConsumer":
        """A new group begins with the first message of a topic."""
        from turbopump.client.pull.consumer import PullConsumer

        return self._keep(PullConsumer(group, topics=topics, **self.settings_of_pull_consumers(settings)))

    def admin(self) -> Admin:
        return self._keep(Admin(**self.settings_of_clients()))

    @contextlib.contextmanager
    def as_default(self) -> Iterator[None]:
        """Clients of `turbopump.aio` that are made meanwhile, by whomever, belong to this cluster, whatever
        addresses they are given: the program under test need not know.
        """
        from turbopump.testing.adoption import adopted

        with adopted(self.settings_of_clients, lambda client: self.watch(self._keep(client))):
            yield

    def watch(self, client: object) -> None:
        """A consumer that a program made for itself: what its handlers raise is seen."""
        from turbopump.client.push.consumer import Consumer

        if isinstance(client, Consumer):
            client._hooks = (*client._hooks, self.failures)

    def kill_client(self, client: object) -> None:
        """As if its process were killed: its connections break, and it will not be heard of again.

        Only in virtual time, where each client has an address of its own.
        """
        self.cut_off(client)
        self._network.break_connections(host_of(client))

    def cut_off(self, client: object) -> None:
        """As if its cable were pulled: nothing passes any more, and nobody is told. Only in virtual time."""
        self._network.cut(HOST, host_of(client))

    def rejoin(self, client: object) -> None:
        """Ends `cut_off`."""
        self._network.join(HOST, host_of(client))

    def settings_of_clients(self) -> dict[str, Any]:
        """Name servers and world, for one client: in virtual time each is a host of its own."""
        world = self.world
        if self.is_virtual:
            third, last = divmod(next(self._hosts), 250)
            world = replace(world, network=self._network.at(f"127.0.{third + 1}.{last + 1}"))
        return {"name_servers": self.name_servers, "world": world}

    def settings_of_producers(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.settings_of_clients(), **(SPARING if self.is_virtual else {}), **given}

    def settings_of_pull_consumers(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if not self.is_virtual:
            return self.settings_of_pulls(given)
        sparing = SPARING if given.keys() & SPARING_PULLS.keys() - SPARING.keys() else SPARING_PULLS
        return self.settings_of_pulls({**sparing, **given})

    def settings_of_pulls(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **self.settings_of_clients(),
            "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            "local_offset_store_dir": self._offsets_dir,
            **given,
        }

    def settings_of_consumers(self, given: Mapping[str, Any]) -> dict[str, Any]:
        hooks = (*given.get("hooks", ()), self.failures)
        intervals = SPARING_CONSUMERS if self.is_virtual else QUICK
        return self.settings_of_pulls({**intervals, **given, "hooks": hooks})

    def _keep(self, client: T) -> T:
        self._made.append(client)  # type: ignore[arg-type]
        return client

    async def _close_clients(self) -> None:
        for client in reversed(self._made):
            await client.close()

    # Topics and messages

    def new_topic(self, prefix: str = "topic") -> str:
        """A name that no one has used in this process. Topics come into being with the first send."""
        return f"{prefix}-{next(_numbers)}"

    def new_group(self, prefix: str = "group") -> str:
        """The same for a group."""
        return self.new_topic(prefix)

    async def create_topic(
        self, topic: str = "", *, queues: int = 4, ordered: bool = False, permission: int = READ_AND_WRITE
    ) -> str:
        """On every broker that is up; without a name, one that is new. Returns the name."""
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
        """Everything stored in a topic on brokers that are up, in the order of storing.

        Any topic: also %RETRY%group, %DLQ%group and the system's.
        """
        found = [message for broker in self._servers.brokers for message in broker.messages(topic)]
        return sorted(found, key=lambda message: message.store_timestamp)

    async def dead_letters(self, group: str) -> list[MessageExt]:
        """What a group has given up."""
        return await self.messages(f"%DLQ%{group}")

    # Waiting

    @property
    def look_s(self) -> float:
        return VIRTUAL_LOOK_S if self.is_virtual else LOOK_S

    async def wait_until(
        self,
        condition: Callable[[], object | Awaitable[object]],
        timeout: float = WAIT_S,  # noqa: ASYNC109 - in the cluster's time
    ) -> None:
        """Looks again and again until `condition()` is true. Raises TimeoutError; seconds of the cluster."""
        clock = self.world.clock
        deadline = clock.monotonic() + timeout
        while not await _value(condition()):
            if clock.monotonic() >= deadline:
                raise TimeoutError(not_in_time(timeout))
            await clock.sleep(self.look_s)

    async def wait_until_consumed(
        self,
        group: str,
        topic: str,
        timeout: float = WAIT_S,  # noqa: ASYNC109 - in the cluster's time
        expected: Expected = (),
    ) -> None:
        """Until the group has committed the end of each queue of the topic and of its own retry topic.

        Raises what a handler of the group raised, unless it is `expected`: an exception class, a tuple of
        them, or `Exception` for all. A message that failed as expected counts as dealt with as soon as it
        waits for its next delivery. Raises NotConsumed, an AssertionError, when the time is over. A
        broadcasting group commits nothing that could be seen here.
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
                raise  # the handler's
            raise NotConsumed(group, behind, timeout) from None
        self.failures.check(group, topic, expected)

    async def behind(self, group: str, topic: str) -> list[str]:
        """Where the group has not committed the end, in words: of the topic and of its own retry topic."""
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
        """Of queues that have messages."""
        ends = {queue: end for broker in self._servers.brokers for queue, end in broker.ends(topic).items()}
        return {queue: end for queue, end in ends.items() if end}

    # Time

    @property
    def clock(self) -> Clock:
        return self.world.clock

    def now(self) -> datetime:
        """The cluster's time."""
        return datetime.fromtimestamp(self.world.clock.now_ms() / 1000, UTC)

    async def advance(self, by: timedelta | float | None = None, **parts: float) -> None:
        """`advance(90)`, `advance(hours=2, minutes=5)`: all that is due on the way happens, in its order."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise RuntimeError('real time cannot be advanced; make the cluster by Cluster(clock="virtual")')
        await asyncio.sleep(seconds_of(by, parts))
        await loop.rest()


def check_shape(brokers: int, clock: str) -> None:
    if isinstance(brokers, bool) or not isinstance(brokers, int) or not 1 <= brokers <= MAX_BROKERS:
        raise ValueError(f"brokers must be a whole number from 1 to {MAX_BROKERS}, got {brokers!r}")
    if clock not in get_args(ClockKind):
        raise ValueError(f"clock must be 'real' or 'virtual', got {clock!r}")


def not_in_time(timeout: float) -> str:
    return f"what was waited for did not become true within {timeout} s"


class _Closable:
    async def close(self) -> None: ...


def host_of(client: Any) -> str:
    """The address of a client of a virtual cluster."""
    core = getattr(client, "_core", client)
    world: World = core.world if isinstance(core, Admin) else core._world
    if not isinstance(world.network, Host):
        raise RuntimeError('clients can be cut off only where time is virtual: Cluster(clock="virtual")')
    return world.network.ip


async def commit_now(client: object, group: str) -> None:
    """A consumer of that group commits what it has consumed, as it would do a little later by itself."""
    from turbopump.client.push.consumer import Consumer

    if isinstance(client, Consumer) and client.group == group and client._engine is not None:
        engine = client._engine
        await engine._offsets.persist(engine.queues.positions())


def seconds_of(by: timedelta | float | None, parts: Mapping[str, float]) -> float:
    whole = by if isinstance(by, timedelta) else timedelta(seconds=by or 0)
    seconds = (whole + timedelta(**parts)).total_seconds()
    if seconds < 0:
        raise ValueError("time only goes forward")
    return seconds


async def _value(found: object) -> object:
    return await found if isinstance(found, Awaitable) else found
