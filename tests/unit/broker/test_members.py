from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from turbopump.broker.members import Member, Members
from turbopump.protocol.bodies import ConsumerData, SubscriptionData


def member(connection: str, client_id: str | None = None, seen_ms: int = 0) -> Member[str]:
    return Member(client_id or f"client-{connection}", connection, "JAVA", 513, seen_ms)


def beat(group: str, *topics: str, version: int = 1, model: str = "CLUSTERING") -> ConsumerData:
    subscriptions = [SubscriptionData(topic=topic, subString="*", subVersion=version) for topic in topics]
    return ConsumerData(groupName=group, messageModel=model, subscriptionDataSet=subscriptions)


def test_a_new_connection_changes_a_group_and_a_repeated_beat_does_not() -> None:
    members: Members[str] = Members()
    assert members.add_consumer(beat("G", "T"), member("a"))
    assert not members.add_consumer(beat("G", "T"), member("a"))
    assert members.add_consumer(beat("G", "T"), member("b"))
    assert members.consumers("G") == ["client-a", "client-b"]
    assert members.knows("G")
    assert not members.knows("H")


def test_topics_that_come_or_go_change_a_group_a_newer_expression_does_not() -> None:
    members: Members[str] = Members()
    members.add_consumer(beat("G", "T"), member("a"))
    assert not members.add_consumer(beat("G", "T", version=5), member("a"))
    assert members.subscription("G", "T").subVersion == 5  # type: ignore[union-attr]
    assert not members.add_consumer(beat("G", "T", version=3), member("a"))
    assert members.subscription("G", "T").subVersion == 5  # type: ignore[union-attr]
    assert members.add_consumer(beat("G", "T", "U"), member("a"))
    assert members.add_consumer(beat("G", "U"), member("a"))
    assert members.subscription("G", "T") is None
    assert members.groups_of_topic("U") == ["G"]


def test_a_beat_that_leaves_the_subscriptions_out_keeps_them() -> None:
    members: Members[str] = Members()
    members.add_consumer(beat("G", "T"), member("a"))
    assert not members.add_consumer(beat("G"), member("a"), keeps_subscriptions=True)
    assert members.subscription("G", "T") is not None


def test_a_client_on_two_connections_is_listed_once() -> None:
    members: Members[str] = Members()
    members.add_consumer(beat("G", "T"), member("old", "me"))
    members.add_consumer(beat("G", "T"), member("new", "me"))
    assert members.consumers("G") == ["me"]
    assert members.closed("old") == ["G"]
    assert members.consumers("G") == ["me"]


def test_a_group_ends_with_its_last_member() -> None:
    members: Members[str] = Members()
    members.add_consumer(beat("G", "T"), member("a"))
    assert not members.remove_consumer("G", "b")
    assert not members.remove_consumer("H", "a")
    assert members.remove_consumer("G", "a")
    assert not members.knows("G")
    assert members.subscription("G", "T") is None


def test_a_closed_connection_leaves_all_its_groups() -> None:
    members: Members[str] = Members()
    members.add_consumer(beat("G", "T"), member("a"))
    members.add_consumer(beat("H", "T"), member("a"))
    members.add_consumer(beat("H", "T"), member("b"))
    members.add_producer("P", member("a"))
    assert members.closed("a") == ["G", "H"]
    assert members.closed("a") == []
    assert members.consumers("H") == ["client-b"]
    assert members.producer_group("P") == []
    assert members.producer_groups() == []


def test_a_producer_that_says_goodbye_is_gone() -> None:
    members: Members[str] = Members()
    members.add_producer("P", member("a"))
    members.add_producer("P", member("b"))
    members.remove_producer("P", "a")
    members.remove_producer("P", "a")
    assert [found.connection for found in members.producer_group("P")] == ["b"]


def test_a_connection_is_silent_when_none_of_its_members_was_heard_of() -> None:
    members: Members[str] = Members()
    members.add_producer("P", member("a", seen_ms=100))
    members.add_consumer(beat("G", "T"), member("a", seen_ms=200))
    members.add_producer("P", member("b", seen_ms=50))
    assert members.silent(since_ms=50) == []
    assert members.silent(since_ms=51) == ["b"]
    assert sorted(members.silent(since_ms=201)) == ["a", "b"]


CONNECTIONS = st.sampled_from("abcd")
GROUPS = st.sampled_from("GHI")


class Comings(RuleBasedStateMachine):
    """Members against a model: a set of (group, connection) for each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.members: Members[str] = Members()
        self.consumers: dict[str, set[str]] = defaultdict(set)
        self.producers: dict[str, set[str]] = defaultdict(set)

    @rule(group=GROUPS, connection=CONNECTIONS)
    def consume(self, group: str, connection: str) -> None:
        is_new = connection not in self.consumers[group]
        assert self.members.add_consumer(beat(group, "T"), member(connection)) == is_new
        self.consumers[group].add(connection)

    @rule(group=GROUPS, connection=CONNECTIONS)
    def produce(self, group: str, connection: str) -> None:
        self.members.add_producer(group, member(connection))
        self.producers[group].add(connection)

    @rule(group=GROUPS, connection=CONNECTIONS)
    def stop_consuming(self, group: str, connection: str) -> None:
        assert self.members.remove_consumer(group, connection) == (connection in self.consumers[group])
        self.consumers[group].discard(connection)

    @rule(group=GROUPS, connection=CONNECTIONS)
    def stop_producing(self, group: str, connection: str) -> None:
        self.members.remove_producer(group, connection)
        self.producers[group].discard(connection)

    @rule(connection=CONNECTIONS)
    def close(self, connection: str) -> None:
        left = sorted(group for group, found in self.consumers.items() if connection in found)
        assert self.members.closed(connection) == left
        for found in (*self.consumers.values(), *self.producers.values()):
            found.discard(connection)

    @invariant()
    def both_agree(self) -> None:
        for group in "GHI":
            ids = {f"client-{connection}" for connection in self.consumers[group]}
            assert set(self.members.consumers(group)) == ids
            assert self.members.knows(group) == bool(ids)
            found = {producer.connection for producer in self.members.producer_group(group)}
            assert found == self.producers[group]


TestComings = Comings.TestCase
TestComings.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
