import copy
from typing import Any

import msgspec
import pytest

from turbopump.auth import book_values
from turbopump.auth.book import UserBook
from turbopump.auth.book_values import from_plain, to_plain
from turbopump.protocol.bodies import AclEntry, AclInfo, AclPolicy, UserInfo
from turbopump.protocol.errors import BrokenBody

ENTRIES = [
    AclPolicy(policyType=kind, entries=[AclEntry(["Pub", "Sub"], "Allow", resource, ["10.0.0.0/8", "::1"])])
    for kind, resource in (("Custom", "Topic:ord*"), ("Default", "Group:*"), ("Custom", "Topic:x"))
]
BOOK = (
    UserBook()
    .created("root", UserInfo(password="a", userType="Super"), True)
    .created("app", UserInfo(password="b", userStatus="disable"), True)
    .updated("app", UserInfo(password="c"), True, keeps_secret=True)
    .granted("User:app", AclInfo(policies=ENTRIES), True)
)


def test_a_book_is_read_as_it_was_written() -> None:
    plain = msgspec.json.decode(msgspec.json.encode(to_plain(BOOK)))
    assert from_plain(plain) == BOOK
    assert from_plain(to_plain(UserBook())) == UserBook()


def _changed(path: list[Any], value: Any) -> Any:
    plain = copy.deepcopy(to_plain(BOOK))
    at: Any = plain
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return plain


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["users"], None),
        (["users"], {}),
        (["other"], 1),
        (["users", 0], "x"),
        (["users", 0, "name"], ""),
        (["users", 0, "name"], "app"),
        (["users", 0, "name"], 7),
        (["users", 0, "extra"], 1),
        (["users", 0, "secrets"], []),
        (["users", 0, "secrets"], ["a", "b", "c"]),
        (["users", 0, "secrets"], [""]),
        (["users", 0, "secrets"], [1]),
        (["users", 0, "type"], "Odd"),
        (["users", 0, "type"], None),
        (["users", 0, "status"], "off"),
        (["users", 1, "policies"], None),
        (["users", 1, "policies", 0, "type"], "Odd"),
        (["users", 1, "policies", 0, "resource"], "Queue:x"),
        (["users", 1, "policies", 0, "actions"], ["Fly"]),
        (["users", 1, "policies", 0, "actions"], []),
        (["users", 1, "policies", 0, "decision"], "Maybe"),
        (["users", 1, "policies", 0, "sources"], ["x"]),
        (["users", 1, "policies", 0, "sources"], None),
        (["users", 1, "policies", 0, "effect"], "Deny"),
    ],
)
def test_values_that_are_not_exactly_a_book_are_refused(path: list[Any], value: Any) -> None:
    with pytest.raises(BrokenBody):
        from_plain(_changed(path, value))


@pytest.mark.parametrize("key", ["name", "secrets", "type", "status", "policies"])
def test_a_missing_key_is_refused(key: str) -> None:
    plain = to_plain(BOOK)
    del plain["users"][0][key]
    with pytest.raises(BrokenBody, match=r"users\[0\] must be an object with"):
        from_plain(plain)


def test_the_number_of_users_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_values, "MAX_USERS", 2)
    assert from_plain(to_plain(BOOK)) == BOOK
    monkeypatch.setattr(book_values, "MAX_USERS", 1)
    with pytest.raises(BrokenBody, match="at most 1, got 2"):
        from_plain(to_plain(BOOK))


def test_an_error_never_has_a_secret() -> None:
    with pytest.raises(BrokenBody) as broken:
        from_plain(_changed(["users", 0, "secrets"], ["top-secret" * 100]))
    assert "top-secret" not in str(broken.value)
