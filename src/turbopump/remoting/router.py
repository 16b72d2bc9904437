"""Request code -> typed request -> handler, and the one place where an error becomes a response.

A handler is a plain function, answered in the same pass, or a coroutine function, which becomes a task that
this router owns. It returns its answer, raises `Refused`, or returns None and calls `request.answer` later.
One-way requests are never answered; the answer uses the encoding of the request.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import Command, decode, reply
from turbopump.protocol.errors import BrokenBody, BrokenRecord, Refused
from turbopump.protocol.frame import Frame
from turbopump.protocol.headers.base import Header
from turbopump.remoting.connection import Connection
from turbopump.remoting.limits import Seldom

log = logging.getLogger(__name__)

H = TypeVar("H")

MAX_RUNNING = 65_536  # coroutine handlers of all connections together, those of closed ones too
LOG_INTERVAL_S = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler says; the router adds opaque and encoding. `header` is a Header or ready ext fields."""

    header: Header | dict[str, str] | None = None
    body: bytes = b""
    code: int = ResponseCode.SUCCESS
    remark: str | None = None


class Request(Generic[H]):
    """A request on its way through a handler, with its header already typed."""

    __slots__ = ("command", "connection", "header")

    def __init__(self, command: Command, header: H, connection: Connection) -> None:
        self.command = command
        self.header = header
        self.connection = connection

    @property
    def body(self) -> bytes:
        return self.command.body

    def answer(self, answer: "Answer | Command") -> None:
        """Answers now, for a handler that returned None. Nothing happens when the peer is gone."""
        if isinstance(answer, Answer):
            answer = _command(self.command, answer)
        self.connection.reply(self.command, answer)


Result: TypeAlias = Command | Answer | None


@dataclass(frozen=True, slots=True)
class Route(Generic[H]):
    header: type[H] | None
    handler: Callable[[Request[H]], Result | Awaitable[Result]]


Routes: TypeAlias = Mapping[int, Route[Any]]


class Router:
    def __init__(self, routes: Routes, max_running: int = MAX_RUNNING) -> None:
        self._max_running = max_running
        self._routes: dict[int, Route[Any]] = dict(routes)
        self._running: set[asyncio.Task[None]] = set()
        self._failures: dict[int, Seldom] = {}

    def serve(self, connection: Connection, frames: list[Frame]) -> None:
        """All frames of a read event, in order; those for which there is no room now are deferred."""
        for position, frame in enumerate(frames):
            if connection.saturated:
                connection.defer(frames[position:])
                return
            self.one(connection, frame)

    def one(self, connection: Connection, frame: Frame) -> None:
        """Serves one frame, request or answer. Raises BrokenFrame when its header cannot be read."""
        command = decode(frame)
        if command.is_response:
            connection.answered(command)
            return
        route = self._routes.get(command.code)
        if route is None:
            remark = f" request type {command.code} not supported"
            self._reply(
                connection, command, Answer(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
            )
            return
        try:
            header = route.header.from_ext(command.ext) if route.header is not None else None
            result = route.handler(Request(command, header, connection))
            if result is None:
                return
            if isinstance(result, Command | Answer):
                self._reply(connection, command, result)
            else:
                self._spawn(connection, command, result)
        except Exception as error:
            self._reply(connection, command, self._failure(command, connection, error))

    async def close(self) -> None:
        """Cancels the handlers that still run."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _spawn(self, connection: Connection, command: Command, work: Awaitable[Result]) -> None:
        if len(self._running) >= self._max_running:
            if asyncio.iscoroutine(work):
                work.close()
            remark = f"[OVERLOAD]{len(self._running)} requests are running, start flow control for a while"
            self._reply(connection, command, Answer(code=ResponseCode.SYSTEM_BUSY, remark=remark))
            return
        size = len(command.body)
        connection.begin(size)

        def done(task: asyncio.Task[None]) -> None:  # also when it was cancelled before its first step
            if asyncio.iscoroutine(work):
                work.close()
            self._running.discard(task)
            connection.end(size)

        task = asyncio.get_running_loop().create_task(self._finish(connection, command, work))
        self._running.add(task)
        task.add_done_callback(done)

    async def _finish(self, connection: Connection, command: Command, work: Awaitable[Result]) -> None:
        try:
            result = await work
            if result is not None:
                self._reply(connection, command, result)
        except Exception as error:
            self._reply(connection, command, self._failure(command, connection, error))

    def _reply(self, connection: Connection, command: Command, result: Command | Answer) -> None:
        connection.reply(command, result if isinstance(result, Command) else _command(command, result))

    def _failure(self, command: Command, connection: Connection, error: Exception) -> Answer:
        if isinstance(error, Refused):
            return Answer(code=error.code, remark=error.remark)
        if isinstance(error, BrokenBody | BrokenRecord):  # the peer's doing, not ours: no traceback
            log.info("Request %d of %s cannot be read: %s", command.code, connection, error)
        else:
            seldom = self._failures.setdefault(command.code, Seldom(log, LOG_INTERVAL_S, logging.ERROR))
            now = asyncio.get_running_loop().time()
            seldom.say(now, "Request %d of %s failed", command.code, connection, exc_info=error)
        return Answer(code=ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


def _command(request: Command, answer: Answer) -> Command:
    ext = answer.header.to_ext() if isinstance(answer.header, Header) else answer.header
    return reply(request, answer.code, answer.remark, ext, answer.body)
