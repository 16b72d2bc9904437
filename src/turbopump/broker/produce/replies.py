"""Passes replies to request messages on to the client that sent the request (324, 325, passed on as 326).

In: a message that names the client it answers. Out: the same message on the connection of that client, which
is found among the producers by its id, and that client's answer as the answer to the sender. The reply is
also stored as a message, as Apache does by default, whether or not it was delivered. Its body may be empty:
properties, or the arrival alone, can be the whole reply.
"""

import logging
from collections.abc import Callable

from turbopump.broker.groups.concurrency import ConcurrencyLimit
from turbopump.broker.groups.members import Members
from turbopump.broker.produce.receipt import Receipts
from turbopump.broker.produce.send import PreparedRecords, SendHandler
from turbopump.broker.produce.writer import MessageWriter
from turbopump.guard.link import MayReceive, any_may_receive
from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, reply
from turbopump.protocol.command import request as new_request
from turbopump.protocol.errors import Refused, SystemFailure
from turbopump.protocol.headers.send import (
    PushReplyMessageRequest,
    SendMessageRequest,
    SendMessageV2Request,
)
from turbopump.protocol.ids import host_text
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Request, Route, Routes
from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

ANSWER_S = 10.0  # for the client that asked to accept its reply, as in Apache
MAX_UNANSWERED = 1024  # replies that one client has not accepted yet
LOG_INTERVAL_S = 10.0


class ReplyHandler:
    """Handles replies to request messages: pushes each to the client that sent the request, and stores it.

    `stores` returns whether replies are stored, `may_receive` whether the user of a connection may have one.
    """

    def __init__(
        self,
        members: Members[Connection],
        sends: SendHandler,
        receipts: Receipts,
        writer: MessageWriter,
        clock: Clock,
        stores: Callable[[], bool] = lambda: True,
        may_receive: MayReceive = any_may_receive,
    ) -> None:
        self._members = members
        self._sends = sends
        self._receipts = receipts
        self._writer = writer
        self._clock = clock
        self._stores = stores
        self._may_receive = may_receive
        self._calls = ConcurrencyLimit(MAX_UNANSWERED)
        self._lost = RateLimitedLog(log, LOG_INTERVAL_S)

    def routes(self) -> Routes:
        fields = self._receipts.refused
        long: Route[SendMessageRequest] = Route(SendMessageRequest, self.send, refused_fields=fields)
        short: Route[SendMessageRequest] = Route(SendMessageV2Request, self.send, refused_fields=fields)
        return {RequestCode.SEND_REPLY_MESSAGE: long, RequestCode.SEND_REPLY_MESSAGE_V2: short}

    async def send(self, request: Request[SendMessageRequest]) -> Command:
        prepared = self._sends.prepare(request.header, request.body, request, may_be_empty=True)
        if prepared.drafts[0].delay_ms >= 0:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a reply cannot be delayed")
        code, remark = int(ResponseCode.SUCCESS), None
        try:
            await self._push(request)
        except Refused as refused:
            code, remark = refused.code, refused.remark
            self._lost.log(
                self._clock.monotonic(), "Cannot deliver a reply of %s: %s", request.connection, remark
            )
        return reply(request.command, code, remark, self._kept(prepared))

    async def _push(self, request: Request[SendMessageRequest]) -> None:
        """Sends the reply to the client that asked and waits for its answer. Raises SystemFailure."""
        pairs = properties.parse(request.header.properties or "")
        client_id = pairs.get(properties.REPLY_TO_CLIENT)
        if client_id is None:
            raise SystemFailure(f"reply message properties[{properties.REPLY_TO_CLIENT}] is null")
        correlation_id = pairs.get(properties.CORRELATION_ID, "")
        there = self._members.producers(client_id)
        connection = next((one for one in there if self._may_receive(one, client_id, correlation_id)), None)
        if connection is None:
            raise SystemFailure(f"push reply message fail, channel of <{client_id}> not found.")
        failed = f"push reply message to {client_id}fail."
        try:
            answer = await self._calls.call(connection, self._handed_on(request, pairs), ANSWER_S)
        except OSError:
            raise SystemFailure(failed) from None
        if answer.code != ResponseCode.SUCCESS:
            raise SystemFailure(failed)

    def _handed_on(self, request: Request[SendMessageRequest], pairs: dict[str, str]) -> Command:
        header = request.header
        now_ms = self._clock.now_ms()
        marks = self._receipts.refused() | {properties.PUSH_REPLY_TIME: str(now_ms)}
        pushed = PushReplyMessageRequest(
            producerGroup=header.producerGroup,
            topic=header.topic,
            defaultTopic=header.defaultTopic,
            defaultTopicQueueNums=header.defaultTopicQueueNums,
            queueId=header.queueId,
            sysFlag=header.sysFlag,
            bornTimestamp=header.bornTimestamp,
            flag=header.flag,
            bornHost=host_text(request.connection.peer_host),
            storeHost=host_text(self._receipts.store_host),
            storeTimestamp=now_ms,
            properties=properties.pack(pairs | marks),
            reconsumeTimes=header.reconsumeTimes or 0,
            unitMode=bool(header.unitMode),
        )
        return new_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, request.body)

    def _kept(self, prepared: PreparedRecords) -> dict[str, str]:
        """Stores the reply, if replies are stored, and returns the fields of the answer to its sender.

        Clients need these fields even if the reply is not stored.
        """
        nowhere = {"msgId": "0", "queueId": str(prepared.queue_id), "queueOffset": "0"}
        if not self._stores():
            return self._receipts.refused() | nowhere
        try:
            appended = self._writer.append(prepared.drafts)
        except Refused as refused:
            self._lost.log(self._clock.monotonic(), "Cannot store a reply: %s", refused.remark)
            return self._receipts.refused() | nowhere
        return self._receipts.fields(
            prepared.queue_id, appended, None, self._writer.acknowledgement.unawaited
        )
