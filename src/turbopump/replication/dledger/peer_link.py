"""Requests to one other member, in order, over one connection.

A push is only an order until the connection takes more: then its entries are read and written. So a peer
that does not read holds no entries in memory. A peer whose connection fails is reported by `PeerUnreachable`,
and what waited for it is dropped: the node asks again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.errors import BrokenBody
from turbopump.raft import Answered, Event, PeerTakesBatches, PeerUnreachable
from turbopump.raft.messages import OutgoingRequest, PushOrder, RaftCode, TransferRequest
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Connection
from turbopump.remoting.dialled import DialledConnection
from turbopump.replication.dledger import wire
from turbopump.replication.dledger.handlers import OUR_LANGUAGE
from turbopump.runtime.rate_limited_log import RateLimitedLog
from turbopump.runtime.tasks import Tasks

log_line = logging.getLogger(__name__)

CALL_TIMEOUT_S = 3.0  # DLedger's
TRANSFER_TIMEOUT_S = 5.0  # the member that takes over answers when it leads, within 3 s
MAX_QUEUED = 4096
"""Requests that wait for a connection: a node has 1,000 pushes under way at most, and repeats some."""
ODD_ANSWER_INTERVAL_S = 60.0
REFUSALS = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.SERVICE_NOT_AVAILABLE})
"""What a member with access control answers; every answer of a node has the code 200."""


class PeerLink:
    """The way to one peer: sends what the node wants, and reports answers and failures as events."""

    def __init__(
        self,
        peer: str,
        address: str,
        client: Client,
        encode: Callable[[str, OutgoingRequest], Command | None],
        report: Callable[[Event], None],
    ) -> None:
        """`encode` makes the command of a request, or None when there is nothing to send any longer."""
        self.peer = peer
        self.address = address
        self.is_reachable: bool | None = None
        self.is_ours = False
        self._client = client
        self._encode = encode
        self._report = report
        self._queue: deque[OutgoingRequest] = deque()
        self._tasks = Tasks(log_line)
        self._pump: asyncio.Task[None] | None = None
        self._connection: DialledConnection | None = None
        self._odd_answers = RateLimitedLog(log_line, ODD_ANSWER_INTERVAL_S)
        self._is_closed = False

    def send(self, request: OutgoingRequest) -> None:
        """Sends a request as soon as the peer takes it. Others do not wait behind pushes."""
        if self._is_closed or len(self._queue) >= MAX_QUEUED:
            return
        if isinstance(request, PushOrder):
            self._queue.append(request)
        else:
            self._queue.appendleft(request)
        if self._pump is None:
            self._pump = self._tasks.start(self._send_queued(), name=f"requests to {self.peer}")

    async def close(self) -> None:
        self._is_closed = True
        await self._tasks.close()

    async def _send_queued(self) -> None:
        try:
            while self._queue:
                connection = await self._connect()
                if connection.is_full:
                    await connection.writable()
                else:
                    self._ask(connection, self._queue.popleft())
        except OSError as error:
            self._lost(error)
        finally:
            self._pump = None

    async def _connect(self) -> DialledConnection:
        connection = await self._client.connect(self.address)
        if connection is not self._connection:
            self._connection = connection
            connection.on_closed.append(self._closed)
        return connection

    def _ask(self, connection: DialledConnection, request: OutgoingRequest) -> None:
        command = self._encode(self.peer, request)
        if command is None:
            return
        timeout_s = TRANSFER_TIMEOUT_S if isinstance(request, TransferRequest) else CALL_TIMEOUT_S
        answer = connection.ask(command, timeout_s)
        answer.add_done_callback(lambda done: self._ended(request, done))

    def _ended(self, request: OutgoingRequest, call: "asyncio.Future[Command]") -> None:
        # A call that failed is repeated by the node; a connection that ended is reported by `_closed`.
        if call.cancelled() or call.exception() is not None or self._is_closed:
            return
        command = call.result()
        if self.is_reachable is False:
            log_line.info("DLedger member %s at %s is reachable again", self.peer, self.address)
        self.is_reachable = True
        self._take_batches(command.language == OUR_LANGUAGE)
        if command.code in REFUSALS:
            self._log_odd(request, f"code {command.code} {command.remark}")
            return
        try:
            answer = wire.answered(request, command.body)
        except BrokenBody as error:
            self._log_odd(request, error)
            return
        if isinstance(answer, int):
            self._log_odd(request, f"code {answer}")
            return
        if getattr(answer, "code", None) is RaftCode.UNKNOWN_MEMBER:
            self._log_odd(request, "it does not know this member: compare dLegerPeers of both")
        self._report(Answered(self.peer, request, answer))

    def _log_odd(self, request: OutgoingRequest, what: object) -> None:
        self._odd_answers.log(
            asyncio.get_running_loop().time(),
            "DLedger member %s at %s refused %s: %.200s",
            *(self.peer, self.address, type(request).__name__, what),
        )

    def _take_batches(self, takes: bool) -> None:
        if takes != self.is_ours:
            self.is_ours = takes
            self._report(PeerTakesBatches(self.peer, takes))

    def _closed(self, connection: Connection) -> None:
        if connection is self._connection and not self._is_closed:
            self._connection = None
            self._lost("the connection ended")

    def _lost(self, why: object) -> None:
        if self.is_reachable is not False:
            log_line.warning("DLedger member %s at %s cannot be reached: %s", self.peer, self.address, why)
        self.is_reachable = False
        self._queue.clear()
        self._take_batches(False)  # another program may answer there next
        self._report(PeerUnreachable(self.peer))
