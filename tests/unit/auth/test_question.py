"""Questions about what a user may do: their words, and that the answer is what requests are decided by."""

import pytest
from tests.unit.auth.decisions import CLUSTER, SOURCE, accounts, users
from tests.unit.auth.requests_kit import codes, request_of

from turbopump.auth.access import Access, Identity
from turbopump.auth.needs import needs_of
from turbopump.auth.question import AccessQuestion
from turbopump.auth.resources import TYPES, Need
from turbopump.protocol.errors import InvalidParameter, NoPermission

NEEDS = sorted({need for code in codes() for need in needs_of(request_of(code), CLUSTER)}, key=str)
ASKED = [
    (name, access)
    for access, names in (
        (users(), ("none", "pub", "sub", "get", "edit", "cget", "cupd", "super", "nobody")),
        (accounts(), ("none-user", "pub-user", "sub-user", "list-admin", "full-admin", "nobody")),
    )
    for name in names
]


def question(user: str = "pub", action: str = "Pub", resource: str = "Topic:T") -> AccessQuestion:
    return AccessQuestion.of(user, action, resource, SOURCE.address, CLUSTER)


def is_authorized(access: Access, name: str, need: Need) -> bool:
    is_super = name in ("super", "full-admin")
    try:
        access.authorize(Identity(name, is_super), (need,), SOURCE)
    except NoPermission:
        return False
    return True


@pytest.mark.parametrize(("name", "access"), ASKED, ids=[name for name, _ in ASKED])
def test_the_explanation_of_a_need_is_the_decision_about_it(name: str, access: Access) -> None:
    assert len(NEEDS) > 10
    for need in NEEDS:
        assert access.explain(name, need, SOURCE).is_allowed is is_authorized(access, name, need), str(need)


def test_a_question_about_a_retry_topic_is_one_about_its_group() -> None:
    found = question("sub", "Sub", "Topic:%RETRY%G").answer(users())
    assert (found.is_allowed, found.decided_by) == (True, "Custom Allow Sub on Group:G")


def test_of_several_needs_the_first_that_is_not_met_is_explained() -> None:
    found = question("pub", "Pub", "Topic:SCHEDULE_TOPIC_XXXX").answer(users())
    assert (found.is_allowed, "Topic:SCHEDULE_TOPIC_XXXX" in found.text) == (False, True)
    assert question("super", "Pub", "Topic:SCHEDULE_TOPIC_XXXX").answer(users()).is_allowed


@pytest.mark.parametrize("kind", TYPES)
def test_every_kind_of_resource_can_be_asked_about(kind: str) -> None:
    assert question("super", "Get", f"{kind}:x").answer(users()).is_allowed


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"action": "pub"}, "action must be one of Pub, Sub, Create, Update, Delete, Get, List, got 'pub'"),
        ({"action": "All"}, "action must be"),
        ({"resource": "orders"}, "resource must be one of Cluster:NAME"),
        ({"resource": "Topic:o*"}, "with one name, got 'Topic:o\\*'"),
        ({"resource": "*"}, "resource must be"),
        ({"user": " "}, "user must be a name"),
        ({"user": "x" * 256}, "user must be a name of at most 255"),
    ],
)
def test_words_that_no_policy_could_have_are_refused(words: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        question(**words)
    assert why.replace("\\*", "*") in refused.value.remark


def test_a_source_must_be_an_address() -> None:
    with pytest.raises(InvalidParameter, match="source must be an IP address"):
        AccessQuestion.of("u", "Pub", "Topic:T", "here", CLUSTER)
