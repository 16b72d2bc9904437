"""A network that one server has to itself and that can be pulled out, as when its process is killed."""

import asyncio
import errno
from typing import Protocol, cast

from turbopump.runtime.network import Listener, Network, ProtocolFactory


class Plug:
    """`runtime.network.Network` over another one, real or in memory."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._listeners: list[Listener] = []
        self._ends: list[asyncio.Protocol] = []
        self._is_out = False

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener:
        self._must_be_in()
        listener = await self._network.listen(self._noted(factory), host, port)
        self._listeners.append(listener)
        return listener

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.Protocol:
        self._must_be_in()
        return await self._network.connect(self._noted(factory), host, port)

    async def resolve(self, host: str) -> str:
        return await self._network.resolve(host)

    def pull_out(self) -> None:
        """Nobody listens any more, every connection is reset, and no new one can be had."""
        self._is_out = True
        for listener in self._listeners:
            listener.close()
        for end in self._ends:
            cast(_Abortable, end).abort()

    def _must_be_in(self) -> None:
        if self._is_out:
            raise OSError(errno.ENETUNREACH, "this server was killed")

    def _noted(self, factory: ProtocolFactory) -> ProtocolFactory:
        def make() -> asyncio.Protocol:
            end = factory()
            if hasattr(end, "abort"):  # one that only refuses closes by itself
                self._ends.append(end)
            return end

        return make


class _Abortable(Protocol):
    def abort(self) -> None: ...
