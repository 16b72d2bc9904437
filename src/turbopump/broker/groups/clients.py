"""Answers heartbeats (34), unregistrations (35), member lists (38) and checks of subscriptions (46).

In: requests. Out: answers, and before the answer of the heartbeat that caused it a one-way notice (40) to
every member of a group that changed: without it a consumer waits up to 20 s before it reads. The table of
members is in `members.py`.

When thousands of consumers join a group at once, notifying all of them of each join would cost the square of
their number: beyond `MAX_NOTICES_PER_PAUSE` within `NOTICE_PAUSE_S`, the other members of a group get one
notice of all changes a moment later.
"""

import asyncio
import contextlib
import logging

from turbopump.broker.config import GroupRules
from turbopump.broker.consume.filters import GroupFilters
from turbopump.broker.consume.reused_offsets import CLIENT_ID
from turbopump.broker.groups.groups import SubscriptionGroup, SubscriptionGroups
from turbopump.broker.groups.members import ConsumerGroup, Member, Members, SubscriptionSet
from turbopump.broker.topics import TopicTable
from turbopump.protocol import names
from turbopump.protocol.bodies import CheckClientRequestBody, ConsumerData, ConsumerListBody, HeartbeatData
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import encode
from turbopump.protocol.command import request as new_request
from turbopump.protocol.errors import SystemFailure
from turbopump.protocol.headers.client import (
    GetConsumerListByGroupRequest,
    HeartbeatResponse,
    NotifyConsumerIdsChangedRequest,
    UnregisterClientRequest,
)
from turbopump.protocol.sysflag import UNIT_SUBSCRIBED
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

SCAN_S = 10.0
MAX_GROUPS = 1000  # in one heartbeat, consumers and producers; each may create a group and its retry topic
MAX_SUBSCRIPTIONS = 10_000  # in one heartbeat, over all its groups
MAX_NAMED = 5  # changed groups, or clients that differ, named in a log line
CHANGE_LINES = 20  # log lines about changed groups, per second: thousands of clients may join at once
CONFLICT_LINES = 10  # log lines about members with different subscriptions, per ...
CONFLICT_INTERVAL_S = 60.0
MAX_NOTICES_PER_PAUSE = 2000  # notices of changes, within ...
NOTICE_PAUSE_S = 0.1  # ... which then takes about a tenth of the time
ONE_WAY = 2
NOT_COMPARED = frozenset({frozenset({"..."})})  # stands for subscription sets that are too long to compare


class ClientHandler:
    """Answers heartbeats and unregistrations, and notifies consumers when their group changes."""

    def __init__(
        self,
        members: Members[Connection],
        topics: TopicTable,
        groups: SubscriptionGroups,
        clock: Clock,
        rules: GroupRules,
        filters: GroupFilters,
    ) -> None:
        self._filters = filters
        self._members = members
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._rules = rules
        self._rules_changed = asyncio.Event()
        self._watched: set[Connection] = set()
        self._notices = _RateBudget(MAX_NOTICES_PER_PAUSE, NOTICE_PAUSE_S)
        self._pending_notices: dict[str, None] = {}  # groups whose members are notified after the pause
        self._changes = RateLimitedLog(log, 1.0, logging.INFO, CHANGE_LINES)
        self._conflicts = RateLimitedLog(log, CONFLICT_INTERVAL_S, logging.WARNING, CONFLICT_LINES)
        self._conflicting: dict[
            str, frozenset[frozenset[str]]
        ] = {}  # group -> the differences that were logged

    def routes(self) -> Routes:
        return {
            RequestCode.HEART_BEAT: Route(None, self.heartbeat, warn_as="Heartbeat"),
            RequestCode.UNREGISTER_CLIENT: Route(UnregisterClientRequest, self.unregister),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: Route(GetConsumerListByGroupRequest, self.consumer_list),
            RequestCode.CHECK_CLIENT_CONFIG: Route(None, self.check_client),
        }

    def configure(self, rules: GroupRules) -> None:
        self._rules = rules
        self._rules_changed.set()

    def heartbeat(self, request: Request[None]) -> Answer:
        """Registers a client in the groups of its heartbeat; SystemFailure for too many groups or topics."""
        beat = HeartbeatData.decode(request.body)
        _check_size(beat)
        connection = request.connection
        subscriptions_changed = beat.heartbeatFingerprint == 0
        if not connection.is_closing:
            self._watch(connection)
            connection.attributes[CLIENT_ID] = beat.clientID
            changed: list[str] = []
            for data in beat.consumerDataSet:
                subscriptions_changed |= self._consumer_beat(data, beat, request, changed)
            for producer in beat.producerDataSet:
                self._members.add_producer(producer.groupName, self._member(beat, request))
            if changed:
                words = "Consumer groups changed by %s on %s: %s"
                self._changes.log(self._clock.monotonic(), words, beat.clientID, connection, _some(changed))
        return Answer(HeartbeatResponse(IS_SUPPORT_HEART_BEAT_V2=True, IS_SUB_CHANGE=subscriptions_changed))

    def unregister(self, request: Request[UnregisterClientRequest]) -> Answer:
        """Removes a client from its producer or consumer group, and notifies the group's other consumers."""
        header = request.header
        if header.producerGroup is not None:
            self._members.remove_producer(header.producerGroup, request.connection)
        group = header.consumerGroup
        if group is not None and self._members.remove_consumer(group, request.connection):
            self._notify(group)
        return Answer({})

    def consumer_list(self, request: Request[GetConsumerListByGroupRequest]) -> Answer:
        """Answers with the client ids of a group's consumers; with SYSTEM_ERROR if there are none."""
        group = request.header.consumerGroup
        consumers = self._members.consumers(group)
        if not consumers:
            remark = f"no consumer for this group, {group}"
            return Answer({}, code=ResponseCode.SYSTEM_ERROR, remark=remark)
        return Answer({}, ConsumerListBody(consumerIdList=consumers).encode())

    def check_client(self, request: Request[None]) -> Answer:
        """Raises Refused if the subscription in the body has an invalid expression or filter module."""
        if request.body:
            subscription = CheckClientRequestBody.decode(request.body).subscriptionData
            if subscription is not None:
                self._filters.check(subscription.expressionType, subscription.subString)
        return Answer()

    def closed(self, connection: Connection) -> None:
        """Removes the clients of a closed connection from their groups, and notifies the other consumers."""
        self._watched.discard(connection)
        for group in self._members.closed(connection):
            self._notify(group)

    def expire(self) -> None:
        """Removes clients whose last heartbeat is too old; closes connections that are in no group then."""
        timeout_ms = self._rules.member_timeout_ms
        consumers, gone = self._members.expire(self._clock.monotonic() - timeout_ms / 1000)
        for group, connection in consumers:
            log.info("%s sent no heartbeat for group %s in %d s", connection, group, timeout_ms // 1000)
            self._notify(group)
        for connection in gone:
            log.info("%s sent no heartbeat for %d s", connection, timeout_ms // 1000)
            connection.close()

    async def watch(self) -> None:
        """Calls `expire` when a member may have expired or the rules have changed; runs until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SCAN_S + self._next_expiry_s()):
                    await self._rules_changed.wait()
            self._rules_changed.clear()
            self.expire()

    def _next_expiry_s(self) -> float:
        """Returns the seconds until the earliest moment at which a present or a new member can expire."""
        timeout_s = self._rules.member_timeout_ms / 1000
        seen = self._members.oldest_heartbeat()
        left_s = timeout_s if seen is None else seen + timeout_s - self._clock.monotonic()
        return max(0.0, left_s)

    def _consumer_beat(
        self, data: ConsumerData, beat: HeartbeatData, request: Request[None], groups: list[str]
    ) -> bool:
        """Registers a consumer of a heartbeat; returns whether the client must send its subscriptions again.

        A group whose members or topics changed is appended to `groups`.
        """
        known = self._members.consumer_group(data.groupName)
        told_before = known.fingerprint if known is not None else None
        changed = told_before is not None and told_before != beat.heartbeatFingerprint
        if beat.withoutSub and (known is None or not known.subscriptions):
            changed = True  # it omits subscriptions that only an earlier broker process had
        group = self._groups.find_or_create(data.groupName)
        if group is None:
            return changed
        self._create_retry_topic(data, group)
        keeps = beat.withoutSub and beat.heartbeatFingerprint != 0
        if self._members.add_consumer(data, self._member(beat, request), keeps_subscriptions=keeps):
            groups.append(data.groupName)
            self._notify(data.groupName, request.connection)
        if not keeps:
            self._filters.register(data.groupName, data.subscriptionDataSet or ())
        found = self._members.consumer_group(data.groupName)
        assert found is not None
        found.fingerprint = beat.heartbeatFingerprint
        if found.subscription_sets.is_new:
            found.subscription_sets.is_new = False
            self._warn_of_differences(data.groupName, found)
        return changed

    def _warn_of_differences(self, name: str, group: ConsumerGroup[Connection]) -> None:
        """Logs a warning, once per distinct conflict, that members of a group have different subscriptions.

        The last heartbeat decides for the whole group.
        """
        is_long = len(group.subscription_sets) > 1 and not group.is_comparable
        differences = {} if is_long else group.differences()
        if not differences and not is_long:
            self._conflicting.pop(name, None)
            return
        conflict = NOT_COMPARED if is_long else frozenset(differences.values())
        if conflict == self._conflicting.get(name):
            return
        self._conflicting[name] = conflict
        words = "Members of group %s have different subscriptions, and the last heartbeat counts: %s"
        details = "too many to list" if is_long else _described(group, differences)
        self._conflicts.log(self._clock.monotonic(), words, name, details)

    def _create_retry_topic(self, data: ConsumerData, group: SubscriptionGroup) -> None:
        """Creates the group's retry topic if missing: by its route, tools find the brokers of the group."""
        subscriptions = data.subscriptionDataSet
        order = any(self._is_ordered(one.topic) for one in subscriptions) if subscriptions else None
        sys_flag = UNIT_SUBSCRIBED if data.unitMode else 0
        self._topics.for_group(names.retry_topic(data.groupName), group.retry_queues, order, sys_flag)

    def _is_ordered(self, topic: str) -> bool:
        found = self._topics.find(topic)
        return found is not None and found.order

    def _member(self, beat: HeartbeatData, request: Request[None]) -> Member[Connection]:
        command = request.command
        return Member(
            beat.clientID or "",
            request.connection,
            command.language,
            command.version,
            self._clock.monotonic(),
            self._clock.now_ms(),
        )

    def _watch(self, connection: Connection) -> None:
        if connection not in self._watched:
            self._watched.add(connection)
            connection.on_closed.append(self.closed)

    def _notify(self, group: str, joined: Connection | None = None) -> None:
        """Notifies all members that their group changed; under load only `joined` now, others 0.1 s later.

        If the group has no members left, its filters are deactivated instead.
        """
        found = self._members.consumer_group(group)
        if found is None:
            self._conflicting.pop(group, None)
            self._filters.unregister(group)
            return
        config = self._groups.find(group)
        silent = not self._rules.notify_members or (config is not None and not config.notifies_members)
        if silent or found.is_broadcasting:
            return
        notice = new_request(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequest(consumerGroup=group)
        )
        notice.flag = ONE_WAY
        frame = encode(notice)
        if group not in self._pending_notices and self._notices.take(
            len(found.members), self._clock.monotonic()
        ):
            for connection in found.members:
                connection.write(frame)
            return
        if joined is not None:
            joined.write(frame)
        if not self._pending_notices:
            asyncio.get_running_loop().call_later(NOTICE_PAUSE_S, self._send_pending_notices)
        self._pending_notices[group] = None

    def _send_pending_notices(self) -> None:
        untold, self._pending_notices = self._pending_notices, {}
        for group in untold:
            self._notify(group)


class _RateBudget:
    """Rate limit: `take` returns False after `amount` was taken in an interval; one take may exceed it."""

    def __init__(self, amount: int, interval_s: float) -> None:
        self._amount = amount
        self._interval_s = interval_s
        self._began = -interval_s
        self._taken = 0

    def take(self, count: int, now: float) -> bool:
        if now - self._began >= self._interval_s:
            self._began = now
            self._taken = 0
        if self._taken >= self._amount:
            return False
        self._taken += count
        return True


def _check_size(beat: HeartbeatData) -> None:
    groups = len(beat.consumerDataSet) + len(beat.producerDataSet)
    if groups > MAX_GROUPS:
        raise SystemFailure(f"a heartbeat must have at most {MAX_GROUPS} groups, got {groups}")
    subscriptions = sum(len(data.subscriptionDataSet or ()) for data in beat.consumerDataSet)
    if subscriptions > MAX_SUBSCRIPTIONS:
        raise SystemFailure(
            f"a heartbeat must have at most {MAX_SUBSCRIPTIONS} subscriptions, got {subscriptions}"
        )


def _described(group: ConsumerGroup[Connection], differences: dict[SubscriptionSet, frozenset[str]]) -> str:
    by_identity = {id(one): difference for one, difference in differences.items()}
    clients: dict[frozenset[str], list[str]] = {}
    for member in group.members.values():
        if (difference := by_identity.get(id(member.subscription_set))) is not None:
            clients.setdefault(difference, []).append(member.client_id)
    return "; ".join(
        f"{_some(ids)}: {_some(sorted(difference)) or 'nothing more'}"
        for difference, ids in list(clients.items())[:MAX_NAMED]
    )


def _some(names: list[str]) -> str:
    named = ", ".join(names[:MAX_NAMED])
    more = len(names) - MAX_NAMED
    return f"{named} and {more} more" if more > 0 else named
