from typing import Any

import pytest

from turbopump.auth import book as limits
from turbopump.auth.book import UserBook, user_info
from turbopump.auth.users import UserStatus, UserType
from turbopump.protocol.bodies import AclEntry, AclInfo, AclPolicy, UserInfo
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.errors import InvalidParameter, NoPermission, Refused, SystemFailure


def info(password: str | None = "secret", kind: str | None = None, status: str | None = None) -> UserInfo:
    return UserInfo(password=password, userType=kind, userStatus=status)


def acl(resource: str = "Topic:T", *actions: str, decision: str = "Allow", **other: Any) -> AclInfo:
    entry = AclEntry(resource=resource, actions=list(actions or ("Pub",)), decision=decision, **other)
    return AclInfo(policies=[AclPolicy(entries=[entry], policyType="Custom")])


BOOK = UserBook().created("root", info(kind="Super"), by_super=True).created("app", info(), by_super=True)


def refusal(change: Any, *arguments: Any, **named: Any) -> tuple[int, str]:
    with pytest.raises(Refused) as refused:
        change(*arguments, **named)
    return refused.value.code, refused.value.remark


# --- users ----------------------------------------------------------------------------------------------


def test_a_new_user_is_a_normal_one_that_is_enabled() -> None:
    user = BOOK.users["app"]
    assert (user.type, user.status, user.secrets) == (UserType.NORMAL, UserStatus.ENABLE, ("secret",))
    assert BOOK.users["root"].is_super


def test_an_unknown_type_of_a_new_user_gives_no_rights() -> None:
    assert BOOK.created("odd", info(kind="Odd"), by_super=True).users["odd"].type is UserType.NORMAL


@pytest.mark.parametrize(
    ("name", "given", "by_super", "expected"),
    [
        ("", info(), True, (29, "The username is blank")),
        (" ", info(), True, (29, "The username is blank")),
        ("app", info(), True, (16, "The user is existed")),
        ("new", info(None), True, (16, "password can not be blank")),
        ("new", info(" "), True, (16, "password can not be blank")),
        ("new", info(kind="Super"), False, (1, "The super user can only be create by super user")),
        ("new", None, True, (1, limits.NULL_USER)),
    ],
)
def test_a_user_that_cannot_be_created_is_refused_with_apaches_text(
    name: str, given: UserInfo | None, by_super: bool, expected: tuple[int, str]
) -> None:
    assert refusal(BOOK.created, name, given, by_super) == expected


def test_a_change_leaves_the_book_before_as_it_was() -> None:
    after = BOOK.created("new", info(), by_super=False).updated("app", info("other"), by_super=False)
    assert "new" not in BOOK.users
    assert BOOK.users["app"].secrets == ("secret",)
    assert after.users["app"].secrets == ("other",)


def test_a_new_password_replaces_the_one_before_unless_it_is_kept() -> None:
    assert BOOK.updated("app", info("new"), False).users["app"].secrets == ("new",)
    both = BOOK.updated("app", info("new"), False, keeps_secret=True)
    assert both.users["app"].secrets == ("new", "secret")
    third = both.updated("app", info("third"), False, keeps_secret=True)
    assert third.users["app"].secrets == ("third", "new")
    assert both.updated("app", info("new"), False).users["app"].secrets == ("new",)
    assert both.updated("app", info(None, status="disable"), False).users["app"].secrets == ("new", "secret")


def test_a_user_is_disabled_and_enabled() -> None:
    disabled = BOOK.updated("app", info(None, status="disable"), False)
    assert not disabled.users["app"].is_enabled
    assert disabled.updated("app", info(None, status="enable"), False) == BOOK


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("nobody", info(), (16, "The user is not exist")),
        ("root", info("x"), (16, "The super user can only be update by super user")),
        ("app", info(None, kind="Super"), (16, "The super user can only be update by super user")),
        ("app", info(""), (16, "password can not be blank")),
        ("app", None, (1, limits.NULL_USER)),
        ("app", info(None, kind="Odd"), (29, "userType must be Super or Normal, got 'Odd'")),
        ("app", info(None, status="off"), (29, "userStatus must be enable or disable, got 'off'")),
    ],
)
def test_a_user_that_cannot_be_changed_is_refused(
    name: str, given: UserInfo | None, expected: tuple[int, str]
) -> None:
    assert refusal(BOOK.updated, name, given, by_super=False) == expected


def test_a_user_is_deleted_with_its_policies() -> None:
    book = BOOK.granted("User:app", acl(), by_super=False).deleted("app", by_super=False)
    assert (list(book.users), dict(book.policies)) == (["root"], {})
    assert BOOK.deleted("nobody", by_super=False) is BOOK
    assert refusal(BOOK.deleted, "", by_super=True) == (16, "username can not be blank")
    assert (
        refusal(BOOK.deleted, "root", by_super=False)[1] == "The super user can only be update by super user"
    )


def test_the_last_super_user_stays() -> None:
    for change in (
        lambda: BOOK.deleted("root", by_super=True),
        lambda: BOOK.updated("root", info(None, kind="Normal"), by_super=True),
        lambda: BOOK.updated("root", info(None, status="disable"), by_super=True),
    ):
        assert "User:root is the last super user" in refusal(change)[1]
    two = BOOK.created("second", info(kind="Super"), by_super=True)
    assert "root" not in two.deleted("root", by_super=True).users


def test_names_and_secrets_are_bounded() -> None:
    BOOK.created("n" * limits.MAX_NAME, info("s" * limits.MAX_SECRET), by_super=False)
    for name, given in (("n" * (limits.MAX_NAME + 1), info()), ("n", info("s" * (limits.MAX_SECRET + 1)))):
        with pytest.raises(InvalidParameter):
            BOOK.created(name, given, by_super=False)
    with pytest.raises(InvalidParameter, match="printable"):
        BOOK.created("a\nb", info(), by_super=False)


def test_a_refusal_never_has_the_password() -> None:
    with pytest.raises(InvalidParameter) as refused:
        BOOK.updated("app", info("top-secret" * 50), by_super=True)
    assert "top-secret" not in str(refused.value)


def test_users_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_USERS", 3)
    three = BOOK.created("third", info(), by_super=True)
    with pytest.raises(SystemFailure, match="there are 3 users already"):
        three.created("fourth", info(), by_super=True)


def test_users_are_shown_without_their_secrets() -> None:
    assert user_info(BOOK.users["app"]) == UserInfo(username="app", userType="Normal", userStatus="enable")
    assert [user.username for user in BOOK.user_infos("pp")] == ["app"]
    assert "secret" not in repr(BOOK) + repr(BOOK.user_infos())


# --- policies -------------------------------------------------------------------------------------------


def test_a_second_entry_of_a_resource_replaces_the_first() -> None:
    book = BOOK.granted("User:app", acl("Topic:T", "Pub", "Sub"), by_super=False)
    book = book.granted("User:app", acl("Topic:T", "Sub", decision="Deny"), by_super=False)
    shown = book.acl("User:app")
    assert shown is not None
    assert shown.policies == acl("Topic:T", "Sub", decision="Deny").policies


@pytest.mark.parametrize(
    ("subject", "given", "expected"),
    [
        ("User:nobody", acl(), (16, "The subject of User:nobody is not exist.")),
        ("app", acl(), (16, "The subject is null.")),
        ("Group:app", acl(), (16, "The subject is null.")),
        ("User:", acl(), (16, "The subject is null.")),
        (None, acl(), (16, "The subject is null.")),
        ("User:app", None, (1, "AuthorizationException: The body of acl is null")),
        ("User:app", AclInfo(policies=[]), (1, "AuthorizationException: The body of acl is null")),
        ("User:app", acl("Queue:T"), (16, "The resource is null.")),
        ("User:app", acl("Topic:T", "Fly"), (16, "The actions is empty.")),
        ("User:app", acl("Topic:T", "Any"), (16, "The actions can not be Any.")),
        ("User:app", acl(decision="Maybe"), (16, "The decision is null or illegal.")),
        ("User:app", acl(sourceIps=["10.0.0"]), (16, "The source ip is invalid.")),
        (
            "User:app",
            AclInfo(policies=[AclPolicy(entries=[], policyType="Odd"), AclPolicy(policyType="Custom")]),
            (16, "The policy type must be Custom or Default, got 'Odd'."),
        ),
    ],
)
def test_policies_that_cannot_be_read_are_refused_with_apaches_text(
    subject: str | None, given: AclInfo | None, expected: tuple[int, str]
) -> None:
    assert refusal(BOOK.granted, subject, given, by_super=True) == expected


def test_entries_are_revoked_one_by_one_or_all() -> None:
    book = BOOK.granted("User:app", acl("Topic:A"), False).granted("User:app", acl("Topic:B"), False)
    one = book.revoked("User:app", "Custom", "Topic:A", by_super=False)
    assert [str(entry.resource) for _, entry in one.policies_of("app")] == ["Topic:B"]
    assert book.revoked("User:app", None, "Topic:none", by_super=False) == book
    assert book.revoked("User:app", None, None, by_super=False) == BOOK
    assert refusal(BOOK.revoked, "User:app", None, None, by_super=True) == (16, "The acl is not exist.")
    unknown = refusal(BOOK.revoked, "User:nobody", None, None, by_super=True)
    assert unknown == (16, "The subject is not exist.")


@pytest.mark.parametrize("resource", ["*", "Cluster:*", "Cluster:C"])
def test_policies_about_the_cluster_and_everything_are_for_super_users(resource: str) -> None:
    given = acl(resource, "Get")
    assert refusal(BOOK.granted, "User:app", given, by_super=False)[0] == ResponseCode.NO_PERMISSION
    book = BOOK.granted("User:app", given, by_super=True)
    for resource_text in (resource, None):
        assert refusal(book.revoked, "User:app", None, resource_text, by_super=False)[0] == 16
    assert book.revoked("User:app", None, resource, by_super=True) == BOOK


def test_a_user_with_rights_to_the_cluster_is_changed_by_super_users_only() -> None:
    book = BOOK.granted("User:app", acl("Cluster:*", "Update"), by_super=True)
    assert refusal(book.updated, "app", info("mine"), by_super=False)[0] == ResponseCode.NO_PERMISSION
    assert refusal(book.deleted, "app", by_super=False)[0] == ResponseCode.NO_PERMISSION
    assert book.updated("app", info("new"), by_super=True).users["app"].secrets == ("new",)


def test_policies_are_shown_by_subject_and_resource() -> None:
    book = BOOK.granted("User:app", acl("Topic:orders", "Pub", sourceIps=["10.0.0.0/8", "127.0.0.1"]), False)
    book = book.granted("User:root", acl("Group:g", "Sub"), True)
    assert [one.subject for one in book.acls()] == ["User:root", "User:app"]
    assert [one.subject for one in book.acls("app")] == ["User:app"]
    (found,) = book.acls(resource_part="orders")
    assert found.policies is not None
    assert found.policies[0].entries == [
        AclEntry(["Pub"], "Allow", "Topic:orders", ["10.0.0.0/8", "127.0.0.1"])
    ]
    assert BOOK.acl("User:app") is None
    assert refusal(BOOK.acl, "User:nobody") == (16, "The subject is not exist.")
    assert refusal(BOOK.acl, "app") == (16, "The subject is null.")


def test_entries_and_their_addresses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ENTRIES_PER_USER", 2)
    monkeypatch.setattr(limits, "MAX_SOURCES_PER_ENTRY", 2)
    book = BOOK.granted("User:app", acl("Topic:A", sourceIps=["1.1.1.1", "2.2.2.2"]), False)
    book = book.granted("User:app", acl("Topic:B"), False)
    with pytest.raises(SystemFailure, match="at most 2 entries"):
        book.granted("User:app", acl("Topic:C"), False)
    with pytest.raises(SystemFailure, match="at most 2 source addresses"):
        BOOK.granted("User:app", acl("Topic:A", sourceIps=["1.1.1.1", "2.2.2.2", "3.3.3.3"]), False)
    with pytest.raises(InvalidParameter, match="resource must be at most"):
        BOOK.granted("User:app", acl(f"Topic:{'t' * 256}"), False)


# --- what changed ---------------------------------------------------------------------------------------


def test_a_change_is_told_without_secrets() -> None:
    after = BOOK.created("new", info("new-secret"), True).updated("app", info("other-secret"), True)
    after = after.granted("User:app", acl("Topic:T", "Pub"), True)
    assert after.changes_since(BOOK) == [
        "User:app has another password (1 valid)",
        "User:app got Custom: Allow Pub on Topic:T",
        "User:new created, Normal, enable",
    ]
    assert BOOK.changes_since(after)[-1] == "User:new deleted"
    assert BOOK.changes_since(BOOK) == []


def test_a_refusal_is_no_permission_where_apache_says_so() -> None:
    with pytest.raises(NoPermission):
        BOOK.created("app", info(), by_super=True)
