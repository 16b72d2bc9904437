"""Settings of TLS that brokers and name servers share: their keys, how they are read, what they must be.

In: texts of keys, ours or Apache's, from a configuration file or from the file that `tlsConfigFile` names.
Out: a frozen `TlsSettings`. Raises `ConfigError` for what cannot be used, since a server that is less
protected than its configuration says must not start. No file is read here, and no certificate.
"""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from turbopump.protocol.conf import ConfigError, parse_properties
from turbopump.remoting.tls_ciphers import CIPHERS, is_of_tls_13, openssl_name

Mode = Literal["disabled", "permissive", "enforcing"]
UserRule = Literal["cn-or-dns", "cn", "dns", "none"]

MODES = ("disabled", "permissive", "enforcing")
CLIENT_AUTH = ("none", "optional", "require")
USER_RULES = ("cn-or-dns", "cn", "dns", "none")
PROTOCOLS = ("TLSv1.2", "TLSv1.3")
HIDDEN = "******"
"""Shown instead of a password."""


def _why(default: Any, why: str, is_secret: bool = False) -> Any:
    return field(default=default, repr=not is_secret, metadata={"why": why})


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Settings of TLS of one server: what it accepts, how it dials, and its files."""

    server_mode: Literal["", "disabled", "permissive", "enforcing"] = _why(
        "",
        "permissive: one port takes TLS and plain connections; enforcing: TLS alone; disabled: plain ones "
        "alone; empty: permissive with tlsServerCertPath, disabled without",
    )
    enabled: bool = _why(
        False, "use TLS to name servers, to the master (remoting and replication port) and in a DLedger group"
    )
    config_file: str = _why("", "a file with these keys, as Apache's tls.properties; it overrides them")
    test_mode: bool = _why(
        False,
        "serve with a certificate that the server signs itself at each start, which clients cannot verify",
    )
    cert_path: str = _why("", "PEM file of the server's certificate, followed by those of its authorities")
    key_path: str = _why("", "PEM file of its key, PKCS#1 or PKCS#8; empty: it is in tlsServerCertPath")
    key_password: str = _why("", "password of that key", is_secret=True)
    need_client_auth: Literal["none", "optional", "require"] = _why(
        "none",
        "ask clients for a certificate: optional verifies one that is shown, require refuses a client "
        "without; both need tlsServerTrustCertPath",
    )
    auth_client: bool = _why(True, "has no effect: a certificate that is asked for is always verified")
    trust_path: str = _why("", "PEM file of the authorities whose client certificates are accepted")
    client_cert_path: str = _why("", "PEM file of the certificate that this server shows where it dials")
    client_key_path: str = _why("", "PEM file of its key; empty: it is in tlsClientCertPath")
    client_key_password: str = _why("", "password of that key", is_secret=True)
    client_auth_server: bool = _why(True, "verify the servers that are dialled")
    client_trust_path: str = _why(
        "",
        "PEM file of the authorities whose servers are trusted, by any host name; empty: the system's, and "
        "host names are compared",
    )
    ciphers: tuple[str, ...] = _why(
        (), "cipher suites by Java's or OpenSSL's names, separated by commas; empty: OpenSSL's good ones"
    )
    protocols: tuple[str, ...] = _why((), "TLSv1.2, TLSv1.3 or both, separated by commas; empty: both")
    reload_ms: int = _why(
        500, "how often the files are looked at; a new pair of certificate and key is used at once"
    )
    user_rule: Literal["cn-or-dns", "cn", "dns", "none"] = _why(
        "cn-or-dns",
        "which name of a verified client certificate is its user: the common name, the first DNS name, the "
        "common name or else the first DNS name, none",
    )
    plain_peers: tuple[str, ...] = _why(
        (),
        "brokers that cannot encrypt, such as Apache's: IP addresses or networks, separated by ; that "
        "replicate and form a DLedger group without TLS although tlsServerMode=enforcing or tlsEnable=true",
    )
    http_mode: Literal["disabled", "permissive", "enforcing"] = _why(
        "disabled", "tlsServerMode of the HTTP ports: /metrics, /health, /rocketmq/nsaddr"
    )

    @property
    def mode(self) -> Mode:
        """The mode in use: permissive or disabled, by the certificate, where none is set."""
        if self.server_mode:
            return self.server_mode
        return "permissive" if self.cert_path or self.test_mode else "disabled"

    @property
    def serves(self) -> bool:
        """Whether any port accepts TLS."""
        return self.mode != "disabled" or self.http_mode != "disabled"


@dataclass(frozen=True, slots=True)
class TlsKey:
    """One key: our name and Apache's, the field that it sets, how its text is read and shown."""

    name: str
    apache: str
    """Empty: Apache has no such key."""
    field: str
    accepts: str
    read: Callable[[str], Any]
    """Raises ValueError for a text that is not accepted."""
    show: Callable[[Any], str] = str


def _choice(*words: str) -> tuple[str, Callable[[str], str]]:
    def read(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(text)
        return text.lower()

    return " or ".join(words), read


def _mode(text: str) -> str:
    return _choice(*MODES)[1](text) if text else ""


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _interval(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 50 <= int(text[:10]) <= 3_600_000):
        raise ValueError(text)
    return int(text)


def _split(text: str, separator: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(separator) if part.strip())


def _protocols(text: str) -> tuple[str, ...]:
    names = _split(text, ",")
    if not set(names) <= set(PROTOCOLS):
        raise ValueError(text)
    return names


def _ciphers(text: str) -> tuple[str, ...]:
    names = _split(text.replace(":", ","), ",")
    if not all(is_of_tls_13(name) or openssl_name(name) for name in names):
        raise ValueError(text)
    return names


def _networks(text: str) -> tuple[str, ...]:
    names = _split(text, ";")
    for name in names:
        ipaddress.ip_network(name, strict=False)
    return names


def _shown(value: bool) -> str:
    return "true" if value else "false"


def _hidden(password: str) -> str:
    return HIDDEN if password else ""


_TRUTH: Any = ("true or false", _boolean, _shown)
_TEXT: Any = ("text", str)
_FILE: Any = ("the path of a PEM file, or nothing", str)
_SECRET: Any = ("text", str, _hidden)

KEYS: tuple[TlsKey, ...] = (
    TlsKey(
        "tlsServerMode",
        "tls.server.mode",
        "server_mode",
        "disabled or permissive or enforcing, or nothing",
        _mode,
    ),
    TlsKey("tlsEnable", "tls.enable", "enabled", *_TRUTH),
    TlsKey("tlsConfigFile", "tls.config.file", "config_file", *_TEXT),
    TlsKey("tlsTestModeEnable", "tls.test.mode.enable", "test_mode", *_TRUTH),
    TlsKey("tlsServerCertPath", "tls.server.certPath", "cert_path", *_FILE),
    TlsKey("tlsServerKeyPath", "tls.server.keyPath", "key_path", *_FILE),
    TlsKey("tlsServerKeyPassword", "tls.server.keyPassword", "key_password", *_SECRET),
    TlsKey(
        "tlsServerNeedClientAuth", "tls.server.need.client.auth", "need_client_auth", *_choice(*CLIENT_AUTH)
    ),
    TlsKey("tlsServerAuthClient", "tls.server.authClient", "auth_client", *_TRUTH),
    TlsKey("tlsServerTrustCertPath", "tls.server.trustCertPath", "trust_path", *_FILE),
    TlsKey("tlsClientCertPath", "tls.client.certPath", "client_cert_path", *_FILE),
    TlsKey("tlsClientKeyPath", "tls.client.keyPath", "client_key_path", *_FILE),
    TlsKey("tlsClientKeyPassword", "tls.client.keyPassword", "client_key_password", *_SECRET),
    TlsKey("tlsClientAuthServer", "tls.client.authServer", "client_auth_server", *_TRUTH),
    TlsKey("tlsClientTrustCertPath", "tls.client.trustCertPath", "client_trust_path", *_FILE),
    TlsKey(
        "tlsCiphers",
        "tls.ciphers",
        "ciphers",
        f"names such as {CIPHERS[0].java}, separated by commas",
        _ciphers,
        ",".join,
    ),
    TlsKey(
        "tlsProtocols",
        "tls.protocols",
        "protocols",
        f"{' or '.join(PROTOCOLS)}, separated by commas",
        _protocols,
        ",".join,
    ),
    TlsKey("tlsReloadInterval", "", "reload_ms", "milliseconds from 50 to 3600000", _interval),
    TlsKey("tlsUserFromCertificate", "", "user_rule", *_choice(*USER_RULES)),
    TlsKey(
        "tlsPlainPeers",
        "",
        "plain_peers",
        "IP addresses or networks, separated by ;",
        _networks,
        ";".join,
    ),
    TlsKey("tlsHttpMode", "", "http_mode", *_choice(*MODES)),
)
"""All keys. The file that `tlsConfigFile` names has them by either name."""

BY_NAME = {name: key for key in KEYS for name in (key.name, key.apache) if name}

SECRET_KEYS = frozenset(name for name, key in BY_NAME.items() if key.show is _hidden)
"""Names of passwords, ours and Apache's."""

APACHE_NAMES = {key.apache: key.name for key in KEYS if key.apache}
"""Apache's name of each key, a system property there."""


def changed(settings: TlsSettings, name: str, text: str, line: int = 0) -> TlsSettings:
    """Returns the settings with a key, by either name, set to `text`. Raises ConfigError for a bad value."""
    key = BY_NAME[APACHE_NAMES.get(name, name)]
    try:
        value = key.read(text.strip())
    except ValueError:
        got = "" if key.show is _hidden else f", got {text.strip()!r}"
        raise ConfigError(f"must be {key.accepts}{got}", name, line) from None
    return replace(settings, **{key.field: value})


def shown(settings: TlsSettings) -> dict[str, str]:
    """Returns our keys with the texts of their values, without passwords."""
    return {key.name: key.show(getattr(settings, key.field)) for key in KEYS if key.show is not _hidden}


def with_file(settings: TlsSettings, text: bytes) -> TlsSettings:
    """Returns the settings overridden by the text of a tls.properties. Raises ConfigError."""
    for entry in parse_properties(text):
        if entry.key not in BY_NAME or BY_NAME[entry.key].field == "config_file":
            raise ConfigError("is no key of TLS; remove it", entry.key, entry.line)
        settings = changed(settings, entry.key, entry.value, entry.line)
    return settings


def check(settings: TlsSettings) -> list[str]:
    """Returns warnings about settings that say less than they seem to. Raises ConfigError for a gap."""
    if settings.test_mode and settings.cert_path:
        raise ConfigError("must be false where tlsServerCertPath is set", "tlsTestModeEnable")
    for mode, key in ((settings.mode, "tlsServerMode"), (settings.http_mode, "tlsHttpMode")):
        if mode != "disabled" and not (settings.cert_path or settings.test_mode):
            raise ConfigError(f"{mode} needs a certificate: set tlsServerCertPath", key)
    if settings.serves and settings.need_client_auth != "none" and not settings.trust_path:
        words = "needs the authorities of client certificates: set tlsServerTrustCertPath"
        raise ConfigError(f"{settings.need_client_auth} {words}", "tlsServerNeedClientAuth")
    return list(_warnings(settings))


def _warnings(settings: TlsSettings) -> list[str]:
    warnings = []
    if settings.test_mode:
        warnings.append(
            "tlsTestModeEnable=true: the certificate is signed by the server itself, so clients cannot know "
            "whom they talk to; for tests only (turbopump tls init makes certificates)"
        )
    if not settings.auth_client:
        warnings.append("tlsServerAuthClient=false has no effect: client certificates are always verified")
    if settings.enabled and not settings.client_auth_server:
        warnings.append("tlsClientAuthServer=false: the servers that are dialled are not verified")
    if settings.plain_peers and (settings.enabled or settings.mode == "enforcing"):
        peers = ", ".join(settings.plain_peers)
        warnings.append(f"tlsPlainPeers: replication and DLedger are not encrypted with {peers}")
    if any(map(is_of_tls_13, settings.ciphers)):
        warnings.append("tlsCiphers: the suites of TLS 1.3 cannot be chosen; all of OpenSSL's are offered")
    return warnings
