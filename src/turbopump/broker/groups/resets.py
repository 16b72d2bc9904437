"""Resets the offsets of a group: to a time, to the end of the queues, or to an offset (222).

There are two ways, chosen by `useServerSideResetOffset`. On the broker, as 5.x does by default: the new
offsets are stored (`offsets.py`), the group's next pull is answered with them, and it works for a stopped
group too. Or through the consumers, as 4.9 does: the new offsets go to every member of the group (220,
one-way), which stops, moves and goes on; the stored offsets do not change, and a group without members is
refused (206), whereupon tools commit the offsets themselves.
"""

import logging
from collections.abc import Callable, Iterable

from turbopump.broker.groups.groups import SubscriptionGroups
from turbopump.broker.groups.members import Members
from turbopump.broker.groups.offsets import NONE, CommittedOffsets
from turbopump.broker.storage import Storage
from turbopump.broker.topics import Topic, TopicTable
from turbopump.protocol.bodies import QueueOffset, ResetOffsetBody, ResetOffsetBodyForC, WireQueue
from turbopump.protocol.codes import RequestCode, version_name
from turbopump.protocol.command import NOT_SET
from turbopump.protocol.command import request as new_request
from turbopump.protocol.errors import ConsumerNotOnline, GroupNotFound, SystemFailure, TopicNotFound
from turbopump.protocol.headers.client import ResetOffsetRequest
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Answer, Request, Route, Routes

log = logging.getLogger(__name__)

RESETS_SINCE = 28  # V3_0_7_SNAPSHOT: older clients do not know the request
ALL_QUEUES = -1
FOR_C = "CPP"  # the language of a client that reads a list where others read a map

OffsetsReset = Callable[[str, str, Iterable[int]], None]


class ResetHandler:
    """Handles offset resets; calls `tell_pulls` with group, topic and queue ids after one on the broker."""

    def __init__(
        self,
        offsets: CommittedOffsets,
        topics: TopicTable,
        groups: SubscriptionGroups,
        members: Members[Connection],
        store: Storage,
        broker_name: str,
        resets_here: Callable[[], bool],
        tell_pulls: OffsetsReset,
    ) -> None:
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._members = members
        self._store = store
        self._broker_name = broker_name
        self._resets_here = resets_here
        self._tell_pulls = tell_pulls

    def routes(self) -> Routes:
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Route(ResetOffsetRequest, self.reset)}

    def reset(self, request: Request[ResetOffsetRequest]) -> Answer:
        return self._here(request) if self._resets_here() else self._through_consumers(request)

    def _here(self, request: Request[ResetOffsetRequest]) -> Answer:
        header = request.header
        topic = self._topics.find(header.topic)
        if topic is None:
            raise TopicNotFound(f"Topic {header.topic} does not exist")
        if self._groups.find(header.group) is None:
            raise GroupNotFound(f"Group {header.group} does not exist")
        offsets = self._targets(header, topic)
        for queue_id, offset in offsets.items():
            self._offsets.reset(header.group, header.topic, queue_id, offset)
        log.warning(
            "Offsets of group %s on %s reset by %s: %s",
            *(header.group, header.topic, request.connection, offsets),
        )
        self._tell_pulls(header.group, header.topic, offsets)
        return Answer(body=self._body(header.topic, offsets).encode())

    def _targets(self, header: ResetOffsetRequest, topic: Topic) -> dict[int, int]:
        """Returns the new offset of each queue to reset, by queue id; raises SystemFailure without queues."""
        queue_id = ALL_QUEUES if header.queueId is None else header.queueId
        if queue_id < 0:
            offsets = {number: self._by_time(header, number) for number in range(topic.read_queues)}
        elif queue_id < max(topic.read_queues, topic.write_queues):
            offsets = {queue_id: self._in_queue(header, queue_id)}
        else:
            self._in_queue(header, queue_id)  # refuses any offset but 0, as for an empty queue
            offsets = {}
        if not offsets:
            raise SystemFailure("No queues to reset.")
        return offsets

    def _in_queue(self, header: ResetOffsetRequest, queue_id: int) -> int:
        if header.offset is None or header.offset == NONE:
            return self._by_time(header, queue_id)
        queue = self._store.queues.find(header.topic, queue_id)
        low, high = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
        if not low <= header.offset <= high:
            raise SystemFailure(f"Target offset {header.offset} not in consume queue range [{low}-{high}]")
        return header.offset

    def _by_time(self, header: ResetOffsetRequest, queue_id: int) -> int:
        """Returns the queue offset at the header's timestamp; the end of the queue if that is negative."""
        queue = self._store.queues.find(header.topic, queue_id)
        if queue is None:
            return 0
        if header.timestamp < 0:
            return queue.max_offset
        return self._store.times.offset_by_time(queue, header.timestamp)

    def _through_consumers(self, request: Request[ResetOffsetRequest]) -> Answer:
        header = request.header
        topic = self._topics.find(header.topic)
        if topic is None:
            raise TopicNotFound(
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}"
            )
        offsets = {number: self._target(header, number) for number in range(topic.write_queues)}
        group = self._members.consumer_group(header.group)
        if group is None:
            raise ConsumerNotOnline(
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}"
            )
        body = self._body(header.topic, offsets)
        order = new_request(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            ResetOffsetRequest(
                header.topic, header.group, header.timestamp, isForce=False, queueId=ALL_QUEUES
            ),
            _for_c(body).encode() if request.command.language == FOR_C else body.encode(),
        )
        for member in list(group.members.values()):
            if member.version < RESETS_SINCE:
                name = version_name(member.version)
                raise SystemFailure(f"the client does not support this feature. version={name}")
            member.connection.send_oneway(order)
        words = "Members of group %s asked by %s to reset their offsets on %s: %s"
        log.warning(words, header.group, request.connection, header.topic, offsets)
        return Answer(body=body.encode(), remark=NOT_SET)

    def _target(self, header: ResetOffsetRequest, queue_id: int) -> int:
        """Returns the offset at the header's timestamp, at most the committed one unless `isForce` is set.

        Raises SystemFailure for a group that has committed nothing on the queue.
        """
        committed = self._offsets.query(header.group, header.topic, queue_id)
        if committed == NONE:
            raise SystemFailure(f"THe consumer group <{header.group}> not exist")
        target = self._by_time(header, queue_id)
        return target if header.isForce else min(target, committed)

    def _body(self, topic: str, offsets: dict[int, int]) -> ResetOffsetBody:
        name = self._broker_name
        return ResetOffsetBody(
            offsetTable={WireQueue(name, queue_id, topic): offset for queue_id, offset in offsets.items()}
        )


def _for_c(body: ResetOffsetBody) -> ResetOffsetBodyForC:
    rows = [
        QueueOffset(brokerName=queue.brokerName, offset=offset, queueId=queue.queueId, topic=queue.topic)
        for queue, offset in body.offsetTable.items()
    ]
    return ResetOffsetBodyForC(offsetTable=rows)
