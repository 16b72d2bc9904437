"""Accounts of access control 1.0 as users and policies of 2.0.

In: accounts and the book so far. Out: the book with those that it did not have yet, and what could not be
kept: white addresses have no counterpart, and are named so that operators do not rely on them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from turbopump.auth.accounts import DENY, Account, Accounts, Perm
from turbopump.auth.acl_info import NewEntry
from turbopump.auth.book import UserBook, checked_policies, checked_user
from turbopump.auth.policies import NO_POLICIES, Policies, PolicyDecision, PolicyEntry, PolicyType
from turbopump.auth.resources import Action, Pattern, ResourcePattern, ResourceType
from turbopump.auth.users import User, UserType


@dataclass(frozen=True, slots=True)
class Migration:
    """The book after a migration, the users that are new in it, and what was dropped, in words."""

    book: UserBook
    created: tuple[str, ...]
    dropped: tuple[str, ...]


def migrated(accounts: Accounts, book: UserBook) -> Migration:
    """Returns the book with the accounts that are not in it; raises Refused for one beyond the bounds."""
    new = [account for key, account in accounts.by_key.items() if key not in book.users]
    users, policies = dict(book.users), dict(book.policies)
    for account in new:
        user = checked_user(_user(account))
        users[user.name] = user
        if not account.is_admin:
            policies[user.name] = checked_policies(user.name, policies_of(account))
    dropped = [f"globalWhiteRemoteAddresses {pattern}" for pattern in accounts.white if pattern.text]
    dropped += [
        f"whiteRemoteAddress {account.white_address} of {account.access_key}"
        for account in new
        if account.white_address.text
    ]
    dropped += [
        f"topicPerms and groupPerms of {account.access_key}: as an administrator it is a super user"
        for account in new
        if account.is_admin and not account.is_unlimited
    ]
    names = tuple(account.access_key for account in new)
    return Migration(replace(book, users=users, policies=policies), names, tuple(dropped))


def _user(account: Account) -> User:
    kind = UserType.SUPER if account.is_admin else UserType.NORMAL
    return User(account.access_key, (account.secret_key,), kind)


def policies_of(account: Account) -> Policies:
    """Returns the policies of an account: its lists as Custom entries, its defaults as Default ones."""
    topics = _entries(ResourceType.TOPIC, account.topics, account.default_topic)
    groups = _entries(ResourceType.GROUP, account.groups, account.default_group)
    return NO_POLICIES.with_entries([*topics, *groups])


def _entries(kind: ResourceType, perms: Mapping[str, Perm], default: Perm) -> Iterator[NewEntry]:
    """Yields the entries of a list and its default.

    In 1.0 a name in the list has nothing of the default. In 2.0 an action that its Custom entry does not have
    is decided by the Default entries, so that there the name is denied.
    """
    for name, perm in perms.items():
        resource = ResourcePattern(kind, Pattern.LITERAL, name)
        yield PolicyType.CUSTOM, _entry(resource, perm)
        if perm and default - perm:
            yield PolicyType.DEFAULT, _entry(resource, DENY)
    yield PolicyType.DEFAULT, _entry(ResourcePattern(kind, Pattern.ANY), default)


def _entry(resource: ResourcePattern, perm: Perm) -> PolicyEntry:
    if not perm:
        return PolicyEntry(resource, (Action.ALL,), PolicyDecision.DENY)
    return PolicyEntry(resource, tuple(sorted(perm)), PolicyDecision.ALLOW)
