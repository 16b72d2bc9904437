"""A network for one server that can be cut off, as when the process of the server is killed."""

import asyncio
import errno
from typing import Protocol, cast

from turbopump.runtime.network import Listener, Network, ProtocolFactory


class KillableNetwork:
    """The network of one server, over a real or in-memory one, with `kill` to cut the server off."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._listeners: list[Listener] = []
        self._ends: list[asyncio.Protocol] = []
        self._is_killed = False

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener:
        self._check_alive()
        listener = await self._network.listen(self._tracking(factory), host, port)
        self._listeners.append(listener)
        return listener

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.Protocol:
        self._check_alive()
        return await self._network.connect(self._tracking(factory), host, port)

    async def resolve(self, host: str) -> str:
        return await self._network.resolve(host)

    def kill(self) -> None:
        """Stops listening, resets every connection, and refuses new ones."""
        self._is_killed = True
        for listener in self._listeners:
            listener.close()
        for end in self._ends:
            cast(_Abortable, end).abort()

    def _check_alive(self) -> None:
        if self._is_killed:
            raise OSError(errno.ENETUNREACH, "this server was killed")

    def _tracking(self, factory: ProtocolFactory) -> ProtocolFactory:
        def make() -> asyncio.Protocol:
            end = factory()
            if hasattr(end, "abort"):  # a protocol that only refuses closes itself
                self._ends.append(end)
            return end

        return make


class _Abortable(Protocol):
    def abort(self) -> None: ...
