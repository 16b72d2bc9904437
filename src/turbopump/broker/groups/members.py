"""Table of connected producers and consumers by group, as reported by their heartbeats.

In: heartbeats, unregistrations, closed connections, the time. Out: the groups whose members changed, and
members with different subscriptions. This module is only a table: `clients.py` reads the requests and
notifies the members of a changed group. A connection is only a key here.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeAlias, TypeVar

from turbopump.filter import tags_of, text_of
from turbopump.protocol.bodies import ConsumerData, SubscriptionData
from turbopump.protocol.names import TAG

C = TypeVar("C", bound=Hashable)

BROADCASTING = "BROADCASTING"
MAX_COMPARED_SETS = 64  # different sets of subscriptions within a group that are compared ...
MAX_COMPARED_SUBSCRIPTIONS = 5000  # ... if they have at most this many entries together: some milliseconds

SubscriptionSet: TypeAlias = tuple[tuple[str, str, str], ...]
"""Subscriptions of one member as it sent them, sorted: topic, kind and text of the expression."""


@dataclass(slots=True)
class Member(Generic[C]):
    """Client in one group on one connection, with the time of its last heartbeat."""

    client_id: str
    connection: C
    language: str
    version: int
    seen: float  # last heartbeat on the monotonic clock
    seen_ms: int  # the same moment in milliseconds since the epoch, for tools
    subscription_set: SubscriptionSet | None = None  # None: not known yet, a heartbeat may omit it

    def beats(self, beat: "Member[C]") -> None:
        """Copies the time of the newer heartbeat `beat` to this member."""
        self.seen, self.seen_ms = beat.seen, beat.seen_ms


class SubscriptionSets:
    """Distinct subscription sets of a group's members, each stored once with its number of members."""

    def __init__(self) -> None:
        self._kept: dict[SubscriptionSet, tuple[SubscriptionSet, int]] = {}  # and how many members have it
        self.is_new = False
        """Whether a set was added or removed since they were last compared; the comparing code clears it."""

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[SubscriptionSet]:
        return (kept for kept, _ in self._kept.values())

    def add(self, added: SubscriptionSet) -> SubscriptionSet:
        """Counts one more member with this subscription set; returns the stored object equal to `added`."""
        kept, count = self._kept.get(added, (added, 0))
        self._kept[kept] = kept, count + 1
        self.is_new |= count == 0
        return kept

    def remove(self, removed: SubscriptionSet | None) -> None:
        """Counts one member less with this subscription set, which is dropped with its last member."""
        if removed is None:
            return
        kept, count = self._kept[removed]
        if count > 1:
            self._kept[kept] = kept, count - 1
        else:
            del self._kept[kept]
            self.is_new = True


@dataclass(slots=True)
class ConsumerGroup(Generic[C]):
    """Connected consumers of a group, and the group's properties from the last heartbeat."""

    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    fingerprint: int | None = None
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    members: dict[C, Member[C]] = field(default_factory=dict)
    subscription_sets: SubscriptionSets = field(default_factory=SubscriptionSets)

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == BROADCASTING

    @property
    def is_comparable(self) -> bool:
        return sum(map(len, islice(self.subscription_sets, MAX_COMPARED_SETS))) <= MAX_COMPARED_SUBSCRIPTIONS

    def differences(self) -> dict[SubscriptionSet, frozenset[str]]:
        """Returns by subscription set its subscriptions, as text, that not all members have; {} if none."""
        texts = {one: _as_text(one) for one in islice(self.subscription_sets, MAX_COMPARED_SETS)}
        if len(set(texts.values())) < 2:
            return {}
        common = frozenset.intersection(*texts.values())
        return {one: text - common for one, text in texts.items()}


class Members(Generic[C]):
    """Table of connected producers and consumers, by group and by connection."""

    def __init__(self) -> None:
        self._consumers: dict[str, ConsumerGroup[C]] = {}
        self._producers: dict[str, dict[C, Member[C]]] = {}
        self._consumer_groups_of: dict[C, set[str]] = {}
        self._producer_groups_of: dict[C, set[str]] = {}
        self._producing: dict[str, dict[C, int]] = {}
        """Client id -> its connections, the newest last, and in how many groups each produces."""

    # Lookups

    def knows(self, group: str) -> bool:
        return group in self._consumers

    def consumers(self, group: str) -> list[str]:
        """Returns the client ids of a group's consumers, each once even if it has several connections."""
        found = self._consumers.get(group)
        return list(dict.fromkeys(member.client_id for member in found.members.values())) if found else []

    def consumer(self, group: str, client_id: str | None) -> Member[C] | None:
        """Returns the consumer with this client id, on its newest connection; None if it is not connected."""
        found = self._consumers.get(group)
        for member in reversed(found.members.values()) if found else ():
            if member.client_id == client_id:
                return member
        return None

    def consumer_group(self, group: str) -> ConsumerGroup[C] | None:
        return self._consumers.get(group)

    def consumer_groups(self) -> list[str]:
        return list(self._consumers)

    def producers(self, client_id: str) -> list[C]:
        """Returns the connections of a client that produces in any group, the newest first."""
        return list(reversed(self._producing.get(client_id, {})))

    def producer_group(self, group: str) -> list[Member[C]]:
        return list(self._producers.get(group, {}).values())

    def producer_groups(self) -> list[str]:
        return list(self._producers)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        found = self._consumers.get(group)
        return found.subscriptions.get(topic) if found else None

    def reads(self, group: str, topic: str) -> bool:
        """Returns False only if the group is connected and subscribes to topics, but not to this one."""
        found = self._consumers.get(group)
        return found is None or not found.subscriptions or topic in found.subscriptions

    def groups_of_topic(self, topic: str) -> list[str]:
        return [name for name, group in self._consumers.items() if topic in group.subscriptions]

    def is_member(self, connection: C) -> bool:
        return connection in self._consumer_groups_of or connection in self._producer_groups_of

    # Changes

    def add_producer(self, group: str, member: Member[C]) -> None:
        """Adds a producer to a group, or updates the heartbeat time of a known one."""
        connection = member.connection
        members = self._producers.setdefault(group, {})
        known = members.get(connection)
        if known is not None and known.client_id == member.client_id:
            known.beats(member)
            return
        if known is not None:
            _forget_client(self._producing, known)
        members[connection] = member
        self._producer_groups_of.setdefault(connection, set()).add(group)
        connections = self._producing.setdefault(member.client_id, {})
        connections[connection] = connections.pop(connection, 0) + 1

    def add_consumer(self, data: ConsumerData, member: Member[C], keeps_subscriptions: bool = False) -> bool:
        """Adds or updates a consumer by its heartbeat; returns whether the group's members or topics changed.

        `keeps_subscriptions`: the heartbeat omits the subscriptions on purpose.
        """
        group = self._consumers.get(data.groupName)
        if group is None:
            group = self._consumers[data.groupName] = ConsumerGroup()
        group.consume_type = data.consumeType or ""
        group.message_model = data.messageModel or ""
        group.consume_from_where = data.consumeFromWhere or ""
        known = group.members.get(member.connection)
        if known is None or known.client_id != member.client_id:
            if known is not None:
                group.subscription_sets.remove(known.subscription_set)
            group.members[member.connection] = member
            self._consumer_groups_of.setdefault(member.connection, set()).add(data.groupName)
        else:
            known.beats(member)
            member = known
        changed = known is None
        if not keeps_subscriptions:
            changed |= _subscribe(group, member, data.subscriptionDataSet or ())
        return changed

    def remove_producer(self, group: str, connection: C) -> bool:
        """Removes the producer on this connection from a group; returns whether it was a member."""
        members = self._producers.get(group)
        member = members.pop(connection, None) if members else None
        if members is None or member is None:
            return False
        if not members:
            del self._producers[group]
        _forget(self._producer_groups_of, connection, group)
        _forget_client(self._producing, member)
        return True

    def remove_consumer(self, group: str, connection: C) -> bool:
        """Removes the consumer on this connection from a group; returns whether it was a member."""
        found = self._consumers.get(group)
        member = found.members.pop(connection, None) if found else None
        if found is None or member is None:
            return False
        found.subscription_sets.remove(member.subscription_set)
        _forget(self._consumer_groups_of, connection, group)
        if not found.members:
            del self._consumers[group]
        return True

    def closed(self, connection: C) -> list[str]:
        """Removes a connection from all groups; returns the consumer groups that lost a member."""
        for group in sorted(self._producer_groups_of.get(connection, ())):
            self.remove_producer(group, connection)
        groups = sorted(self._consumer_groups_of.get(connection, ()))
        return [group for group in groups if self.remove_consumer(group, connection)]

    def oldest_heartbeat(self) -> float | None:
        """Returns the earliest of all members' last heartbeats (monotonic time); None without members."""
        groups = (*(group.members for group in self._consumers.values()), *self._producers.values())
        return min((member.seen for members in groups for member in members.values()), default=None)

    def expire(self, since: float) -> tuple[list[tuple[str, C]], list[C]]:
        """Removes members with no heartbeat since `since`; returns consumers, and connections left groupless.

        The consumers come with their group's name; the connections are those that are in no group any more. A
        client may stop sending heartbeats for one group only.
        """
        consumers = _silent(((name, group.members) for name, group in self._consumers.items()), since)
        producers = _silent(self._producers.items(), since)
        for group, connection in consumers:
            self.remove_consumer(group, connection)
        for group, connection in producers:
            self.remove_producer(group, connection)
        left = dict.fromkeys(connection for _, connection in (*consumers, *producers))
        return consumers, [connection for connection in left if not self.is_member(connection)]


def _subscribe(group: ConsumerGroup[C], member: Member[C], sent: Iterable[SubscriptionData]) -> bool:
    """Stores a heartbeat's subscriptions in group and member; returns whether topics were added or removed.

    A newer expression alone does not count.
    """
    known = group.subscriptions
    topics = set()
    entries = []
    changed = False
    for subscription in sent:
        topic = subscription.topic
        topics.add(topic)
        entries.append((topic, subscription.expressionType or TAG, subscription.subString or ""))
        old = known.get(topic)
        if old is None or subscription.subVersion > old.subVersion:
            known[topic] = subscription
            changed |= old is None
    if known.keys() != topics:
        for topic in known.keys() - topics:
            del known[topic]
        changed = True
    entries.sort()
    if (now := tuple(entries)) != member.subscription_set:
        group.subscription_sets.remove(member.subscription_set)
        member.subscription_set = group.subscription_sets.add(now)
    return changed


def _as_text(subscriptions: SubscriptionSet) -> frozenset[str]:
    """Returns subscriptions as normalized texts, in which order and blanks of tags make no difference."""
    return frozenset(
        f"{topic} {_tags(expression)}" if kind == TAG else f"{topic} {kind} {expression}"
        for topic, kind, expression in subscriptions
    )


def _tags(expression: str) -> str:
    return text_of(sorted(set(tags_of(expression))))


def _silent(groups: Iterable[tuple[str, dict[C, Member[C]]]], since: float) -> list[tuple[str, C]]:
    return [
        (name, connection)
        for name, members in groups
        for connection, member in members.items()
        if member.seen < since
    ]


def _forget(groups_of: dict[C, set[str]], connection: C, group: str) -> None:
    groups = groups_of.get(connection)
    if groups is not None:
        groups.discard(group)
        if not groups:
            del groups_of[connection]


def _forget_client(producing: dict[str, dict[C, int]], member: Member[C]) -> None:
    """Counts one producer group less for the member's client and connection, and drops them at zero."""
    connections = producing[member.client_id]
    connections[member.connection] -= 1
    if not connections[member.connection]:
        del connections[member.connection]
        if not connections:
            del producing[member.client_id]
