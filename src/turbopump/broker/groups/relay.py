"""Relays requests of tools to consumers: running info (307), consume one message (309), offsets (223).

In: a tool's request. Out: the consumer's own answer, unchanged, or why there is none: the consumer is not
connected, too old, or does not answer. The consumer is asked for its offsets with code 221. Every call has a
timeout, and a consumer with too many unanswered calls is not called.
"""

import asyncio
import logging
from collections.abc import Mapping

from turbopump.auth.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from turbopump.broker.groups.concurrency import ConcurrencyLimit
from turbopump.broker.groups.groups import SubscriptionGroups
from turbopump.broker.groups.members import Member, Members
from turbopump.broker.log import Log
from turbopump.broker.topics import TopicTable
from turbopump.guard.link import Permit, permit_all
from turbopump.protocol.bodies import GetConsumerStatusBody, WireQueue
from turbopump.protocol.codes import RequestCode, ResponseCode, version_name
from turbopump.protocol.command import NOT_SET, Command, reply
from turbopump.protocol.errors import BrokenBody, Refused, SystemFailure
from turbopump.protocol.headers.client import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
)
from turbopump.protocol.ids import parse_offset_id
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 10.0  # of 307 and 309, as with Apache
STATUS_TIMEOUT_S = 5.0  # of 221, all consumers of a group together
MAX_UNANSWERED = 16  # relayed requests to one consumer; its answers may be large
MAX_CONCURRENT_CALLS = 64  # to the consumers of one group
MAX_STATUS_BYTES = 4 * 1024 * 1024  # of all answers to 221 that are merged into one answer to 223

RELAY_SINCE = 62  # V3_1_8_SNAPSHOT
STATUS_SINCE = 28  # V3_0_7_SNAPSHOT

SIGNED_BY = frozenset((ACCESS_KEY, SECURITY_TOKEN, SIGNATURE))


class ConsumerRelay:
    """Relays requests of tools to the consumers of a group."""

    def __init__(
        self,
        members: Members[Connection],
        topics: TopicTable,
        groups: SubscriptionGroups,
        messages: Log,
        broker_name: str,
        permit: Permit = permit_all,
    ) -> None:
        """`permit` is asked about the message that a consumer is to be sent."""
        self._members = members
        self._topics = topics
        self._groups = groups
        self._messages = messages
        self._broker_name = broker_name
        self._permit = permit
        self._calls = ConcurrencyLimit(MAX_UNANSWERED)

    def routes(self) -> Routes:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: Route(GetConsumerRunningInfoRequest, self.running_info),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: Route(ConsumeMessageDirectlyRequest, self.consume_directly),
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Route(GetConsumerStatusRequest, self.status),
        }

    async def running_info(self, request: Request[GetConsumerRunningInfoRequest]) -> Command:
        """Asks one consumer for its running info and returns the consumer's answer."""
        header = request.header
        return await self._ask(
            request.command, header.consumerGroup, header.clientId, _unsigned(request.command)
        )

    async def consume_directly(self, request: Request[ConsumeMessageDirectlyRequest]) -> Command:
        """Sends one stored message to a consumer, to consume it now, and returns the consumer's answer.

        The request also has the flags that 5.x clients read.
        """
        header = request.header
        fields = _unsigned(request.command) | {"brokerName": self._broker_name}
        topic = self._topics.find(header.topic) if header.topic else None
        if topic is not None:
            fields["topicSysFlag"] = str(topic.sys_flag)
        group = self._groups.find(header.consumerGroup)
        if group is not None:
            fields["groupSysFlag"] = str(group.sys_flag)
        record = self._record(request)
        return await self._ask(request.command, header.consumerGroup, header.clientId, fields, record)

    async def status(self, request: Request[GetConsumerStatusRequest]) -> Answer:
        """Answers with the offsets of one consumer, or of all consumers of the group that answer in time."""
        header = request.header
        group = self._members.consumer_group(header.group)
        if group is None:
            raise SystemFailure(f"No Any Consumer online in the consumer group: [{header.group}]")
        wanted = (header.clientAddr or "").strip()
        asked = [member for member in group.members.values() if wanted in ("", member.client_id)]
        for member in group.members.values():
            if member.version < STATUS_SINCE:
                name = version_name(member.version)
                raise SystemFailure(f"the client does not support this feature. version={name}")
        fields = {"topic": header.topic, "group": header.group}
        table = await _ask_all(asked, Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext=fields))
        return Answer(body=GetConsumerStatusBody(consumerTable=table).encode(), remark=NOT_SET)

    async def _ask(
        self,
        request: Command,
        group: str,
        client_id: str | None,
        fields: Mapping[str, str],
        body: bytes = b"",
    ) -> Command:
        member = self._members.consumer(group, client_id)
        if member is None:
            raise SystemFailure(f"The Consumer <{group}> <{client_id or 'null'}> not online")
        if member.version < RELAY_SINCE:
            raise SystemFailure(
                f"The Consumer <{client_id}> Version <{version_name(member.version)}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
        asked = Command(request.code, ext=dict(fields), body=body)
        try:
            answer = await self._calls.call(member.connection, asked, CALL_TIMEOUT_S)
        except TimeoutError as error:
            remark = f"consumer <{group}> <{client_id}> Timeout: {error}"
            raise Refused(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from None
        except OSError as error:
            raise SystemFailure(f"invoke consumer <{group}> <{client_id}> Exception: {error}") from None
        relayed = reply(request, answer.code, answer.remark, answer.ext, answer.body)
        relayed.language, relayed.version = answer.language, answer.version
        return relayed

    def _record(self, request: Request[ConsumeMessageDirectlyRequest]) -> bytes:
        _, _, offset = parse_offset_id(request.header.msgId or "")
        record = self._messages.look_up(offset)
        if record is not None:
            self._permit(request, record)
        data = self._messages.read(offset, record.size) if record is not None else None
        if data is None:
            raise SystemFailure(f"can not find message by the offset, {offset}")
        return data


def _unsigned(command: Command) -> dict[str, str]:
    """Returns the fields of a request without who signed it: its receiver could send it again as his own."""
    return {name: value for name, value in (command.ext or {}).items() if name not in SIGNED_BY}


async def _ask_all(members: list[Member[Connection]], request: Command) -> dict[str, dict[WireQueue, int]]:
    """Asks consumers for their offsets; returns, by client id, those of the ones that answer in time.

    The others are left out and counted in the log.
    """
    turns = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
    table: dict[str, dict[WireQueue, int]] = {}
    bytes_left = MAX_STATUS_BYTES

    async def ask(member: Member[Connection]) -> None:
        nonlocal bytes_left
        async with turns:
            answer = await member.connection.call(Command(request.code, ext=request.ext), STATUS_TIMEOUT_S)
        bytes_left -= len(answer.body)
        if answer.code == ResponseCode.SUCCESS and answer.body and bytes_left >= 0:
            table[member.client_id] = GetConsumerStatusBody.decode(answer.body).messageQueueTable

    tasks = Tasks(log)
    calls = [tasks.start(ask(member), log_failure=False) for member in members]
    try:
        await asyncio.wait(calls, timeout=STATUS_TIMEOUT_S) if calls else None
    finally:
        await tasks.close()
    silent = 0
    for call in calls:
        if call.cancelled() or isinstance(call.exception(), OSError | BrokenBody):
            silent += 1
        else:
            call.result()  # a defect is raised here
    if silent:
        log.info("%d of %d consumers did not answer with their offsets", silent, len(members))
    return table
