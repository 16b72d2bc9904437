"""One connection: bytes in, frames out to `serve`, answers collected and written once per read event.

A read event is the unit of work. All whole frames of it go to `serve` in one call; what is written
meanwhile leaves in one `transport.write`. Either side may ask at any time: `ask` numbers a request,
`answered` gives its answer back; those that wait are in `calls.py`. On the side that dialled, requests of
one turn of the loop are written together, unless one is the only one.

Back pressure has one rule: while the peer leaves our answers unread, or has enough handlers running, the
connection is `saturated`. Then nothing more is read, and a server in the middle of an event hands the frames
it has not begun to `defer`; they come back, in order, when there is room. Frames that waited too long, there
or before they were read, go to `patience.late` first. No role is known here, and no request code.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable
from typing import cast

from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import ONEWAY, Command, encode, encode_within
from turbopump.protocol.errors import BrokenFrame
from turbopump.protocol.frame import MAX_FRAME, Frame, cut
from turbopump.protocol.ids import pack_host
from turbopump.protocol.packed_send import PackedSend
from turbopump.remoting.calls import Calls
from turbopump.remoting.limits import Limits, Unfinished
from turbopump.remoting.patience import NEVER, Patience
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

LENGTH_SIZE = 4
PREFIX_SIZE = 8  # frame length, encoding, header length: with these `cut` can refuse a hopeless frame early
TLS_HANDSHAKE = 0x16
NOWHERE = ("", 0)
CLOCK_STEP_S = 0.001  # a timer may be so much early
HTTP = b"HTTP/"
POSTED_BYTES = 256 * 1024  # of requests are written without waiting for the end of the turn


class ConnectionClosed(ConnectionError):
    """The connection ended before the answer came."""


class SpeaksHttp(ConnectionClosed):
    """The peer answered in HTTP: it is no server of RocketMQ."""


class TooManyCalls(ConnectionError):
    """The peer owes us so many answers that we do not ask again."""


class Connection(asyncio.Protocol):
    __slots__ = (
        "_begun",
        "_calls",
        "_collected",
        "_collected_bytes",
        "_deferred",
        "_draining",
        "_failures",
        "_gathers",
        "_held",
        "_is_http",
        "_limits",
        "_loop",
        "_needed",
        "_output_full",
        "_patience",
        "_peer_errors",
        "_posted",
        "_posted_bytes",
        "_reading",
        "_room",
        "_seen",
        "_serve",
        "_shortcut",
        "_silent_since",
        "_stopped_at",
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

    def __init__(
        self,
        serve: "Serve",
        limits: Limits,
        unfinished: "Unfinished[Connection]",
        peer_errors: RateLimitedLog,
        failures: RateLimitedLog,
        shortcut: "Shortcut | None" = None,
        gathers: bool = False,
    ) -> None:
        """`peer_errors` takes what peers do wrong, `failures` what we do: neither hides the other.

        `gathers`: this is the side that dialled, whose requests are written once per turn of the loop.
        It goes on reading answers while its own output waits, since whoever asks looks at `is_full`.
        """
        self._serve = serve
        self._gathers = gathers
        self._posted: list[bytes] | None = None  # requests of this turn
        self._posted_bytes = 0
        self._room: list[asyncio.Future[None]] = []
        self._shortcut = shortcut
        self._limits = limits
        self._unfinished = unfinished
        self._peer_errors = peer_errors
        self._failures = failures
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._held: bytes | bytearray = b""  # the beginning of a frame whose end has not come
        self._begun: float | None = None  # when `unfinished_for` first saw that frame
        self._needed = PREFIX_SIZE  # how long `_held` must be before it is worth cutting again
        self._collected: list[bytes] | None = None  # what is written during a read event
        self._collected_bytes = 0
        self._deferred: list[Frame] = []
        self._patience: Patience | None = None
        self._waits_since = 0.0  # the deferred frames
        self._stopped_at: float | None = None  # when we stopped reading because of requests under way
        self._reading = True
        self._output_full = False
        self._draining = False
        self._is_http = False  # what came is the answer of a web server
        self._calls = Calls(self._loop, self._late)
        self.in_flight = 0
        self.bytes_in_flight = 0
        self.saturated = False
        self.is_closing = False
        self._seen = (-1, -1, -1)
        self._silent_since = 0.0
        self.reads = 0
        self.writes = 0
        self.peer: tuple[str, int] = NOWHERE
        self.local: tuple[str, int] = NOWHERE
        self.peer_host = b""
        self.attributes: dict[str, object] = {}
        self.on_closed: list[Callable[[Connection], None]] = []

    # Writing

    def write(self, data: bytes) -> None:
        """Within a read event collected, otherwise written at once; nothing once we are closing."""
        collected = self._collected
        if collected is None:
            self._send(data)
            return
        collected.append(data)
        self._collected_bytes += len(data)
        if self._collected_bytes > self._limits.output_high:
            self.saturated = True

    def reply(self, request: Command, response: Command) -> None:
        """Writes an answer, unless the request was one-way. One that is longer than any peer takes becomes
        an error, and `response` with it.
        """
        if request.is_oneway or self.is_closing:
            return
        data = encode_within(response, MAX_FRAME)
        if data is None:
            words = "The answer to request %d of %s is longer than a frame; it is told so"
            self._peer_errors.log(self._loop.time(), words, request.code, self)
            _say_too_long(response)
            data = encode(response)
        self.write(data)

    def send_oneway(self, request: Command | PackedSend) -> None:
        opaque = self._calls.next_opaque()
        if isinstance(request, PackedSend):
            self._post(request.frame(opaque, ONEWAY))
            return
        request.opaque = opaque
        request.flag |= ONEWAY
        self._post(encode(request))

    async def call(self, request: Command | PackedSend, timeout_s: float) -> Command:
        """The answer to a request, whatever its code. Raises ConnectionClosed or TimeoutError."""
        return await self.ask(request, timeout_s)

    def ask(self, request: Command | PackedSend, timeout_s: float) -> "asyncio.Future[Command]":
        """Writes a request; its answer comes as the result. Raises ConnectionClosed, and TimeoutError in the
        future. A future that is cancelled is forgotten when its answer or its end comes.
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
        """An answer came in."""
        self._calls.answered(response)

    @property
    def is_full(self) -> bool:
        """What we wrote is not taken: who can wait does so, with `room`."""
        return self._output_full

    async def room(self) -> None:
        """Returns when the peer has taken most of what was written, or is gone."""
        while self._output_full and not self.is_closing:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._room.append(waiter)
            await waiter

    @property
    def unread(self) -> int:
        """Bytes of answers that the peer has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    # Back pressure

    def defer(self, frames: list[Frame]) -> None:
        """Keeps frames that `serve` did not begin; they are served first when there is room again."""
        if not self._deferred:
            self._waits_since = self._loop.time()
            self._look_later()
        self._deferred.extend(frames)

    @property
    def waiting(self) -> int:
        return len(self._deferred)

    @property
    def waits_s(self) -> float:
        return self._loop.time() - self._waits_since if self._deferred else 0.0

    def begin(self, size: int) -> None:
        """A request with a body of `size` bytes is answered later: it counts, and a draining connection
        waits for it, until `end` is called."""
        self.in_flight += 1
        self.bytes_in_flight += size
        if self._is_busy():
            self.saturated = True
            self._update_reading()

    def end(self, size: int) -> None:
        self.in_flight -= 1
        self.bytes_in_flight -= size
        self._settle()
        if self._draining and not self.in_flight:
            self.close()

    # Ending

    def close(self) -> None:
        """Ends the connection after what is written has been sent."""
        self._flush()
        self.is_closing = True
        if self._collected is None and self._transport is not None:  # else at the end of the event
            self._transport.close()

    def abort(self) -> None:
        """Ends the connection at once, unsent output and all."""
        self.is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def drain(self) -> None:
        """Reads no more; closes when the running handlers have answered."""
        self._draining = True
        self._update_reading()
        if not self.in_flight and self._collected is None:
            self.close()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(self._limits.output_high, self._limits.output_low)
        self.peer = _address(transport.get_extra_info("peername"))
        self.local = _address(transport.get_extra_info("sockname"))
        self.peer_host = pack_peer(self.peer)

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        if self._held:
            if len(self._held) + len(data) < self._needed:
                self._hold_more(data)
                return
            data = b"".join((self._held, data))
            self._release()
        waited_s = 0.0
        if (patience := self._patience) is not None:
            patience.last_read = now = patience.now()
            if now > patience.ask_after:
                waited_s = patience.waited_s(now, self._transport)
            if self._stopped_at is not None:
                waited_s = max(waited_s, patience.lay_there_s(now - self._stopped_at, self._transport, now))
                self._stopped_at = None
        shortcut = self._shortcut
        if shortcut is None or self.saturated or self._deferred or waited_s:
            self._cut(data, 0, b"", waited_s)
            return
        try:
            used, answers = shortcut(self, data)
        except Exception as error:
            self._fail(error)
            return
        if used < len(data):
            self._cut(data, used, answers)
            return
        self._begun = None
        if answers:
            self._send(answers)

    def eof_received(self) -> None:
        """Half-open connections are of no use to anybody here: returning nothing lets the transport close."""

    def pause_writing(self) -> None:
        self._output_full = True
        if not self._gathers:
            self.saturated = True
            self._update_reading()

    def resume_writing(self) -> None:
        self._output_full = False
        self._make_room()
        self._waits_since = self._loop.time()  # until now it was the peer that made its requests wait
        self._settle()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closing = True
        self._release()
        self._deferred.clear()
        kind, why = (SpeaksHttp, "answers in HTTP") if self._is_http else (ConnectionClosed, "was closed")
        self._calls.fail(lambda: kind(f"{self} {why}"))
        self._posted = None
        self._make_room()
        for told in self.on_closed:
            told(self)
        self.on_closed.clear()

    def examine(self, now: float) -> None:
        """Ends it when it has been idle, or half a frame has been held, for too long. Who waits for an answer
        is not idle: that has a time of its own.
        """
        limits = self._limits
        if self.silent_for(now) >= limits.idle_s and not self._calls:
            log.debug("Closing %s: nothing was read or written for %s s", self, limits.idle_s)
            self.abort()
        elif self.unfinished_for(now) >= limits.unfinished_s:
            words = "Closing %s: a frame that it began did not end in %s s"
            self._peer_errors.log(now, words, self, limits.unfinished_s)
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

        While we do not read, the peer cannot end it: that time does not count."""
        if not self._held or not self._reading:
            self._begun = None
            return 0.0
        if self._begun is None:
            self._begun = now
        return now - self._begun

    def __str__(self) -> str:
        return f"{self.peer[0]}:{self.peer[1]}"

    # Inside

    def _cut(self, data: bytes, at: int, answers: bytes, waited_s: float = 0.0) -> None:
        """Serves the frames from `at` on. `answers` are those to what came before it."""
        frames: list[Frame] = []
        try:
            used = cut(data, frames, self._limits.max_frame, at)
        except BrokenFrame as error:
            if frames or answers:
                self._run(frames, answers, waited_s)
            self._is_http = data.startswith(HTTP)
            self._refuse(error, data)
            return
        if used:
            self._begun = None
        if used < len(data):
            self._hold(data[used:])
        if frames or answers:
            self._run(frames, answers, waited_s)

    def _run(self, frames: list[Frame], answers: bytes = b"", waited_s: float = 0.0) -> None:
        """One pass: all frames to `serve`, all answers in one write."""
        if self._deferred:  # came in before reading stopped: their turn is after the waiting ones
            self._deferred.extend(frames)
            return
        collected: list[bytes] = [answers] if answers else []
        self._collected = collected
        self._collected_bytes = len(answers)
        try:
            if waited_s and (patience := self._patience) is not None and waited_s >= patience.shortest_s():
                frames = patience.late(self, frames, waited_s)
            self._serve(self, frames)
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

    def _fail(self, error: Exception) -> None:
        words = "Serving %s failed; closing its connection\n%s"
        self._failures.log(self._loop.time(), words, self, _trace(error))
        self.close()

    def _send(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.writes += 1
        transport.write(data)
        if self._output_full:
            self._leaves_unread()

    def _leaves_unread(self) -> None:
        """After each write while the peer does not take what was written before."""
        if self.unread > self._limits.output_hard:
            self._peer_errors.log(
                self._loop.time(), "Closing %s: it leaves %d bytes of answers unread", self, self.unread
            )
            self.abort()

    def _post(self, data: bytes) -> None:
        """A request. When we are the side that gathers them, those of one turn leave together at its end;
        one that is alone under way leaves at once.
        """
        if not self._gathers:
            self.write(data)
            return
        posted = self._posted
        if posted is None:
            under_way = len(self._calls)
            if under_way == 1:  # this one, and no other
                self._send(data)
                return
            posted = self._posted = []
            self._loop.call_soon(self._end_turn)
            if not under_way:  # a one-way request: those that may follow it are gathered
                self._send(data)
                return
        posted.append(data)
        self._posted_bytes += len(data)
        if self._posted_bytes > POSTED_BYTES:
            self._flush()

    def _end_turn(self) -> None:
        self._flush()
        self._posted = None

    def _flush(self) -> None:
        posted = self._posted
        if posted:
            data = posted[0] if len(posted) == 1 else b"".join(posted)
            posted.clear()
            self._posted_bytes = 0
            self._send(data)

    def _make_room(self) -> None:
        for waiter in self._room:
            if not waiter.done():
                waiter.set_result(None)
        self._room.clear()

    def _late(self, code: int, timeout_s: float, reads: int) -> TimeoutError:
        """When not one byte came in all that time, the peer may be gone: who dialled it does so anew."""
        if reads == self.reads and self._gathers:
            self.abort()
        return TimeoutError(f"{self} did not answer request {code} in {timeout_s} s")

    def _is_busy(self) -> bool:
        limits = self._limits
        return (
            self.in_flight >= limits.requests_in_flight
            or self.bytes_in_flight >= limits.request_bytes_in_flight
        )

    def _settle(self) -> None:
        """Is there room again? Then first the deferred frames, in a turn of their own, then the socket."""
        self.saturated = (self._output_full and not self._gathers) or self._is_busy()
        if self._deferred and not self.saturated:
            self._loop.call_soon(self._serve_deferred)
        self._update_reading()

    def _serve_deferred(self) -> None:
        if self.saturated or self.is_closing or not self._deferred:
            return
        frames, self._deferred = self._deferred, []
        since = self._waits_since
        self._run(frames, waited_s=self._loop.time() - since)
        self._waits_since = since  # of those that are deferred again

    def _look_later(self) -> None:
        if self._patience is not None and (shortest_s := self._patience.shortest_s()) < NEVER:
            self._loop.call_later(shortest_s, self._look_at_deferred)

    def _look_at_deferred(self) -> None:
        """Those that wait too long for others of the same peer are answered, and then the next are read."""
        if self.is_closing or not self._deferred or self._patience is None:
            return
        waited_s = self._loop.time() - self._waits_since
        if not self._output_full and waited_s + CLOCK_STEP_S >= self._patience.shortest_s():
            self._deferred = self._patience.late(self, self._deferred, waited_s)
            self._settle()
        if self._deferred:
            self._look_later()

    def _update_reading(self) -> None:
        """With patience one more read event is taken in: it can be answered when it is late."""
        output_full = self._output_full and not self._gathers
        is_full = output_full or (self.saturated and self._patience is None)
        wanted = not (is_full or self._draining or self._deferred)
        if wanted is self._reading or self.is_closing or self._transport is None:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._stopped_at = None if self._output_full else self._loop.time()
            self._transport.pause_reading()

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
        """Too much in all ends whoever holds most: it is seldom the one that came last."""
        self._unfinished.add(self, more)
        while self._unfinished.bytes > self._limits.unfinished_bytes:
            hog = self._unfinished.largest()
            words = "Closing %s: too many unfinished frames are held, most bytes by this one: %d"
            self._peer_errors.log(self._loop.time(), words, hog, len(hog._held))
            hog._release()
            hog.abort()

    def _refuse(self, error: BrokenFrame, data: bytes) -> None:
        tls = data[:1] == bytes((TLS_HANDSHAKE,)) and self.reads == 1
        reason = "it speaks TLS, which is not offered here" if tls else error
        self._peer_errors.log(self._loop.time(), "Closing %s: %s", self, reason)
        self.close()


Serve = Callable[[Connection, list[Frame]], None]
Shortcut = Callable[[Connection, bytes], tuple[int, bytes]]
"""Serves what it knows at the front of a read event: how many bytes that took, and the answers to it."""


def _say_too_long(response: Command) -> None:
    response.code = int(ResponseCode.SYSTEM_ERROR)
    response.remark = f"the answer is longer than a frame can be, which is {MAX_FRAME} bytes: ask for less"
    response.ext = None
    response.body = b""


def _trace(error: Exception) -> str:
    """Where it was raised and what it is. Its words, and those of errors before it, may be the peer's: they
    are left out, unless they are the system's.
    """
    words = f": {error}" if isinstance(error, OSError) else ""
    return "".join((*traceback.format_tb(error.__traceback__), type(error).__name__, words))


def pack_peer(peer: tuple[str, int]) -> bytes:
    """The peer as records hold it: 4 or 16 bytes of address and an i32 port; unknown is 0.0.0.0:0."""
    ip, port = peer
    if not ip:
        return bytes(8)
    return pack_host(ip, port)


def _address(name: object) -> tuple[str, int]:
    """asyncio's peername without IPv6's extras; an IPv4 address that came through an IPv6 socket is IPv4."""
    if not isinstance(name, tuple) or len(name) < 2:
        return NOWHERE
    ip = str(name[0]).partition("%")[0]
    if "." in ip:
        ip = ip.removeprefix("::ffff:")
    return ip, int(name[1])
