"""Bodies of access control: users and policies (5.3 and later), accounts (4.x).

Passwords and secrets are fields where the wire has them, and in no `repr`. Whether a server answers them is
its own decision: ours never does.
"""

from typing import ClassVar

from turbopump.protocol.bodies.base import Body, always, empty_list


class UserInfo(Body):
    """A user: body of 3001 and 3002, answer to 3004; the answer to 3005 is a list of them.

    `userType` is `Super` or `Normal`, `userStatus` is `enable` or `disable`. What is None stays unchanged.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"password"})

    password: str | None = None
    userStatus: str | None = None
    userType: str | None = None
    username: str | None = None


class AclEntry(Body):
    """One entry of a policy, such as `Pub`, `Sub` on `Topic:orders*` for 10.0.0.0/8: `Allow` or `Deny`."""

    actions: list[str] | None = None
    decision: str | None = None
    resource: str | None = None
    sourceIps: list[str] | None = None


class AclPolicy(Body):
    """Entries of one type, `Custom` or `Default`; without a type `Custom`."""

    entries: list[AclEntry] | None = None
    policyType: str | None = None


class AclInfo(Body):
    """Policies of a subject, `User:name`: body of 3006 and 3007, answer to 3009, in a list to 3010."""

    policies: list[AclPolicy] | None = None
    subject: str | None = None


class PlainAccessConfig(Body):
    """One account of access control 4.x, with permissions such as `orders=PUB|SUB`."""

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"secretKey"})

    accessKey: str | None = None
    admin: bool = always(False)
    defaultGroupPerm: str | None = None
    defaultTopicPerm: str | None = None
    groupPerms: list[str] | None = None
    secretKey: str | None = None
    topicPerms: list[str] | None = None
    whiteRemoteAddress: str | None = None


class AclConfig(Body):
    """Answer to 54 (servers up to 4.9.7 and 5.1): white addresses, and all accounts with their secrets."""

    globalWhiteAddrs: list[str] = empty_list()
    plainAccessConfigs: list[PlainAccessConfig] = empty_list()


class AccessExplanation(Body):
    """Answer to 9720: whether a user may do an action on a resource, and why; never with a secret."""

    action: str | None = None
    allowed: bool = always(False)
    decidedBy: str | None = None
    """The entry or permission that decided; None: nothing allows it."""
    kind: str | None = None
    """`users` (policies of 5.x) or `accounts` (of 4.x)."""
    lookedAt: list[str] = empty_list()
    """Entries and permissions that are about the resource, and what each had to do with the answer."""
    note: str | None = None
    """What the server does in spite of that, such as a dry run."""
    resource: str | None = None
    source: str | None = None
    user: str | None = None
    why: str | None = None
