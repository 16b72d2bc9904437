import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.auth.policies import (
    MAX_NEAR,
    NO_POLICIES,
    Policies,
    PolicyDecision,
    PolicyEntry,
    PolicyType,
    decide,
    explained,
    is_within,
    networks_of,
)
from turbopump.auth.resources import Action, Need, Resource, ResourcePattern, ResourceType, topic
from turbopump.protocol.errors import NoPermission

ALLOW, DENY = PolicyDecision.ALLOW, PolicyDecision.DENY
ACTIONS = (Action.ALL, Action.PUB, Action.SUB, Action.GET)
PUB_T1 = topic("T1", Action.PUB)


def entry(
    resource: str, decision: PolicyDecision, *actions: Action, sources: tuple[str, ...] = ()
) -> PolicyEntry:
    return PolicyEntry(
        ResourcePattern.parse(resource), actions or (Action.ALL,), decision, networks_of(sources)
    )


def allows(
    need: Need, *custom: PolicyEntry, default: tuple[PolicyEntry, ...] = (), source: str = "10.0.0.1"
) -> bool:
    return decide(Policies(custom, default), need, source).is_allowed


# --- which entry decides --------------------------------------------------------------------------------


def test_without_an_entry_the_answer_is_no() -> None:
    verdict = decide(NO_POLICIES, PUB_T1, "10.0.0.1")
    assert not verdict.is_allowed
    assert verdict.reason == "no matched policies"


def test_a_denial_says_so() -> None:
    verdict = decide(Policies((entry("*", DENY),)), PUB_T1, "10.0.0.1")
    assert (verdict.is_allowed, verdict.reason) == (False, "the decision is deny")


def test_the_more_exact_resource_decides() -> None:
    ladder = ["*", "Topic:*", "Topic:T*", "Topic:T1*", "Topic:T1"]
    for number, exact in enumerate(ladder):
        others = [entry(text, DENY) for text in ladder[:number]]
        assert allows(PUB_T1, *others, entry(exact, ALLOW))
        assert not allows(PUB_T1, *[entry(text, ALLOW) for text in ladder[:number]], entry(exact, DENY))


def test_of_two_equally_exact_entries_the_denial_decides() -> None:
    assert not allows(PUB_T1, entry("Topic:T1", ALLOW), entry("Topic:T1", DENY))
    assert not allows(PUB_T1, entry("Topic:T1", DENY), entry("Topic:T1", ALLOW))


def test_an_entry_for_another_action_is_skipped() -> None:
    entries = entry("Topic:T1", DENY, Action.PUB), entry("*", ALLOW)
    assert allows(topic("T1", Action.SUB), *entries)
    assert not allows(PUB_T1, *entries)


def test_one_of_the_needed_actions_is_enough() -> None:
    assert allows(topic("T1", Action.SUB, Action.GET), entry("Topic:T1", ALLOW, Action.GET))
    assert not allows(topic("T1", Action.SUB, Action.GET), entry("Topic:T1", ALLOW, Action.PUB))


def test_default_entries_decide_only_where_no_custom_entry_counts() -> None:
    default = (entry("Topic:T1", ALLOW),)
    assert not allows(PUB_T1, entry("*", DENY), default=default)
    assert allows(PUB_T1, entry("*", DENY, Action.SUB), default=default)


# --- addresses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "address", "is_in"),
    [
        ("10.0.0.0/8", "10.255.255.255", True),
        ("10.0.0.0/8", "11.0.0.0", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.1.2.3/24", "10.1.2.200", True),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("::ffff:10.0.0.0/104", "10.1.2.3", True),
        ("2001:db8::/32", "2001:db8::1", True),
        ("2001:db8::/32", "2001:db9::1", False),
        ("fe80::/10", "fe80::1%eth0", True),
        ("0.0.0.0/0", "::1", False),
        ("::/0", "10.0.0.1", False),
        ("0.0.0.0/0", "no address", False),
        ("0.0.0.0/0", "", False),
    ],
)
def test_an_address_is_in_a_network_or_not(network: str, address: str, is_in: bool) -> None:
    assert is_within(address, networks_of([network])) is is_in
    assert allows(PUB_T1, entry("*", ALLOW, sources=(network,)), source=address) is is_in


@pytest.mark.parametrize("text", ["10.0.0", "10.0.0.0/33", "", "host", "10.0.0.1-5", "1:2"])
def test_other_texts_are_no_network(text: str) -> None:
    with pytest.raises(NoPermission, match=r"The source ip is invalid\."):
        networks_of([text])


def test_an_entry_for_other_addresses_is_skipped() -> None:
    entries = entry("Topic:T1", DENY, sources=("10.0.0.0/8",)), entry("*", ALLOW)
    assert not allows(PUB_T1, *entries, source="10.1.1.1")
    assert allows(PUB_T1, *entries, source="127.0.0.1")


# --- order ----------------------------------------------------------------------------------------------

RESOURCES = st.sampled_from(
    ["*", "Topic:*", "Topic:a*", "Topic:ab*", "Topic:ab", "Topic:b", "Group:*", "Group:ab"]
)
ENTRIES = st.builds(
    lambda resource, decision, actions, sources: entry(resource, decision, *actions, sources=sources),
    RESOURCES,
    st.sampled_from(PolicyDecision),
    st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=3, unique=True),
    st.sampled_from([(), ("10.0.0.0/8",), ("127.0.0.1",), ("10.0.0.0/8", "127.0.0.0/8")]),
)
NEEDS = st.builds(
    lambda kind, name, actions: Need(Resource(kind, name), tuple(actions)),
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER]),
    st.sampled_from(["a", "ab", "abc", "b", ""]),
    st.lists(st.sampled_from(ACTIONS[1:]), min_size=1, max_size=2, unique=True),
)


@given(st.lists(ENTRIES, max_size=8), st.lists(ENTRIES, max_size=4), NEEDS, st.randoms(use_true_random=False))
def test_the_order_of_entries_does_not_matter(
    custom: list[PolicyEntry], default: list[PolicyEntry], need: Need, chance: random.Random
) -> None:
    expected = decide(Policies(tuple(custom), tuple(default)), need, "10.0.0.1")
    chance.shuffle(custom)
    chance.shuffle(default)
    found = decide(Policies(tuple(custom), tuple(default)), need, "10.0.0.1")
    assert (found.is_allowed, found.reason) == (expected.is_allowed, expected.reason)


@given(st.lists(ENTRIES, max_size=8), NEEDS)
def test_a_denial_that_names_the_resource_itself_cannot_be_overruled(
    entries: list[PolicyEntry], need: Need
) -> None:
    if need.resource.type is ResourceType.TOPIC and need.resource.name:
        denial = entry(f"Topic:{need.resource.name}", DENY)
        assert not allows(need, *entries, denial)


@given(st.lists(ENTRIES, max_size=8), NEEDS)
def test_only_an_entry_that_matches_can_allow(entries: list[PolicyEntry], need: Need) -> None:
    if allows(need, *entries):
        matching = [one for one in entries if one.decision is ALLOW and one.resource.matches(need.resource)]
        assert any(Action.ALL in one.actions or set(one.actions) & set(need.any_of) for one in matching)


# --- changes --------------------------------------------------------------------------------------------


def test_an_entry_replaces_that_of_the_same_type_and_resource() -> None:
    first, second = entry("Topic:T1", ALLOW, Action.PUB), entry("Topic:T1", DENY, Action.SUB)
    policies = NO_POLICIES.with_entries([(PolicyType.CUSTOM, first), (PolicyType.DEFAULT, first)])
    changed = policies.with_entries([(PolicyType.CUSTOM, second)])
    assert changed == Policies((second,), (first,))
    assert (len(policies), len(changed)) == (2, 2)


def test_an_entry_is_removed_by_its_type_and_resource() -> None:
    policies = Policies((entry("Topic:T1", ALLOW),), (entry("Topic:T1", ALLOW),))
    assert policies.without(PolicyType.CUSTOM, ResourcePattern.parse("Topic:T1")).custom == ()
    assert policies.without(PolicyType.DEFAULT, ResourcePattern.parse("Topic:T1")).default == ()
    assert policies.without(PolicyType.CUSTOM, ResourcePattern.parse("Topic:T2")) == policies


# --- explanations ---------------------------------------------------------------------------------------


def test_an_explanation_names_the_entry_that_decides() -> None:
    policies = Policies((entry("*", ALLOW), entry("Topic:T*", DENY, Action.PUB, sources=("10.0.0.0/8",))))
    text = explained("u", policies, PUB_T1, "10.0.0.1").text
    assert text == (
        "User:u may not Pub on Topic:T1 from 10.0.0.1: decided by Custom Deny Pub on Topic:T* from 10.0.0.0/8"
    )


def test_an_explanation_without_one_names_those_that_are_near() -> None:
    policies = Policies((entry("Topic:T1", ALLOW, Action.SUB), entry("Topic:T2", ALLOW)))
    found = explained("u", policies, PUB_T1, "10.0.0.1")
    text = found.text
    assert text == "User:u may not Pub on Topic:T1 from 10.0.0.1: no entry allows it"
    assert (found.is_allowed, found.decided_by) == (False, None)
    assert found.looked_at == ("Custom Allow Sub on Topic:T1: not for this action",)


def test_an_explanation_shows_the_entries_in_the_order_in_which_they_decide() -> None:
    custom = (
        entry("*", DENY),
        entry("Topic:T*", ALLOW, Action.PUB, sources=("192.168.0.0/16",)),
        entry("Topic:T1", ALLOW, Action.PUB),
        entry("Topic:other", ALLOW),
    )
    found = explained("u", Policies(custom, (entry("Topic:T1", DENY),)), PUB_T1, "10.0.0.1")
    assert (found.is_allowed, found.decided_by) == (True, "Custom Allow Pub on Topic:T1")
    assert found.looked_at == (
        "Custom Allow Pub on Topic:T1: decides",
        "Custom Allow Pub on Topic:T* from 192.168.0.0/16: not for this address",
        "Custom Deny All on *: another entry decides before it",
        "Default Deny All on Topic:T1: another entry decides before it",
    )


def test_an_explanation_is_bounded() -> None:
    entries = tuple(entry("Topic:T*", ALLOW, Action.SUB) for _ in range(MAX_NEAR + 5))
    found = explained("u", Policies(entries), PUB_T1, "10.0.0.1")
    assert len(found.looked_at) == MAX_NEAR + 1
    assert found.looked_at[-1] == "and 5 more"


# --- many entries ---------------------------------------------------------------------------------------

MANY_NAMES = st.text("abT*", min_size=1, max_size=4)
MANY_RESOURCES = st.one_of(
    st.just("*"),
    st.builds("{}:{}".format, st.sampled_from(["Topic", "Group", "Cluster"]), MANY_NAMES),
)
MANY_ENTRIES = st.lists(
    st.builds(entry, MANY_RESOURCES, st.sampled_from([ALLOW, DENY]), st.sampled_from(ACTIONS)), max_size=12
)


@given(
    MANY_ENTRIES, MANY_ENTRIES, st.sampled_from(["Topic", "Group"]), st.text("abT", min_size=1, max_size=5)
)
def test_an_index_finds_what_a_walk_through_all_entries_finds(
    custom: list[PolicyEntry], default: list[PolicyEntry], kind: str, name: str
) -> None:
    policies = NO_POLICIES.with_entries(
        [*((PolicyType.CUSTOM, one) for one in custom), *((PolicyType.DEFAULT, one) for one in default)]
    )
    need = Need(Resource(ResourceType[kind.upper()], name), (Action.PUB,))
    expected = None
    for entries in (policies.custom, policies.default):
        counting = [one for one in entries if one.counts(need, "10.0.0.1")]
        if counting and expected is None:
            expected = min(counting, key=lambda one: (one.resource.rank, one.decision is ALLOW))
    assert decide(policies, need, "10.0.0.1").entry == expected


def test_a_decision_looks_at_the_entries_about_a_name_alone() -> None:
    """A denied user with 1,000 entries costs 2 us a request, not 190."""
    entries = [(PolicyType.CUSTOM, entry(f"Topic:orders-{number}", ALLOW)) for number in range(1_000)]
    entries += [(PolicyType.CUSTOM, entry(f"Topic:bills-{number}*", ALLOW)) for number in range(1_000)]
    policies = NO_POLICIES.with_entries(entries)
    found = [one for about in policies.about(topic("bills-7", Action.PUB).resource) for one in about]
    assert [str(one.resource) for one in found] == ["Topic:bills-7*"]
    assert [one for about in policies.about(topic("denied", Action.PUB).resource) for one in about] == []
    changed = policies.without(PolicyType.CUSTOM, ResourcePattern.parse("Topic:bills-7*"))
    assert [one for about in changed.about(topic("bills-7", Action.PUB).resource) for one in about] == []
