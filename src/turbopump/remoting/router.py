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
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

H = TypeVar("H")

MAX_RUNNING = 65_536  # coroutine handlers of all connections together, those of closed ones too
LOG_INTERVAL_S = 10.0
REFUSED_LINES = 10  # per interval, of requests whose refusal is a warning
MAX_REMARK = 1024  # characters: a remark that repeats what was asked could be as long as a frame


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler says; the router adds opaque and encoding. `header` is a Header or ready ext fields."""

    header: Header | dict[str, str] | None = None
    body: bytes = b""
    code: int = ResponseCode.SUCCESS
    remark: str | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """A request that was answered: with which code, how long after it came, and whether it had to wait."""

    code: int
    answer: int
    seconds: float
    was_parked: bool


Observe: TypeAlias = Callable[[Observed], None]


class Request(Generic[H]):
    """A request on its way through a handler, with its header already typed."""

    __slots__ = ("_began", "_observe", "command", "connection", "header", "was_parked")

    def __init__(
        self, command: Command, header: H, connection: Connection, observe: Observe | None = None
    ) -> None:
        self.command = command
        self.header = header
        self.connection = connection
        self.was_parked = False
        self._observe = observe
        if observe is not None:
            self._began = asyncio.get_running_loop().time()

    @property
    def body(self) -> bytes:
        return self.command.body

    def answer(self, answer: "Answer | Command") -> None:
        """Answers now, for a handler that returned None. Nothing happens when the peer is gone."""
        if isinstance(answer, Answer):
            answer = _command(self.command, answer)
        if answer.remark is not None and len(answer.remark) > MAX_REMARK:
            answer.remark = answer.remark[:MAX_REMARK]
        self.connection.reply(self.command, answer)
        self.answered(answer.code)

    def answered(self, code: int) -> None:
        """For one who writes the answer himself: it is on its way."""
        if self._observe is not None:
            seconds = asyncio.get_running_loop().time() - self._began
            self._observe(Observed(self.command.code, code, seconds, self.was_parked))


Result: TypeAlias = Command | Answer | None


@dataclass(frozen=True, slots=True)
class Route(Generic[H]):
    header: type[H] | None
    handler: Callable[[Request[H]], Result | Awaitable[Result]]
    warn_as: str | None = None
    """What a warning calls this request when it is refused; None: the peer's own log is the place to look.

    For requests without which a peer is not served at all, and whose senders often ignore the answer. Their
    handlers are plain functions."""


Routes: TypeAlias = Mapping[int, Route[Any]]


class Router:
    def __init__(
        self, routes: Routes, max_running: int = MAX_RUNNING, observe: Observe | None = None
    ) -> None:
        """`observe` is told of every answer to a request that has a route."""
        self._max_running = max_running
        self._observe = observe
        self._routes: dict[int, Route[Any]] = dict(routes)
        self._running: set[asyncio.Task[None]] = set()
        self._failures: dict[int, RateLimitedLog] = {}
        self._unreadable = RateLimitedLog(log, LOG_INTERVAL_S, logging.INFO)
        self._refused = RateLimitedLog(log, LOG_INTERVAL_S, logging.WARNING, REFUSED_LINES)

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
            answer = Answer(
                code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f" request type {command.code} not supported",
            )
            connection.reply(command, _command(command, answer))
            return
        request: Request[Any] = Request(command, None, connection, self._observe)
        try:
            if route.header is not None:
                request.header = route.header.from_ext(command.ext)
            result = route.handler(request)
            if result is None:
                return
            if isinstance(result, Command | Answer):
                if route.warn_as is not None:
                    self._warn_of_refusal(request, route.warn_as, result)
                request.answer(result)
            else:
                self._spawn(request, result)
        except Exception as error:
            failure = self._failure(request, error)
            if route.warn_as is not None:
                self._warn_of_refusal(request, route.warn_as, failure)
            request.answer(failure)

    @property
    def running(self) -> int:
        """Requests whose handlers are coroutines that have not ended."""
        return len(self._running)

    async def close(self) -> None:
        """Cancels the handlers that still run."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _spawn(self, request: Request[Any], work: Awaitable[Result]) -> None:
        if len(self._running) >= self._max_running:
            if asyncio.iscoroutine(work):
                work.close()
            remark = f"[OVERLOAD]{len(self._running)} requests are running, start flow control for a while"
            request.answer(Answer(code=ResponseCode.SYSTEM_BUSY, remark=remark))
            return
        connection, size = request.connection, len(request.body)
        connection.begin(size)

        def done(task: asyncio.Task[None]) -> None:  # also when it was cancelled before its first step
            if asyncio.iscoroutine(work):
                work.close()
            self._running.discard(task)
            connection.end(size)

        task = asyncio.get_running_loop().create_task(self._finish(request, work))
        self._running.add(task)
        task.add_done_callback(done)

    async def _finish(self, request: Request[Any], work: Awaitable[Result]) -> None:
        try:
            result = await work
            if result is not None:
                request.answer(result)
        except Exception as error:
            request.answer(self._failure(request, error))

    def _warn_of_refusal(self, request: Request[Any], name: str, answer: Answer | Command) -> None:
        if answer.code != ResponseCode.SUCCESS:
            now = asyncio.get_running_loop().time()
            words = "%s of %s refused with code %d: %.300s"
            self._refused.log(now, words, name, request.connection, answer.code, answer.remark)

    def _failure(self, request: Request[Any], error: Exception) -> Answer:
        command, connection = request.command, request.connection
        if isinstance(error, Refused):
            return Answer(code=error.code, remark=error.remark)
        now = asyncio.get_running_loop().time()
        if isinstance(error, BrokenBody | BrokenRecord):  # the peer's doing, not ours: no traceback
            if self._routes[command.code].warn_as is None:
                words = "Request %d of %s cannot be read: %.200s"
                self._unreadable.log(now, words, command.code, connection, error)
        else:
            failures = self._failures.setdefault(
                command.code, RateLimitedLog(log, LOG_INTERVAL_S, logging.ERROR)
            )
            failures.log(now, "Request %d of %s failed", command.code, connection, exc_info=error)
        return Answer(code=ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


def _command(request: Command, answer: Answer) -> Command:
    ext = answer.header.to_ext() if isinstance(answer.header, Header) else answer.header
    return reply(request, answer.code, answer.remark, ext, answer.body)
