"""Routes requests by code to handlers, with typed headers; the one place where errors become responses.

A handler is a plain function, answered in the same pass, or a coroutine function, which becomes a task that
this router owns. It returns its answer, raises `Refused`, or returns None and calls `request.answer` later.
One-way requests are never answered; the answer uses the encoding of the request.

A router is the only way from a connection to handlers, so the links given as `before` guard all of them:

    frames of a read event ─┬─────── link.check, each request ──────> handler
    bytes of a read event ──┴─ link.permits_plain_sends, once ──> bulk handler
                               (or link.permitted_prefix)

A bulk handler takes the plain sends of a read event together, at a fraction of the cost of one by one; it
gives every other frame back to `one`, where it is checked like any request.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import Command, decode, reply
from turbopump.protocol.errors import BrokenBody, BrokenRecord, Refused
from turbopump.protocol.frame import Frame
from turbopump.protocol.headers.base import Header
from turbopump.remoting.connection import Connection, Serve, Shortcut
from turbopump.remoting.links import BulkHandler, GuardedBulk, Link
from turbopump.runtime.rate_limited_log import RateLimitedLog
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

H = TypeVar("H")

MAX_RUNNING = 65_536  # coroutine handlers of all connections together, those of closed ones too
LOG_INTERVAL_S = 10.0
REFUSED_LINES = 10  # per interval, of requests whose refusal is a warning
MAX_REMARK = 1024  # characters: a remark that repeats what was asked could be as long as a frame


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a handler; the router adds opaque and encoding. `header` is a Header or ready ext fields."""

    header: Header | dict[str, str] | None = None
    body: bytes = b""
    code: int = ResponseCode.SUCCESS
    remark: str | None = None


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """Facts about an answered request, for metrics; `seconds` is the time from request to answer."""

    code: int
    answer: int
    seconds: float
    was_parked: bool


Observe: TypeAlias = Callable[[AnsweredRequest], None]


class Request(Generic[H]):
    """Request as a handler gets it: command, typed header and connection."""

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
        """Sends the answer and records it for metrics; a handler that returned None calls it later.

        Sends nothing if the connection has ended.
        """
        if isinstance(answer, Answer):
            answer = _command(self.command, answer)
        if answer.remark is not None and len(answer.remark) > MAX_REMARK:
            answer.remark = answer.remark[:MAX_REMARK]
        self.connection.reply(self.command, answer)
        self.answered(answer.code)

    def answered(self, code: int) -> None:
        """Records metrics for a reply; called by handlers that write the reply themselves."""
        if self._observe is not None:
            seconds = asyncio.get_running_loop().time() - self._began
            self._observe(AnsweredRequest(self.command.code, code, seconds, self.was_parked))


Result: TypeAlias = Command | Answer | None


@dataclass(frozen=True, slots=True)
class Route(Generic[H]):
    """Header type and handler of one request code, and how refusals of this request are logged."""

    header: type[H] | None
    handler: Callable[[Request[H]], Result | Awaitable[Result]]
    warn_as: str | None = None
    """What a warning calls this request when it is refused; None: refusals are logged by the peer only.

    For requests without which a peer is not served at all, and whose senders often ignore the answer. Their
    handlers are plain functions.
    """

    oneway_as: str | None = None
    """What a warning calls a one-way request of this kind that is refused: its sender gets no answer."""

    refused_fields: Callable[[], dict[str, str]] | None = None
    """Header fields that go with each refusal of this request, before those of the `Refused` itself."""


Routes: TypeAlias = Mapping[int, Route[Any]]


class Router:
    """Passes requests of connections to handlers: `serve` takes frames, `shortcut` (or None) raw bytes."""

    def __init__(
        self,
        routes: Routes,
        max_running: int = MAX_RUNNING,
        observe: Observe | None = None,
        before: Sequence[Link] = (),
    ) -> None:
        """`observe` is called for each answer to a routed request; `before` are the links that requests pass.

        They are passed in this order; the first that refuses a request ends its way.
        """
        self._max_running = max_running
        self._ended_by: Refused | None = None
        self._observe = observe
        self._before = tuple(before)
        self._routes: dict[int, Route[Any]] = dict(routes)
        self._tasks = Tasks(log)
        self._failures: dict[int, RateLimitedLog] = {}
        self._unreadable = RateLimitedLog(log, LOG_INTERVAL_S, logging.INFO)
        self._refused = RateLimitedLog(log, LOG_INTERVAL_S, logging.WARNING, REFUSED_LINES)
        self._refused_oneway = RateLimitedLog(log, LOG_INTERVAL_S, logging.WARNING, REFUSED_LINES)
        # Attributes, chosen once: without links a bulk handler is called by the connection itself.
        self.serve: Serve = self._one_by_one
        self.shortcut: Shortcut | None = None

    def serve_in_bulk(self, handler: BulkHandler) -> None:
        """Sets the handler that serves the plain requests of read events, as far as the links permit."""
        if not self._before:
            self.serve, self.shortcut = handler.serve, handler.shortcut
            return
        guarded = GuardedBulk(self._before, handler, self._one_by_one)
        self.serve = guarded.serve
        self.shortcut = guarded.shortcut if handler.shortcut is not None else None

    def _one_by_one(self, connection: Connection, frames: list[Frame]) -> None:
        """Serves the frames of a read event in order; defers the rest once the connection is saturated."""
        for position, frame in enumerate(frames):
            if connection.saturated:
                connection.defer(frames[position:])
                return
            self.one(connection, frame)

    def one(self, connection: Connection, frame: Frame) -> None:
        """Serves one frame: a request, or an answer to one of ours; raises BrokenFrame for a bad header."""
        command = decode(frame)
        if command.is_response:
            connection.answered(command)
            return
        route = self._routes.get(command.code)
        if self._before and not self._passes(command, connection, route):
            return
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
                self._spawn(request, route, result)
        except Exception as error:
            self._answer_failure(request, route, error)

    def _passes(self, command: Command, connection: Connection, route: Route[Any] | None) -> bool:
        """Returns whether all links let a request pass; if not, the request has been answered.

        A link that fails in another way than by Refused lets nothing through either.
        """
        try:
            for link in self._before:
                link.check(command, connection)
        except Exception as error:
            request: Request[Any] = Request(command, None, connection, self._observe)
            self._answer_failure(request, route or NO_ROUTE, error, f"request {command.code}")
            return False
        return True

    def log_refused_oneway(self, name: str, connection: Connection, refused: Exception) -> None:
        """Logs, at a limited rate, that a one-way request was refused: its sender gets no answer."""
        now = asyncio.get_running_loop().time()
        text = "One-way %s of %s is refused: %.300s"
        self._refused_oneway.log(now, text, name, connection.peer[0], refused)

    @property
    def running(self) -> int:
        """Number of requests whose coroutine handlers have not ended."""
        return len(self._tasks)

    async def close(self) -> None:
        """Cancels the coroutine handlers that still run."""
        await self._tasks.close()

    async def end(self, wait_s: float, refused: Refused) -> None:
        """Lets running handlers answer for up to `wait_s`; cancels the others and answers them `refused`.

        For a server whose connections stay open.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._tasks.wait()
        self._ended_by = refused
        await self._tasks.close()

    def _spawn(self, request: Request[Any], route: Route[Any], work: Awaitable[Result]) -> None:
        if len(self._tasks) >= self._max_running:
            if asyncio.iscoroutine(work):
                work.close()
            remark = f"[OVERLOAD]{len(self._tasks)} requests are running, start flow control for a while"
            request.answer(Answer(code=ResponseCode.SYSTEM_BUSY, remark=remark))
            return
        connection, size = request.connection, len(request.body)
        connection.begin(size)

        def done(task: asyncio.Task[None]) -> None:  # also when it was cancelled before its first step
            if asyncio.iscoroutine(work):
                work.close()
            connection.end(size)

        self._tasks.start(self._finish(request, route, work)).add_done_callback(done)

    async def _finish(self, request: Request[Any], route: Route[Any], work: Awaitable[Result]) -> None:
        try:
            result = await work
            if result is not None:
                request.answer(result)
        except Exception as error:
            self._answer_failure(request, route, error)
        except asyncio.CancelledError:
            if self._ended_by is not None:
                self._answer_failure(request, route, self._ended_by)
            raise

    def _answer_failure(
        self, request: Request[Any], route: Route[Any], error: Exception, oneway_as: str | None = None
    ) -> None:
        answer = self._failure(request, route, error)
        if route.warn_as is not None:
            self._warn_of_refusal(request, route.warn_as, answer)
        name = route.oneway_as or oneway_as
        if name is not None and request.command.is_oneway and isinstance(error, Refused):
            self.log_refused_oneway(name, request.connection, error)
        request.answer(answer)

    def _warn_of_refusal(self, request: Request[Any], name: str, answer: Answer | Command) -> None:
        if answer.code != ResponseCode.SUCCESS:
            now = asyncio.get_running_loop().time()
            text = "%s of %s refused with code %d: %.300s"
            self._refused.log(now, text, name, request.connection, answer.code, answer.remark)

    def _failure(self, request: Request[Any], route: Route[Any], error: Exception) -> Answer:
        command, connection = request.command, request.connection
        if isinstance(error, Refused):
            fields = error.fields
            if route.refused_fields is not None:
                fields = route.refused_fields() | (fields or {})
            return Answer(fields, code=error.code, remark=error.remark)
        now = asyncio.get_running_loop().time()
        if isinstance(error, BrokenBody | BrokenRecord):  # the peer's doing, not ours: no traceback
            if route.warn_as is None:
                text = "Request %d of %s cannot be read: %.200s"
                self._unreadable.log(now, text, command.code, connection, error)
        else:
            failures = self._failures.setdefault(
                command.code, RateLimitedLog(log, LOG_INTERVAL_S, logging.ERROR)
            )
            failures.log(now, "Request %d of %s failed", command.code, connection, exc_info=error)
        return Answer(code=ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


def _not_served(request: Request[Any]) -> Result:
    raise AssertionError(f"request {request.command.code} has no handler")


NO_ROUTE: Route[Any] = Route(None, _not_served)
"""Stands for the route of a request that was refused before one was looked for."""


def _command(request: Command, answer: Answer) -> Command:
    ext = answer.header.to_ext() if isinstance(answer.header, Header) else answer.header
    return reply(request, answer.code, answer.remark, ext, answer.body)
