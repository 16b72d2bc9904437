"""Finds stored messages by id, key or offset, passes one to a consumer, and tells which groups read it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from enum import Enum

from turbopump.client.admin.calls import AdminCalls, NotFound, together
from turbopump.client.admin.clusters import Clusters
from turbopump.client.admin.connections import Connections, NobodyOnline
from turbopump.client.admin.groups import Groups, NoProgress
from turbopump.client.admin.topics import Topics
from turbopump.client.group.subscription import Subscription
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.pull.puller import BATCH, Puller, PullResult
from turbopump.protocol import bodies, record
from turbopump.protocol.addresses import MAX_PORT, join_address
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.display import NotebookTable
from turbopump.protocol.errors import BrokenRecord, QueryNotFound, Refused, SystemFailure
from turbopump.protocol.headers.client import ConsumeMessageDirectlyRequest
from turbopump.protocol.headers.query import QueryMessageRequest, ViewMessageRequest
from turbopump.protocol.ids import parse_offset_id, unpack_host

QUERY_TIMEOUT_S = 18.0
CONSUME_TIMEOUT_S = 15.0
FOREVER_MS = (1 << 63) - 1
MAX_UNIQUE = 32  # messages of one unique key; the server's limit
INDEX_STEP_MS = 1000  # an index knows whole seconds


class NoMessages(NotFound):
    """No broker of the topic has a message with that id or key."""


class TrackType(Enum):
    """The state of a message in a consumer group, by Apache's names."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, repr=False)
class Track(NotebookTable):
    """The state of a message in one consumer group, and for some states the reason."""

    group: str
    type: TrackType
    reason: str | None = None


@dataclass
class Messages:
    """Finds stored messages by id, key or offset, passes one to a consumer, and tells which groups read it.

    Example:

        for message in await admin.messages.by_key("OrderTopic", "A-1"):
            print(message.message_id, message.text)
            for track in await admin.messages.tracks(message):
                print(track.group, track.type)
    """

    asking: AdminCalls
    topics: Topics
    clusters: Clusters
    connections: Connections
    groups: Groups
    puller: Puller

    def as_group(self, group: str) -> "Messages":
        """Returns a copy of this object that pulls as group `group`; the group's offsets do not change."""
        return replace(self, puller=replace(self.puller, group=group))

    async def at_offset_id(self, message_id: str, topic: str | None = None) -> MessageExt:
        """Returns the message that an offset id names, of any topic. Raises Refused when there is none.

        `topic` is part of the request; our broker does not check it.

        Example:

            await admin.messages.at_offset_id("7F00000100002A9F00000000000000DE")
        """
        ip, port, offset = parse_offset_id(message_id)
        if not 0 < port <= MAX_PORT:
            raise SystemFailure(f"illegal message id {message_id!r}")
        header = ViewMessageRequest(offset, topic)
        answer = await self.asking.ask(join_address(ip, port), RequestCode.VIEW_MESSAGE_BY_ID, header)
        return received(record.decode(answer.body))

    async def find(self, topic: str, message_id: str) -> MessageExt:
        """Returns a message by its offset id, of any topic, or its unique id in `topic`. Raises NoMessages.

        Example:

            message = await admin.messages.find("OrderTopic", receipt.message_id)
        """
        try:
            return await self.at_offset_id(message_id, topic)
        except (Refused, OSError, BrokenRecord):  # a unique key may look like the other kind
            return (await self.by_unique_key(topic, message_id))[0]

    async def by_key(
        self,
        topic: str,
        key: str,
        max_count: int = 64,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
    ) -> list[MessageExt]:
        """Returns messages with a key, up to `max_count` per broker, by store time. Raises NoMessages.

        Example:

            await admin.messages.by_key("OrderTopic", "A-1", max_count=10)
        """
        header = QueryMessageRequest(topic, key, max_count, begin_ms, end_ms, unique_key_query=False)
        found = [one for one in await self._query(header) if key in one.keys]
        if not found:
            raise NoMessages(f"no message of topic {topic} has the key {key}")
        return found

    async def by_unique_key(
        self, topic: str, unique_key: str, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[MessageExt]:
        """Returns the newest copies of a message, 32 per broker, by store time. Raises NoMessages."""
        header = QueryMessageRequest(topic, unique_key, MAX_UNIQUE, begin_ms, end_ms, unique_key_query=True)
        found = [one for one in await self._query(header) if one.message_id == unique_key]
        if not found:
            raise NoMessages(f"topic {topic} has no message {unique_key}")
        return found

    async def every_copy(self, topic: str, unique_key: str, begin_ms: int) -> list[MessageExt]:
        """Returns all copies of a message stored since `begin_ms`, by store time; empty: there are none.

        One answer has the newest ones: older ones are asked for until no more come.
        """
        begin_ms = max(begin_ms - INDEX_STEP_MS, 0)

        async def ask(address: str) -> list[MessageExt]:
            found: dict[int, MessageExt] = {}
            end_ms = FOREVER_MS
            while True:
                header = QueryMessageRequest(
                    topic, unique_key, MAX_UNIQUE, begin_ms, end_ms, unique_key_query=True
                )
                answered = await self._query_at(address, header)
                known = len(found)
                found |= {one.record.physical_offset: one for one in answered}
                if len(found) == known:
                    return [one for one in found.values() if one.message_id == unique_key]
                end_ms = min(one.store_timestamp for one in answered)

        return await self._of_all_brokers(topic, ask)

    async def at_offset(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """Returns the message at a queue offset; None: the queue has none there.

        Example:

            await admin.messages.at_offset(MessageQueue("OrderTopic", "broker-a", 0), 41)
        """
        result = await self.puller.pull(queue, offset, max_count=1, hold_s=0)
        found = result.messages(queue, Subscription(queue.topic))
        return found[0] if found else None

    async def pulls(
        self,
        queue: MessageQueue,
        begin: int,
        end: int,
        expression: str = "*",
        max_count: int = BATCH,
    ) -> AsyncIterator[PullResult]:
        """Pulls a queue from offset `begin` up to `end`, exclusive, and yields the result of each pull.

        It stops before `end` where the queue ends.
        """
        offset = begin
        while offset < end:
            result = await self.puller.pull(
                queue, offset, expression, max_count=min(max_count, end - offset), hold_s=0
            )
            yield result
            if result.next_offset <= offset:
                return
            offset = result.next_offset

    async def consume_directly(
        self, message: MessageExt, group: str, client_id: str
    ) -> bodies.ConsumeMessageDirectlyResult:
        """Makes one member of a group consume one message, without changing offsets; returns its result.

        Example:

            result = await admin.messages.consume_directly(message, "billing", member.clientId)
            print(result.consumeResult, result.remark)
        """
        header = ConsumeMessageDirectlyRequest(
            group, client_id, message.offset_message_id, topic=message.record.topic
        )
        address = join_address(*unpack_host(message.record.store_host))
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        answer = await self.asking.ask(address, code, header, timeout_s=CONSUME_TIMEOUT_S)
        return bodies.ConsumeMessageDirectlyResult.decode(answer.body)

    async def tracks(self, message: MessageExt) -> list[Track]:
        """Returns the state of a message in each consumer group that reads its topic."""
        topic = message.record.topic
        return [await self._track(message, group) for group in await self.topics.consumers(topic)]

    async def _track(self, message: MessageExt, group: str) -> Track:
        try:
            members = await self.connections.consumers(group)
        except NobodyOnline:
            not_online = ResponseCode.CONSUMER_NOT_ONLINE.value
            reason = f"CODE:{not_online} DESC:the consumer group[{group}] not online"
            return Track(group, TrackType.NOT_ONLINE, reason)
        except (Refused, OSError) as error:
            return Track(group, TrackType.UNKNOWN, str(error))
        if members.consumeType == "CONSUME_ACTIVELY":
            return Track(group, TrackType.PULL)
        try:
            is_consumed = await self._is_consumed(message, group)
        except NoProgress:
            is_broadcast = members.messageModel == "BROADCASTING"
            return Track(group, TrackType.CONSUME_BROADCASTING if is_broadcast else TrackType.UNKNOWN)
        except (Refused, OSError) as error:
            return Track(group, TrackType.UNKNOWN, str(error))
        if not is_consumed:
            return Track(group, TrackType.NOT_CONSUME_YET)
        wanted = members.subscriptionTable.get(message.record.topic)
        is_filtered = wanted is not None and bool(wanted.tagsSet) and message.tags not in wanted.tagsSet
        return Track(group, TrackType.CONSUMED_BUT_FILTERED if is_filtered else TrackType.CONSUMED)

    async def _is_consumed(self, message: MessageExt, group: str) -> bool:
        layout = await self.clusters.layout()
        at = join_address(*unpack_host(message.record.store_host))
        places = {
            bodies.WireQueue(broker.name, message.record.queue_id, message.record.topic)
            for broker in layout.brokers
            if broker.address == at
        }
        offsets = (await self.groups.progress(group)).offsetTable
        return any(
            queue in places and position.consumerOffset > message.offset
            for queue, position in offsets.items()
        )

    async def _query(self, header: QueryMessageRequest) -> list[MessageExt]:
        return await self._of_all_brokers(header.topic, lambda address: self._query_at(address, header))

    async def _query_at(self, address: str, header: QueryMessageRequest) -> list[MessageExt]:
        code = RequestCode.QUERY_MESSAGE
        try:
            answer = await self.asking.ask(address, code, header, timeout_s=QUERY_TIMEOUT_S)
        except QueryNotFound:
            return []
        return [received(one) for one in record.decode_all(answer.body)]

    async def _of_all_brokers(
        self, topic: str, ask: Callable[[str], Awaitable[list[MessageExt]]]
    ) -> list[MessageExt]:
        addresses = (await self.topics.readers(topic)).values()
        found = [message for part in await together(ask, addresses) for message in part]
        return sorted(found, key=lambda message: message.store_timestamp)


def received(one: record.Record) -> MessageExt:
    """Makes a `MessageExt` of a record that was looked up, with an empty broker name in its queue."""
    return MessageExt(one, MessageQueue(one.topic, "", one.queue_id))
