"""Assigns queues to the members of a group, for consumers that leave rebalancing to the broker (400).

A Java client of 5.x with `setClientRebalance(false)` asks any broker of a topic for all the queues that it
has to read, on every broker. So the queues come from a name server, the members from this broker, and the
strategy is the one that clients use themselves. Queues are always read in pull mode: POP is not supported,
and a tool that sets a group to POP is refused (401); PULL is stored (`request_modes.py`).

In: the request of a member. Out: its queues, or none for a topic that no name server knows. The route of a
topic is cached for a few seconds, since such a consumer asks every second; while no name server answers, the
last known route is used.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from turbopump.broker.groups.groups import SubscriptionGroups
from turbopump.broker.groups.members import Members
from turbopump.broker.groups.request_modes import PULL, RequestModes
from turbopump.broker.topics import TopicTable
from turbopump.protocol.bodies import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
    TopicRouteData,
    WireQueue,
)
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import request as new_request
from turbopump.protocol.errors import (
    BrokenBody,
    GroupNotFound,
    InvalidParameter,
    NoPermission,
    SystemFailure,
    TopicNotFound,
    refusal,
)
from turbopump.protocol.headers.namesrv import GetRouteInfoRequest
from turbopump.protocol.names import RETRY_PREFIX
from turbopump.protocol.permissions import READ
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

T = TypeVar("T")
Strategy: TypeAlias = Callable[[Sequence[T], Sequence[str], str], list[T]]

CALL_TIMEOUT_S = 3.0  # of a call to a name server, as in any client; the consumer waits as long
ROUTE_TTL_S = 5.0  # age at which a cached route is asked for again
MAX_ROUTES = 10_000  # cached; consumers may ask for topics that do not exist
BROADCASTING = "BROADCASTING"
POP = ("POP", "1")  # the mode by name, or by number
TROUBLE_S, TROUBLE_LINES = 60.0, 5
NO_POP = (
    "POP is not supported by this broker: set the mode to PULL, "
    "or leave it; consumers with setClientRebalance(false) are served in pull mode"
)


def averagely(queues: Sequence[T], members: Sequence[str], me: str) -> list[T]:
    """Returns `me`'s run of neighbouring queues; the first members get one more if uneven; [] for others."""
    if me not in members:
        return []
    size, rest = divmod(len(queues), len(members))
    index = members.index(me)
    start = index * size + min(index, rest)
    return list(queues[start : start + size + (index < rest)])


def by_circle(queues: Sequence[T], members: Sequence[str], me: str) -> list[T]:
    """Returns every n-th queue for n members, from `me`'s index on; empty if `me` is not a member."""
    return list(queues[members.index(me) :: len(members)]) if me in members else []


STRATEGIES: Mapping[str, Strategy[WireQueue]] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}
"""Strategies by the names that clients send. Their other strategies need what only the client knows."""


def readable_queues(topic: str, route: TopicRouteData) -> list[WireQueue]:
    """Returns the readable queues of a topic on all brokers, in the same order for every member."""
    return sorted(
        WireQueue(data.brokerName, number, topic)
        for data in route.queueDatas
        if data.perm & READ
        for number in range(data.readQueueNums)
    )


class TopicRoutes:
    """Cache of topic routes that this broker fetches from the name servers."""

    def __init__(self, client: Client, name_servers: Sequence[str], clock: Clock) -> None:
        self._client = client
        self._name_servers = name_servers
        self._clock = clock
        self._kept: dict[str, tuple[float, TopicRouteData | None]] = {}

    async def find(self, topic: str) -> TopicRouteData | None:
        """Returns the route of a topic, cached for some seconds; None if no name server knows the topic.

        Raises SystemFailure when no name server answers and no route is cached.
        """
        kept = self._kept.get(topic)
        if kept is not None and self._clock.monotonic() - kept[0] < ROUTE_TTL_S:
            return kept[1]
        try:
            found = await self._ask(topic)
        except (OSError, BrokenBody) as error:
            if kept is None:
                raise SystemFailure(f"cannot find out the queues of topic {topic}: {error}") from error
            return kept[1]
        self._kept.pop(topic, None)
        self._kept[topic] = self._clock.monotonic(), found
        if len(self._kept) > MAX_ROUTES:
            del self._kept[next(iter(self._kept))]
        return found

    async def _ask(self, topic: str) -> TopicRouteData | None:
        failure: OSError = ConnectionError("this broker has no name server: set namesrvAddr")
        for name_server in self._name_servers:
            question = new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic))
            try:
                answer = await self._client.call(name_server, question, CALL_TIMEOUT_S)
            except OSError as error:
                failure = error
                continue
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            if answer.code != ResponseCode.SUCCESS:
                failure = ConnectionError(str(refusal(answer.code, answer.remark)))
                continue
            return TopicRouteData.decode(answer.body)
        raise failure


class AssignmentHandler:
    """Handles requests for a member's assigned queues (400), and to set a group's request mode (401)."""

    def __init__(
        self,
        routes: TopicRoutes,
        members: Members[Connection],
        topics: TopicTable,
        groups: SubscriptionGroups,
        modes: RequestModes,
        modes_settled: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """`modes_settled` returns when changed modes are on disk, and in the group if there is one."""
        self._topic_routes = routes
        self._members = members
        self._topics = topics
        self._groups = groups
        self._modes = modes
        self._modes_settled = modes_settled
        self._clock = clock
        self._trouble = RateLimitedLog(log, TROUBLE_S, logging.WARNING, TROUBLE_LINES)

    def routes(self) -> Routes:
        return {
            RequestCode.QUERY_ASSIGNMENT: Route(None, self.assign),
            RequestCode.SET_MESSAGE_REQUEST_MODE: Route(None, self.set_mode),
        }

    async def assign(self, request: Request[None]) -> Answer:
        """Answers with the queues assigned to one member; all queues of the topic for broadcasting."""
        asked = QueryAssignmentRequestBody.decode(request.body)
        route = await self._topic_routes.find(asked.topic)
        if route is None:  # the client keeps what it has, and asks again
            return Answer(body=QueryAssignmentResponseBody().encode())
        if route.topicQueueMappingByBroker:
            raise self._refusal(asked, f"{asked.topic} is a static topic, which brokers cannot assign")
        queues = readable_queues(asked.topic, route)
        if asked.messageModel != BROADCASTING:
            queues = self._assigned(asked, queues)
        assigned = [MessageQueueAssignment(messageQueue=queue, mode=PULL) for queue in queues]
        return Answer(body=QueryAssignmentResponseBody(messageQueueAssignments=assigned).encode())

    def _assigned(self, asked: QueryAssignmentRequestBody, queues: Sequence[WireQueue]) -> list[WireQueue]:
        strategy = STRATEGIES.get(asked.strategyName)
        if strategy is None:
            known = " or ".join(STRATEGIES)
            raise self._refusal(asked, f"the strategy must be {known}, got {asked.strategyName}")
        return strategy(queues, sorted(self._members.consumers(asked.consumerGroup)), asked.clientId)

    def _refusal(self, asked: QueryAssignmentRequestBody, reason: str) -> InvalidParameter:
        """Logs that a consumer gets no queues, and returns the refusal, to be raised, with `reason` as text.

        The client only logs the refusal and consumes nothing.
        """
        words = (
            "Consumer %s of group %s gets no queues of %s from this broker: %s; use setClientRebalance(true)"
        )
        self._trouble.log(
            self._clock.monotonic(), words, asked.clientId, asked.consumerGroup, asked.topic, reason
        )
        return InvalidParameter(f"{reason}; use setClientRebalance(true)")

    async def set_mode(self, request: Request[None]) -> Answer:
        """Stores the request mode PULL of a group, for slaves; raises InvalidParameter for POP.

        The other refusals are Apache's.
        """
        wanted = SetMessageRequestModeRequestBody.decode(request.body)
        if wanted.topic.startswith(RETRY_PREFIX):
            raise NoPermission("retry topic is not allowed to set mode")
        if self._topics.find(wanted.topic) is None:
            raise TopicNotFound(f"Topic {wanted.topic} not exist!")
        if wanted.mode.upper() in POP:
            raise InvalidParameter(NO_POP)
        if self._groups.find_or_create(wanted.consumerGroup) is None:
            raise GroupNotFound(f"Group {wanted.consumerGroup} not exist!")
        self._modes.put(wanted)
        await self._modes_settled()
        return Answer()
