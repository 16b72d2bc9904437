"""The servers of an embedded cluster: a name server and brokers, in the running event loop.

Their files are in memory. A broker keeps its port and its files when it is restarted, also after a kill: then
it finds what a killed process leaves.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from turbopump.broker.config import (
    BrokerConfig,
    FilterRules,
    ListenConfig,
    NameServerConfig,
    TimerRules,
    change,
)
from turbopump.broker.server import Broker
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.world import World
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.server import NameServer
from turbopump.protocol.addresses import FAST_PORT_STEP, HA_PORT_STEP
from turbopump.protocol.conf import ConfigError
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock, NeverSet
from turbopump.runtime.ports import reserved_port
from turbopump.store.config import StoreConfig
from turbopump.store.consume_queue import ENTRY, ConsumeQueue
from turbopump.store.store import Store
from turbopump.testing.killable_network import KillableNetwork
from turbopump.testing.loop import VirtualClock
from turbopump.testing.memory import MemoryDisk, MemoryWorkers

HOST = "127.0.0.1"
SHORT_SLEEP_S, STRETCHED_S = 10.0, 300.0  # sleeps of up to the first become the second
REGISTER_MS = 100_000  # in virtual time; a name server removes brokers after 120 s
MAX_HOLD_S = 600.0  # in virtual time: an arriving message wakes a pull, so polling again is useless
CLUSTER_NAME = "DefaultCluster"
STORE = StoreConfig(
    root_dir="/store",
    commit_log_file_size=16 << 20,
    consume_queue_file_size=200_000,
    index_slots=5_000,
    index_items=20_000,
    # Syncing memory is useless, and each turn costs real time when hours of virtual time pass.
    flush_interval_ms=600_000,
    consume_queue_flush_interval_ms=600_000,
    checkpoint_interval_ms=600_000,
    clean_interval_ms=600_000,
)


class EmbeddedServers:
    """A name server and brokers in the running event loop."""

    def __init__(
        self,
        brokers: int,
        settings: Mapping[str, str],
        world: World,
        on_routes_changed: Callable[[], None] | None = None,
    ) -> None:
        is_virtual = isinstance(world.clock, VirtualClock)
        self._config = _config_with(settings, is_virtual)
        self._world = world
        self._on_routes_changed = on_routes_changed
        self._count = brokers
        self._name_server: NameServer | None = None
        self.name_servers = ""
        self.brokers: list[EmbeddedBroker] = []
        self._reserved = contextlib.ExitStack()

    async def start(self) -> None:
        world = self._world
        config = NamesrvConfig(listen_port=0, bind_address=HOST)
        clock = _clock_of_servers(world)
        self._name_server = NameServer(
            config, world.network, clock, MemoryDisk(clock), servers=1 + 2 * self._count
        )
        self._name_server.on_routes_changed(self._on_routes_changed)
        self.name_servers = f"{HOST}:{await self._name_server.start()}"
        for number in range(self._count):
            disk = MemoryDisk(world.clock)
            _take_along(self._config.filters.module_dir, disk)
            broker = EmbeddedBroker(self._config_of(number), world, disk)
            await broker.start()
            self.brokers.append(broker)

    async def stop(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.push(self._reserved)
            if self._name_server is not None:
                stack.push_async_callback(self._name_server.stop)
            for broker in self.brokers:
                stack.push_async_callback(broker.stop)

    def _config_of(self, number: int) -> BrokerConfig:
        port = 0
        if not isinstance(self._world.clock, VirtualClock):  # a restarted broker must find its ports free
            port = self._reserved.enter_context(reserved_port(HOST, (FAST_PORT_STEP, HA_PORT_STEP)))
        name = f"broker-{chr(ord('a') + number)}"
        return replace(
            self._config,
            identity=replace(self._config.identity, broker_name=name, cluster_name=CLUSTER_NAME),
            listening=ListenConfig(bind_address=HOST, port=port, advertised_address=HOST),
            name_servers=replace(self._config.name_servers, addresses=(self.name_servers,)),
        )


def check_values(settings: Mapping[str, str]) -> None:
    """Raises ValueError when a broker would not accept the value of one of these settings."""
    try:
        _config_with(settings)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _config_with(settings: Mapping[str, str], is_virtual: bool = False) -> BrokerConfig:
    timers = TimerRules(log_file_size=1 << 20)
    config = BrokerConfig(store=STORE, filters=FilterRules(enabled=True), timers=timers)
    if is_virtual:
        polling = replace(config.polling, max_suspend_ms=round(MAX_HOLD_S * 1000))
        config = replace(config, polling=polling, name_servers=NameServerConfig(period_ms=REGISTER_MS))
    for key, text in settings.items():
        config = change(config, key, text)
    return config


def _take_along(directory: str, disk: MemoryDisk) -> None:
    """Copies the user's filter modules from a real directory to the same path of `disk`."""
    if directory and os.path.isdir(directory):
        disk.make_dirs(directory)
        for file in os.scandir(directory):
            if file.is_file():
                disk.write(file.path, Path(file.path).read_bytes())


@dataclass
class EmbeddedBroker:
    """One broker that can be stopped, killed and started again."""

    config: BrokerConfig
    world: World
    disk: MemoryDisk
    _running: Broker | None = None
    _network: KillableNetwork | None = None

    @property
    def name(self) -> str:
        return self.config.identity.broker_name

    @property
    def is_up(self) -> bool:
        return self._running is not None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.config.listening.port}"

    def messages(self, topic: str) -> list[MessageExt]:
        """Returns the stored messages of a topic, whatever its permission; none when the broker is down."""
        store = self._store
        if store is None:
            return []
        return [
            MessageExt(
                found,
                MessageQueue(topic, self.name, queue.queue_id),
                (queue.min_offset, queue.max_offset),
            )
            for queue in store.queues.of(topic)
            for physical in _log_offsets(queue)
            if (found := store.log.look_up(physical)) is not None
        ]

    def ends(self, topic: str) -> dict[MessageQueue, int]:
        """Returns the next queue offset of each queue of the topic; nothing when the broker is down."""
        store = self._store
        queues = [] if store is None else store.queues.of(topic)
        return {MessageQueue(topic, self.name, queue.queue_id): queue.max_offset for queue in queues}

    @property
    def _store(self) -> Store | None:
        return None if self._running is None else self._running._store

    async def start(self) -> None:
        """Starts the broker; does nothing when it is running."""
        if self._running is not None:
            return
        world = self.world
        self._network = KillableNetwork(world.network)
        broker = Broker(
            self.config,
            self._network,
            _clock_of_servers(world),
            self.disk,
            MemoryWorkers(),
            Chance(world.chance.getrandbits(32)),
            lambda: HOST,
        )
        await broker.start()
        self.config = replace(self.config, listening=replace(self.config.listening, port=broker.port))
        self._running = broker

    async def stop(self) -> None:
        """Stops the broker as a signal does: ends requests under way and unregisters."""
        running, self._running = self._running, None
        if running is not None:
            await running.stop()

    async def kill(self) -> None:
        """Kills the broker as SIGKILL does: connections break; what it still writes is lost."""
        if self._running is not None and self._network is not None:
            self.disk = self.disk.copy()
            self._network.kill()
            await self.stop()


@dataclass
class StretchedClock(NeverSet):
    """Virtual clock for servers that turns sleeps of up to 10 s into 300 s.

    Servers sleep shortly only for housekeeping (preparing a file, figures of the last second, idle
    connections), and each such turn costs real time when hours of virtual time pass.
    """

    clock: Clock

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def monotonic(self) -> float:
        return self.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(STRETCHED_S if 0 < seconds <= SHORT_SLEEP_S else seconds)


def _clock_of_servers(world: World) -> Clock:
    return StretchedClock(world.clock) if isinstance(world.clock, VirtualClock) else world.clock


def _log_offsets(queue: ConsumeQueue) -> Iterator[int]:
    """Yields the log offsets of the records of a queue, in queue order."""
    at = queue.min_offset
    while at < queue.max_offset:
        units = queue.units(at, queue.max_offset - at)
        if not units:
            return
        for physical, _, _ in ENTRY.iter_unpack(units):
            yield physical
        at = queue.behind(at, units)
