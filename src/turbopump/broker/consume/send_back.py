"""Handles send-backs (36): stores a failed message again for a later retry, or as a dead letter.

In: where the message lies in the log, and how long the consumer wants to wait. Out: a copy of it on its way
to %RETRY% of the group, delayed by a level that grows with each attempt, or in %DLQ% of the group. The
consumer moves its offset on when it is answered, so success is answered only when the copy is as safe as any
send.
"""

from collections.abc import Callable

from turbopump.broker.acknowledgement import Safety
from turbopump.broker.delay.level_records import DelaySchedule, copied
from turbopump.broker.groups.groups import SubscriptionGroup, SubscriptionGroups
from turbopump.broker.produce.send import COUNTS_RETRIES_SINCE
from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.storage import Storage
from turbopump.broker.topics import FAQ, TopicTable
from turbopump.guard.link import Permit, permit_all
from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, reply
from turbopump.protocol.errors import GroupNotFound, MessageIllegal, NoPermission, Refused, SystemFailure
from turbopump.protocol.headers.send import ConsumerSendMsgBackRequest
from turbopump.protocol.ids import offset_id
from turbopump.protocol.names import dlq_topic, retry_topic
from turbopump.protocol.permissions import WRITE
from turbopump.protocol.record import Record
from turbopump.protocol.sysflag import INNER_BATCH, UNIT_SUBSCRIBED
from turbopump.remoting.router import Request, Route, Routes
from turbopump.runtime.chance import Chance
from turbopump.store.append import Draft
from turbopump.store.consume_queue import ConsumeQueue

FIRST_LEVEL = 3  # delay level of the first attempt: 10 s with the default levels
DEAD_LETTER_QUEUES = 1


class SendBackHandler:
    """Handles send-backs: stores a copy of the message in the group's retry or dead-letter topic."""

    def __init__(
        self,
        store: Storage,
        topics: TopicTable,
        groups: SubscriptionGroups,
        schedule: DelaySchedule,
        writer: MessageWriter,
        chance: Chance,
        broker_ip: str,
        writable: Callable[[], bool] = lambda: True,
        permit: Permit = permit_all,
    ) -> None:
        """`permit` is asked about the message that is to be copied."""
        self._store = store
        self._topics = topics
        self._groups = groups
        self._schedule = schedule
        self._writer = writer
        self._traffic = writer.traffic
        self._chance = chance
        self._broker_ip = broker_ip
        self._writable = writable
        self._permit = permit

    def routes(self) -> Routes:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: Route(ConsumerSendMsgBackRequest, self.send_back)}

    def send_back(self, request: Request[ConsumerSendMsgBackRequest]) -> Command | None:
        """Stores a copy for retry or as dead letter; returns the answer, or None if it follows when safe."""
        draft = self._copy(request)
        if draft is None:
            return reply(request.command)
        try:
            appended = self._writer.append_counted([draft])
        except Refused as refused:  # Apache answers with this code whatever the reason
            raise SystemFailure(refused.remark) from None
        self._count(request.header.group, draft)
        if draft.delay_ms >= 0:
            self._schedule.stored(draft, appended[0])
        offset, _, size = appended[0]
        return self._writer.acknowledgement.answer(
            request, offset + size, size, lambda safety: _answer(request.command, safety)
        )

    def _count(self, group: str, draft: Draft) -> None:
        topic = properties.find(draft.properties, properties.RETRY_TOPIC) or ""
        self._traffic.sent_back[group, topic] += 1
        if draft.queue.topic == dlq_topic(group):
            self._traffic.dead_letters[group, topic] += 1

    def _copy(self, request: Request[ConsumerSendMsgBackRequest]) -> Draft | None:
        """Returns the copy to store, None if the group has no retry queues; raises Refused as Apache does."""
        header, version = request.header, request.command.version
        group = self._groups.find_or_create(header.group)
        if group is None:
            raise GroupNotFound(f"subscription group not exist, {header.group} {FAQ}")
        if not self._writable():
            raise NoPermission(f"the broker[{self._broker_ip}] sending message is forbidden")
        if group.retry_queues <= 0:
            return None
        sys_flag = UNIT_SUBSCRIBED if header.unitMode else 0
        topic = self._topics.for_group(retry_topic(group.name), group.retry_queues, sys_flag=sys_flag)
        if not topic.perm & WRITE:
            raise NoPermission(f"the topic[{topic.name}] sending message is forbidden")
        record = self._store.log.look_up(header.offset)
        if record is None:
            raise SystemFailure(f"look message by offset failed, {header.offset}")
        self._permit(request, record)
        # The record is the whole batch; a consumer that is refused sends a copy of the one message instead.
        if record.sys_flag & INNER_BATCH:
            raise MessageIllegal("a message of an inner batch cannot be sent back: send a copy of it")
        if header.delayLevel < 0 or record.reconsume_times >= _max_retries(group, header, version):
            return self._dead_letter(group, record)
        return self._again(group, record, header.delayLevel or FIRST_LEVEL + record.reconsume_times)

    def _again(self, group: SubscriptionGroup, record: Record, level: int) -> Draft:
        pairs = _pairs(record)
        queue_id = self._chance.randrange(group.retry_queues)
        queue, delay_ms = self._schedule.postpone(pairs, level, retry_topic(group.name), queue_id)
        return _draft(record, pairs, queue, delay_ms)

    def _dead_letter(self, group: SubscriptionGroup, record: Record) -> Draft:
        topic = self._topics.for_group(dlq_topic(group.name), DEAD_LETTER_QUEUES)
        pairs = _pairs(record) | {properties.DELAY: "0"}
        queue = self._store.queues.queue(topic.name, self._chance.randrange(DEAD_LETTER_QUEUES))
        return _draft(record, pairs, queue)


def _max_retries(group: SubscriptionGroup, header: ConsumerSendMsgBackRequest, version: int) -> int:
    """Returns the maximum number of redeliveries: the request's `maxReconsumeTimes`, or the group's."""
    if version >= COUNTS_RETRIES_SINCE and header.maxReconsumeTimes is not None:
        return header.maxReconsumeTimes
    return group.retry_max_times


def _pairs(record: Record) -> dict[str, str]:
    """Returns the properties of the copy, which keep the topic and message id of the first attempt."""
    pairs = record.property_map()
    pairs.setdefault(properties.RETRY_TOPIC, record.topic)
    pairs[properties.WAIT] = "false"
    pairs.pop(properties.INNER_MULTI_QUEUE_OFFSET, None)  # offsets of the original in its light queues
    if not pairs.get(properties.ORIGIN_MESSAGE_ID, "").strip():
        pairs[properties.ORIGIN_MESSAGE_ID] = offset_id(record.store_host, record.physical_offset)
    return pairs


def _draft(record: Record, pairs: dict[str, str], queue: ConsumeQueue, delay_ms: int = -1) -> Draft:
    draft = copied(record, queue, pairs)
    draft.reconsume_times += 1
    draft.delay_ms = delay_ms
    return draft


def _answer(request: Command, safety: Safety) -> Command:
    if safety.is_safe:
        return reply(request)
    return reply(request, ResponseCode.SYSTEM_ERROR, safety.code.name)
