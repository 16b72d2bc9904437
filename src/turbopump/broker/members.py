"""Who is there: producers and consumers by group, as their heartbeats tell it.

In: heartbeats, goodbyes, closed connections, the time. Out: the groups whose members changed. This room is
a table; `clients.py` reads the requests and tells the members of a changed group. A connection is only a
key here.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from turbopump.protocol.bodies import ConsumerData, SubscriptionData

C = TypeVar("C", bound=Hashable)

BROADCASTING = "BROADCASTING"


@dataclass(slots=True)
class Member(Generic[C]):
    """One client on one connection."""

    client_id: str
    connection: C
    language: str
    version: int
    seen_ms: int


@dataclass(slots=True)
class ConsumerGroup(Generic[C]):
    """The consumers of a group that are there now, and what the last of them said about it."""

    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    fingerprint: int | None = None
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    members: dict[C, Member[C]] = field(default_factory=dict)

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == BROADCASTING


class Members(Generic[C]):
    def __init__(self) -> None:
        self._consumers: dict[str, ConsumerGroup[C]] = {}
        self._producers: dict[str, dict[C, Member[C]]] = {}
        self._consumer_groups_of: dict[C, set[str]] = {}
        self._producer_groups_of: dict[C, set[str]] = {}

    # Looking

    def knows(self, group: str) -> bool:
        return group in self._consumers

    def consumers(self, group: str) -> list[str]:
        """Client ids, each once: one that has just come back on a new connection must not count twice."""
        found = self._consumers.get(group)
        return list(dict.fromkeys(member.client_id for member in found.members.values())) if found else []

    def consumer_group(self, group: str) -> ConsumerGroup[C] | None:
        return self._consumers.get(group)

    def producer_group(self, group: str) -> list[Member[C]]:
        return list(self._producers.get(group, {}).values())

    def producer_groups(self) -> list[str]:
        return list(self._producers)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        found = self._consumers.get(group)
        return found.subscriptions.get(topic) if found else None

    def groups_of_topic(self, topic: str) -> list[str]:
        return [name for name, group in self._consumers.items() if topic in group.subscriptions]

    # Changing

    def add_producer(self, group: str, member: Member[C]) -> None:
        self._producers.setdefault(group, {})[member.connection] = member
        self._producer_groups_of.setdefault(member.connection, set()).add(group)

    def add_consumer(self, data: ConsumerData, member: Member[C], keeps_subscriptions: bool = False) -> bool:
        """A heartbeat of a consumer; True when the group has other members or other topics now.

        `keeps_subscriptions`: the heartbeat left the subscriptions out on purpose.
        """
        group = self._consumers.setdefault(data.groupName, ConsumerGroup())
        group.consume_type = data.consumeType or ""
        group.message_model = data.messageModel or ""
        group.consume_from_where = data.consumeFromWhere or ""
        changed = member.connection not in group.members
        group.members[member.connection] = member
        self._consumer_groups_of.setdefault(member.connection, set()).add(data.groupName)
        if not keeps_subscriptions:
            changed |= _subscribe(group.subscriptions, data.subscriptionDataSet or ())
        return changed

    def remove_producer(self, group: str, connection: C) -> None:
        _drop(self._producers, group, connection)
        _forget(self._producer_groups_of, connection, group)

    def remove_consumer(self, group: str, connection: C) -> bool:
        """True when it was there."""
        found = self._consumers.get(group)
        if found is None or found.members.pop(connection, None) is None:
            return False
        _forget(self._consumer_groups_of, connection, group)
        if not found.members:
            del self._consumers[group]
        return True

    def closed(self, connection: C) -> list[str]:
        """The consumer groups that lost a member with this connection."""
        for group in self._producer_groups_of.pop(connection, set()):
            _drop(self._producers, group, connection)
        groups = sorted(self._consumer_groups_of.get(connection, ()))
        return [group for group in groups if self.remove_consumer(group, connection)]

    def silent(self, since_ms: int) -> list[C]:
        """Connections none of whose members has been heard of since then."""
        last: dict[C, int] = {}
        for members in self._all_members():
            for connection, member in members.items():
                last[connection] = max(member.seen_ms, last.get(connection, 0))
        return [connection for connection, seen_ms in last.items() if seen_ms < since_ms]

    def _all_members(self) -> Iterable[dict[C, Member[C]]]:
        yield from (group.members for group in self._consumers.values())
        yield from self._producers.values()


def _subscribe(known: dict[str, SubscriptionData], told: Iterable[SubscriptionData]) -> bool:
    """Takes over what a heartbeat says; True when topics came or went, not for a newer expression alone."""
    topics = set()
    changed = False
    for subscription in told:
        topics.add(subscription.topic)
        old = known.get(subscription.topic)
        if old is None or subscription.subVersion > old.subVersion:
            known[subscription.topic] = subscription
            changed |= old is None
    for topic in known.keys() - topics:
        del known[topic]
        changed = True
    return changed


def _drop(table: dict[str, dict[C, Member[C]]], group: str, connection: C) -> None:
    members = table.get(group)
    if members is not None:
        members.pop(connection, None)
        if not members:
            del table[group]


def _forget(groups_of: dict[C, set[str]], connection: C, group: str) -> None:
    groups = groups_of.get(connection)
    if groups is not None:
        groups.discard(group)
        if not groups:
            del groups_of[connection]
