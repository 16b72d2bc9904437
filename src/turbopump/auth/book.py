"""The book of users: who they are and what their policies say, as one value.

In: a change, and whether a super user asks for it. Out: a new book, or the refusal with Apache's text. The
old book stays as it was, so a change that cannot be written to disk has not happened. The form for a file is
in `book_values.py`. Where the file is, and who may ask at all, belongs to other packages.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from turbopump.auth.acl_info import NewEntry, entries_of, info_of, policy_type_of, user_of
from turbopump.auth.policies import NO_POLICIES, Policies
from turbopump.auth.resources import ResourcePattern, ResourceType
from turbopump.auth.users import MAX_SECRETS, STATUS_BY_TEXT, TYPE_BY_TEXT, User, UserStatus, UserType
from turbopump.protocol.bodies import AclInfo, UserInfo
from turbopump.protocol.errors import InvalidParameter, NoPermission, SystemFailure

MAX_USERS = 10_000  # about 5 MB of memory, and a file that is written in less than a second
MAX_ENTRIES_PER_USER = 1_000  # each is looked at for the first request about a resource
MAX_SOURCES_PER_ENTRY = 256
MAX_NAME = 255  # characters, of users and resources: as of the longest topic
MAX_SECRET = 255  # characters

NULL_USER = 'NullPointerException: Cannot invoke "UserInfo.setUsername(String)" because "userInfo" is null'

_UPDATE_BY_SUPER = "The super user can only be update by super user"
_GRANT_BY_SUPER = "Policies about the cluster or everything can only be changed by a super user"


@dataclass(frozen=True, slots=True)
class UserBook:
    """All users and their policies. Every change returns a new book."""

    users: Mapping[str, User] = field(default_factory=dict)
    policies: Mapping[str, Policies] = field(default_factory=dict)

    # --- reading ----------------------------------------------------------------------------------------

    def policies_of(self, name: str) -> Policies:
        return self.policies.get(name, NO_POLICIES)

    def user_infos(self, part: str = "") -> list[UserInfo]:
        """Returns the users with a text in their name, without their secrets (3005)."""
        return [user_info(user) for user in self.users.values() if part in user.name]

    def acl(self, subject: str | None) -> AclInfo | None:
        """Returns the policies of a subject, None if it has none (3009). Raises NoPermission."""
        name = self._known(subject)
        return info_of(name, self.policies_of(name))

    def acls(self, subject_part: str = "", resource_part: str = "") -> list[AclInfo]:
        """Returns the policies whose subject and resource have these texts in them (3010)."""
        found = (
            info_of(user.name, self.policies_of(user.name), resource_part)
            for user in self.users.values()
            if subject_part in user.subject
        )
        return [info for info in found if info is not None]

    # --- users ------------------------------------------------------------------------------------------

    def created(self, name: str, info: UserInfo | None, by_super: bool) -> "UserBook":
        """Returns the book with a new user (3001). Raises Refused."""
        if not name.strip():
            raise InvalidParameter("The username is blank")
        if info is None:
            raise SystemFailure(NULL_USER)
        kind = TYPE_BY_TEXT.get(
            info.userType or "", UserType.NORMAL
        )  # as Apache: an unknown word gives no rights
        if kind is UserType.SUPER and not by_super:
            raise SystemFailure("The super user can only be create by super user")
        user = User(name, (_checked_secret(info.password),), kind, _status_of(info) or UserStatus.ENABLE)
        _check_text("username", name, MAX_NAME)
        if name in self.users:
            raise NoPermission("The user is existed")
        if len(self.users) >= MAX_USERS:
            raise SystemFailure(f"there are {MAX_USERS} users already: delete some first")
        return self._with_user(user)

    def updated(
        self, name: str, info: UserInfo | None, by_super: bool, keeps_secret: bool = False
    ) -> "UserBook":
        """Returns the book with another password, type or status of a user (3002). Raises Refused.

        `keeps_secret`: the secret before stays valid beside the new one, until the password changes again.
        """
        if info is None:
            raise SystemFailure(NULL_USER)
        before = self._user(name)
        kind, status = _type_of(info), _status_of(info)
        if not by_super and (self._is_protected(before) or kind is UserType.SUPER):
            raise NoPermission(_UPDATE_BY_SUPER)
        secrets = before.secrets
        if info.password is None and keeps_secret:
            raise InvalidParameter("keepSecret needs a password, which becomes valid beside the one before")
        if info.password is not None:
            secrets = _with_secret(secrets, _checked_secret(info.password), keeps_secret)
        after = replace(before, secrets=secrets, type=kind or before.type, status=status or before.status)
        return self._keeping_a_super(self._with_user(after), name)

    def deleted(self, name: str, by_super: bool) -> "UserBook":
        """Returns the book without a user and its policies (3003); this book if there is no such user."""
        if not name.strip():
            raise NoPermission("username can not be blank")
        user = self.users.get(name)
        if user is None:
            return self
        if self._is_protected(user) and not by_super:
            raise NoPermission(_UPDATE_BY_SUPER)
        users = {other: kept for other, kept in self.users.items() if other != name}
        policies = {other: kept for other, kept in self.policies.items() if other != name}
        return self._keeping_a_super(UserBook(users, policies), name)

    def _user(self, name: str) -> User:
        user = self.users.get(name)
        if user is None:
            raise NoPermission("The user is not exist")
        return user

    def _is_protected(self, user: User) -> bool:
        """Returns whether only super users may change a user: it is super, or has rights to the cluster.

        Otherwise a user who may change users could take over one that may do more.
        """
        return user.is_super or any(_is_far_reaching(entry) for entry in self.policies_of(user.name))

    def _with_user(self, user: User) -> "UserBook":
        return replace(self, users=dict(self.users) | {user.name: user})

    def _keeping_a_super(self, after: "UserBook", name: str) -> "UserBook":
        """Returns a changed book; raises NoPermission if no user could change users any more."""
        if _has_super(self) and not _has_super(after):
            raise NoPermission(
                f"User:{name} is the last super user that is enabled: create another one first"
            )
        return after

    # --- policies ---------------------------------------------------------------------------------------

    def granted(self, subject: str | None, info: AclInfo | None, by_super: bool) -> "UserBook":
        """Returns the book with the entries of a request (3006 and 3007 alike). Raises Refused."""
        name = self._subject(subject)
        entries = entries_of(info or AclInfo())
        if not by_super and any(map(_is_far_reaching, entries)):
            raise NoPermission(_GRANT_BY_SUPER)
        return self._with_entries(name, entries)

    def revoked(
        self, subject: str | None, policy_type: str | None, resource: str | None, by_super: bool
    ) -> "UserBook":
        """Returns the book without the entry of a resource, or without all of a subject (3008)."""
        name = self._known(subject)
        before = self.policies.get(name)
        if before is None or not before:
            raise NoPermission("The acl is not exist.")
        after = NO_POLICIES
        if resource:
            after = before.without(policy_type_of(policy_type), ResourcePattern.parse(resource))
        gone = set(before) - set(after)
        if not by_super and any(map(_is_far_reaching, gone)):
            raise NoPermission(_GRANT_BY_SUPER)
        return self._with_policies(name, after)

    def _known(self, subject: str | None) -> str:
        """Returns the user of a request that reads or deletes; those that grant have other words for it."""
        name = user_of(subject)
        if name not in self.users:
            raise NoPermission("The subject is not exist.")
        return name

    def _subject(self, subject: str | None) -> str:
        name = user_of(subject)
        if name not in self.users:
            raise NoPermission(f"The subject of User:{name} is not exist.")
        return name

    def _with_entries(self, name: str, entries: Iterable[NewEntry]) -> "UserBook":
        return self._with_policies(name, checked_policies(name, self.policies_of(name).with_entries(entries)))

    def _with_policies(self, name: str, after: Policies) -> "UserBook":
        policies = {other: kept for other, kept in self.policies.items() if other != name}
        return replace(self, policies=policies | {name: after} if after else policies)

    # --- what changed -----------------------------------------------------------------------------------

    def changes_since(self, before: "UserBook") -> list[str]:
        """Returns what has changed since another book, a line for each change, without any secret."""
        names = dict.fromkeys((*before.users, *self.users))
        return [
            line for name in names if self._has_new(name, before) for line in _changes_of(name, before, self)
        ]

    def _has_new(self, name: str, before: "UserBook") -> bool:
        """Returns whether a user may have changed. A change keeps the objects of all others."""
        return self.users.get(name) is not before.users.get(name) or (
            self.policies_of(name) is not before.policies_of(name)
        )


def user_info(user: User) -> UserInfo:
    """Returns a user as requests 3004 and 3005 are answered: never with a secret."""
    return UserInfo(username=user.name, userType=user.type.text, userStatus=user.status.text)


def checked_policies(name: str, policies: Policies) -> Policies:
    """Returns the policies of a user if they are within the bounds; raises Refused otherwise."""
    if len(policies) > MAX_ENTRIES_PER_USER:
        raise SystemFailure(f"User:{name} must have at most {MAX_ENTRIES_PER_USER} entries")
    for _, entry in policies:
        _check_text("resource", entry.resource.name, MAX_NAME)
        if len(entry.sources) > MAX_SOURCES_PER_ENTRY:
            raise SystemFailure(f"an entry must have at most {MAX_SOURCES_PER_ENTRY} source addresses")
    return policies


def checked_user(user: User) -> User:
    """Returns a user whose name and secrets are within the bounds; raises Refused otherwise."""
    if not user.name.strip():
        raise InvalidParameter("The username is blank")
    _check_text("username", user.name, MAX_NAME)
    if not 0 < len(user.secrets) <= MAX_SECRETS:
        raise InvalidParameter(f"User:{user.name} must have one or {MAX_SECRETS} secrets")
    for secret in user.secrets:
        _checked_secret(secret)
    return user


def _checked_secret(secret: str | None) -> str:
    if secret is None or not secret.strip():
        raise NoPermission("password can not be blank")
    if len(secret) > MAX_SECRET or not _is_utf8(secret):  # the text of the refusal must not have the secret
        raise InvalidParameter(f"password must be text of at most {MAX_SECRET} characters")
    return secret


def _check_text(what: str, text: str, longest: int) -> None:
    if len(text) > longest:
        raise InvalidParameter(f"{what} must be at most {longest} characters, got {len(text)}")
    if not all(character.isprintable() for character in text):
        raise InvalidParameter(f"{what} must be printable text, got {text[:80]!r}")


def _is_utf8(text: str) -> bool:
    """Returns whether a text can be signed with: JSON may have half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _type_of(info: UserInfo) -> UserType | None:
    if not info.userType:
        return None
    kind = TYPE_BY_TEXT.get(info.userType)
    if kind is None:
        raise InvalidParameter(f"userType must be Super or Normal, got {info.userType[:40]!r}")
    return kind


def _status_of(info: UserInfo) -> UserStatus | None:
    if not info.userStatus:
        return None
    status = STATUS_BY_TEXT.get(info.userStatus)
    if status is None:
        raise InvalidParameter(f"userStatus must be enable or disable, got {info.userStatus[:40]!r}")
    return status


def _with_secret(before: tuple[str, ...], secret: str, keeps_other: bool) -> tuple[str, ...]:
    """Returns the valid secrets after a change of the password: the new one, and the one before if kept."""
    kept = [old for old in before if old != secret] if keeps_other else []
    return (secret, *kept)[:MAX_SECRETS]


def _has_super(book: UserBook) -> bool:
    return any(user.is_super and user.is_enabled for user in book.users.values())


def _is_far_reaching(entry: NewEntry) -> bool:
    """Returns whether an entry is about the cluster, or about everything and so about the cluster too."""
    return entry[1].resource.type in (ResourceType.ANY, ResourceType.CLUSTER)


def _changes_of(name: str, before: UserBook, after: UserBook) -> Iterator[str]:
    old, new = before.users.get(name), after.users.get(name)
    if new is None:
        yield f"User:{name} deleted"
        return
    if old is None:
        yield f"User:{name} created, {new.type.text}, {new.status.text}"
    else:
        if old.secrets != new.secrets:
            yield f"User:{name} has another password ({len(new.secrets)} valid)"
        if old.type is not new.type:
            yield f"User:{name} is now {new.type.text}"
        if old.status is not new.status:
            yield f"User:{name}: {new.status.text}"
    had, has = set(before.policies_of(name)), set(after.policies_of(name))
    yield from (f"User:{name} lost {kind.text}: {entry}" for kind, entry in sorted(had - has, key=str))
    yield from (f"User:{name} got {kind.text}: {entry}" for kind, entry in sorted(has - had, key=str))
