"""One interface to the blocking and the async coordinator, so that one test runs with both."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from turbopump.transactions import Coordinator

T = TypeVar("T")


class BlockingBank:
    """The blocking coordinator behind the methods of the async one: each call in one thread, one context."""

    def __init__(self, *given: Any, **more: Any) -> None:
        self._bank = Coordinator(*given, **more)
        self._thread = ThreadPoolExecutor(1)
        self._context = contextvars.copy_context()

    async def in_thread(self, call: Callable[..., T], *given: Any, **more: Any) -> T:
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, lambda: self._context.run(call, *given, **more))
        return await work

    def xa(self, *given: Any, **more: Any) -> "BlockingBlock":
        return BlockingBlock(self, lambda: self._bank.xa(*given, **more))

    def tcc(self, **more: Any) -> "BlockingBlock":
        return BlockingBlock(self, lambda: self._bank.tcc(**more))

    def __getattr__(self, name: str) -> Any:
        async def call(*given: Any, **more: Any) -> Any:
            return await self.in_thread(getattr(self._bank, name), *given, **more)

        return call

    async def __aenter__(self) -> Self:
        await self.in_thread(self._bank.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.in_thread(self._bank.__exit__, *error)
        self._thread.shutdown()


class BlockingBlock:
    """A block of the blocking coordinator, entered by `async with`."""

    def __init__(self, bank: BlockingBank, make: Callable[[], Any]) -> None:
        self._bank = bank
        self._make = make

    async def __aenter__(self) -> Self:
        self._block = await self._bank.in_thread(self._make)
        await self._bank.in_thread(self._block.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._bank.in_thread(self._block.__exit__, *error)

    @property
    def gid(self) -> str:
        return str(self._block.gid)

    def __getitem__(self, name: str) -> Any:
        return self._block[name]

    async def send(self, *messages: Any) -> None:
        await self._bank.in_thread(self._block.send, *messages)

    async def call(self, participant: Any, input: Any) -> Any:
        return await self._bank.in_thread(self._block.call, participant, input)
