"""Commands for access control 5.x: users, and the policies that say what they may do.

Apache's brokers do not tell each other their users: a change with -c goes to all brokers of the cluster. The
column `#Password` has what the server answers: Apache's brokers tell passwords, Turbopump's never do.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator

from turbopump.admin.broker import addresses_in
from turbopump.admin.command import AdminCommand, Call, CommandFailed
from turbopump.admin.options import CommandOption, flag, host_port, optional, required, secret, text
from turbopump.admin.render import TextTable, fields
from turbopump.protocol.bodies import AclInfo, UserInfo

Address = CommandOption[str | None]


def broker(help: str) -> Address:
    return optional("b", "brokerAddr", help, host_port)


def cluster(help: str) -> Address:
    return optional("c", "clusterName", help, text)


async def targets(call: Call, broker: Address, cluster: Address, masters_only: bool = False) -> list[str]:
    """Returns the broker of -b, or the brokers of the cluster of -c."""
    address = call.given[broker]
    return [address] if address else await addresses_in(call, call.given[cluster], masters_only)


async def change(
    call: Call, where: tuple[Address, Address], said: str, ask: Callable[[str], Awaitable[None]]
) -> None:
    """Makes a change at each target and prints a line for each; `said` has a %s for the address."""
    done = []
    for address in await targets(call, *where):
        await ask(address)
        call.out.line(said % address)
        done.append(address)
    call.out.show({"brokers": done}, [])


# --- users -----------------------------------------------------------------------------------------------

NEW_AT = broker("create user to which broker"), cluster("create user to which cluster")
NEW_NAME = required("u", "username", "the username of user to create.", text)
NEW_PASSWORD = secret("p", "password", "the password of user to create")
NEW_TYPE = optional("t", "userType", "the userType of user to create", text)


async def create_user(call: Call) -> None:
    name, password, kind = call.given[NEW_NAME], call.given[NEW_PASSWORD], call.given[NEW_TYPE]

    async def ask(address: str) -> None:
        await call.admin.users.create(address, name, password, kind)

    await change(call, NEW_AT, "create user to %s success.", ask)


CHANGED_AT = broker("update user to which broker"), cluster("update user to which cluster")
CHANGED_NAME = required("u", "username", "the username of user to update.", text)
CHANGED_PASSWORD: CommandOption[str | None] = CommandOption(
    "p", "password", "the password of user to update", text, is_secret=True
)
CHANGED_TYPE = optional("t", "userType", "the userType of user to update", text)
CHANGED_STATUS = optional("s", "userStatus", "the userStatus of user to update", text)
KEPT_SECRET = flag("", "keepSecret", "with -p: the password before stays valid, too (Turbopump)")


async def update_user(call: Call) -> None:
    given = call.given
    password, kind, status = given[CHANGED_PASSWORD], given[CHANGED_TYPE], given[CHANGED_STATUS]
    if given[KEPT_SECRET] and password is None:
        raise CommandFailed("--keepSecret needs -p, the password that becomes valid beside the one before")

    async def ask(address: str) -> None:
        name = given[CHANGED_NAME]
        await call.admin.users.update(
            address, name, password=password, kind=kind, status=status, keep_secret=given[KEPT_SECRET]
        )

    await change(call, CHANGED_AT, "update user to %s success.", ask)


GONE_AT = broker("delete user from which broker"), cluster("delete user from which cluster")
GONE_NAME = required("u", "username", "the username of user to delete.", text)


async def delete_user(call: Call) -> None:
    async def ask(address: str) -> None:
        await call.admin.users.delete(address, call.given[GONE_NAME])

    await change(call, GONE_AT, "delete user to %s success.", ask)


USERS = TextTable("%-16s  %-22s  %-22s  %-22s", ("#UserName", "#Password", "#UserType", "#UserStatus"))
SHOWN_AT = broker("get user for which broker"), cluster("get user for specified cluster")
SHOWN_NAME = required("u", "username", "the username of user to get", text)
LISTED_AT = broker("list user for which broker"), cluster("list user for specified cluster")
FILTER = optional("f", "filter", "the filter to list users", text)


async def get_user(call: Call) -> None:
    documents = []
    for address in await targets(call, *SHOWN_AT, masters_only=True):
        user = await call.admin.users.get(address, call.given[SHOWN_NAME])
        _print_users(call, [user] if user else [])
        documents.append({"broker": address, "user": fields(user)})
    call.out.show({"brokers": documents}, [])


async def list_user(call: Call) -> None:
    documents = []
    for address in await targets(call, *LISTED_AT, masters_only=True):
        users = await call.admin.users.find(address, call.given[FILTER])
        _print_users(call, users)
        if call.given[LISTED_AT[0]] is None:
            call.out.line(f"get user from {address} success.")
        documents.append({"broker": address, "users": fields(users)})
    call.out.show({"brokers": documents}, [])


def _print_users(call: Call, users: list[UserInfo]) -> None:
    if users:
        rows = ((user.username, user.password, user.userType, user.userStatus) for user in users)
        for line in USERS.lines(rows):
            call.out.line(line)


FROM_USERS = required("f", "fromBroker", "the source broker that the users copy from", host_port)
TO_USERS = required("t", "toBroker", "the target broker that the users copy to", host_port)
USERNAMES = optional("u", "usernames", "the username list of user to copy.", text)


async def copy_user(call: Call) -> None:
    """Copies users, all or those of -u; one that the target has already is changed."""
    source, target, users = call.given[FROM_USERS], call.given[TO_USERS], call.admin.users
    found = await _users_to_copy(call, source)
    for user in found:
        name = user.username or ""
        if user.password is None:
            raise CommandFailed(
                f"{source} does not tell passwords, so user {name} cannot be copied: create it at {target} "
                "with `mqadmin createUser`"
            )
        kind, status = user.userType, user.userStatus
        if await users.get(target, name) is None:
            await users.create(target, name, user.password, kind)
            if status not in (None, "enable"):
                await users.update(target, name, status=status)
        else:
            await users.update(target, name, password=user.password, kind=kind, status=status)
        call.out.line(f"copy user of {name} from {source} to {target} success.")
    call.out.show({"from": source, "to": target, "users": [user.username for user in found]}, [])


async def _users_to_copy(call: Call, source: str) -> list[UserInfo]:
    names = call.given[USERNAMES]
    if names is None:
        return await call.admin.users.find(source)
    found = {name: await call.admin.users.get(source, name) for name in _parts(names)}
    if missing := [name for name, user in found.items() if user is None]:
        raise CommandFailed(f"{source} has no user {', '.join(missing)}; nothing was copied")
    return [user for user in found.values() if user is not None]


def _parts(words: str) -> list[str]:
    return [part.strip() for part in words.split(",") if part.strip()]


# --- policies --------------------------------------------------------------------------------------------

MADE_AT = broker("create acl to which broker"), cluster("create acl to which cluster")
MADE = (
    required("s", "subject", "the subject of acl to create.", text),
    required("r", "resources", "the resources of acl to create", text),
    required("a", "actions", "the actions of acl to create", text),
    required("d", "decision", "the decision of acl to create", text),
)
MADE_SOURCES = optional("i", "sourceIp", "the sourceIps of acl to create", text)
PUT_AT = broker("update acl to which broker"), cluster("update acl to which cluster")
PUT = (
    required("s", "subject", "the subject of acl to update.", text),
    required("r", "resources", "the resources of acl to update", text),
    required("a", "actions", "the actions of acl to update", text),
    required("d", "decision", "the decision of acl to update", text),
)
PUT_SOURCES = optional("i", "sourceIp", "the sourceIps of acl to update", text)


async def create_acl(call: Call) -> None:
    subject, resources, actions, decision = (call.given[option] for option in MADE)
    sources = _parts(call.given[MADE_SOURCES] or "")

    async def ask(address: str) -> None:
        acls = call.admin.acls
        await acls.create(address, subject, _parts(resources), _parts(actions), decision, sources)

    await change(call, MADE_AT, "create acl to %s success.", ask)


async def update_acl(call: Call) -> None:
    subject, resources, actions, decision = (call.given[option] for option in PUT)
    sources = _parts(call.given[PUT_SOURCES] or "")

    async def ask(address: str) -> None:
        acls = call.admin.acls
        await acls.update(address, subject, _parts(resources), _parts(actions), decision, sources)

    await change(call, PUT_AT, "update acl to %s success.", ask)


DROPPED_AT = broker("delete acl from which broker"), cluster("delete acl from which cluster")
DROPPED_SUBJECT = required("s", "subject", "the subject of acl to delete.", text)
DROPPED_RESOURCE = optional("r", "resources", "the resources of acl to delete", text)


async def delete_acl(call: Call) -> None:
    subject, resource = call.given[DROPPED_SUBJECT], call.given[DROPPED_RESOURCE]

    async def ask(address: str) -> None:
        await call.admin.acls.delete(address, subject, resource)

    await change(call, DROPPED_AT, "delete acl to %s success.", ask)


ACLS = TextTable(
    "%-16s  %-10s  %-22s  %-20s  %-24s  %-10s",
    ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision"),
)
GOT_AT = broker("get acl for which broker"), cluster("get acl for specified cluster")
GOT_SUBJECT = required("s", "subject", "the subject of acl to get", text)
FOUND_AT = broker("list acl for which broker."), cluster("list acl for specified cluster.")
FOUND_SUBJECT = optional("s", "subject", "the subject of acl to filter.", text)
FOUND_RESOURCE = optional("r", "resource", "the resource of acl to filter.", text)


async def get_acl(call: Call) -> None:
    documents = []
    for address in await targets(call, *GOT_AT, masters_only=True):
        acl = await call.admin.acls.get(address, call.given[GOT_SUBJECT])
        _print_acls(call, [acl] if acl else [])
        documents.append({"broker": address, "acl": fields(acl)})
    call.out.show({"brokers": documents}, [])


async def list_acl(call: Call) -> None:
    subject, resource = call.given[FOUND_SUBJECT], call.given[FOUND_RESOURCE]
    documents = []
    for address in await targets(call, *FOUND_AT, masters_only=True):
        acls = await call.admin.acls.find(address, subject, resource)
        _print_acls(call, acls)
        documents.append({"broker": address, "acls": fields(acls)})
    call.out.show({"brokers": documents}, [])


def _print_acls(call: Call, acls: list[AclInfo]) -> None:
    if acls:
        for line in ACLS.lines(_rows(acls)):
            call.out.line(line)


def _rows(acls: Iterable[AclInfo]) -> Iterator[tuple[object, ...]]:
    for acl in acls:
        for policy in acl.policies or ():
            for entry in policy.entries or ():
                actions, sources = _java_list(entry.actions), _java_list(entry.sourceIps)
                yield acl.subject, policy.policyType, entry.resource, actions, sources, entry.decision


def _java_list(items: list[str] | None) -> str | None:
    """Returns a list as Java prints it: `[Pub, Sub]`."""
    return None if items is None else f"[{', '.join(items)}]"


FROM_ACLS = required("f", "fromBroker", "the source broker that the acls copy from", host_port)
TO_ACLS = required("t", "toBroker", "the target broker that the acls copy to", host_port)
SUBJECTS = optional("s", "subjects", "the subject list of acl to copy.", text)


async def copy_acl(call: Call) -> None:
    """Copies policies, all or those of the subjects of -s, to users that the target has already."""
    source, target, acls = call.given[FROM_ACLS], call.given[TO_ACLS], call.admin.acls
    subjects = call.given[SUBJECTS]
    if subjects is None:
        found = await acls.find(source)
    else:
        asked = {subject: await acls.get(source, subject) for subject in _parts(subjects)}
        if missing := [subject for subject, acl in asked.items() if acl is None]:
            raise CommandFailed(f"{source} has no policies of {', '.join(missing)}; nothing was copied")
        found = [acl for acl in asked.values() if acl is not None]
    for acl in found:
        known = await acls.get(target, acl.subject or "")
        await acls.put(target, acl, is_new=known is None)
        call.out.line(f"copy acl of {acl.subject} from {source} to {target} success.")
    call.out.show({"from": source, "to": target, "subjects": [acl.subject for acl in found]}, [])


COMMANDS = (
    AdminCommand(
        "createUser",
        "Create user to cluster.",
        create_user,
        (NEW_NAME, NEW_PASSWORD, NEW_TYPE),
        one_of=NEW_AT,
    ),
    AdminCommand(
        "updateUser",
        "Update user to cluster.",
        update_user,
        (CHANGED_NAME, KEPT_SECRET),
        one_of=(CHANGED_PASSWORD, CHANGED_STATUS, CHANGED_TYPE),
        any_of=CHANGED_AT,
    ),
    AdminCommand("deleteUser", "Delete user from cluster.", delete_user, (GONE_NAME,), one_of=GONE_AT),
    AdminCommand("getUser", "Get user from cluster.", get_user, (SHOWN_NAME,), one_of=SHOWN_AT),
    AdminCommand("listUser", "List user from cluster.", list_user, (FILTER,), one_of=LISTED_AT),
    AdminCommand("copyUser", "Copy user to cluster.", copy_user, (FROM_USERS, TO_USERS, USERNAMES)),
    AdminCommand("createAcl", "Create acl to cluster.", create_acl, (*MADE, MADE_SOURCES), one_of=MADE_AT),
    AdminCommand("updateAcl", "Update acl to cluster.", update_acl, (*PUT, PUT_SOURCES), one_of=PUT_AT),
    AdminCommand(
        "deleteAcl",
        "Delete acl from cluster.",
        delete_acl,
        (DROPPED_SUBJECT, DROPPED_RESOURCE),
        one_of=DROPPED_AT,
    ),
    AdminCommand("getAcl", "Get acl from cluster.", get_acl, (GOT_SUBJECT,), one_of=GOT_AT),
    AdminCommand(
        "listAcl", "List acl from cluster.", list_acl, (FOUND_SUBJECT, FOUND_RESOURCE), one_of=FOUND_AT
    ),
    AdminCommand("copyAcl", "Copy acl to cluster.", copy_acl, (FROM_ACLS, TO_ACLS, SUBJECTS)),
)
