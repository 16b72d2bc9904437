import hmac
from typing import Any

import pytest

from turbopump.auth import access as limits
from turbopump.auth import signature
from turbopump.auth.access import Identity, Source, UserAccess
from turbopump.auth.book import UserBook
from turbopump.auth.resources import Action, cluster, group, topic
from turbopump.auth.signature import Credentials
from turbopump.protocol.bodies import AclEntry, AclInfo, AclPolicy, UserInfo
from turbopump.protocol.command import Command
from turbopump.protocol.errors import NoPermission

SOURCE = Source("10.0.0.1")
PUB_T = topic("T", Action.PUB)


def acl(resource: str, *actions: str, decision: str = "Allow", sources: list[str] | None = None) -> AclInfo:
    entry = AclEntry(resource=resource, actions=list(actions), decision=decision, sourceIps=sources)
    return AclInfo(policies=[AclPolicy(entries=[entry])])


BOOK = (
    UserBook()
    .created("root", UserInfo(password="root-secret", userType="Super"), True)
    .created("app", UserInfo(password="app-secret"), True)
    .created("off", UserInfo(password="off-secret", userStatus="disable"), True)
    .granted("User:app", acl("Topic:T", "Pub"), True)
)


def signed(name: str, secret: str, **ext: str) -> Command:
    return Command(310, ext=Credentials(name, secret).signed({"b": "T", **ext}, b"body"), body=b"body")


def refusal(call: Any, *arguments: Any) -> str:
    with pytest.raises(NoPermission) as refused:
        call(*arguments)
    return refused.value.remark


# --- who ------------------------------------------------------------------------------------------------


def test_a_signature_says_who_sent_a_request() -> None:
    access = UserAccess(BOOK)
    assert access.identify(signed("app", "app-secret"), SOURCE) == Identity("app", False, "signature")
    assert access.identify(signed("root", "root-secret"), SOURCE) == Identity("root", True, "signature")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (Command(310), "username cannot be null."),
        (Command(310, ext={"b": "T"}), "username cannot be null."),
        (Command(310, ext={"AccessKey": "", "Signature": "x"}), "username cannot be null."),
        (signed("nobody", "x"), "User:nobody is not found."),
        (signed("off", "off-secret"), "User:off is disabled."),
        (signed("off", "wrong"), "User:off is disabled."),
        (signed("app", "wrong"), "check signature failed."),
        (signed("app", "root-secret"), "check signature failed."),
        (Command(310, ext={"AccessKey": "app"}), "check signature failed."),
        (Command(310, ext={"AccessKey": "app", "Signature": "ä"}), "check signature failed."),
    ],
)
def test_who_is_not_certain_is_refused_with_apaches_text(command: Command, text: str) -> None:
    assert refusal(UserAccess(BOOK).identify, command, SOURCE) == text


def test_both_secrets_of_a_user_are_right() -> None:
    book = BOOK.updated("app", UserInfo(password="new-secret"), True, keeps_secret=True)
    access = UserAccess(book)
    for secret in ("app-secret", "new-secret"):
        assert access.identify(signed("app", secret), SOURCE).name == "app"
    access.book = book.updated("app", UserInfo(password="new-secret"), True)
    assert refusal(access.identify, signed("app", "app-secret"), SOURCE) == "check signature failed."


def test_a_certificate_names_the_user_of_an_unsigned_request() -> None:
    access = UserAccess(BOOK)
    unsigned = Command(310, ext={"b": "T"})
    assert access.identify(unsigned, Source("10.0.0.1", "app")) == Identity("app", False, "certificate")
    assert refusal(access.identify, unsigned, Source("10.0.0.1", "nobody")) == "User:nobody is not found."
    assert refusal(access.identify, unsigned, Source("10.0.0.1", "off")) == "User:off is disabled."


def test_a_certificate_does_not_make_a_wrong_signature_right() -> None:
    source = Source("10.0.0.1", "root")
    assert refusal(UserAccess(BOOK).identify, signed("app", "wrong"), source) == "check signature failed."


def test_a_user_that_is_disabled_or_deleted_is_refused_from_the_next_request_on() -> None:
    access, request = UserAccess(BOOK), signed("app", "app-secret")
    identity = access.identify(request, SOURCE)
    access.authorize(identity, (PUB_T,), SOURCE)
    access.book = BOOK.updated("app", UserInfo(userStatus="disable"), True)
    assert refusal(access.identify, request, SOURCE) == "User:app is disabled."
    access.book = BOOK.deleted("app", True)
    assert refusal(access.identify, request, SOURCE) == "User:app is not found."
    assert "no matched policies" in refusal(access.authorize, identity, (PUB_T,), SOURCE)


@pytest.mark.parametrize(
    ("request_of", "count"), [(("app", "wrong"), 2), (("nobody", "x"), 0), (("off", "off-secret"), 0)]
)
def test_a_wrong_signature_costs_two_computations_and_that_of_nobody_none(
    request_of: tuple[str, str], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can see whether a user has one secret or two; that there is no such user, the refusal says.

    Nothing makes unknown names wait, so there must be no work that they can cause.
    """
    request, made = signed(*request_of), list[object]()

    def never_right(content: bytes, key: object) -> bytes:
        made.append(key)
        return b""

    monkeypatch.setattr(signature, "signature_of", never_right)
    refusal(UserAccess(BOOK).identify, request, SOURCE)
    assert len(made) == count


def test_a_signature_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    right = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(b) or right(a, b))
    UserAccess(BOOK).identify(signed("app", "app-secret"), SOURCE)
    assert len(compared) == 1


# --- what -----------------------------------------------------------------------------------------------

APP = Identity("app")


def test_a_need_without_an_entry_is_refused_with_apaches_text() -> None:
    text = refusal(UserAccess(BOOK).authorize, APP, (topic("other", Action.PUB),), SOURCE)
    assert text == "User:app has no permission to access Topic:other from 10.0.0.1, no matched policies."


def test_a_denial_is_refused_with_apaches_text() -> None:
    access = UserAccess(BOOK.granted("User:app", acl("Group:G", "Sub", decision="Deny"), True))
    text = refusal(access.authorize, APP, (group("G", Action.SUB),), SOURCE)
    assert text == "User:app has no permission to access Group:G from 10.0.0.1, the decision is deny."


def test_all_needs_must_be_met_and_the_first_that_is_not_is_named() -> None:
    needs = PUB_T, topic("A", Action.PUB), topic("B", Action.PUB)
    assert "Topic:A" in refusal(UserAccess(BOOK).authorize, APP, needs, SOURCE)


def test_a_request_without_needs_passes_with_an_identity() -> None:
    UserAccess(BOOK).authorize(APP, (), SOURCE)


def test_super_users_may_do_everything() -> None:
    UserAccess(BOOK).authorize(Identity("root", True), (cluster("C", Action.UPDATE),), SOURCE)


def test_a_decision_is_remembered_for_one_address_user_and_need() -> None:
    book = BOOK.granted("User:app", acl("Topic:T", "Pub", sources=["10.0.0.0/8"]), True)
    access = UserAccess(book)
    for _ in range(2):
        access.authorize(APP, (PUB_T,), SOURCE)
        assert "no matched" in refusal(access.authorize, APP, (PUB_T,), Source("127.0.0.1"))
        assert "no matched" in refusal(access.authorize, APP, (topic("T", Action.SUB),), SOURCE)
        assert "no matched" in refusal(access.authorize, Identity("off"), (PUB_T,), SOURCE)


def test_a_change_of_policies_counts_from_the_next_request_on() -> None:
    access = UserAccess(BOOK)
    access.authorize(APP, (PUB_T,), SOURCE)
    access.book = BOOK.granted("User:app", acl("Topic:T", "Pub", decision="Deny"), True)
    assert "the decision is deny" in refusal(access.authorize, APP, (PUB_T,), SOURCE)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_REMEMBERED", 2)
    access = UserAccess(BOOK.granted("User:app", acl("Topic:*", "Pub"), True))
    for number in range(5):
        access.authorize(APP, (topic(f"t{number}", Action.PUB),), SOURCE)
        assert len(access._allowed) <= 2
    access.authorize(APP, (topic("t" * 256, Action.PUB),), SOURCE)
    assert all(len(need.resource.name) < 256 for _, _, need in access._allowed)


# --- why ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nobody", "may not Pub on Topic:T: there is no such user"),
        ("off", "may not Pub on Topic:T: the user is disabled"),
        ("root", "may Pub on Topic:T: super users may do everything"),
        ("app", "may Pub on Topic:T from 10.0.0.1: decided by Custom Allow Pub on Topic:T"),
    ],
)
def test_a_decision_is_explained(name: str, words: str) -> None:
    assert UserAccess(BOOK).explain(name, PUB_T, SOURCE).text == f"User:{name} {words}"


def test_no_text_has_a_secret() -> None:
    access = UserAccess(BOOK)
    texts = [repr(access.explain(name, PUB_T, SOURCE)) for name in ("app", "root", "off")]
    texts += [repr(BOOK), repr(access.identify(signed("app", "app-secret"), SOURCE))]
    assert not any("-secret" in text for text in texts)
