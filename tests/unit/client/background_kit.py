"""A client with a core on the background loop."""

from collections.abc import AsyncIterator

from turbopump.client.blocking.face import Face
from turbopump.client.errors import NotRunning


class Core:
    """A client that knows whether it runs, and counts."""

    def __init__(self) -> None:
        self.is_running = False
        self.handlers: list[str] = []

    async def __aenter__(self) -> "Core":
        self.is_running = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.left_by = kind
        await self.close()

    async def close(self) -> None:
        self.is_running = False

    async def twice(self, number: int) -> int:
        if not self.is_running:
            raise NotRunning("not started")
        return number * 2

    async def upto(self, number: int) -> AsyncIterator[int]:
        for one in range(number):
            yield one

    def on(self, name: str) -> None:
        self.handlers.append(name)


class Client(Face[Core]):
    def __init__(self) -> None:
        super().__init__(Core)

    def twice(self, number: int) -> int:
        return self._run(lambda core: core.twice(number))


async def answer() -> int:
    return 42
