"""The book of users as JSON-able values, for a file.

    {"users": [{"name": "app", "secrets": ["new", "old"], "type": "Normal", "status": "enable",
                "policies": [{"type": "Custom", "resource": "Topic:orders*", "actions": ["Pub"],
                              "decision": "Allow", "sources": ["10.0.0.0/8"]}]}]}

In and out: a `UserBook`, or `BrokenBody` that says which part cannot be read. The secrets in the values are
in clear: they are encrypted where they are written to disk. What is unknown is refused, not left out: it
might deny.
"""

from typing import Any

from turbopump.auth.acl_info import NewEntry, entry_of, info_of, policy_type_of
from turbopump.auth.book import MAX_USERS, UserBook, checked_policies, checked_user
from turbopump.auth.policies import Policies
from turbopump.auth.users import STATUS_BY_TEXT, TYPE_BY_TEXT, User
from turbopump.protocol.bodies import AclEntry
from turbopump.protocol.errors import BrokenBody, Refused

_USER_KEYS = {"name", "secrets", "type", "status", "policies"}
_ENTRY_KEYS = {"type", "resource", "actions", "decision", "sources"}


def to_plain(book: UserBook) -> dict[str, Any]:
    """Returns a book as JSON-able values, its secrets in clear."""
    return {"users": [plain_user(user, book.policies_of(user.name)) for user in book.users.values()]}


def from_plain(value: Any) -> UserBook:
    """Returns the book of such values. Raises BrokenBody for what is not exactly a book."""
    rows = _list(_fields(value, {"users"}, "the book")["users"], "users")
    if len(rows) > MAX_USERS:
        raise BrokenBody(f"users must be at most {MAX_USERS}, got {len(rows)}")
    users: dict[str, User] = {}
    policies: dict[str, Policies] = {}
    for number, row in enumerate(rows):
        where = f"users[{number}]"
        fields = _fields(row, _USER_KEYS, where)
        try:
            user = checked_user(_user(fields, where))
            found = checked_policies(user.name, Policies().with_entries(_entries(fields["policies"], where)))
        except Refused as refused:
            raise BrokenBody(f"{where}: {refused.remark}") from None
        if user.name in users:
            raise BrokenBody(f"{where}.name must be unique, got {user.name!r} again")
        users[user.name] = user
        if found:
            policies[user.name] = found
    return UserBook(users, policies)


def plain_user(user: User, policies: Policies) -> dict[str, Any]:
    """Returns one user of a book as JSON-able values, its secrets in clear."""
    info = info_of(user.name, policies)
    found = info.policies or [] if info is not None else []
    return {
        "name": user.name,
        "secrets": list(user.secrets),
        "type": user.type.text,
        "status": user.status.text,
        "policies": [
            _plain_entry(policy.policyType or "", one) for policy in found for one in policy.entries or []
        ],
    }


def _plain_entry(kind: str, entry: AclEntry) -> dict[str, Any]:
    return {
        "type": kind,
        "resource": entry.resource,
        "actions": entry.actions,
        "decision": entry.decision,
        "sources": entry.sourceIps or [],
    }


def _user(fields: dict[str, Any], where: str) -> User:
    kind = TYPE_BY_TEXT.get(_text(fields["type"], f"{where}.type"))
    status = STATUS_BY_TEXT.get(_text(fields["status"], f"{where}.status"))
    if kind is None or status is None:
        raise BrokenBody(f"{where}: type must be Super or Normal, and status enable or disable")
    secrets = _texts(fields["secrets"], f"{where}.secrets")
    return User(_text(fields["name"], f"{where}.name"), tuple(secrets), kind, status)


def _entries(value: Any, where: str) -> list[NewEntry]:
    rows = _list(value, f"{where}.policies")
    return [_entry(row, f"{where}.policies[{number}]") for number, row in enumerate(rows)]


def _entry(row: Any, where: str) -> NewEntry:
    fields = _fields(row, _ENTRY_KEYS, where)
    kind = policy_type_of(_text(fields["type"], f"{where}.type"))
    entry = AclEntry(
        actions=_texts(fields["actions"], f"{where}.actions"),
        decision=_text(fields["decision"], f"{where}.decision"),
        resource=_text(fields["resource"], f"{where}.resource"),
        sourceIps=_texts(fields["sources"], f"{where}.sources"),
    )
    return kind, entry_of(entry)


def _fields(value: Any, keys: set[str], where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != keys:
        raise BrokenBody(f"{where} must be an object with {', '.join(sorted(keys))}")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise BrokenBody(f"{where} must be a list")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise BrokenBody(f"{where} must be a text")
    return value


def _texts(value: Any, where: str) -> list[str]:
    return [_text(one, where) for one in _list(value, where)]
