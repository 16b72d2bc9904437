"""Requests of all parts of `Admin`: to one server, to any name server, or to all name servers.

In: a request. Out: a successful answer; every other answer becomes an exception here, in one place.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from turbopump.client import errors
from turbopump.client.name_servers import Caller, NameServers, successful
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.headers.base import Header
from turbopump.runtime.chance import Chance
from turbopump.runtime.tasks import call_concurrently

TIMEOUT_S = 5.0
MAX_CONCURRENT_REQUESTS = 20

K = TypeVar("K")
T = TypeVar("T")


class ServerUnreachable(errors.Unreachable):
    """A server that cannot be reached, or does not answer in time."""

    def __init__(self, address: str, why: OSError) -> None:
        super().__init__(f"{address} does not answer: {_words(why)}")
        self.address = address


class NotFound(errors.ClientError):
    """What was asked for by name does not exist, such as a cluster, group or message."""


class AdminCalls:
    """Sends the requests of all parts of `Admin`, and turns unsuccessful answers into exceptions."""

    def __init__(
        self, calls: Caller, name_servers: Iterable[str], chance: Chance, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._calls = calls
        self._name_servers = NameServers(calls, tuple(name_servers), chance)
        if not self._name_servers.addresses:
            raise ValueError("name_servers must have at least one address")
        self.timeout_s = timeout_s

    @property
    def name_servers(self) -> tuple[str, ...]:
        return self._name_servers.addresses

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        timeout_s: float | None = None,
    ) -> Command:
        """Sends a request to one server; returns its successful answer. Raises Refused or Unreachable."""
        try:
            answer = await self._calls.call(address, request(code, header, body), timeout_s or self.timeout_s)
        except OSError as error:
            raise ServerUnreachable(address, error) from None
        return successful(answer, address)

    async def ask_name_server(
        self, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> Command:
        """Returns the successful answer of the first name server to answer. Raises Refused or Unreachable."""
        try:
            answer = await self._name_servers.ask(request(code, header, body), self.timeout_s)
        except OSError as error:
            why = error.__cause__ if isinstance(error.__cause__, OSError) else error
            raise ServerUnreachable("; ".join(self.name_servers), why) from None
        return successful(answer, "the name server")

    async def ask_name_servers(
        self,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        addresses: Iterable[str] = (),
    ) -> dict[str, Command]:
        """Asks `addresses`, by default all name servers; returns answers by address, raises if any fails.

        Each has its own state. Raises Refused or Unreachable at the first failure.
        """
        asked = tuple(addresses) or self.name_servers
        return {address: await self.ask(address, code, header, body) for address in asked}


async def together(ask: Callable[[K], Awaitable[T]], items: Iterable[K]) -> list[T]:
    """Returns `await ask(item)` for each item, in order, at most 20 concurrently.

    The first failure cancels the others, and is raised in an ExceptionGroup.
    """
    return await call_concurrently(ask, items, MAX_CONCURRENT_REQUESTS)


def _words(error: OSError) -> str:
    return error.strerror or str(error) or "no answer in time"
