"""Checks pulls: may this client read this queue, and which messages does it want (11, 361).

In: a pull request. Out: a `Pull`, with its queue and its filter, or a refusal with the code and the text of
Apache's broker. What is read, and how it is answered, is in `pull.py`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from turbopump.broker.consume.filter_modules import FilterModule
from turbopump.broker.consume.filters import GroupFilters, PullFilter, is_tag
from turbopump.broker.groups.groups import SubscriptionGroup, SubscriptionGroups
from turbopump.broker.groups.members import Members
from turbopump.broker.topics import FAQ, TopicTable
from turbopump.filter import tags_of
from turbopump.protocol.bodies import SubscriptionData
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.errors import Refused
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.headers.pull import PullMessageRequest
from turbopump.protocol.names import WASM
from turbopump.protocol.permissions import READ
from turbopump.protocol.sysflag import PULL_SUBSCRIPTION
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Request
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.queues import ConsumeQueues


@dataclass(eq=False, slots=True)
class Pull:
    """Checked pull request: its queue, offset and filter, and its timer while it is parked."""

    request: Request[PullMessageRequest]
    queue: ConsumeQueue
    offset: int
    accepts: Callable[[int], bool] | None
    filter: PullFilter | None  # by properties, for SQL92
    topic_sys_flag: int
    group_sys_flag: int
    rules: tuple[int, int, int]  # the versions of topics, groups and filters that it was checked with
    module: FilterModule | None = None
    parked_at: float = 0.0
    timer: asyncio.TimerHandle | None = None
    was_passed: bool = False  # while parked, a message arrived that its filter rejects
    fetches: int = 0  # how often its messages had to be read from the disk

    @property
    def matches(self) -> Callable[[bytes], bool] | None:
        return None if self.filter is None else self.filter.matches


class PullChecks:
    """Decides which pulls may read, and by which filter."""

    def __init__(
        self,
        queues: ConsumeQueues,
        topics: TopicTable,
        groups: SubscriptionGroups,
        members: Members[Connection],
        filters: GroupFilters,
        broker_readable: Callable[[], bool] = lambda: True,
        serves_lite: Callable[[], bool] = lambda: True,
        broker_ip: str = "",
    ) -> None:
        self._queues = queues
        self._topics = topics
        self._groups = groups
        self._members = members
        self._filters = filters
        self._broker_readable = broker_readable
        self._serves_lite = serves_lite
        self._broker_ip = broker_ip

    def check(self, request: Request[PullMessageRequest]) -> Pull:
        """Returns the checked pull, or raises Refused with the code and the text of Apache's broker.

        The checks are in Apache's order.
        """
        header = request.header
        if not self._broker_readable():
            raise ReadForbidden(f"the broker[{self._broker_ip}] pulling message is forbidden", "1")
        if request.command.code == RequestCode.LITE_PULL_MESSAGE and not self._serves_lite():
            raise ReadForbidden(f"the broker[{self._broker_ip}] for lite pull consumer is forbidden", "1")
        group = self._groups.for_consume(header.consumerGroup)
        if not group.consume_enable:
            raise ReadForbidden(f"subscription group no permission, {header.consumerGroup}", "2")
        topic = self._topics.find(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & READ:
            raise ReadForbidden(f"the topic[{header.topic}] pulling message is forbidden", "3")
        if not 0 <= header.queueId < topic.read_queues:
            ip, port = request.connection.peer
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queueId}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queues}] consumer:[/{ip}:{port}]",
            )
        accepts, wanted, module = self._filter(header, group)
        queues, is_light = self._queues, self._topics.is_light(header.topic)
        return Pull(
            request,
            queues.light(header.topic) if is_light else queues.queue(header.topic, header.queueId),
            header.queueOffset,
            accepts,
            wanted,
            topic.sys_flag,
            group.sys_flag,
            self.versions(),
            module,
        )

    def versions(self) -> tuple[int, int, int]:
        """Returns the versions of topics, groups and filters: when they change, pulls are checked again."""
        return self._topics.version.counter, self._groups.version.counter, self._filters.version

    def _filter(
        self, header: PullMessageRequest, group: SubscriptionGroup
    ) -> tuple[Callable[[int], bool] | None, PullFilter | None, FilterModule | None]:
        """Returns three filters: by tag code, by properties and by module; at most one is not None."""
        has_expression = header.sysFlag & PULL_SUBSCRIPTION
        if has_expression:
            kind, expression = header.expressionType, header.subscription or ""
        else:
            subscription = self._subscription(header, group)
            kind, expression = subscription.expressionType, subscription.subString or ""
        if is_tag(kind):
            return tag_filter(expression), None, None
        if kind == WASM:
            return None, None, self._filters.module(expression)
        if has_expression:
            return None, self._filters.of_pull(kind, expression), None
        name, topic = header.consumerGroup, header.topic
        return None, self._filters.of_group(name, topic, kind, header.subVersion), None

    def _subscription(self, header: PullMessageRequest, group: SubscriptionGroup) -> SubscriptionData:
        """Returns the subscription from heartbeats; raises Refused if missing, outdated or forbidden."""
        name, topic = header.consumerGroup, header.topic
        members = self._members.consumer_group(name)
        if members is None:
            remark = f"the consumer's group info not exist{FAQ}"
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if members.is_broadcasting and not group.may_broadcast:
            raise ReadForbidden(f"the consumer group[{name}] can not consume by broadcast way", "4")
        if self._groups.is_forbidden(name, topic):
            raise ReadForbidden(f"the consumer group[{name}] is forbidden for topic[{topic}]", "5")
        subscription = members.subscriptions.get(topic)
        if subscription is None:
            remark = f"the consumer's subscription not exist{FAQ}"
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if subscription.subVersion < header.subVersion:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription


class ReadForbidden(Refused):
    """Raised to refuse a pull for lack of permission; `kind` becomes `forbiddenType` in the answer."""

    def __init__(self, remark: str, kind: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.kind = kind


def tag_filter(expression: str) -> Callable[[int], bool] | None:
    """Returns a predicate over tag codes for an expression such as `A || B`; None accepts every message."""
    return _tag_filter(expression) if len(expression) <= 1024 else _tag_filter.__wrapped__(expression)


@lru_cache(maxsize=1024)
def _tag_filter(expression: str) -> Callable[[int], bool] | None:
    tags = tags_of(expression)
    return frozenset(java_hash(tag) for tag in tags).__contains__ if tags else None
