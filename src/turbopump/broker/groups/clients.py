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
from turbopump.broker.groups.groups import SubscriptionGroup, SubscriptionGroups
from turbopump.broker.groups.members import ConsumerGroup, Member, Members, SubscriptionSet
from turbopump.broker.topics import Topics
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
MAX_GROUPS = 1000  # in one heartbeat: consumers and producers; each may create a group and its retry topic
MAX_SUBSCRIPTIONS = 10_000  # in one heartbeat, over all its groups
MAX_NAMED = 5  # groups that changed, or clients that differ, in a log line
CHANGE_LINES = 20  # about groups that changed, per second: thousands of clients may come at once
CONFLICT_LINES = 10  # about members that contradict one another, per ...
CONFLICT_INTERVAL_S = 60.0
MAX_NOTICES_PER_PAUSE = 2000  # of changes, within ...
NOTICE_PAUSE_S = 0.1  # ... about a tenth of the time then goes into them
ONE_WAY = 2
NOT_COMPARED = frozenset({frozenset({"..."})})  # said of lists that are not compared


class ClientHandler:
    """Answers heartbeats and unregistrations, and notifies consumers when their group changes."""

    def __init__(
        self,
        members: Members[Connection],
        topics: Topics,
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
        self._pending_notices: dict[
            str, None
        ] = {}  # groups whose members are told when there is budget again
        self._changes = RateLimitedLog(log, 1.0, logging.INFO, CHANGE_LINES)
        self._conflicts = RateLimitedLog(log, CONFLICT_INTERVAL_S, logging.WARNING, CONFLICT_LINES)
        self._conflicting: dict[str, frozenset[frozenset[str]]] = {}  # group -> what was said of it

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
                words = "Consumer groups changed by %s on %s: %s"
                self._changes.log(self._clock.monotonic(), words, beat.clientID, connection, _some(changed))
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
        """Whether a subscription can be served: by tags always, by an expression if it can be read."""
        if request.body:
            subscription = CheckClientRequestBody.decode(request.body).subscriptionData
            if subscription is not None:
                self._filters.check(subscription.expressionType, subscription.subString)
        return Answer()

    def closed(self, connection: Connection) -> None:
        self._watched.discard(connection)
        for group in self._members.closed(connection):
            self._notify(group)

    def expire(self) -> None:
        """Clients without a heartbeat for too long have left, though their connection may still be open."""
        timeout_ms = self._rules.member_timeout_ms
        consumers, gone = self._members.expire(self._clock.monotonic() - timeout_ms / 1000)
        for group, connection in consumers:
            log.info("%s sent no heartbeat for group %s in %d s", connection, group, timeout_ms // 1000)
            self._notify(group)
        for connection in gone:
            log.info("%s sent no heartbeat for %d s", connection, timeout_ms // 1000)
            connection.close()

    async def watch(self) -> None:
        """Runs until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SCAN_S + self._nobody_expires_for()):
                    await self._rules_changed.wait()
            self._rules_changed.clear()
            self.expire()

    def _nobody_expires_for(self) -> float:
        """Seconds, for whom we know and for those who may join meanwhile."""
        timeout_s = self._rules.member_timeout_ms / 1000
        seen = self._members.longest_silent()
        left_s = timeout_s if seen is None else seen + timeout_s - self._clock.monotonic()
        return max(0.0, left_s)

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
        """Whoever beats last decides for the whole group what it reads: said once, and when it changes."""
        is_long = len(group.subscription_sets) > 1 and not group.is_comparable
        differences = {} if is_long else group.differences()
        if not differences and not is_long:
            self._conflicting.pop(name, None)
            return
        said = NOT_COMPARED if is_long else frozenset(differences.values())
        if said == self._conflicting.get(name):
            return
        self._conflicting[name] = said
        words = "The members of group %s subscribe to different things, and the last heartbeat counts: %s"
        told = "too many to name them" if is_long else _told(group, differences)
        self._conflicts.log(self._clock.monotonic(), words, name, told)

    def _create_retry_topic(self, data: ConsumerData, group: SubscriptionGroup) -> None:
        """Tools find the brokers of a group by the route of its retry topic: it is there from the start."""
        told = data.subscriptionDataSet
        order = any(self._is_ordered(subscription.topic) for subscription in told) if told else None
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
        """Tells every member, in a rush only the one that `joined`, and the others a moment later."""
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
    """So many per interval; what is taken at once may go beyond, and the next has to wait."""

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
        raise SystemFailure(f"a heartbeat may name {MAX_GROUPS} groups, this one names {groups}")
    subscriptions = sum(len(data.subscriptionDataSet or ()) for data in beat.consumerDataSet)
    if subscriptions > MAX_SUBSCRIPTIONS:
        raise SystemFailure(
            f"a heartbeat may hold {MAX_SUBSCRIPTIONS} subscriptions, this one holds {subscriptions}"
        )


def _told(group: ConsumerGroup[Connection], differences: dict[SubscriptionSet, frozenset[str]]) -> str:
    by_identity = {id(wants): difference for wants, difference in differences.items()}
    clients: dict[frozenset[str], list[str]] = {}
    for member in group.members.values():
        if (difference := by_identity.get(id(member.subscription_set))) is not None:
            clients.setdefault(difference, []).append(member.client_id)
    return "; ".join(
        f"{_some(ids)}: {_some(sorted(wants)) or 'nothing more'}"
        for wants, ids in list(clients.items())[:MAX_NAMED]
    )


def _some(names: list[str]) -> str:
    named = ", ".join(names[:MAX_NAMED])
    more = len(names) - MAX_NAMED
    return f"{named} and {more} more" if more > 0 else named
