from collections import defaultdict

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.properties import examples

from turbopump.broker.groups.members import Member, Members
from turbopump.protocol.bodies import ConsumerData, SubscriptionData


def member(connection: str, client_id: str | None = None, seen: float = 0.0) -> Member[str]:
    return Member(client_id or f"client-{connection}", connection, "JAVA", 513, seen, 0)


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


def test_who_is_silent_leaves_the_group_it_is_silent_for() -> None:
    members: Members[str] = Members()
    members.add_producer("P", member("a", seen=100))
    members.add_consumer(beat("G", "T"), member("a", seen=200))
    members.add_consumer(beat("H", "T"), member("a", seen=90))
    members.add_producer("P", member("b", seen=50))
    assert members.expire(since=50) == ([], [])
    assert members.expire(since=51) == ([], ["b"])
    assert members.expire(since=150) == ([("H", "a")], [])
    assert members.producer_groups() == []
    assert not members.knows("H")
    assert members.expire(since=201) == ([("G", "a")], ["a"])
    assert not members.is_member("a")


def test_a_repeated_beat_counts_as_a_sign_of_life() -> None:
    members: Members[str] = Members()
    for seen in (100, 200):
        members.add_producer("P", member("a", seen=seen))
        members.add_consumer(beat("G", "T"), member("a", seen=seen))
    assert members.expire(since=200) == ([], [])


def test_a_client_is_found_on_the_connection_that_came_last() -> None:
    members: Members[str] = Members()
    for connection in ("old", "new"):
        members.add_consumer(beat("G", "T"), member(connection, "me"))
        members.add_producer("P", member(connection, "me"))
    members.add_consumer(beat("G", "T"), member("old", "me"))
    members.add_producer("P", member("old", "me"))
    assert members.producers("me") == ["new", "old"]
    found = members.consumer("G", "me")
    assert found is not None
    assert found.connection == "new"
    members.closed("new")
    assert members.producers("me") == ["old"]
    members.closed("old")
    assert members.producers("me") == []
    assert members.consumer("G", "me") is None


def test_a_producer_is_found_until_it_has_left_its_last_group() -> None:
    members: Members[str] = Members()
    for group in ("P", "CLIENT_INNER_PRODUCER"):
        members.add_producer(group, member("a", "me"))
    members.remove_producer("P", "a")
    assert members.producers("me") == ["a"]
    members.remove_producer("CLIENT_INNER_PRODUCER", "a")
    assert members.producers("me") == []


def test_a_connection_that_changes_its_client_id_is_found_by_the_new_one() -> None:
    members: Members[str] = Members()
    members.add_producer("P", member("a", "before"))
    members.add_producer("P", member("a", "after"))
    assert (members.producers("before"), members.producers("after")) == ([], ["a"])
    members.add_consumer(beat("G", "T"), member("a", "before"))
    assert not members.add_consumer(beat("G", "T"), member("a", "after"))
    assert members.consumers("G") == ["after"]


def test_a_connection_with_two_client_ids_leaves_nothing_behind() -> None:
    members: Members[str] = Members()
    members.add_producer("P", member("a", "one"))
    members.add_producer("Q", member("a", "two"))
    members.add_producer("R", member("a", "two"))
    members.remove_producer("Q", "a")
    assert (members.producers("one"), members.producers("two")) == (["a"], ["a"])
    members.closed("a")
    assert (members.producers("one"), members.producers("two")) == ([], [])
    assert members._producing == {}


def tags(group: str, **topics: str) -> ConsumerData:
    subscriptions = [SubscriptionData(topic=topic, subString=text) for topic, text in topics.items()]
    return ConsumerData(groupName=group, subscriptionDataSet=subscriptions)


def differences(members: Members[str]) -> set[frozenset[str]]:
    group = members.consumer_group("G")
    assert group is not None
    return set(group.differences().values())


def test_members_that_want_the_same_in_other_words_agree() -> None:
    members: Members[str] = Members()
    members.add_consumer(tags("G", T="A || B", U="*"), member("a"))
    members.add_consumer(tags("G", U="", T="B||A"), member("b"))
    assert differences(members) == set()


def test_what_not_all_members_want_is_told() -> None:
    members: Members[str] = Members()
    members.add_consumer(tags("G", T="A", U="*"), member("a"))
    members.add_consumer(tags("G", T="B", U="*"), member("b"))
    members.add_consumer(tags("G", U="*"), member("c"))
    assert differences(members) == {frozenset({"T A"}), frozenset({"T B"}), frozenset()}
    members.remove_consumer("G", "c")
    members.add_consumer(tags("G", T="A", U="*"), member("b"))
    assert differences(members) == set()


def test_a_member_that_has_not_told_its_subscriptions_differs_from_nobody() -> None:
    members: Members[str] = Members()
    members.add_consumer(tags("G", T="A"), member("a"))
    members.add_consumer(tags("G"), member("b"), keeps_subscriptions=True)
    assert differences(members) == set()
    members.add_consumer(tags("G", T="B"), member("b"))
    assert differences(members) == {frozenset({"T A"}), frozenset({"T B"})}
    members.add_consumer(tags("G"), member("b", "another"), keeps_subscriptions=True)
    assert differences(members) == set()


def test_only_a_list_of_subscriptions_that_comes_or_goes_is_news() -> None:
    members: Members[str] = Members()

    def is_news() -> bool:
        group = members.consumer_group("G")
        assert group is not None
        news, group.subscription_sets.is_new = group.subscription_sets.is_new, False
        return news

    members.add_consumer(tags("G", T="A"), member("a"))
    assert is_news()
    members.add_consumer(tags("G", T="B"), member("b"))
    assert is_news()
    for connection, text in (("a", "A"), ("b", "B"), ("c", "B")):
        members.add_consumer(tags("G", T=text), member(connection))
        assert not is_news()
    members.closed("b")
    assert not is_news()
    members.closed("c")
    assert is_news()


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
TestComings.settings = examples(30, stateful_step_count=30)
