"""The configuration of access control, and its keys, which brokers and name servers read alike.

In: texts of a `broker.conf` or of a name server's properties. Out: a frozen value. Secrets are in no text
that this module gives: `show` masks them, and the value's `repr` leaves them out.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from turbopump.auth.signature import Credentials
from turbopump.protocol.codes import RequestCode

MASK = "******"
"""Stands for a secret that is set, in everything that is shown."""

KEY_BYTES = 32  # AES-256

ABOUT_ACCESS = frozenset((*range(50, 55), *range(3001, 3011), RequestCode.AUTH_EXPLAIN))
"""Requests about accounts, users and policies: always checked, whatever the configuration says."""


class TextNotAccepted(ValueError):
    """Raised by a `read` for a text that it does not accept; the caller adds the key, never a secret text."""


@dataclass(frozen=True, slots=True)
class UserQuota:
    """Most that a user may do: bytes and requests in a second, connections at a time; 0: no limit."""

    bytes_per_s: int = 0
    requests_per_s: int = 0
    connections: int = 0


def _why(default: Any, why: str, secret: bool = False) -> Any:
    return field(default=default, repr=not secret, metadata={"why": why})


@dataclass(frozen=True, slots=True)
class AccessConfig:
    """Settings of access control: which kind, its files, the users of the first start, limits, audit."""

    accounts: bool = _why(False, "accounts of 4.x, from plain_acl.yml and conf/acl")
    authentication: bool = _why(
        False, "users and policies of 5.x; this key or the next one switches both checks on"
    )
    authorization: bool = _why(
        False, "users and policies of 5.x; this key or the one before switches both checks on"
    )
    initial_user: Credentials | None = field(
        default=None,
        repr=False,
        metadata={"why": "super user that is made at the first start"},
    )
    inner_credentials: Credentials | None = field(
        default=None,
        repr=False,
        metadata={
            "why": "super user with which servers sign their own requests; the same in a whole cluster"
        },
    )
    migrates_accounts: bool = _why(False, "make users of the accounts of 4.x that are no users yet")
    unchecked: frozenset[int] = _why(frozenset(), "request codes that anybody may send: a hole each")
    unauthorized: frozenset[int] = _why(frozenset(), "request codes for which any user will do: a hole each")
    provider: str = _why("", "users and policies are kept by the broker; no other class can be named")
    authorization_provider: str = _why("", "as authenticationProvider")
    users_provider: str = _why("", "as authenticationProvider")
    policies_provider: str = _why("", "as authenticationProvider")
    strategy: str = _why("", "accepted; every request is checked, whatever it says")
    authorization_strategy: str = _why("", "accepted; every request is checked, whatever it says")
    secret_key: str = _why(
        "", "key that encrypts secrets in files: 32 bytes in base64; better set by its variable", secret=True
    )
    secret_key_file: str = _why(
        "", "file with that key; empty: one is made beside the users. Copies of a log need the same key"
    )
    accounts_dir: str = _why(
        "", "directory with plain_acl.yml and acl/; empty: conf below the environment's ROCKETMQ_HOME"
    )
    audit_file: str = _why("", "file of audit lines; empty: access-audit.jsonl beside the users")
    audits_grants: bool = _why(False, "an audit line for what was allowed, too: one for each request")
    dry_run: bool = _why(
        False, "refuse nothing but requests about users and accounts; note what would be refused"
    )
    trusted_peers: tuple[str, ...] = _why(
        (),
        "brokers that cannot sign, such as Apache's: IP addresses or networks, separated by ; that replicate "
        "and form a DLedger group without a signature although access control is on",
    )
    quotas: tuple[tuple[str, UserQuota], ...] = _why(
        (),
        "most that a user may do: `user:bytes=1048576,requests=100,connections=10`, several by ; (* is any)",
    )

    @property
    def has_users(self) -> bool:
        """Whether users and policies of 5.x decide. One switch: authorization without a signature is none."""
        return self.authentication or self.authorization

    @property
    def is_on(self) -> bool:
        return self.accounts or self.has_users


@dataclass(frozen=True, slots=True)
class AccessKey:
    """One configuration key: the field of `AccessConfig`, which texts it takes, and how a value is shown."""

    field: str
    accepts: str
    read: Callable[[str], Any]
    show: Callable[[Any], str] = str
    is_secret: bool = False


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise TextNotAccepted
    return text.lower() == "true"


def _show_boolean(value: bool) -> str:
    return "true" if value else "false"


def _credentials(name: str, secret: str) -> Callable[[str], Credentials | None]:
    def read(text: str) -> Credentials | None:
        if not text:
            return None
        try:
            found = json.loads(text)
            user, password = found[name], found[secret]
        except (ValueError, KeyError, TypeError):
            raise TextNotAccepted from None
        if not (isinstance(user, str) and isinstance(password, str) and user and password):
            raise TextNotAccepted
        token = found.get("securityToken") or ""
        return Credentials(user, password, token if isinstance(token, str) else "")

    return read


def _mask(value: object) -> str:
    return MASK if value else ""


def _codes(text: str) -> frozenset[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        raise TextNotAccepted
    return frozenset(map(int, parts))


def _show_codes(codes: frozenset[int]) -> str:
    return ",".join(map(str, sorted(codes)))


def _one_of(*names: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text and text.rpartition(".")[2] not in names:
            raise TextNotAccepted
        return text

    return read


def _key(text: str) -> str:
    try:
        is_key = not text or len(base64.b64decode(text, validate=True)) == KEY_BYTES
    except (ValueError, binascii.Error):
        is_key = False
    if not is_key:
        raise TextNotAccepted
    return text


def _networks(text: str) -> tuple[str, ...]:
    parts = tuple(filter(None, map(str.strip, text.split(";"))))
    try:
        for part in parts:
            ip_network(part, strict=False)
    except ValueError:
        raise TextNotAccepted from None
    return parts


QUOTA_FIELDS = {"bytes": "bytes_per_s", "requests": "requests_per_s", "connections": "connections"}


def _quotas(text: str) -> tuple[tuple[str, UserQuota], ...]:
    quotas: dict[str, UserQuota] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        user, colon, limits = part.rpartition(":")
        if not colon or not user or user in quotas:
            raise TextNotAccepted
        quotas[user] = _quota(limits)
    return tuple(quotas.items())


def _quota(limits: str) -> UserQuota:
    found: dict[str, int] = {}
    for limit in limits.split(","):
        matched = re.fullmatch(r"\s*(bytes|requests|connections)=([0-9]{1,15})\s*", limit, re.ASCII)
        if matched is None or QUOTA_FIELDS[matched[1]] in found:
            raise TextNotAccepted
        found[QUOTA_FIELDS[matched[1]]] = int(matched[2])
    return UserQuota(**found)


def _show_quotas(quotas: tuple[tuple[str, UserQuota], ...]) -> str:
    return ";".join(
        f"{user}:" + ",".join(f"{word}={getattr(quota, name)}" for word, name in QUOTA_FIELDS.items())
        for user, quota in quotas
    )


_ON = ("true or false", _boolean, _show_boolean)
_CODES = ("request codes, several separated by ,", _codes, _show_codes)

APACHE_KEYS: dict[str, AccessKey] = {
    "aclEnable": AccessKey("accounts", *_ON),
    "authenticationEnabled": AccessKey("authentication", *_ON),
    "authorizationEnabled": AccessKey("authorization", *_ON),
    "initAuthenticationUser": AccessKey(
        "initial_user",
        'JSON such as {"username":"u","password":"p"}',
        _credentials("username", "password"),
        _mask,
        is_secret=True,
    ),
    "innerClientAuthenticationCredentials": AccessKey(
        "inner_credentials",
        'JSON such as {"accessKey":"a","secretKey":"s"}',
        _credentials("accessKey", "secretKey"),
        _mask,
        is_secret=True,
    ),
    "migrateAuthFromV1Enabled": AccessKey("migrates_accounts", *_ON),
    "authenticationWhitelist": AccessKey("unchecked", *_CODES),
    "authorizationWhitelist": AccessKey("unauthorized", *_CODES),
    "authenticationProvider": AccessKey(
        "provider", "DefaultAuthenticationProvider", _one_of("DefaultAuthenticationProvider")
    ),
    "authorizationProvider": AccessKey(
        "authorization_provider", "DefaultAuthorizationProvider", _one_of("DefaultAuthorizationProvider")
    ),
    "authenticationMetadataProvider": AccessKey(
        "users_provider",
        "LocalAuthenticationMetadataProvider",
        _one_of("LocalAuthenticationMetadataProvider"),
    ),
    "authorizationMetadataProvider": AccessKey(
        "policies_provider",
        "LocalAuthorizationMetadataProvider",
        _one_of("LocalAuthorizationMetadataProvider"),
    ),
    "authenticationStrategy": AccessKey(
        "strategy",
        "StatelessAuthenticationStrategy or StatefulAuthenticationStrategy",
        _one_of("StatelessAuthenticationStrategy", "StatefulAuthenticationStrategy"),
    ),
    "authorizationStrategy": AccessKey(
        "authorization_strategy",
        "StatelessAuthorizationStrategy or StatefulAuthorizationStrategy",
        _one_of("StatelessAuthorizationStrategy", "StatefulAuthorizationStrategy"),
    ),
}
"""Apache's keys. Those of its caches have no effect here, because nothing is cached by name."""

OWN_KEYS: dict[str, AccessKey] = {
    "authKey": AccessKey(
        "secret_key", "32 bytes in base64, as `openssl rand -base64 32` prints", _key, _mask, is_secret=True
    ),
    "authSecretKeyFile": AccessKey("secret_key_file", "the path of a file", str),
    "authAccountsPath": AccessKey("accounts_dir", "the path of a directory", str),
    "authAuditFile": AccessKey("audit_file", "the path of a file", str),
    "authAuditGrants": AccessKey("audits_grants", *_ON),
    "authDryRun": AccessKey("dry_run", *_ON),
    "authTrustedPeers": AccessKey(
        "trusted_peers", "IP addresses or networks, separated by ;", _networks, ";".join
    ),
    "authUserQuotas": AccessKey(
        "quotas",
        "user:bytes=N,requests=N,connections=N, several separated by ;",
        _quotas,
        _show_quotas,
    ),
}
"""Keys that Apache does not have."""

KEYS = APACHE_KEYS | OWN_KEYS

SECRET_KEYS = frozenset(name for name, key in KEYS.items() if key.is_secret)


@dataclass(frozen=True, slots=True)
class AccessFault:
    """Why settings of access control do not go together, and the key that is to be changed."""

    key: str
    why: str


def check_access(config: AccessConfig) -> AccessFault | None:
    """Returns what is wrong with the settings as a whole; None: nothing."""
    if config.accounts and config.has_users:
        return AccessFault(
            "aclEnable",
            "must be false with authenticationEnabled; migrateAuthFromV1Enabled=true makes users of accounts",
        )
    for key, codes in (
        ("authenticationWhitelist", config.unchecked),
        ("authorizationWhitelist", config.unauthorized),
    ):
        if wrong := sorted(codes & ABOUT_ACCESS):
            return AccessFault(key, f"must not have requests about users or accounts, got {wrong[0]}")
    if (config.accounts or (config.has_users and config.migrates_accounts)) and not config.accounts_dir:
        key = "aclEnable" if config.accounts else "migrateAuthFromV1Enabled"
        return AccessFault(key, "needs the accounts: set authAccountsPath to the directory of plain_acl.yml")
    return None
