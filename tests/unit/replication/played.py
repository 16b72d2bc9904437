"""Apache's side of replication, played: a slave and a master that do what 4.9 and 5.5 do, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from tests.unit.replication.kit import NAME_SERVER, Node, Pair

from turbopump.protocol import ha
from turbopump.protocol.bodies import KVTable, RegisterBrokerBody
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import request
from turbopump.protocol.headers.namesrv import RegisterBrokerRequest
from turbopump.protocol.headers.query import ViewMessageRequest
from turbopump.protocol.record import crc31
from turbopump.remoting.client import Client
from turbopump.remoting.router import Answer, Request, Route, Router
from turbopump.remoting.server import Server

PORT, HA_PORT, FAST_PORT = 10911, 10912, 10909


class PlayedLog:
    """The log of a played node: bytes from an offset on, and the requests that Apache serves about them."""

    def __init__(self, data: bytes = b"", begin: int = 0) -> None:
        self.data = data
        self.begin = begin
        self.asked: list[int] = []
        """Log offsets that were asked for by request 33."""
        self.busy = 0
        """How many requests for a record are refused first."""

    @property
    def end(self) -> int:
        return self.begin + len(self.data)

    def figures(self, request: Request[None]) -> Answer:
        begin = self.begin if self.data else -1
        table = {"commitLogMinOffset": str(begin), "commitLogMaxOffset": str(self.end)}
        return Answer(body=KVTable(table=table).encode())

    def view(self, request: Request[ViewMessageRequest]) -> Answer:
        """Answers whatever bytes have the length that is written at an offset, as Apache does."""
        offset = request.header.offset
        if self.busy:
            self.busy -= 1
            return Answer(code=ResponseCode.SYSTEM_BUSY, remark="[TIMEOUT_CLEAN_QUEUE]broker busy")
        self.asked.append(offset)
        at = offset - self.begin
        size = int.from_bytes(self.data[at : at + 4], "big") if 0 <= at < len(self.data) else 0
        if not size or at + size > len(self.data):
            remark = f"can not find message by the offset, {offset}"
            return Answer(code=ResponseCode.SYSTEM_ERROR, remark=remark)
        return Answer(body=self.data[at : at + size])

    def routes(self) -> dict[int, Route]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: Route(None, self.figures),
            RequestCode.VIEW_MESSAGE_BY_ID: Route(ViewMessageRequest, self.view),
        }


class PlayedBroker:
    """A host that serves requests and is registered with the name server."""

    def __init__(self, pair: Pair, ip: str, broker_id: int, port: int = PORT) -> None:
        self.ip = ip
        self.broker_id = broker_id
        self.port = port
        self.network = pair.network.at(ip)
        self.clock = pair.clock
        self._client = Client(self.network, pair.clock)
        self._servers: list[Server] = []

    async def serve(self, routes: dict[int, Route], port: int = 0) -> None:
        server = Server(Router(routes), self.network, self.clock)
        await server.start(self.ip, port or self.port)
        self._servers.append(server)

    async def register(self) -> None:
        body = RegisterBrokerBody().encode()
        header = RegisterBrokerRequest(
            brokerName="broker-a",
            brokerAddr=f"{self.ip}:{self.port}",
            clusterName="C",
            haServerAddr=f"{self.ip}:{HA_PORT}",
            brokerId=self.broker_id,
            enableActingMaster=False,
            compressed=False,
            bodyCrc32=crc31(body),
        )
        answer = await self._client.call(NAME_SERVER, request(RequestCode.REGISTER_BROKER, header, body), 5.0)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def stop(self) -> None:
        await self._client.close()
        for server in self._servers:
            await server.stop()


class PlayedSlave(asyncio.Protocol):
    """A slave of Apache's on the HA port: appends what continues its log, and reports after each part."""

    def __init__(self, log: PlayedLog) -> None:
        self.log = log
        self.is_closed = asyncio.Event()
        self._reader = ha.PartReader()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def connect(cls, host: PlayedBroker, log: PlayedLog, master: Node) -> PlayedSlave:
        slave = cls(log)
        await host.network.connect(lambda: slave, master.ip, HA_PORT)
        return slave

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def report(self, end: int | None = None) -> None:
        assert self._transport is not None
        self._transport.write(ha.encode_report(self.log.end if end is None else end))

    def data_received(self, data: bytes) -> None:
        for found in self._reader.feed(data):
            if isinstance(found, memoryview):
                self.log.data += bytes(found)
                self.report()
            elif isinstance(found, ha.SentPart) and not self.log.data:
                self.log.begin = found.offset

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed.set()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class PlayedMaster:
    """A master of Apache's: sends its log from where a slave's report says, or the start of its last file.

    `first_heartbeat`: as 4.9, begins with an empty part, since it was silent until the first report.
    """

    def __init__(
        self, pair: Pair, ip: str, log: PlayedLog, file_size: int, first_heartbeat: bool = False
    ) -> None:
        self.host = PlayedBroker(pair, ip, 0)
        self.log = log
        self.file_size = file_size
        self.first_heartbeat = first_heartbeat
        self.tables: dict[int, bytes] = {}
        """Bodies of the answers to 21, 43, 45, 201 and, of a master since 5.0, 402."""
        self.is_sending = True
        """Whether slaves get what is appended."""
        self.reports: list[int] = []
        self.connections: list[_SentLog] = []

    async def start(self) -> None:
        routes = self.log.routes()

        def answers(code: int) -> Callable[[Request[None]], Answer]:
            return lambda request: Answer(body=self.tables.get(code, b'{"offsetTable":{}}'))

        def request_modes(request: Request[None]) -> Answer:
            if 402 in self.tables:
                return Answer(body=self.tables[402])
            return Answer(
                code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=" request type 402 not supported"
            )

        routes |= {code: Route(None, answers(code)) for code in (21, 43, 45, 201)}
        routes |= {402: Route(None, request_modes)}
        await self.host.serve(routes)
        await self.host.serve(routes, FAST_PORT)
        await self.host.network.listen(lambda: _SentLog(self), self.host.ip, HA_PORT)
        await self.host.register()

    def append(self, data: bytes) -> None:
        self.log.data += data
        for connection in self.connections:
            connection.send()

    async def stop(self) -> None:
        await self.host.stop()


class _SentLog(asyncio.Protocol):
    """A connection of a played master."""

    def __init__(self, master: PlayedMaster) -> None:
        self._master = master
        self._reader = ha.ReportReader()
        self._next = -1
        self._transport: asyncio.Transport | None = None
        master.connections.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._master.connections.remove(self)

    def data_received(self, data: bytes) -> None:
        report = self._reader.feed(data)  # raises for a negative one, which Apache's master waits to change
        assert self._reader.greeting is None, "an Apache master was greeted"
        if report is None:
            return
        master, log = self._master, self._master.log
        master.reports.append(report.end)
        if self._next < 0:
            self._next = report.end or log.end - log.end % master.file_size
            if master.first_heartbeat:
                self._write(b"")
        self.send()

    def send(self) -> None:
        log, file_size = self._master.log, self._master.file_size
        while self._master.is_sending and 0 <= self._next < log.end:
            size = min(log.end - self._next, 32 << 10, file_size - self._next % file_size)
            self._write(log.data[self._next - log.begin :][:size])
            self._next += size

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(ha.encode_part_head(self._next, len(data)) + data)
