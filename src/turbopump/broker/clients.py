"""Heartbeats, goodbyes, what clients ask about each other (34, 35, 38, 46), and the notice of a change (40).

In: requests. Out: answers, and before the answer of the heartbeat that caused it a one-way 40 to every
member of a group that changed: a consumer that is not told waits up to 20 s before it reads. The table
itself is `members.py`.
"""

import logging
from typing import Protocol

from turbopump.broker.config import GroupRules
from turbopump.broker.members import Member, Members
from turbopump.protocol import names
from turbopump.protocol.bodies import CheckClientRequestBody, ConsumerData, ConsumerListBody, HeartbeatData
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import request as new_request
from turbopump.protocol.errors import SystemFailure
from turbopump.protocol.headers.client import (
    GetConsumerListByGroupRequest,
    HeartbeatResponse,
    NotifyConsumerIdsChangedRequest,
    UnregisterClientRequest,
)
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

SCAN_S = 10.0
MAX_GROUPS = 1000  # in one heartbeat: consumers and producers; each may create a group and its retry topic
MAX_SUBSCRIPTIONS = 10_000  # in one heartbeat, over all its groups
NAMED_GROUPS = 5  # of those that changed, in a log line
UNIT_SUBSCRIBED = 2
TAG_TYPES = (None, "", "TAG")


class TopicView(Protocol):
    @property
    def order(self) -> bool: ...


class TopicTable(Protocol):
    def find(self, name: str) -> TopicView | None: ...
    def for_group(self, name: str, queues: int, order: bool = False, sys_flag: int = 0) -> object: ...


class GroupView(Protocol):
    @property
    def retry_queues(self) -> int: ...

    @property
    def notifies_members(self) -> bool: ...


class GroupTable(Protocol):
    def find(self, name: str) -> GroupView | None: ...
    def find_or_create(self, name: str) -> GroupView | None: ...


class Clients:
    def __init__(
        self,
        members: Members[Connection],
        topics: TopicTable,
        groups: GroupTable,
        clock: Clock,
        rules: GroupRules,
    ) -> None:
        self._members = members
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._rules = rules
        self._watched: set[Connection] = set()

    def routes(self) -> Routes:
        return {
            RequestCode.HEART_BEAT: Route(None, self.heartbeat),
            RequestCode.UNREGISTER_CLIENT: Route(UnregisterClientRequest, self.unregister),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: Route(GetConsumerListByGroupRequest, self.consumer_list),
            RequestCode.CHECK_CLIENT_CONFIG: Route(None, self.check_client),
        }

    def configure(self, rules: GroupRules) -> None:
        self._rules = rules

    def heartbeat(self, request: Request[None]) -> Answer:
        """Nothing of a heartbeat that is too large takes effect."""
        beat = HeartbeatData.decode(request.body)
        _check_size(beat)
        connection = request.connection
        subscriptions_changed = beat.heartbeatFingerprint == 0
        if not connection.is_closing:
            self._watch(connection)
            changed: list[str] = []
            for data in beat.consumerDataSet:
                subscriptions_changed |= self._consumer_beat(data, beat, request, changed)
            for producer in beat.producerDataSet:
                self._members.add_producer(producer.groupName, self._member(beat, request))
            if changed:
                log.info("Consumer groups changed by %s on %s: %s", beat.clientID, connection, _some(changed))
        return Answer(HeartbeatResponse(IS_SUPPORT_HEART_BEAT_V2=True, IS_SUB_CHANGE=subscriptions_changed))

    def unregister(self, request: Request[UnregisterClientRequest]) -> Answer:
        header = request.header
        if header.producerGroup is not None:
            self._members.remove_producer(header.producerGroup, request.connection)
        group = header.consumerGroup
        if group is not None and self._members.remove_consumer(group, request.connection):
            self._notify(group)
        return Answer({})

    def consumer_list(self, request: Request[GetConsumerListByGroupRequest]) -> Answer:
        group = request.header.consumerGroup
        consumers = self._members.consumers(group)
        if not consumers:
            remark = f"no consumer for this group, {group}"
            return Answer({}, code=ResponseCode.SYSTEM_ERROR, remark=remark)
        return Answer({}, ConsumerListBody(consumerIdList=consumers).encode())

    def check_client(self, request: Request[None]) -> Answer:
        """Whether a subscription can be served. Only tags can, as with enablePropertyFilter=false."""
        if request.body:
            subscription = CheckClientRequestBody.decode(request.body).subscriptionData
            if subscription is not None and subscription.expressionType not in TAG_TYPES:
                kind = subscription.expressionType
                remark = f"The broker does not support consumer to filter message by {kind}"
                return Answer(code=ResponseCode.SYSTEM_ERROR, remark=remark)
        return Answer()

    def closed(self, connection: Connection) -> None:
        self._watched.discard(connection)
        for group in self._members.closed(connection):
            self._notify(group)

    def expire(self) -> None:
        """Clients without a heartbeat for too long have left, though their connection may still be open."""
        for connection in self._members.silent(self._clock.now_ms() - self._rules.member_timeout_ms):
            log.info("%s sent no heartbeat for %d s", connection, self._rules.member_timeout_ms // 1000)
            self.closed(connection)
            connection.close()

    async def watch(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._clock.sleep(SCAN_S)
            self.expire()

    def _consumer_beat(
        self, data: ConsumerData, beat: HeartbeatData, request: Request[None], groups: list[str]
    ) -> bool:
        """Whether the client has to tell its subscriptions (again). A group that changed joins `groups`."""
        known = self._members.consumer_group(data.groupName)
        told_before = known.fingerprint if known is not None else None
        changed = told_before is not None and told_before != beat.heartbeatFingerprint
        if beat.withoutSub and (known is None or not known.subscriptions):
            changed = True  # it saves what we do not have: another broker process had it
        group = self._groups.find_or_create(data.groupName)
        if group is None:
            return changed
        self._create_retry_topic(data, group)
        keeps = beat.withoutSub and beat.heartbeatFingerprint != 0
        if self._members.add_consumer(data, self._member(beat, request), keeps_subscriptions=keeps):
            groups.append(data.groupName)
            self._notify(data.groupName)
        found = self._members.consumer_group(data.groupName)
        assert found is not None
        found.fingerprint = beat.heartbeatFingerprint
        return changed

    def _create_retry_topic(self, data: ConsumerData, group: GroupView) -> None:
        """Tools find the brokers of a group by the route of its retry topic: it is there from the start."""
        order = any(self._is_ordered(subscription.topic) for subscription in data.subscriptionDataSet or ())
        sys_flag = UNIT_SUBSCRIBED if data.unitMode else 0
        self._topics.for_group(names.retry_topic(data.groupName), group.retry_queues, order, sys_flag)

    def _is_ordered(self, topic: str) -> bool:
        found = self._topics.find(topic)
        return found is not None and found.order

    def _member(self, beat: HeartbeatData, request: Request[None]) -> Member[Connection]:
        command = request.command
        return Member(
            beat.clientID or "", request.connection, command.language, command.version, self._clock.now_ms()
        )

    def _watch(self, connection: Connection) -> None:
        if connection not in self._watched:
            self._watched.add(connection)
            connection.on_closed.append(self.closed)

    def _notify(self, group: str) -> None:
        found = self._members.consumer_group(group)
        config = self._groups.find(group)
        silent = not self._rules.notify_members or (config is not None and not config.notifies_members)
        if found is None or silent or found.is_broadcasting:
            return
        for connection in found.members:
            header = NotifyConsumerIdsChangedRequest(consumerGroup=group)
            connection.send_oneway(new_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))


def _check_size(beat: HeartbeatData) -> None:
    groups = len(beat.consumerDataSet) + len(beat.producerDataSet)
    if groups > MAX_GROUPS:
        raise SystemFailure(f"a heartbeat may name {MAX_GROUPS} groups, this one names {groups}")
    subscriptions = sum(len(data.subscriptionDataSet or ()) for data in beat.consumerDataSet)
    if subscriptions > MAX_SUBSCRIPTIONS:
        raise SystemFailure(
            f"a heartbeat may hold {MAX_SUBSCRIPTIONS} subscriptions, this one holds {subscriptions}"
        )


def _some(groups: list[str]) -> str:
    named = ", ".join(groups[:NAMED_GROUPS])
    more = len(groups) - NAMED_GROUPS
    return f"{named} and {more} more" if more > 0 else named
