"""The shared core of a connection: cuts frames, has them served, collects answers, asks the peer.

A read event is the unit of work. All whole frames of it go to `serve` in one call; what is written meanwhile
leaves in one `transport.write`. Either side may ask at any time: `ask` numbers a request, `answered` gives
its answer back; those that wait are in `calls.py`. `AcceptedConnection` and `DialledConnection` add how bytes
come in (`data_received`) and what happens when the peer does not read. No role is known here, and no request
code.

Back pressure has one rule: while too many handlers run for the peer (or, on the accepting side, while it
leaves our answers unread) the connection is `saturated`. Then nothing more is read, and a router in the
middle of an event hands the frames it has not begun to `defer`; they come back, in order, when the connection
is no longer saturated.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import ONEWAY, Command, encode, encode_within
from turbopump.protocol.errors import BrokenFrame
from turbopump.protocol.frame import MAX_FRAME, Frame, cut
from turbopump.protocol.ids import pack_host
from turbopump.protocol.packed_send import PackedSend
from turbopump.remoting.calls import Calls
from turbopump.remoting.limits import Limits, UnfinishedFrames
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

LENGTH_SIZE = 4
PREFIX_SIZE = 8  # frame length, encoding, header length: with these `cut` can refuse a hopeless frame early
TLS_HANDSHAKE = 0x16
UNKNOWN_ADDRESS = ("", 0)


class ConnectionClosed(ConnectionError):
    """The connection ended before the answer came."""


class SpeaksHttp(ConnectionClosed):
    """The peer answered in HTTP: it is not a RocketMQ server."""


class TooManyCalls(ConnectionError):
    """The peer has too many of our requests unanswered to be asked again."""


@dataclass(frozen=True, slots=True)
class ConnectionGroup:
    """The limits, counts and logs that all connections of one server or client share."""

    limits: Limits
    unfinished: "UnfinishedFrames[Connection]"
    peer_errors: RateLimitedLog
    """Takes what peers do wrong."""
    failures: RateLimitedLog
    """Takes our own errors, so that neither kind hides the other."""

    @classmethod
    def of(cls, limits: Limits, log: logging.Logger) -> "ConnectionGroup":
        interval_s = limits.log_interval_s
        failures = RateLimitedLog(log, interval_s, logging.ERROR)
        return cls(limits, UnfinishedFrames(), RateLimitedLog(log, interval_s), failures)


class Connection(asyncio.Protocol):
    """A connection to a peer, accepted or dialled. Its kinds implement `data_received`."""

    __slots__ = (
        "_begun",
        "_calls",
        "_collected",
        "_collected_bytes",
        "_deferred",
        "_draining",
        "_failures",
        "_held",
        "_limits",
        "_loop",
        "_needed",
        "_output_full",
        "_peer_errors",
        "_post",
        "_reading",
        "_seen",
        "_serve",
        "_silent_since",
        "_transport",
        "_unfinished",
        "_waits_since",
        "attributes",
        "bytes_in_flight",
        "in_flight",
        "is_closing",
        "local",
        "on_closed",
        "peer",
        "peer_host",
        "reads",
        "saturated",
        "writes",
    )

    def __init__(self, serve: "Serve", group: ConnectionGroup) -> None:
        self._serve = serve
        self._limits = group.limits
        self._unfinished = group.unfinished
        self._peer_errors = group.peer_errors
        self._failures = group.failures
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._held: bytes | bytearray = b""  # the beginning of a frame whose end has not come
        self._begun: float | None = None  # when `unfinished_for` first saw that frame
        self._needed = PREFIX_SIZE  # how long `_held` must be before it is worth cutting again
        self._collected: list[bytes] | None = None  # what is written during a read event
        self._collected_bytes = 0
        self._deferred: list[Frame] = []
        self._waits_since = 0.0  # the deferred frames
        self._reading = True
        self._output_full = False
        self._draining = False
        self._calls = Calls(self._loop, self._late)
        self._post: Callable[[bytes], None] = self.write
        """Writes a request."""
        self.in_flight = 0
        self.bytes_in_flight = 0
        self.saturated = False
        self.is_closing = False
        self._seen = (-1, -1, -1)
        self._silent_since = 0.0
        self.reads = 0
        self.writes = 0
        self.peer: tuple[str, int] = UNKNOWN_ADDRESS
        self.local: tuple[str, int] = UNKNOWN_ADDRESS
        self.peer_host = b""
        self.attributes: dict[str, object] = {}
        self.on_closed: list[Callable[[Connection], None]] = []

    # Writing

    def write(self, data: bytes) -> None:
        """Writes at once, or within a read event at its end; does nothing once the connection is closing."""
        collected = self._collected
        if collected is None:
            self._send(data)
            return
        collected.append(data)
        self._collected_bytes += len(data)
        if self._collected_bytes > self._limits.output_high:
            self.saturated = True

    def reply(self, request: Command, response: Command) -> None:
        """Writes an answer, unless the request was one-way. One that exceeds the frame limit of all peers
        becomes an error, and `response` with it.
        """
        if request.is_oneway or self.is_closing:
            return
        data = encode_within(response, MAX_FRAME)
        if data is None:
            text = "Reply to request %d from %s exceeds the frame limit; sent an error instead"
            self._peer_errors.log(self._loop.time(), text, request.code, self)
            _make_too_long_error(response)
            data = encode(response)
        self.write(data)

    def send_oneway(self, request: Command | PackedSend) -> None:
        """Writes a request that is not answered."""
        opaque = self._calls.next_opaque()
        if isinstance(request, PackedSend):
            self._post(request.frame(opaque, ONEWAY))
            return
        request.opaque = opaque
        request.flag |= ONEWAY
        self._post(encode(request))

    async def call(self, request: Command | PackedSend, timeout_s: float) -> Command:
        """Returns the answer to a request, whatever its code. Raises ConnectionClosed or TimeoutError."""
        return await self.ask(request, timeout_s)

    def ask(self, request: Command | PackedSend, timeout_s: float) -> "asyncio.Future[Command]":
        """Writes a request and returns the future of its answer. Raises ConnectionClosed; TimeoutError comes
        with the future. A future that is cancelled is forgotten when its answer or its deadline comes.
        """
        if self.is_closing:
            raise ConnectionClosed(f"{self} is closed")
        calls = self._calls
        if len(calls) >= self._limits.calls_in_flight:
            raise TooManyCalls(f"{self} has {len(calls)} requests unanswered")
        opaque = calls.next_opaque()
        if isinstance(request, PackedSend):
            data = request.frame(opaque)
        else:
            request.opaque = opaque
            data = encode(request)
        answer = calls.begin(opaque, request.code, timeout_s, self.reads)
        self._post(data)
        return answer

    def answered(self, response: Command) -> None:
        """Gives an answer that came in to its caller."""
        self._calls.answered(response)

    @property
    def unread(self) -> int:
        """Bytes that were written and that the peer has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    # Back pressure

    def defer(self, frames: list[Frame]) -> None:
        """Keeps frames that `serve` did not begin; they are served first when we are no longer saturated."""
        if not self._deferred:
            self._waits_since = self._loop.time()
        self._deferred.extend(frames)

    @property
    def waiting(self) -> int:
        """The number of deferred frames."""
        return len(self._deferred)

    @property
    def waits_s(self) -> float:
        """Seconds since the first deferred frame was deferred."""
        return self._loop.time() - self._waits_since if self._deferred else 0.0

    def begin(self, size: int) -> None:
        """Counts a request with a body of `size` bytes that is answered later, until `end` is called; a
        draining connection waits for it.
        """
        self.in_flight += 1
        self.bytes_in_flight += size
        if self._is_busy():
            self.saturated = True
            self._update_reading()

    def end(self, size: int) -> None:
        """Ends what `begin` counted."""
        self.in_flight -= 1
        self.bytes_in_flight -= size
        self._settle()
        if self._draining and not self.in_flight:
            self.close()

    # Ending

    def close(self) -> None:
        """Ends the connection after what is written has been sent."""
        self.is_closing = True
        if self._collected is None and self._transport is not None:  # else at the end of the event
            self._transport.close()

    def abort(self) -> None:
        """Ends the connection at once and drops unsent output."""
        self.is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def drain(self) -> None:
        """Stops reading, and closes when the running handlers have answered."""
        self._draining = True
        self._update_reading()
        if not self.in_flight and self._collected is None:
            self.close()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(self._limits.output_high, self._limits.output_low)
        self.peer = _address(transport.get_extra_info("peername"))
        self.local = _address(transport.get_extra_info("sockname"))
        self.peer_host = pack_peer(self.peer)

    def eof_received(self) -> None:
        """Returns nothing, which lets the transport close: half-open connections have no use here."""

    def pause_writing(self) -> None:
        self._output_full = True

    def resume_writing(self) -> None:
        self._output_full = False
        self._waits_since = self._loop.time()  # until now it was the peer that made its requests wait
        self._settle()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closing = True
        self._release()
        self._deferred.clear()
        self._calls.fail(self._why_closed)
        for call in self.on_closed:
            call(self)
        self.on_closed.clear()

    # Idle and unfinished

    def examine(self, now: float) -> None:
        """Ends the connection when it has been idle, or has held part of a frame, for too long. While calls
        wait for answers it is not idle: they have timeouts of their own.
        """
        limits = self._limits
        if self.silent_for(now) >= limits.idle_s and not self._calls:
            log.debug("Closing %s: nothing was read or written for %s s", self, limits.idle_s)
            self.abort()
        elif self.unfinished_for(now) >= limits.unfinished_s:
            text = "Closing %s: a frame that it began did not end in %s s"
            self._peer_errors.log(now, text, self, limits.unfinished_s)
            self.abort()

    def silent_for(self, now: float) -> float:
        """Seconds since anything was read, written or sent, as far as the calls of this function can tell."""
        unsent = self.unread if self._output_full else 0
        progress = (self.reads, self.writes, unsent)
        if progress != self._seen:
            self._seen = progress
            self._silent_since = now
        return now - self._silent_since

    def unfinished_for(self, now: float) -> float:
        """Seconds since the frame that is held began, as far as the calls of this function can tell.

        While we do not read, the peer cannot end it: that time does not count.
        """
        if not self._held or not self._reading:
            self._begun = None
            return 0.0
        if self._begun is None:
            self._begun = now
        return now - self._begun

    def __str__(self) -> str:
        return f"{self.peer[0]}:{self.peer[1]}"

    # What the kinds change

    def _is_busy(self) -> bool:
        """Returns whether the connection has to be saturated."""
        limits = self._limits
        return (
            self.in_flight >= limits.requests_in_flight
            or self.bytes_in_flight >= limits.request_bytes_in_flight
        )

    def _update_reading(self) -> None:
        """Stops or resumes reading, by what is in flight and deferred."""
        wanted = not (self.saturated or self._draining or self._deferred)
        if wanted is not self._reading:
            self._set_reading(wanted)

    def _serve_after(self, waited_s: float) -> "Serve":
        """Returns what serves frames that waited for `waited_s` before they could be begun."""
        return self._serve

    def _late(self, code: int, timeout_s: float, reads: int) -> TimeoutError:
        """Returns the error of a call that was not answered in time; `reads` is as it was at its start."""
        return TimeoutError(f"{self} did not answer request {code} in {timeout_s} s")

    def _why_closed(self) -> ConnectionClosed:
        """Returns the error of the calls that the end of the connection leaves unanswered."""
        return ConnectionClosed(f"{self} was closed")

    # What the kinds use

    def _cut(self, data: bytes, at: int, answers: bytes, serve: "Serve") -> None:
        """Serves the frames from `at` on. `answers` are those to what came before it."""
        frames: list[Frame] = []
        try:
            used = cut(data, frames, self._limits.max_frame, at)
        except BrokenFrame as error:
            if frames or answers:
                self._run(frames, answers, serve)
            self._refuse(error, data)
            return
        if used:
            self._begun = None
        if used < len(data):
            self._hold(data[used:])
        if frames or answers:
            self._run(frames, answers, serve)

    def _run(self, frames: list[Frame], answers: bytes, serve: "Serve") -> None:
        """Serves frames in one pass and sends all answers in one write."""
        if self._deferred:  # came in before reading stopped: their turn is after the deferred ones
            self._deferred.extend(frames)
            return
        collected: list[bytes] = [answers] if answers else []
        self._collected = collected
        self._collected_bytes = len(answers)
        try:
            serve(self, frames)
        except BrokenFrame as error:
            self._refuse(error, b"")
        except Exception as error:
            self._fail(error)
        finally:
            self._collected = None
            if collected:
                self._send(b"".join(collected) if len(collected) > 1 else collected[0])
            if self.saturated or self._deferred or not self._reading:
                self._settle()
            if self.is_closing or (self._draining and not self.in_flight):
                self.close()

    def _send(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.writes += 1
        transport.write(data)
        if self._output_full:
            self._bound_unread()

    def _bound_unread(self) -> None:
        """Ends the connection if too much output is unread. Called after each write while output is full."""
        if self.unread > self._limits.output_hard:
            text = "Closing %s: it leaves %d bytes of answers unread"
            self._peer_errors.log(self._loop.time(), text, self, self.unread)
            self.abort()

    def _settle(self) -> None:
        """Finds out whether we are still saturated. If not, deferred frames come first, in a turn of their
        own, then the socket.
        """
        self.saturated = self._is_busy()
        if self._deferred and not self.saturated:
            self._loop.call_soon(self._serve_deferred)
        self._update_reading()

    def _serve_deferred(self) -> None:
        if self.saturated or self.is_closing or not self._deferred:
            return
        frames, self._deferred = self._deferred, []
        since = self._waits_since
        self._run(frames, b"", self._serve_after(self._loop.time() - since))
        self._waits_since = since  # of those that are deferred again

    def _set_reading(self, wanted: bool) -> None:
        if self.is_closing or self._transport is None:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # Unfinished frames

    def _joined(self, data: bytes) -> bytes:
        """Returns what is held and `data` together, or nothing while the held frame is unfinished."""
        if len(self._held) + len(data) < self._needed:
            self._hold_more(data)
            return b""
        data = b"".join((self._held, data))
        self._release()
        return data

    def _hold(self, rest: bytes) -> None:
        self._held = rest
        known = len(rest) >= PREFIX_SIZE
        self._needed = LENGTH_SIZE + int.from_bytes(rest[:LENGTH_SIZE], "big") if known else PREFIX_SIZE
        self._count_unfinished(len(rest))

    def _hold_more(self, data: bytes) -> None:
        """Appends without copying what is held; a bytearray also keeps a frame of tiny segments small."""
        if isinstance(self._held, bytes):
            self._held = bytearray(self._held)
        self._held += data
        self._count_unfinished(len(data))

    def _release(self) -> None:
        self._unfinished.release(self)
        self._held = b""

    def _count_unfinished(self, more: int) -> None:
        """Ends the connection that holds most while all together hold too much: it is rarely the last one."""
        self._unfinished.add(self, more)
        while self._unfinished.bytes > self._limits.unfinished_bytes:
            largest = self._unfinished.largest()
            text = "Closing %s: too many unfinished frames are held, most bytes by this one: %d"
            self._peer_errors.log(self._loop.time(), text, largest, len(largest._held))
            largest._release()
            largest.abort()

    # Failures

    def _refuse(self, error: BrokenFrame, data: bytes) -> None:
        """Ends the connection because of bytes that cannot be read."""
        tls = data[:1] == bytes((TLS_HANDSHAKE,)) and self.reads == 1
        reason = "it speaks TLS, which is not offered here" if tls else error
        self._peer_errors.log(self._loop.time(), "Closing %s: %s", self, reason)
        self.close()

    def _fail(self, error: Exception) -> None:
        """Ends the connection because of an error of ours."""
        text = "Serving %s failed; closing its connection\n%s"
        self._failures.log(self._loop.time(), text, self, _trace(error))
        self.close()


Serve = Callable[[Connection, list[Frame]], None]
"""Serves the frames of a read event."""
Shortcut = Callable[[Connection, bytes], tuple[int, bytes]]
"""Serves what it knows at the front of a read event; returns how many bytes that took, and the answers."""


def _make_too_long_error(response: Command) -> None:
    response.code = int(ResponseCode.SYSTEM_ERROR)
    response.remark = f"the answer is longer than a frame can be, which is {MAX_FRAME} bytes: ask for less"
    response.ext = None
    response.body = b""


def _trace(error: Exception) -> str:
    """Formats where an error was raised, and its class. Its text, and that of errors before it, may come from
    the peer: it is left out, unless it is the system's.
    """
    text = f": {error}" if isinstance(error, OSError) else ""
    return "".join((*traceback.format_tb(error.__traceback__), type(error).__name__, text))


def pack_peer(peer: tuple[str, int]) -> bytes:
    """Packs a peer as records hold it: 4 or 16 bytes of address and an i32 port; unknown is 0.0.0.0:0."""
    ip, port = peer
    if not ip:
        return bytes(8)
    return pack_host(ip, port)


def _address(name: object) -> tuple[str, int]:
    """Converts asyncio's peername: no IPv6 extras, and IPv4 through an IPv6 socket becomes IPv4."""
    if not isinstance(name, tuple) or len(name) < 2:
        return UNKNOWN_ADDRESS
    ip = str(name[0]).partition("%")[0]
    if "." in ip:
        ip = ip.removeprefix("::ffff:")
    return ip, int(name[1])
