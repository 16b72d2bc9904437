"""Handles sends one by one: whether a message may be written, to which queue, as which kind (10, 310, 320).

In: a send request. Out: drafts for the store and, when they are as safe as was asked, the answer. This is
the general path, one request at a time; `plain_sends.py` handles the plain sends of a whole read event by
the same rules and gives the same bytes.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from turbopump.broker.acknowledgement import Safety
from turbopump.broker.delay.level_records import TIMERS, delay_level
from turbopump.broker.groups.groups import SubscriptionGroups
from turbopump.broker.produce.kinds import IncomingMessage, Placement, WaitingKinds
from turbopump.broker.produce.receipt import Receipts
from turbopump.broker.produce.targets import SendTargets
from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.storage import Storage
from turbopump.broker.topics import FAQ, Topic
from turbopump.protocol import batch, inner, light, properties
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, reply
from turbopump.protocol.errors import BrokenBody, GroupNotFound, Refused
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.headers.send import SendMessageRequest, SendMessageV2Request
from turbopump.protocol.names import RETRY_PREFIX, dlq_topic
from turbopump.protocol.sysflag import INNER_BATCH, MULTI_TAGS, TRANSACTION_MASK
from turbopump.remoting.router import Request, Route, Routes
from turbopump.runtime.chance import Chance
from turbopump.store.append import Appended, Draft
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.delays import DELIVER_AT

log = logging.getLogger(__name__)

TOO_MANY_LIGHTS = (
    "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq consumeQueue num "
    "exceed maxLmqConsumeQueueNum config num"
)
MAX_BATCH = 65_536  # messages: more would block the loop for too long
COUNTS_RETRIES_SINCE = 121  # version V3_4_9: before it, clients did not know a group's maximum

DEAD_LETTER_LEVEL = "-1"  # DELAY of a retry that became a dead letter on its way in, as in Apache 5.x
SET_BY_BROKER = (properties.MSG_REGION, properties.TRACE_ON, properties.CLUSTER)
NEVER_STORED = (properties.POP_CK, DELIVER_AT, properties.INNER_MULTI_QUEUE_OFFSET)
NOT_PLAIN = frozenset(
    (
        *(*SET_BY_BROKER, *NEVER_STORED),
        *(properties.INNER_NUM, properties.PRIORITY, properties.INNER_MULTI_DISPATCH),
    )
)
"""A message with one of these properties is rewritten, kept elsewhere or refused: it is never plain. Neither
is one with a property of a kind that waits (`kinds.py`).
"""


@dataclass(frozen=True, slots=True)
class PreparedRecords:
    """The drafts of a send request that passed all checks but is not stored yet, and data for its answer."""

    drafts: list[Draft]
    queue_id: int
    unique_key: str | None
    waits: bool  # the answer waits for flush and replica
    placement: Placement | None = None  # of a message that waits before it goes to its queue
    is_inner_batch: bool = False  # many messages, one record


class SendHandler:
    """Handles single sends and batches on the general path, one request at a time."""

    def __init__(
        self,
        store: Storage,
        targets: SendTargets,
        groups: SubscriptionGroups,
        receipts: Receipts,
        kinds: WaitingKinds,
        writer: MessageWriter,
        chance: Chance,
        next_unique_key: Callable[[], str],
        in_order: Callable[[str], bool] = lambda group: False,
    ) -> None:
        """Keeps the objects that sends use. `in_order` returns whether a group consumes in order.

        A group consumes in order while it holds locks of queues.
        """
        self._store = store
        self._targets = targets
        self._groups = groups
        self._receipts = receipts
        self._kinds = kinds
        self._writer = writer
        self._chance = chance
        self._next_unique_key = next_unique_key
        self._in_order = in_order
        self._max_message_size = targets.rules.max_message_size
        self._added = targets.rules.added_properties()
        self._not_plain_names = tuple(name.encode() for name in sorted(NOT_PLAIN | kinds.properties))
        self._acknowledgement = writer.acknowledgement
        self._traffic = writer.traffic
        self._together = store.compiled.groups() if self._acknowledgement.immediate is not None else None
        self._id_front = receipts.store_host.hex().upper().encode()

    def routes(self) -> Routes:
        fields = self._receipts.refused
        long: Route[SendMessageRequest] = Route(
            SendMessageRequest, self.send, oneway_as="send", refused_fields=fields
        )
        short: Route[SendMessageRequest] = Route(
            SendMessageV2Request, self.send, oneway_as="send", refused_fields=fields
        )
        return {
            RequestCode.SEND_MESSAGE: long,
            RequestCode.SEND_MESSAGE_V2: short,
            RequestCode.SEND_BATCH_MESSAGE: short,
        }

    def send(self, request: Request[SendMessageRequest]) -> Command | None:
        if (answered := self._plain_batch(request)) is not None:
            return answered
        prepared = self.prepare(request.header, request.command.body, request)
        appended = self._writer.append(prepared.drafts, together=True)
        if prepared.placement is not None:
            self._kinds.stored(prepared.drafts, appended)
        acknowledgement, began = self._acknowledgement, self._writer.monotonic()
        if not prepared.waits:
            return self._answer(request, prepared, appended, acknowledgement.unawaited)

        def answer(safety: Safety) -> Command:
            if acknowledgement.immediate is None:
                self._writer.took_since(began, prepared.drafts)
            return self._answer(request, prepared, appended, safety)

        offset, _, size = appended[-1]
        return acknowledgement.answer(request, offset + size, len(request.command.body), answer)

    def _plain_batch(self, request: Request[SendMessageRequest]) -> Command | None:
        """Stores a batch of plain messages in one compiled step, returns the answer; None: nothing stored."""
        together, header, body = self._together, request.header, request.command.body
        largest, is_retry = self._max_message_size, header.topic.startswith(RETRY_PREFIX)
        if together is None or not header.batch or header.queueId < 0 or is_retry or len(body) > largest:
            return None
        topic = self._targets.find(header, request.connection.peer)
        pairs = properties.parse(header.properties or "")
        self._refuse_in_batch(pairs)
        queue = self._store.queues.queue(topic.name, header.queueId)
        numbers = _sys_flag(header, topic), header.reconsumeTimes or 0, header.bornTimestamp
        if queue.is_batch or not _fit(*numbers):
            return None
        host = request.connection.peer_host
        done = self._writer.append_group(
            lambda arrivals: together.batch(
                body, queue, *numbers, host, self._not_plain_names, largest, self._id_front, arrivals
            ),
            lambda done: [queue] * done[2],
        )
        if done is None:
            return None
        ids, first, count = done
        if count > 1:
            self._traffic.together[queue] += count - 1
        unique_key, waits = pairs.get(properties.UNIQUE_KEY), pairs.get(properties.WAIT) != "false"
        known = self._acknowledgement.immediate if waits else self._acknowledgement.unawaited
        assert known is not None  # otherwise there is no compiled step
        fields = self._receipts.fields_with(header.queueId, ids, first, unique_key, known)
        return reply(request.command, known.code, None, fields)

    def prepare(
        self,
        header: SendMessageRequest,
        body: bytes,
        request: Request[SendMessageRequest],
        may_be_empty: bool = False,
    ) -> PreparedRecords:
        peer = request.connection.peer
        topic = self._targets.find(header, peer)
        if header.batch:
            return self._prepare_batch(header, body, topic, request)
        queue_id = self._queue_id(header, topic)
        pairs = properties.parse(header.properties or "")
        if header.topic.startswith(RETRY_PREFIX) and self._is_dead(header, request.command.version):
            topic = self._targets.topics.for_group(dlq_topic(header.topic[len(RETRY_PREFIX) :]), 1)
            pairs[properties.DELAY] = DEAD_LETTER_LEVEL
            first = pairs.get(properties.RETRY_TOPIC, header.topic)
            self._traffic.dead_letters[header.topic[len(RETRY_PREFIX) :], first] += 1
            target = 0
        else:
            target = queue_id
        if not body and not may_be_empty:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the message body is empty")
        self._check_size(body)
        level = delay_level(pairs)
        if (priority := _priority(pairs, level)) is not None:
            queue_id = target = max(0, min(priority, topic.write_queues - 1))
        count = self._inner_messages(header, topic, body, pairs)
        self._check_lights(pairs)
        unique_key = pairs.get(properties.UNIQUE_KEY)
        if unique_key is None:
            unique_key = pairs[properties.UNIQUE_KEY] = self._next_unique_key()
        message = IncomingMessage(pairs, topic.name, target, unique_key, header.reconsumeTimes or 0)
        placement = self._kinds.claim(message)
        queue = self._store.queues.queue(topic.name, target) if placement is None else placement.queue
        if header.sysFlag & INNER_BATCH:
            if placement is not None:
                raise Refused(ResponseCode.MESSAGE_ILLEGAL, "an inner batch cannot wait for anything")
            pairs[properties.INNER_BASE] = str(queue.next_offset)
        stored = self._stored(pairs)
        if placement is not None:
            if len(stored) > placement.max_properties:
                remark = (
                    f"the message has {len(stored)} bytes of properties, more than {placement.max_properties}"
                )
                raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
            stored += placement.suffix
        draft = self._draft(header, queue, body, stored, pairs, topic, request)
        draft.count = count
        waits = pairs.get(properties.WAIT) != "false"
        if placement is None:
            return PreparedRecords([draft], queue_id, unique_key, waits)
        draft.delay_ms = placement.delay_ms
        return PreparedRecords([draft], queue_id, unique_key, waits, placement)

    def _queue_id(self, header: SendMessageRequest, topic: Topic) -> int:
        """Returns the queue id that a send names; for a negative one, a random write queue."""
        if header.queueId >= 0:
            return header.queueId
        if topic.write_queues <= 0:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the topic[{topic.name}] has no queue to write to")
        return self._chance.randrange(topic.write_queues)

    def _is_dead(self, header: SendMessageRequest, version: int) -> bool:
        """Returns whether a message sent to a retry topic is stored as a dead letter instead.

        It is when its group has tried it often enough, and when the group consumes in order: then it sends
        back only messages that it gives up.
        """
        name = header.topic[len(RETRY_PREFIX) :]
        group = self._groups.find_or_create(name)
        if group is None:
            raise GroupNotFound(f"subscription group not exist, {name} {FAQ}")
        max_retries = group.retry_max_times
        if version >= COUNTS_RETRIES_SINCE and header.maxReconsumeTimes is not None:
            max_retries = header.maxReconsumeTimes
        return (header.reconsumeTimes or 0) > max_retries or self._in_order(name)

    def _prepare_batch(
        self,
        header: SendMessageRequest,
        body: bytes,
        topic: Topic,
        request: Request[SendMessageRequest],
    ) -> PreparedRecords:
        if header.topic.startswith(RETRY_PREFIX):
            remark = f"batch request does not support retry group {header.topic}"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        self._check_size(body)
        pairs = properties.parse(header.properties or "")
        self._refuse_in_batch(pairs)
        try:
            messages = batch.split(body)
        except BrokenBody as broken:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the batch cannot be read: {broken}") from None
        if not 0 < len(messages) <= MAX_BATCH:
            remark = f"the batch holds {len(messages)} messages, not 1 to {MAX_BATCH}"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        queue_id = self._queue_id(header, topic)
        queue = self._store.queues.queue(topic.name, queue_id)
        if queue.is_batch and (unique_key := pairs.get(properties.UNIQUE_KEY)):
            return self._inner_batch(header, body, messages, pairs, queue, topic, request, unique_key)
        drafts = []
        for flag, message, stored in messages:
            own = properties.parse(stored)
            self._refuse_in_batch(own)
            self._check_lights(own)
            if properties.INNER_MULTI_QUEUE_OFFSET in own:
                stored = properties.without(stored, light.OFFSETS_MARK)
            draft = self._draft(header, queue, message, stored, own, topic, request)
            draft.flag = flag
            drafts.append(draft)
        return PreparedRecords(
            drafts, queue_id, pairs.get(properties.UNIQUE_KEY), pairs.get(properties.WAIT) != "false"
        )

    def _inner_batch(
        self,
        header: SendMessageRequest,
        body: bytes,
        messages: list[inner.Message],
        pairs: dict[str, str],
        queue: ConsumeQueue,
        topic: Topic,
        request: Request[SendMessageRequest],
        unique_key: str,
    ) -> PreparedRecords:
        """Prepares a batch for a topic of type BatchCQ, in which it is stored as one record.

        Its queue offset is known: nothing is appended before it.
        """
        for _, _, stored in messages:
            self._refuse_in_batch(properties.parse(stored))
        if len(messages) > inner.MAX_MESSAGES:
            remark = f"the batch holds {len(messages)} messages, more than {inner.MAX_MESSAGES}"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        pairs.pop(properties.INNER_MULTI_DISPATCH, None)
        pairs[properties.INNER_NUM] = str(len(messages))
        pairs[properties.INNER_BASE] = str(queue.next_offset)
        draft = self._draft(header, queue, body, self._stored(pairs), pairs, topic, request)
        draft.sys_flag |= inner.FLAGS
        draft.count = len(messages)
        waits = pairs.get(properties.WAIT) != "false"
        return PreparedRecords([draft], queue.queue_id, unique_key, waits, is_inner_batch=True)

    def _inner_messages(
        self, header: SendMessageRequest, topic: Topic, body: bytes, pairs: dict[str, str]
    ) -> int:
        """Returns how many messages a send has: 1, or those of an inner batch; raises Refused if invalid."""
        if not header.sysFlag & INNER_BATCH:
            if properties.INNER_NUM in pairs:
                raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a message that is no inner batch has INNER_NUM")
            return 1
        if topic.attributes.get(inner.QUEUE_TYPE) != inner.OF_BATCHES:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"{topic.name} is no topic for inner batches")
        try:
            messages = inner.checked(body, pairs)
        except BrokenBody as broken:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"no inner batch: {broken}") from None
        pairs.pop(properties.INNER_MULTI_DISPATCH, None)
        for _, _, stored in messages:
            self._refuse_in_batch(properties.parse(stored))
        return len(messages)

    def _draft(
        self,
        header: SendMessageRequest,
        queue: ConsumeQueue,
        body: bytes,
        stored: bytes,
        pairs: dict[str, str],
        topic: Topic,
        request: Request[SendMessageRequest],
    ) -> Draft:
        if len(stored) > properties.MAX_BYTES:
            remark = f"the message has {len(stored)} bytes of properties, more than {properties.MAX_BYTES}"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        check_zeros(stored)
        tag = pairs.get(properties.TAGS)
        return Draft(
            queue=queue,
            body=body,
            properties=stored,
            flag=header.flag,
            sys_flag=_sys_flag(header, topic),
            born_timestamp=header.bornTimestamp,
            born_host=request.connection.peer_host,
            reconsume_times=header.reconsumeTimes or 0,
            tags_code=java_hash(tag) if tag else 0,
            unique_key=pairs.get(properties.UNIQUE_KEY, ""),
            keys=pairs.get(properties.KEYS, ""),
        )

    def _refuse_in_batch(self, pairs: dict[str, str]) -> None:
        """Raises Refused if a message with these properties cannot be part of a batch."""
        self._kinds.refuse_in_batch(pairs)
        if properties.INNER_NUM in pairs:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a message that is no inner batch has INNER_NUM")

    def _stored(self, pairs: dict[str, str]) -> bytes:
        """Returns the packed properties to store: the producer's without reserved ones, then the broker's."""
        kept = {name: value for name, value in pairs.items() if not _dropped(name)}
        return properties.pack(kept).encode() + self._added

    def _check_lights(self, pairs: dict[str, str]) -> None:
        """Raises Refused if a message names invalid light queues, or if there would be too many.

        Also when the properties have no space for the offsets in the light queues.
        """
        text = pairs.get(properties.INNER_MULTI_DISPATCH)
        lights = self._store.lights
        if text is None or lights is None:
            return
        names = light.named(text)
        if bad := [name for name in names if not light.is_good(name)]:
            remark = f"INNER_MULTI_DISPATCH names {bad[0]}, which can be no light queue: %LMQ% and no path"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        if not lights.has_capacity_for(names):
            raise Refused(ResponseCode.SYSTEM_ERROR, TOO_MANY_LIGHTS)
        size = len(properties.pack(pairs).encode()) + len(self._added)
        limit = properties.MAX_BYTES - light.offsets_size(names)
        if size > limit:
            remark = f"properties must be at most {limit} bytes with {len(names)} light queues, got {size}"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)

    def _check_size(self, body: bytes) -> None:
        if len(body) > self._max_message_size:
            limit = self._max_message_size
            remark = f"the message body has {len(body)} bytes, more than maxMessageSize {limit}"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)

    def _answer(
        self,
        request: Request[SendMessageRequest],
        prepared: PreparedRecords,
        appended: list[Appended],
        safety: Safety,
    ) -> Command:
        ext = self._receipts.fields(prepared.queue_id, appended, prepared.unique_key, safety)
        if prepared.placement is not None:
            ext |= prepared.placement.fields
        if prepared.is_inner_batch and prepared.unique_key is not None:
            ext["batchUniqId"] = prepared.unique_key
        return reply(request.command, safety.code, safety.remark or None, ext)


def check_zeros(stored: bytes) -> None:
    """Raises Refused for properties whose NULs recovery would take for data lost in a power cut."""
    if properties.looks_lost(stored):
        remark = f"the properties have {properties.SECTOR} NULs in a row, or one at their end: use the body"
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)


def _priority(pairs: dict[str, str], level: int) -> int | None:
    """Returns the queue id that PRIORITY asks for, or None; deletes it if delayed, ordered or a half message.

    The higher the priority, the higher the queue id (Apache 5.5).

    A message of another kind (delayed, in a transaction, in order) has none, and loses the property.
    """
    priority = properties.number(pairs.get(properties.PRIORITY, ""))
    if priority is None or priority < 0:
        return None
    is_in_transaction = pairs.get(properties.TRANSACTION_PREPARED) == "true"
    if level > 0 or is_in_transaction or any(name in pairs for name in (*TIMERS, properties.SHARDING_KEY)):
        del pairs[properties.PRIORITY]
        return None
    return priority


def tag_bits(topic: Topic) -> int:
    """Returns the sys flag bits of a topic's messages that say whether they have several tags."""
    return MULTI_TAGS if topic.filter_type == "MULTI_TAG" else 0


def _sys_flag(header: SendMessageRequest, topic: Topic) -> int:
    return (header.sysFlag & ~TRANSACTION_MASK) | tag_bits(topic)


def _fit(sys_flag: int, reconsume_times: int, born_timestamp: int) -> bool:
    """Returns whether the numbers fit into the fields of a record: 32 bits, 32 bits and 64 bits, signed."""
    is_small = all(-(1 << 31) <= number < 1 << 31 for number in (sys_flag, reconsume_times))
    return is_small and -(1 << 63) <= born_timestamp < 1 << 63


def _dropped(name: str) -> bool:
    return name in SET_BY_BROKER or name in NEVER_STORED
