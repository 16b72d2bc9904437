"""Accounts of access control 1.0, as plain_acl.yml has them.

    globalWhiteRemoteAddresses: [10.10.103.*]
    accounts:
    - accessKey: RocketMQ
      secretKey: 12345678
      whiteRemoteAddress:
      admin: false
      defaultTopicPerm: DENY
      defaultGroupPerm: SUB
      topicPerms: [topicA=DENY, topicB=PUB|SUB]
      groupPerms: [groupA=DENY]

In: the plain value of a YAML file. Out: `Accounts`, or ConfigError that says where and what is wrong. Apache
reads what it does not know as no permission, or ignores it; here it is an error, since a misspelt DENY must
not be lost. Files and their reload belong to other packages.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from turbopump.auth.addresses import NO_ADDRESS, AddressPattern
from turbopump.auth.resources import Action
from turbopump.protocol.conf import ConfigError
from turbopump.protocol.names import RETRY_PREFIX

MIN_KEY = 7  # characters, of keys and secrets: Apache wants more than 6
MAX_KEY = 255
MAX_ACCOUNTS = 10_000
MAX_PERMISSIONS = 10_000  # of one account, topics and groups each
MAX_PATTERNS = 1_000  # global white addresses: each is looked at for every new address

Perm = frozenset[Action]

DENY: Perm = frozenset()
PERMS: dict[str, Perm] = {
    "DENY": DENY,
    "PUB": frozenset({Action.PUB}),
    "SUB": frozenset({Action.SUB}),
    "PUB|SUB": frozenset({Action.PUB, Action.SUB}),
    "SUB|PUB": frozenset({Action.PUB, Action.SUB}),
}

_FILE_KEYS = frozenset({"globalWhiteRemoteAddresses", "accounts", "dataVersion"})
_ACCOUNT_KEYS = frozenset(
    {"accessKey", "secretKey", "whiteRemoteAddress", "admin", "topicPerms", "groupPerms"}
    | {"defaultTopicPerm", "defaultGroupPerm"}
)
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Account:
    """An account: its key, its secret, which is not part of its text, and what it may do."""

    access_key: str
    secret_key: str = field(repr=False)
    white_address: AddressPattern = NO_ADDRESS
    is_admin: bool = False
    default_topic: Perm = DENY
    default_group: Perm = DENY
    topics: Mapping[str, Perm] = field(default_factory=dict)
    groups: Mapping[str, Perm] = field(default_factory=dict)

    @property
    def is_unlimited(self) -> bool:
        """Returns whether this is an administrator without lists, who may do everything."""
        return self.is_admin and not self.topics and not self.groups

    def on_topic(self, name: str) -> Perm:
        return self.topics.get(name, self.default_topic)

    def on_group(self, name: str) -> Perm:
        return self.groups.get(name, self.default_group)


@dataclass(frozen=True, slots=True)
class Accounts:
    """All accounts by their keys, and the addresses from which everything is allowed."""

    by_key: Mapping[str, Account] = field(default_factory=dict)
    white: tuple[AddressPattern, ...] = ()

    def is_white(self, address: str) -> bool:
        return any(pattern.matches(address) for pattern in self.white)


def read_accounts(value: Any) -> Accounts:
    """Returns the accounts of one file's plain value. Raises ConfigError."""
    fields = _map(value, "the file", _FILE_KEYS)
    white = _list(fields.get("globalWhiteRemoteAddresses"), "globalWhiteRemoteAddresses", MAX_PATTERNS)
    by_key: dict[str, Account] = {}
    for number, row in enumerate(_list(fields.get("accounts"), "accounts", MAX_ACCOUNTS)):
        where = f"accounts[{number}]"
        account = read_account(row, where)
        if account.access_key in by_key:
            raise ConfigError(f"{where}.accessKey must be unique, got {account.access_key} again")
        by_key[account.access_key] = account
    patterns = tuple(AddressPattern.parse(_text(one, "globalWhiteRemoteAddresses")) for one in white)
    return Accounts(by_key, patterns)


def read_account(value: Any, where: str = "account") -> Account:
    """Returns the account of a plain value. Raises ConfigError, whose text never has the secret."""
    fields = _map(value, where, _ACCOUNT_KEYS)
    key, secret = (_key(fields, name, where) for name in ("accessKey", "secretKey"))
    topics = _perms(fields.get("topicPerms"), f"{where}.topicPerms")
    groups = _perms(fields.get("groupPerms"), f"{where}.groupPerms")
    for name in [name for name in topics if name.startswith(RETRY_PREFIX)]:
        _put(groups, name[len(RETRY_PREFIX) :], topics.pop(name), f"{where}.topicPerms")
    return Account(
        key,
        secret,
        AddressPattern.parse(_text(fields.get("whiteRemoteAddress"), f"{where}.whiteRemoteAddress")),
        _flag(fields.get("admin"), f"{where}.admin"),
        _default(fields, "defaultTopicPerm", where),
        _default(fields, "defaultGroupPerm", where),
        topics,
        groups,
    )


def merged(files: Iterable[Accounts]) -> tuple[Accounts, list[str]]:
    """Returns the accounts of several files, the first of each key, and the keys that come again."""
    by_key: dict[str, Account] = {}
    repeated: list[str] = []
    white: dict[AddressPattern, None] = {}
    for one in files:
        repeated += [key for key in one.by_key if key in by_key]
        by_key = dict(one.by_key) | by_key
        white |= dict.fromkeys(one.white)
    if len(by_key) > MAX_ACCOUNTS:
        raise ConfigError(f"there must be at most {MAX_ACCOUNTS} accounts, got {len(by_key)}")
    return Accounts(by_key, tuple(white)), repeated


def perm_of(text: str, where: str) -> Perm:
    """Returns the permission with this name. Raises ConfigError for an unknown one."""
    perm = PERMS.get(text.strip())
    if perm is None:
        raise ConfigError(f"{where} must be DENY, PUB, SUB, PUB|SUB or SUB|PUB, got {text[:40]!r}")
    return perm


def _perms(value: Any, where: str) -> dict[str, Perm]:
    found: dict[str, Perm] = {}
    for row in _list(value, where, MAX_PERMISSIONS):
        text = _text(row, where)
        words = text.split("=")
        if len(words) != 2 or not words[0].strip():
            raise ConfigError(f"{where} must have entries such as topicA=SUB, got {text[:80]!r}")
        if "*" in words[0]:
            raise ConfigError(
                f"{where} must have exact names, got {text[:80]!r}: * stands for no other name here"
            )
        _put(found, words[0].strip(), perm_of(words[1], f"{where} of {words[0].strip()[:80]}"), where)
    return found


def _put(found: dict[str, Perm], name: str, perm: Perm, where: str) -> None:
    if found.setdefault(name, perm) != perm:
        raise ConfigError(f"{where} must name {name[:80]!r} once, got two different permissions")


def _default(fields: Mapping[str, Any], name: str, where: str) -> Perm:
    text = _text(fields.get(name), f"{where}.{name}")
    return perm_of(text, f"{where}.{name}") if text.strip() else DENY


def _key(fields: Mapping[str, Any], name: str, where: str) -> str:
    text = _text(fields.get(name), f"{where}.{name}").strip()
    if not MIN_KEY <= len(text) <= MAX_KEY:
        raise ConfigError(f"{where}.{name} must have {MIN_KEY} to {MAX_KEY} characters, got {len(text)}")
    return text


def _flag(value: Any, where: str) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    flag = _FLAGS.get(str(value).strip().lower())
    if flag is None:
        raise ConfigError(f"{where} must be true or false, got {str(value)[:40]!r}")
    return flag


def _text(value: Any, where: str) -> str:
    """Returns a text; YAML reads `secretKey: 12345678` as a number, which is a text too."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ConfigError(f"{where} must be a text: write it in quotes")
    return str(value)


def _list(value: Any, where: str, most: int) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigError(f"{where} must be a list")
    if len(value) > most:
        raise ConfigError(f"{where} must have at most {most} entries, got {len(value)}")
    return value


def _map(value: Any, where: str, keys: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be a map of keys and values")
    if unknown := [str(key) for key in value if key not in keys]:
        raise ConfigError(f"{where} must have only {', '.join(sorted(keys))}, got {unknown[0][:80]!r}")
    return value
