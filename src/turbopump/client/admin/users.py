"""Administers users of access control 5.x at one broker, by its address, and their policies."""

from collections.abc import Sequence
from dataclasses import dataclass

from turbopump.client.admin.calls import AdminCalls
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import SystemFailure
from turbopump.protocol.headers.access import (
    AclRequest,
    DeleteAclRequest,
    ExplainRequest,
    ListAclsRequest,
    ListUsersRequest,
    UpdateUserRequest,
    UserRequest,
)


@dataclass
class Users:
    """Administers users at one broker, by its address. Brokers of Apache do not tell each other their users.

    Example:

        await admin.users.create(address, "billing", "a long secret")
        await admin.acls.create(address, "User:billing", ["Topic:orders"], ["Sub"], "Allow")
    """

    asking: AdminCalls

    async def create(self, address: str, name: str, password: str, kind: str | None = None) -> None:
        """Creates a user, `Normal` or `Super`; Normal by default. Raises Refused if there is one already.

        Example:

            await admin.users.create("127.0.0.1:10911", "billing", "a long secret")
        """
        user = bodies.UserInfo(username=name, password=password, userType=kind)
        header = UserRequest(name)
        await self.asking.ask(address, RequestCode.AUTH_CREATE_USER, header, user.encode())

    async def update(
        self,
        address: str,
        name: str,
        *,
        password: str | None = None,
        kind: str | None = None,
        status: str | None = None,
        keep_secret: bool = False,
    ) -> None:
        """Changes password, kind (`Normal`, `Super`) or status (`enable`, `disable`) of a user.

        What is None stays as it is. `keep_secret`: the password before stays valid beside the new one, until
        the password is set again without it. Only Turbopump can do that: of a broker that has set the new
        password alone, SystemFailure is raised.

        Example:

            await admin.users.update(address, "billing", password="the next secret", keep_secret=True)
            # ... all clients sign with the next secret now ...
            await admin.users.update(address, "billing", password="the next secret")
        """
        user = bodies.UserInfo(username=name, password=password, userType=kind, userStatus=status)
        header = UpdateUserRequest(name, True if keep_secret else None)
        answer = await self.asking.ask(address, RequestCode.AUTH_UPDATE_USER, header, user.encode())
        if keep_secret and "validSecrets" not in (answer.ext or {}):
            raise SystemFailure(
                f"{address} cannot keep the password before: only the new one of {name} is valid"
            )

    async def delete(self, address: str, name: str) -> None:
        """Deletes a user and its policies. Apache's brokers do so without a word if there is none."""
        await self.asking.ask(address, RequestCode.AUTH_DELETE_USER, UserRequest(name))

    async def get(self, address: str, name: str) -> bodies.UserInfo | None:
        """Returns a user, None if there is none. Apache's brokers tell the password, Turbopump's never do."""
        answer = await self.asking.ask(address, RequestCode.AUTH_GET_USER, UserRequest(name))
        return bodies.UserInfo.decode(answer.body) if answer.body else None

    async def find(self, address: str, containing: str | None = None) -> list[bodies.UserInfo]:
        """Returns the users whose name contains a text, or all."""
        header = ListUsersRequest(containing)
        answer = await self.asking.ask(address, RequestCode.AUTH_LIST_USER, header)
        return bodies.decode(list[bodies.UserInfo], answer.body) if answer.body else []


@dataclass
class Acls:
    """Administers the policies of users at one broker, by its address.

    Resources are `Topic:name`, `Group:name`, `Cluster:name`, with a `*` at the end for all names that begin
    so, or `*` alone for everything; actions `All`, `Pub`, `Sub`, `Create`, `Update`, `Delete`, `Get`, `List`.

    Example:

        await admin.acls.create(address, "User:billing", ["Topic:orders", "Group:billing"], ["Sub"], "Allow")
    """

    asking: AdminCalls

    async def create(
        self,
        address: str,
        subject: str,
        resources: Sequence[str],
        actions: Sequence[str],
        decision: str,
        sources: Sequence[str] | None = None,
    ) -> None:
        """Gives a user one entry per resource. An entry for the same resource is replaced.

        `decision` is `Allow` or `Deny`; `sources` are addresses or networks from which the entry counts.
        """
        policies = _policies(resources, actions, decision, sources)
        await self.put(address, bodies.AclInfo(policies=policies, subject=subject), is_new=True)

    async def update(
        self,
        address: str,
        subject: str,
        resources: Sequence[str],
        actions: Sequence[str],
        decision: str,
        sources: Sequence[str] | None = None,
    ) -> None:
        """Adds or replaces one entry per resource, as `create` does."""
        policies = _policies(resources, actions, decision, sources)
        await self.put(address, bodies.AclInfo(policies=policies, subject=subject))

    async def put(self, address: str, acl: bodies.AclInfo, *, is_new: bool = False) -> None:
        """Adds or replaces entries, of any policy type, as `get` returns them."""
        code = RequestCode.AUTH_CREATE_ACL if is_new else RequestCode.AUTH_UPDATE_ACL
        await self.asking.ask(address, code, AclRequest(acl.subject), acl.encode())

    async def explain(
        self, address: str, user: str, action: str, resource: str, source: str | None = None
    ) -> bodies.AccessExplanation:
        """Returns whether a user, or an account of 4.x, may do something at a broker or name server, and why.

        `resource` is one, such as `Topic:orders`; `source` the address that the user would ask from, by
        default that of this client. Of Turbopump's servers with access control only; others raise Refused.

        Example:

            answer = await admin.acls.explain(address, "billing", "Sub", "Topic:orders")
            print(answer.allowed, answer.why)
        """
        header = ExplainRequest(user, action, resource, source)
        answer = await self.asking.ask(address, RequestCode.AUTH_EXPLAIN, header)
        return bodies.AccessExplanation.decode(answer.body)

    async def delete(self, address: str, subject: str, resource: str | None = None) -> None:
        """Deletes a user's entry for a resource, or all its entries."""
        header = DeleteAclRequest(subject, resource=resource)
        await self.asking.ask(address, RequestCode.AUTH_DELETE_ACL, header)

    async def get(self, address: str, subject: str) -> bodies.AclInfo | None:
        """Returns the policies of `User:name`, None if it has none. Raises Refused without such a user."""
        answer = await self.asking.ask(address, RequestCode.AUTH_GET_ACL, AclRequest(subject))
        return bodies.AclInfo.decode(answer.body) if answer.body else None

    async def find(
        self, address: str, subject: str | None = None, resource: str | None = None
    ) -> list[bodies.AclInfo]:
        """Returns the policies whose subject and resources contain these texts, or all."""
        header = ListAclsRequest(subject, resource)
        answer = await self.asking.ask(address, RequestCode.AUTH_LIST_ACL, header)
        return bodies.decode(list[bodies.AclInfo], answer.body) if answer.body else []


def _policies(
    resources: Sequence[str], actions: Sequence[str], decision: str, sources: Sequence[str] | None
) -> list[bodies.AclPolicy]:
    addresses = list(sources) if sources else None
    entries = [
        bodies.AclEntry(actions=list(actions), decision=decision, resource=resource, sourceIps=addresses)
        for resource in resources
    ]
    return [bodies.AclPolicy(entries=entries)]
