"""Producers of transactions as the broker sees them: what they send, how they answer, what they are asked."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
from tests.unit.broker.desk import Desk, records

from turbopump.auth.signature import Credentials
from turbopump.protocol import record
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.headers.send import CheckTransactionStateRequest
from turbopump.protocol.ids import parse_offset_id
from turbopump.protocol.record import Record
from turbopump.remoting.client import Client
from turbopump.remoting.router import Request, Route

HALF, OP, EXPIRED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
ONE_WAY = 2
GROUP = "PG"
BEAT_S = 30.0

Place = tuple[int, int]
"""Of a half message: in the log, and in its queue."""


async def prepare(
    desk: Desk, body: bytes = b"half", topic: str = "T", queue_id: int = 0, **more: Any
) -> Place:
    """Sends a half message."""
    pairs = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": f"ID-{body.decode()}"} | more.pop("pairs", {})
    fields = {"f": 4, "g": desk.disk.clock.now_ms()} | more
    answer = await desk.send(topic, body, queue_id, pairs=pairs, **fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    ext = answer.ext or {}
    return parse_offset_id(ext["msgId"])[2], int(ext["queueOffset"])


async def end(desk: Desk, place: Place, decision: int, **changes: Any) -> Command:
    return await desk.ask(RequestCode.END_TRANSACTION, end_fields(place, decision) | changes)


def end_fields(place: Place, decision: int) -> dict[str, Any]:
    at, offset = place
    return {
        "producerGroup": GROUP,
        "tranStateTableOffset": offset,
        "commitLogOffset": at,
        "commitOrRollback": decision,
        "fromTransactionCheck": "false",
        "msgId": "ID",
    }


async def all_of(desk: Desk, topic: str, queue_id: int = 0) -> list[Record]:
    """All that can be read, from the first on."""
    queue = desk.store.queues.find(topic, queue_id)
    found: list[Record] = []
    for offset in range(queue.min_offset, queue.max_offset) if queue is not None else ():
        entry = queue.entry(offset) if queue is not None else None
        one = desk.store.log.look_up(entry[0]) if entry is not None else None
        assert one is not None
        found.append(one)
    return found


async def bodies(desk: Desk, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    """As a consumer sees them."""
    found: list[bytes] = []
    while more := records(await desk.pull(topic, len(found), queue_id)):
        found += [one.body for one in more]
    return found


class Member:
    """A producer of the group. `answer` says how a transaction ends when it is asked; None: it is silent."""

    def __init__(self, answer: Callable[[Record], int | None] = lambda half: None) -> None:
        self.questions: list[CheckTransactionStateRequest] = []
        self.shown: list[Record] = []
        self._answer = answer

    async def join(
        self, desk: Desk, client_id: str = "me", group: str = GROUP, who: Credentials | None = None
    ) -> Client:
        client = desk.visitor(
            {RequestCode.CHECK_TRANSACTION_STATE: Route(CheckTransactionStateRequest, self._asked)}
        )
        beat = {"clientID": client_id, "producerDataSet": [{"groupName": group}], "consumerDataSet": []}
        body = msgspec.json.encode(beat)
        signed = None if who is None else who.signed({}, body)
        request = Command(RequestCode.HEART_BEAT, ext=signed, body=body, language="JAVA")
        assert (await client.call(desk.address, request)).code == 0
        self._beating = asyncio.create_task(self._beat(desk, client, request))
        return client

    async def _beat(self, desk: Desk, client: Client, request: Command) -> None:
        with contextlib.suppress(OSError):  # it has left, or the broker has
            while True:
                await asyncio.sleep(BEAT_S)
                await client.call(desk.address, request)

    def _asked(self, request: Request[CheckTransactionStateRequest]) -> None:
        header = request.header
        self.questions.append(header)
        half = record.decode(request.body)
        self.shown.append(half)
        decision = self._answer(half)
        if decision is not None:
            place = header.commitLogOffset, header.tranStateTableOffset
            fields = end_fields(place, decision) | {"fromTransactionCheck": "true"}
            ext = {name: str(value) for name, value in fields.items()}
            request.connection.send_oneway(Command(RequestCode.END_TRANSACTION, ext=ext, flag=ONE_WAY))
