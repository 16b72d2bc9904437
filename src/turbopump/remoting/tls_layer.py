"""TLS on one connection: a protocol towards the transport below, a transport towards the protocol above.

In: encrypted bytes of the transport below. Out: the bytes inside them, to the protocol that `established`
returns once the handshake has succeeded; one read event below is at most one above. Works on any transport,
also in virtual time, because encryption is done in memory. Who may connect, and for how long a handshake may
last, is decided by the caller. No bound of its own is needed: at most one incomplete TLS record (16 KiB) is
held.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, cast

MAX_RECORD = 16 * 1024
WRITTEN_AT_ONCE = 256 * 1024  # so that a large answer is not held three times


class TlsLayer(asyncio.Transport, asyncio.Protocol):
    """Encrypts one connection. Attached to the transport below by `connection_made`."""

    def __init__(
        self,
        context: ssl.SSLContext,
        established: "Callable[[TlsLayer], asyncio.Protocol]",
        failed: Callable[[Exception | None], None],
        server_hostname: str | None = None,
    ) -> None:
        """Without `server_hostname` it is the server's side. `failed` is called if no handshake succeeds."""
        super().__init__()
        self.user = ""
        """The user of the peer's certificate."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.ssl_object = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_hostname is None,
            server_hostname=server_hostname,
        )
        self._established = established
        self._failed = failed
        self._below: asyncio.Transport | None = None
        self._protocol: asyncio.Protocol | None = None
        self._error: Exception | None = None
        self._is_closing = False

    # The protocol of the transport below

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        if not self.ssl_object.server_side:
            self._shake_hands()

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        if self._protocol is None and not self._shake_hands():
            return
        self._deliver()

    def eof_received(self) -> None:
        if self._protocol is not None:
            self._protocol.eof_received()

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        if self._protocol is not None:
            self._protocol.connection_lost(self._error or error)
        else:
            self._failed(self._error or error)

    def _shake_hands(self) -> bool:
        """Takes the handshake as far as the bytes that came; returns whether it has succeeded."""
        try:
            self.ssl_object.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except (ssl.SSLError, ValueError) as error:
            self._end(error)
            return False
        self._flush()
        self._protocol = protocol = self._established(self)
        protocol.connection_made(self)
        return True

    def _deliver(self) -> None:
        """Passes the bytes that are decrypted to the protocol above, all in one call."""
        pieces: list[bytes] = []
        failure: Exception | None = None
        is_ended = False
        read, pending, waiting = self.ssl_object.read, self.ssl_object.pending, self._incoming
        try:
            while piece := read(MAX_RECORD):
                pieces.append(piece)
                if not waiting.pending and not pending():  # spares the exception of another read
                    break
            else:
                is_ended = True  # the peer says that nothing more comes
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLError, ValueError) as error:
            failure = error
        if pieces and self._protocol is not None and not self._is_closing:
            self._protocol.data_received(b"".join(pieces) if len(pieces) > 1 else pieces[0])
        if failure is not None:
            self._end(failure)
        elif is_ended:
            self.close()
        elif self._outgoing.pending:  # an answer to a change of keys
            self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and self._below is not None and not self._below.is_closing():
            self._below.write(self._outgoing.read())

    def _end(self, error: Exception) -> None:
        """Sends the alert that OpenSSL has written, and ends the connection."""
        if self._error is None:
            self._error = error
        self._is_closing = True
        self._flush()
        if self._below is not None:
            self._below.close()

    # The transport of the protocol above

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not data:
            return
        try:
            if len(data) <= WRITTEN_AT_ONCE:
                self.ssl_object.write(data)
                self._flush()
                return
            whole = memoryview(data)
            for at in range(0, len(whole), WRITTEN_AT_ONCE):
                self.ssl_object.write(whole[at : at + WRITTEN_AT_ONCE])
                self._flush()
        except ssl.SSLError as error:
            self._end(error)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        with contextlib.suppress(ssl.SSLError):  # it waits for the peer's close_notify, which is not needed
            self.ssl_object.unwrap()
        self._flush()
        if self._below is not None:
            self._below.close()

    def abort(self) -> None:
        self._is_closing = True
        if self._below is not None:
            self._below.abort()

    def is_closing(self) -> bool:
        return self._is_closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None, "the handshake has not ended"
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self.ssl_object
        if name == "certificate_user":
            return self.user
        return default if self._below is None else self._below.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._open_below.pause_reading()

    def resume_reading(self) -> None:
        self._open_below.resume_reading()

    def is_reading(self) -> bool:
        return self._open_below.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._open_below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._open_below.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._open_below.get_write_buffer_limits()

    def can_write_eof(self) -> bool:
        return False

    @property
    def _open_below(self) -> asyncio.Transport:
        assert self._below is not None, "the connection has not begun"
        return self._below
