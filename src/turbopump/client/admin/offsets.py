"""Moves the offsets of a group: to a time, to the end, or to those of another group.

Brokers since 5.2 move them by themselves, whether the group runs or not. Older ones only notify the members,
and answer that no member is online when the group is stopped: then the offsets are moved here, queue by
queue.
"""

from dataclasses import dataclass, field

from turbopump.client.admin.calls import AdminCalls
from turbopump.client.admin.clusters import BrokerNotFound
from turbopump.client.admin.groups import Groups, NoProgress
from turbopump.client.admin.topics import Topics
from turbopump.client.message import MessageQueue
from turbopump.client.times import Time, past_ms
from turbopump.protocol import bodies
from turbopump.protocol.codes import V5_2_0, RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.display import NotebookTable
from turbopump.protocol.errors import ConsumerNotOnline, QueryNotFound
from turbopump.protocol.headers.client import ResetOffsetRequest
from turbopump.protocol.headers.offsets import (
    GetMaxOffsetRequest,
    OffsetResponse,
    QueryConsumerOffsetRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from turbopump.runtime.clock import Clock, SystemClock

END = -1
"""Instead of a time: behind the last message."""


@dataclass(frozen=True, slots=True, repr=False)
class Rollback(NotebookTable):
    """The offsets of a queue of a stopped group before and after a reset."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    time_offset: int
    """The offset of the time in the queue."""
    reset_offset: int
    """The new offset: `time_offset`, or the old one when only moving back was allowed."""


@dataclass
class Offsets:
    """Moves the offsets of a group: to a time, to the end, or to those of another group.

    Example:

        await admin.offsets.reset_to("billing", "OrderTopic", "2026-11-01T00:00:00Z")
        await admin.offsets.reset_to("billing", "OrderTopic", END)
        await admin.offsets.clone("billing", "audit", "OrderTopic")
    """

    asking: AdminCalls
    topics: Topics
    groups: Groups
    clock: Clock = field(default_factory=SystemClock)

    async def reset_to(
        self, group: str, topic: str, when: Time, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Moves a group to the first messages stored at `when` or later; returns the new offsets by queue.

        The group may run or not. `when` is a datetime with a time zone, a negative timedelta from now,
        milliseconds since 1970, ISO text with a zone, an age such as `10m`, or END. Without `force` only
        back. Raises GroupNotFound for a group that a broker does not know.
        """
        time_ms = END if when == END else past_ms(when, self.clock.now_ms())
        try:
            return await self.reset(group, topic, time_ms, force)
        except ConsumerNotOnline:
            moved = await self.reset_stopped(group, topic, time_ms, force)
            return {one.queue: one.reset_offset for one in moved}

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Returns the committed offset of a group in one queue; None: it never committed one there."""
        addresses = await self.topics.readers(queue.topic)
        header = QueryConsumerOffsetRequest(group, queue.topic, queue.id, bname=queue.broker)
        if queue.broker not in addresses:
            raise BrokerNotFound(f"no broker {queue.broker} has topic {queue.topic}")
        try:
            answer = await self.asking.ask(addresses[queue.broker], RequestCode.QUERY_CONSUMER_OFFSET, header)
        except QueryNotFound:
            return None
        offset = OffsetResponse.from_ext(answer.ext).offset
        return offset if offset >= 0 else None

    async def reset(
        self, group: str, topic: str, time_ms: int, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Makes the brokers move a group to a time, even while it runs; returns the new offsets by queue.

        `force` allows moving forward too. Raises ConsumerNotOnline for a stopped group at an older broker;
        then call `reset_stopped`.
        """
        header = ResetOffsetRequest(topic, group, time_ms, force, queueId=-1, offset=-1)
        found: dict[MessageQueue, int] = {}
        for address in (await self.topics.readers(topic)).values():
            found |= await self._reset_at(address, header)
        return found

    async def reset_stopped(self, group: str, topic: str, time_ms: int, force: bool = True) -> list[Rollback]:
        """Moves a stopped group to a time by commits, queue by queue; returns old and new offsets.

        `force` allows moving forward too. Running members would overwrite the offsets.
        """
        done = []
        for broker, address in (await self.topics.readers(topic)).items():
            for queue, (consumer_offset, broker_offset) in (
                await self._positions(group, topic, broker, address)
            ).items():
                there = await self.offset_at(address, queue, time_ms)
                moves = force or there <= consumer_offset
                if moves:
                    await self.commit(address, group, queue, there)
                reset = there if moves else consumer_offset
                done.append(Rollback(queue, broker_offset, consumer_offset, there, reset))
        return done

    async def reset_queue(self, address: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commits `offset` for a group in one queue; a broker since 5.2 also moves running members there.

        Older brokers can move running members in all queues but not in one.
        """
        answer = await self._commit(address, group, MessageQueue(topic, "", queue_id), offset)
        if answer.version >= V5_2_0:
            header = ResetOffsetRequest(topic, group, 0, True, queueId=queue_id, offset=offset)
            await self._reset_at(address, header)

    async def clone(self, source: str, target: str, topic: str) -> dict[MessageQueue, int]:
        """Commits group `source`'s offsets in a topic for group `target`; returns them by queue.

        Raises NoGroup or NoProgress. All topics of the group are asked for, because a broker asked for one
        topic answers 0 for a group that never committed there.
        """
        addresses = await self.topics.readers(topic)
        cloned: dict[MessageQueue, int] = {}
        for wire, offsets in (await self.groups.progress(source)).offsetTable.items():
            queue = MessageQueue.of_wire(wire)
            if queue.topic == topic and queue.broker in addresses and offsets.consumerOffset >= 0:
                await self.commit(addresses[queue.broker], target, queue, offsets.consumerOffset)
                cloned[queue] = offsets.consumerOffset
        if not cloned:
            raise NoProgress(f"group {source} has committed no offset in topic {topic}")
        return cloned

    async def offset_at(self, address: str, queue: MessageQueue, time_ms: int) -> int:
        """Returns the queue offset of the first message stored at `time_ms` or later, or with END the end."""
        if time_ms == END:
            header = GetMaxOffsetRequest(queue.topic, queue.id, bname=queue.broker or None)
            answer = await self.asking.ask(address, RequestCode.GET_MAX_OFFSET, header)
        else:
            at = SearchOffsetRequest(queue.topic, queue.id, time_ms, bname=queue.broker or None)
            answer = await self.asking.ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, at)
        return OffsetResponse.from_ext(answer.ext).offset

    async def commit(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Commits an offset for a group. A running member keeps its position and overwrites the offset."""
        await self._commit(address, group, queue, offset)

    async def _commit(self, address: str, group: str, queue: MessageQueue, offset: int) -> Command:
        header = UpdateConsumerOffsetRequest(group, queue.topic, queue.id, offset, bname=queue.broker or None)
        return await self.asking.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def _reset_at(self, address: str, header: ResetOffsetRequest) -> dict[MessageQueue, int]:
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        answer = await self.asking.ask(address, code, header)
        if not answer.body:
            return {}
        table = bodies.ResetOffsetBody.decode(answer.body).offsetTable
        return {MessageQueue.of_wire(queue): offset for queue, offset in table.items()}

    async def _positions(
        self, group: str, topic: str, broker: str, address: str
    ) -> dict[MessageQueue, tuple[int, int]]:
        """Returns queue → (group's offset, end of the queue) of a topic on one broker.

        A group without any offset there is at the start of each queue.
        """
        known = (await self.groups.progress_at(address, group)).offsetTable
        found = {
            MessageQueue.of_wire(queue): (offsets.consumerOffset, offsets.brokerOffset)
            for queue, offsets in sorted(known.items())
            if queue.topic == topic
        }
        if found:
            return found
        ends = (await self.topics.stats_at(address, topic)).offsetTable
        return {
            MessageQueue.of_wire(queue): (end.minOffset, end.maxOffset)
            for queue, end in sorted(ends.items())
            if queue.brokerName == broker
        }
