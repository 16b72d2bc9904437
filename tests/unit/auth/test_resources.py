import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.auth.resources import (
    Action,
    Need,
    Pattern,
    Resource,
    ResourcePattern,
    ResourceType,
    actions_of,
    topic,
)
from turbopump.protocol.errors import NoPermission

NAMES = st.text("abc%|-_ 1", min_size=1, max_size=8)


def orders(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("*", ["orders", ""], []),
        ("Topic:*", ["orders", ""], []),
        ("Topic:orders", ["orders"], ["orders2", "order", "Orders", ""]),
        ("Topic:ord*", ["ord", "orders"], ["or", "Orders", ""]),
        ("Topic:ord*ers", ["ordinary"], ["or"]),
        ("Topic:**", ["orders"], []),
        ("Topic:*ers", ["other"], []),
        ("Group:*", [], ["orders"]),
        ("Cluster:orders", [], ["orders"]),
        ("Namespace:*", [], ["orders"]),
    ],
)
def test_a_pattern_matches_these_topics_only(text: str, matching: list[str], others: list[str]) -> None:
    pattern = ResourcePattern.parse(text)
    assert [name for name in matching if not pattern.matches(orders(name))] == []
    assert [name for name in others if pattern.matches(orders(name))] == []


@pytest.mark.parametrize(
    "text", ["", "orders", "Topic:", "topic:orders", "Queue:orders", "Any:*", "**", ":a"]
)
def test_other_texts_are_no_resource(text: str) -> None:
    with pytest.raises(NoPermission, match=r"The resource is null\."):
        ResourcePattern.parse(text)


@given(st.sampled_from(["Topic", "Group", "Cluster", "Namespace"]), NAMES, st.sampled_from(["", "*"]))
def test_a_pattern_is_read_as_it_is_written(kind: str, name: str, star: str) -> None:
    pattern = ResourcePattern.parse(f"{kind}:{name}{star}")
    assert str(pattern) == f"{kind}:{name}{star}"
    assert ResourcePattern.parse(str(pattern)) == pattern


def test_a_pattern_that_begins_with_a_star_is_that_of_all_names() -> None:
    assert ResourcePattern.parse("Topic:*ers") == ResourcePattern.parse("Topic:*")


def test_the_more_exact_pattern_has_the_smaller_rank() -> None:
    texts = ["Topic:orders", "Topic:order*", "Topic:o*", "Topic:*", "*"]
    ranks = [ResourcePattern.parse(text).rank for text in texts]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(ranks)


def test_the_numbers_are_those_of_apache() -> None:
    assert [(kind.name, kind.value) for kind in Pattern] == [("ANY", 1), ("LITERAL", 2), ("PREFIXED", 3)]
    assert (ResourceType.TOPIC, ResourceType.GROUP, Action.PUB, Action.LIST) == (4, 5, 3, 9)


def test_actions_are_read_by_their_names_each_once() -> None:
    assert actions_of(["Pub", "Sub", "Pub"]) == (Action.PUB, Action.SUB)
    assert actions_of(["All"]) == (Action.ALL,)


@pytest.mark.parametrize(
    ("texts", "refusal"),
    [
        ([], "The actions is empty."),
        (["Fly"], "The actions is empty."),
        (["Pub", "Fly"], "The actions is empty."),
        (["pub"], "The actions is empty."),
        (["Any"], "The actions can not be Any."),
    ],
)
def test_unknown_and_impossible_actions_are_refused(texts: list[str], refusal: str) -> None:
    with pytest.raises(NoPermission) as refused:
        actions_of(texts)
    assert refused.value.remark == refusal


def test_equal_needs_are_one_key_of_a_table() -> None:
    assert {topic("T", Action.PUB), topic("T", Action.PUB)} == {Need(orders("T"), (Action.PUB,))}
    assert topic("T", Action.PUB) != topic("T", Action.SUB)
    assert str(topic("T", Action.PUB, Action.GET)) == "Pub/Get on Topic:T"
