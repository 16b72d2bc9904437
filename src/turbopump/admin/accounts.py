"""Commands for access control 4.x: accounts and white addresses of the files `plain_acl.yml`."""

from collections.abc import Iterator

from turbopump.admin.command import AdminCommand, Call
from turbopump.admin.options import boolean, optional, required, secret, text
from turbopump.admin.render import TextTable, fields, java_text
from turbopump.admin.times import local_second
from turbopump.admin.users import broker, change, cluster, targets
from turbopump.client.admin.accounts import AclFiles
from turbopump.protocol.bodies import AclConfig, PlainAccessConfig

CHANGED_AT = (
    broker("update acl config file to which broker"),
    cluster("update acl config file to which cluster"),
)
ACCESS_KEY = required("a", "accessKey", "set accessKey in acl config file", text)
SECRET_KEY = secret("s", "secretKey", "set secretKey in acl config file")
WHITE = optional("w", "whiteRemoteAddress", "set white ip Address for account in acl config file", text)
TOPIC_DEFAULT = optional("i", "defaultTopicPerm", "set default topicPerm in acl config file", text)
GROUP_DEFAULT = optional("u", "defaultGroupPerm", "set default GroupPerm in acl config file", text)
TOPICS = optional("t", "topicPerms", "set topicPerms list,eg: topicA=DENY,topicD=SUB", text)
GROUPS = optional("g", "groupPerms", "set groupPerms list,eg: groupD=DENY,groupD=SUB", text)
ADMIN = optional("m", "admin", "set admin flag in acl config file", boolean)


async def update_acl_config(call: Call) -> None:
    given = call.given
    account = PlainAccessConfig(
        accessKey=given[ACCESS_KEY],
        secretKey=given[SECRET_KEY],
        whiteRemoteAddress=given[WHITE],
        defaultTopicPerm=given[TOPIC_DEFAULT],
        defaultGroupPerm=given[GROUP_DEFAULT],
        topicPerms=_split(given[TOPICS]),
        groupPerms=_split(given[GROUPS]),
        admin=bool(given[ADMIN]),
    )

    async def ask(address: str) -> None:
        await call.admin.accounts.update(address, account)

    await change(call, CHANGED_AT, "create or update plain access config to %s success.", ask)


def _split(words: str | None) -> list[str] | None:
    return None if words is None else [part.strip() for part in words.split(",") if part.strip()]


GONE_AT = (
    broker("delete acl config account from which broker"),
    cluster("delete acl config account from which cluster"),
)
GONE_KEY = required("a", "accessKey", "set accessKey in acl config file for deleting which account", text)


async def delete_acl_config(call: Call) -> None:
    key, done = call.given[GONE_KEY], []
    for address in await targets(call, *GONE_AT):
        await call.admin.accounts.delete(address, key)
        call.out.line(f"delete plain access config account from {address} success.")
        call.out.line(f"account's accesskey is:{key}")
        done.append(address)
    call.out.show({"brokers": done, "accessKey": key}, [])


WHITE_AT = (
    broker("update global white address to which broker"),
    cluster("update global white address to which cluster"),
)
ADDRESSES = required(
    "g", "globalWhiteRemoteAddresses", "set globalWhiteRemoteAddress list,eg: 10.10.103.*,192.168.0.*", text
)
PATH = optional(
    "p",
    "aclFileFullPath",
    "update global white address of specified acl file,eg: /xxx/plain_test.yml",
    text,
)


async def update_global_white_addr(call: Call) -> None:
    patterns, path = _split(call.given[ADDRESSES]) or [], call.given[PATH]

    async def ask(address: str) -> None:
        await call.admin.accounts.allow_addresses(address, patterns, path)

    await change(call, WHITE_AT, "update global white remote addresses to %s success.", ask)


VERSION_AT = (
    broker("query acl config version for which broker"),
    cluster("query acl config version for specified cluster"),
)
VERSIONS = TextTable(
    "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s",
    (
        *("#Cluster Name", "#Broker Name", "#Broker Addr"),
        *("#AclFilePath", "#AclConfigVersionNum", "#AclLastUpdateTime"),
    ),
)


async def cluster_acl_config_version(call: Call) -> None:
    is_one = call.given[VERSION_AT[0]] is not None
    if not is_one:
        call.out.line(VERSIONS.form % VERSIONS.headings)
    documents = []
    for address in await targets(call, *VERSION_AT, masters_only=True):
        files = await call.admin.accounts.files(address)
        for row in _version_rows(files):
            call.out.line(VERSIONS.row(*row))
        documents.append(
            {"cluster": files.cluster, "broker": files.broker, "address": files.address}
            | {"files": {path: fields(version) for path, version in files.versions.items()}}
        )
    asked = "broker" if is_one else "cluster"
    call.out.line(f"get {asked}'s plain access config version success.")
    call.out.show({"brokers": documents}, [])


def _version_rows(files: AclFiles) -> Iterator[tuple[object, ...]]:
    for path, version in sorted(files.versions.items()):
        changed = local_second(version.timestamp)
        yield files.cluster, files.broker, files.address, path, version.counter, changed


CONFIG_AT = (
    broker("get acl config for which broker"),
    cluster("get acl config for specified cluster"),
)
ACCOUNT_FIELDS = (
    *("accessKey", "secretKey", "whiteRemoteAddress", "admin"),
    *("defaultTopicPerm", "defaultGroupPerm", "topicPerms", "groupPerms"),
)


async def get_acl_config(call: Call) -> None:
    """Shows all accounts, with the secrets that the servers answer: those up to 4.9.7 and 5.1 do."""
    documents = []
    for address in await targets(call, *CONFIG_AT, masters_only=True):
        config = await call.admin.accounts.config(address)
        for line in _config_lines(config):
            call.out.line(line)
        documents.append({"broker": address, "config": fields(config)})
    call.out.show({"brokers": documents}, [])


def _config_lines(config: AclConfig) -> Iterator[str]:
    yield ""
    yield f"globalWhiteRemoteAddresses: {_java_list(config.globalWhiteAddrs)}"
    yield ""
    yield "accounts:"
    for account in config.plainAccessConfigs:
        for name in ACCOUNT_FIELDS:
            yield f"  {name:<18}: {_cell(getattr(account, name))}"
        yield ""


def _cell(value: object) -> object:
    if isinstance(value, list):
        return _java_list(value)
    return "" if value is None else java_text(value)


def _java_list(items: list[str]) -> str:
    return f"[{', '.join(items)}]"


COMMANDS = (
    AdminCommand(
        "updateAclConfig",
        "Update acl config yaml file in broker.",
        update_acl_config,
        (ACCESS_KEY, SECRET_KEY, WHITE, TOPIC_DEFAULT, GROUP_DEFAULT, TOPICS, GROUPS, ADMIN),
        one_of=CHANGED_AT,
    ),
    AdminCommand(
        "deleteAclConfig",
        "Delete Acl Config Account in broker.",
        delete_acl_config,
        (GONE_KEY,),
        one_of=GONE_AT,
        aliases=("deleteAccessConfig",),
    ),
    AdminCommand(
        "updateGlobalWhiteAddr",
        "Update global white address for acl Config File in broker.",
        update_global_white_addr,
        (ADDRESSES, PATH),
        one_of=WHITE_AT,
    ),
    AdminCommand(
        "clusterAclConfigVersion",
        "List all of acl config version information in cluster.",
        cluster_acl_config_version,
        one_of=VERSION_AT,
    ),
    AdminCommand(
        "getAclConfig",
        "List all of acl config information in cluster.",
        get_acl_config,
        one_of=CONFIG_AT,
        aliases=("getAccessConfigSubCommand",),
    ),
)
