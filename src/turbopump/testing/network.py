"""An in-memory network between protocol objects of one loop, with delays, segments and losses.

Order within a connection is kept, as in TCP. A peer that does not read fills the writer's buffer, which then
pauses, so back pressure works as over sockets. Every host has its own address (`network.at(ip)`); hosts can
be cut off from one another, in both directions or in one, and joined again.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from turbopump.runtime.chance import Chance
from turbopump.runtime.network import Listener, ProtocolFactory

ANY_HOST = ("", "0.0.0.0", "::")
HIGH_WATER = 64 * 1024
SEGMENT = 64 * 1024
FIRST_PORT = 20_000


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """Segment delay and size of a network, and the chance (`loss`) that a segment breaks its connection."""

    min_delay_s: float = 0.0
    max_delay_s: float = 0.0
    segment: int = SEGMENT
    """Greatest size of a segment, which arrives in one read event; 1 makes every byte an event."""

    loss: float = 0.0
    """Probability, per segment, that the connection breaks instead."""


PERFECT = NetworkConditions()


class MemoryNetwork:
    """`runtime.network.Network` in memory, seen from host 127.0.0.1; `at` returns it seen from another.

    `silent_cuts`: between hosts that are cut off, the end of a connection is not delivered either.
    """

    def __init__(
        self, chance: Chance | None = None, conditions: NetworkConditions = PERFECT, silent_cuts: bool = False
    ) -> None:
        self.conditions = conditions
        self.silent_cuts = silent_cuts
        self.chance = chance or Chance(0)
        self._listeners: dict[tuple[str, int], _MemoryListener] = {}
        self._cut: set[tuple[str, str]] = set()  # from, to
        self._pipes: dict[_Transport, None] = {}  # ordered, so that a seed can be repeated
        self._next_port = FIRST_PORT

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener:
        return self.listen_at("127.0.0.1", factory, host, port)

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.Protocol:
        return await self.connect_from("127.0.0.1", factory, host, port)

    async def resolve(self, host: str) -> str:
        return "127.0.0.1"

    def at(self, ip: str) -> "Host":
        return Host(self, ip)

    def cut(self, one: str, other: str, one_way: bool = False) -> None:
        """Cuts two hosts off from each other: nothing passes, neither is notified, connecting is refused.

        `one_way`: only what `one` sends does not pass; what `other` sends still arrives.
        """
        self._cut.add((one, other))
        if not one_way:
            self._cut.add((other, one))

    def join(self, one: str, other: str) -> None:
        """Ends the cut between two hosts and delivers what was sent meanwhile, as TCP retransmits it."""
        self._cut -= {(one, other), (other, one)}
        for transport in list(self._pipes):
            transport.go_on()

    def break_connections(self, ip: str) -> None:
        """Aborts every connection of a host; both ends lose it without an error."""
        for transport in list(self._pipes):
            if ip in (transport.local[0], transport.peer[0]):
                transport.abort()

    def unplug(self, ip: str) -> None:
        """Removes a host: aborts its connections and closes its listeners."""
        self.break_connections(ip)
        for place in [place for place in self._listeners if place[0] == ip]:
            del self._listeners[place]

    def listen_at(self, ip: str, factory: ProtocolFactory, host: str, port: int) -> Listener:
        where = ip if host in ANY_HOST or host == "localhost" else host
        port = port or self._free_port(where)
        if (where, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"address in use: {where}:{port}")
        listener = self._listeners[where, port] = _MemoryListener(factory, where, port, self._listeners)
        return listener

    async def connect_from(self, ip: str, factory: ProtocolFactory, host: str, port: int) -> asyncio.Protocol:
        where = ip if host == "localhost" else host
        await asyncio.sleep(self.delay_s())
        listener = self._listeners.get((where, port))
        if listener is None or self.is_cut(ip, where) or self.is_cut(where, ip):
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"no listener on {where}:{port}")
        near_end, far_end = (ip, self._free_port(ip)), (where, port)
        near = _Transport(self, near_end, far_end)
        far = _Transport(self, far_end, near_end)
        near.far, far.far = far, near
        self._pipes |= {near: None, far: None}
        far.attach(listener.factory())
        protocol = factory()
        near.attach(protocol)
        return protocol

    def is_cut(self, sender: str, receiver: str) -> bool:
        """Whether nothing passes from `sender` to `receiver`."""
        return (sender, receiver) in self._cut

    def delay_s(self) -> float:
        conditions = self.conditions
        if not conditions.max_delay_s:
            return 0.0
        return self.chance.uniform(conditions.min_delay_s, conditions.max_delay_s)

    def breaks(self) -> bool:
        return self.conditions.loss > 0 and self.chance.random() < self.conditions.loss

    def forget(self, transport: "_Transport") -> None:
        self._pipes.pop(transport, None)

    def _free_port(self, ip: str) -> int:
        self._next_port += 4
        while (ip, self._next_port) in self._listeners:
            self._next_port += 1
        return self._next_port


@dataclass(frozen=True, slots=True)
class Host:
    """The in-memory network as the host with the address `ip` sees it."""

    network: MemoryNetwork
    ip: str

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener:
        return self.network.listen_at(self.ip, factory, host, port)

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.Protocol:
        return await self.network.connect_from(self.ip, factory, host, port)

    async def resolve(self, host: str) -> str:
        return self.ip


class _MemoryListener:
    def __init__(
        self,
        factory: ProtocolFactory,
        ip: str,
        port: int,
        listeners: "dict[tuple[str, int], _MemoryListener]",
    ) -> None:
        self.factory = factory
        self._key = (ip, port)
        self._listeners = listeners

    @property
    def port(self) -> int:
        return self._key[1]

    def close(self) -> None:
        self._listeners.pop(self._key, None)


class _Transport(asyncio.Transport):
    """One end of a connection: sends in one direction and receives in the other. `far` is the other end."""

    far: "_Transport"

    def __init__(self, network: MemoryNetwork, local: tuple[str, int], peer: tuple[str, int]) -> None:
        self._told: dict[str, object] = {"peername": peer, "sockname": local}
        super().__init__(self._told)
        self.local = local
        self.peer = peer
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._protocol: asyncio.Protocol | None = None
        self._outbox: deque[tuple[float, bytes]] = deque()  # time of the write, and data
        self._delay_s = 0.0  # of the segment under way
        self._unsent = 0
        self._on_its_way = False
        self._high = HIGH_WATER
        self._low = HIGH_WATER // 4
        self._writer_paused = False
        self._reading = True
        self._closing = False
        self._lost = False

    def attach(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        whole = bytes(data)
        size = self._network.conditions.segment
        now = self._loop.time()
        self._outbox.extend((now, whole[at : at + size]) for at in range(0, len(whole), size))
        self._unsent += len(whole)
        self.go_on()
        if self._unsent > self._high and not self._writer_paused and self._protocol:
            self._writer_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Sends the data written so far, then closes the connection."""
        if not self._closing:
            self._closing = True
            self.go_on()

    def abort(self) -> None:
        self._closing = True
        self._outbox.clear()
        self._unsent = 0
        self._end(None)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.far.go_on()

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def can_write_eof(self) -> bool:
        return False

    def go_on(self) -> None:
        """Sends the next segment, unless one is under way or the far end does not read."""
        if self._on_its_way or self._lost or self._network.is_cut(self.local[0], self.peer[0]):
            return
        if not self._outbox:
            if self._closing:
                self._end(None)
            return
        if self.far._reading or self.far._closing:
            self._on_its_way = True
            self._delay_s = self._network.delay_s()
            self._loop.call_later(self._delay_s, self._arrive)

    def _arrive(self) -> None:
        self._on_its_way = False
        if self._lost or not self._outbox:
            return
        if self._network.breaks():
            self._end(ConnectionResetError(errno.ECONNRESET, "connection lost"))
            return
        far = self.far
        if far._lost:  # it ended while the hosts were cut off
            self._end(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
            return
        if not far._reading and not far._closing:
            return  # it stopped reading: resume_reading calls go_on
        written_at, piece = self._outbox.popleft()
        self._unsent -= len(piece)
        far._told["received_at"] = written_at + self._delay_s
        if not far._closing and far._protocol:
            far._protocol.data_received(piece)
        if self._writer_paused and self._unsent <= self._low and self._protocol and not self._lost:
            self._writer_paused = False
            self._protocol.resume_writing()
        self.go_on()

    def _end(self, error: Exception | None) -> None:
        """Ends the connection, notifies both ends in a later turn; not the far end across a silent cut."""
        network = self._network
        is_unheard = network.silent_cuts and network.is_cut(self.local[0], self.peer[0])
        for end in (self,) if is_unheard else (self, self.far):
            if not end._lost:
                end._lost = end._closing = True
                self._network.forget(end)
                self._loop.call_soon(end._tell, error)

    def _tell(self, error: Exception | None) -> None:
        if self._protocol:
            self._protocol.connection_lost(error)
