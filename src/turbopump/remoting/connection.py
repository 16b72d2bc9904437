"""Base of accepted and dialled connections: cuts frames, has them served, collects answers, sends requests.

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
    """Raised when a connection is closed, or ended before the answer to a request came."""


class SpeaksHttp(ConnectionClosed):
    """Raised when the peer answers in HTTP: it is not a RocketMQ server."""


class TooManyCalls(ConnectionError):
    """Raised instead of sending a request when the peer has too many of our requests unanswered."""


@dataclass(frozen=True, slots=True)
class ConnectionGroup:
    """Limits, counts and logs that all connections of one server or client share."""

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
    """Base class of connections; its subclasses, accepted and dialled, implement `data_received`."""

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
        "_sign",
        "_silent_since",
        "_transport",
        "_unfinished",
        "_waits_since",
        "attributes",
        "bytes_in_flight",
        "certificate",
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
        self._sign: Sign | None = None
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
        self.certificate = ""
        """The user in the peer's verified certificate; "" without one."""
        self.attributes: dict[str, object] = {}
        self.on_closed: list[Callable[[Connection], None]] = []

    # Writing

    def write(self, data: bytes) -> None:
        """Writes bytes at once, or at the end of a running read event; does nothing once it is closing."""
        collected = self._collected
        if collected is None:
            self._send(data)
            return
        collected.append(data)
        self._collected_bytes += len(data)
        if self._collected_bytes > self._limits.output_high:
            self.saturated = True

    def reply(self, request: Command, response: Command) -> None:
        """Writes the answer to a request that is not one-way; an answer longer than a frame becomes an error.

        The limit is that of all peers. `response` itself is changed to the error.
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
        """Writes a request to the peer, marked as one-way, so that no answer comes."""
        if self._sign is not None:
            self._sign(request)
        opaque = self._calls.next_opaque()
        if isinstance(request, PackedSend):
            self._post(request.frame(opaque, ONEWAY))
            return
        request.opaque = opaque
        request.flag |= ONEWAY
        self._post(encode(request))

    async def call(self, request: Command | PackedSend, timeout_s: float) -> Command:
        """Sends a request and returns the answer, whatever its code; raises an OSError if there is none.

        That is ConnectionClosed, TooManyCalls or TimeoutError.
        """
        return await self.ask(request, timeout_s)

    def ask(self, request: Command | PackedSend, timeout_s: float) -> "asyncio.Future[Command]":
        """Writes a request and returns the future of its answer; raises ConnectionClosed or TooManyCalls.

        TimeoutError comes with the future. A future that is cancelled is forgotten when its answer or its
        deadline comes.
        """
        if self.is_closing:
            raise ConnectionClosed(f"{self} is closed")
        calls = self._calls
        if len(calls) >= self._limits.calls_in_flight:
            raise TooManyCalls(f"{self} has {len(calls)} requests unanswered")
        if self._sign is not None:
            self._sign(request)
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
        """Passes a response of the peer to the caller that waits for it."""
        self._calls.answered(response)

    @property
    def unread(self) -> int:
        """Number of written bytes that the peer has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    # Back pressure

    def defer(self, frames: list[Frame]) -> None:
        """Keeps frames that are not served yet, to be served first when the connection is not saturated."""
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
        """Counts a request in flight, with a body of `size` bytes, until `end`; may saturate the connection.

        The request is answered later; a draining connection waits for it.
        """
        self.in_flight += 1
        self.bytes_in_flight += size
        if self._is_busy():
            self.saturated = True
            self._update_reading()

    def end(self, size: int) -> None:
        """Counts a request of `begin` as ended; may resume reading, or close a draining connection."""
        self.in_flight -= 1
        self.bytes_in_flight -= size
        # What was not busy before is not now: of nearly every request, this is all. Saves 0.5 us.
        if self.saturated or self._deferred or not self._reading:
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
        self.peer = peer_address(transport)
        self.local = _address(transport.get_extra_info("sockname"))
        self.peer_host = pack_peer(self.peer)
        self.certificate = transport.get_extra_info("certificate_user") or ""

    def eof_received(self) -> None:
        """Lets the transport close when the peer ends its side: half-open connections have no use here."""

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
        """Aborts the connection if it was idle, or held an unfinished frame, for longer than the limit.

        While calls wait for answers it is not idle: they have timeouts of their own.
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
        """Returns the seconds since anything was read, written or sent, as seen by calls of this method."""
        unsent = self.unread if self._output_full else 0
        progress = (self.reads, self.writes, unsent)
        if progress != self._seen:
            self._seen = progress
            self._silent_since = now
        return now - self._silent_since

    def unfinished_for(self, now: float) -> float:
        """Returns the seconds since this method first saw the frame that is unfinished; 0 without one.

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
        """Returns whether requests in flight reach a limit, so that the connection has to be saturated."""
        limits = self._limits
        return (
            self.in_flight >= limits.requests_in_flight
            or self.bytes_in_flight >= limits.request_bytes_in_flight
        )

    def _update_reading(self) -> None:
        """Stops reading while saturated, draining or with deferred frames; else resumes reading."""
        wanted = not (self.saturated or self._draining or self._deferred)
        if wanted is not self._reading:
            self._set_reading(wanted)

    def _serve_after(self, waited_s: float) -> "Serve":
        """Returns the function to serve frames that waited `waited_s` seconds before they were begun."""
        return self._serve

    def _late(self, code: int, timeout_s: float, reads: int) -> TimeoutError:
        """Returns the TimeoutError of a call; `reads` is the number of read events when the call began."""
        return TimeoutError(f"{self} did not answer request {code} in {timeout_s} s")

    def _why_closed(self) -> ConnectionClosed:
        """Returns the error of the calls that the end of the connection leaves unanswered."""
        return ConnectionClosed(f"{self} was closed")

    # What the kinds use

    def _cut(self, data: bytes, at: int, answers: bytes, serve: "Serve") -> None:
        """Serves the whole frames of `data` from index `at` on, sends answers, and holds the unfinished rest.

        `answers` are those to what came before `at`.
        """
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
        """Serves frames in one pass, and sends `answers` with all new answers in one write."""
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
        """Aborts the connection if the peer leaves more than `output_hard` bytes unread.

        Called after each write while output is full.
        """
        if self.unread > self._limits.output_hard:
            text = "Closing %s: it leaves %d bytes of answers unread"
            self._peer_errors.log(self._loop.time(), text, self, self.unread)
            self.abort()

    def _settle(self) -> None:
        """Updates `saturated`; when it is over, schedules deferred frames, and resumes reading without any.

        Deferred frames come first, in a turn of their own, then the socket.
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
        """Returns the held bytes and `data` together; b'' while the frame is unfinished, and holds `data`."""
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
        """Appends `data` to the bytes held of an unfinished frame.

        What is held is not copied; a bytearray also keeps a frame of tiny segments small.
        """
        if isinstance(self._held, bytes):
            self._held = bytearray(self._held)
        self._held += data
        self._count_unfinished(len(data))

    def _release(self) -> None:
        self._unfinished.release(self)
        self._held = b""

    def _count_unfinished(self, more: int) -> None:
        """Counts held bytes; aborts the connections that hold most while the total is beyond the limit.

        That is rarely the connection that received bytes last.
        """
        self._unfinished.add(self, more)
        while self._unfinished.bytes > self._limits.unfinished_bytes:
            largest = self._unfinished.largest()
            text = "Closing %s: too many unfinished frames are held, most bytes by this one: %d"
            self._peer_errors.log(self._loop.time(), text, largest, len(largest._held))
            largest._release()
            largest.abort()

    # Failures

    def _refuse(self, error: BrokenFrame, data: bytes) -> None:
        """Logs why received bytes cannot be read, and closes the connection."""
        tls = data[:1] == bytes((TLS_HANDSHAKE,)) and self.reads == 1
        reason = "it speaks TLS, which is not offered here" if tls else error
        self._peer_errors.log(self._loop.time(), "Closing %s: %s", self, reason)
        self.close()

    def _fail(self, error: Exception) -> None:
        """Logs an unexpected error of our own code, and closes the connection."""
        text = "Serving %s failed; closing its connection\n%s"
        self._failures.log(self._loop.time(), text, self, _trace(error))
        self.close()


Serve = Callable[[Connection, list[Frame]], None]
"""Serves the frames of a read event."""
Sign = Callable[[Command | PackedSend], None]
"""Adds identity and signature to a request, in place, right before it becomes bytes."""
Shortcut = Callable[[Connection, bytes], tuple[int, bytes]]
"""Serves what it knows at the front of a read event; returns how many bytes that took, and the answers."""


def _make_too_long_error(response: Command) -> None:
    response.code = int(ResponseCode.SYSTEM_ERROR)
    response.remark = f"the answer is longer than a frame can be, which is {MAX_FRAME} bytes: ask for less"
    response.ext = None
    response.body = b""


def _trace(error: Exception) -> str:
    """Returns the traceback and class of an error as text, with its message only if it is an OSError.

    Other messages, and those of errors before it, may come from the peer.
    """
    text = f": {error}" if isinstance(error, OSError) else ""
    return "".join((*traceback.format_tb(error.__traceback__), type(error).__name__, text))


def pack_peer(peer: tuple[str, int]) -> bytes:
    """Returns a peer as records hold it: 4 or 16 bytes of IP, i32 port; 0.0.0.0:0 if it is unknown."""
    ip, port = peer
    if not ip:
        return bytes(8)
    return pack_host(ip, port)


def peer_address(transport: asyncio.BaseTransport) -> tuple[str, int]:
    """Returns IP and port of the other side."""
    return _address(transport.get_extra_info("peername"))


def _address(name: object) -> tuple[str, int]:
    """Returns IP and port from asyncio's peername, without IPv6 zone; IPv4 in IPv6 becomes IPv4."""
    if not isinstance(name, tuple) or len(name) < 2:
        return UNKNOWN_ADDRESS
    ip = str(name[0]).partition("%")[0]
    if "." in ip:
        ip = ip.removeprefix("::ffff:")
    return ip, int(name[1])
