"""Configuration of the name server, in properties with Apache's names.

In: defaults, then `.properties` text (a file of `mqnamesrv -c`, the body of request 318). Out: a frozen
value, and its properties for request 319. Apache's keys for threads and buffers that do not exist here are
accepted and have no effect.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from turbopump.guard.config import KEYS, SECRET_KEYS, AccessConfig, TextNotAccepted, check_access
from turbopump.protocol.addresses import MAX_PORT
from turbopump.protocol.conf import ConfEntry, ConfigError, parse_properties
from turbopump.remoting import tls_settings
from turbopump.remoting.proxied import proxies_of
from turbopump.remoting.tls_settings import TlsSettings

PROTECTED = (
    *("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"),
    *("nameServerReads", "clusterName", "proxyProtocolFrom"),
    *KEYS,
    *tls_settings.BY_NAME,
)
"""Keys that request 318 must not change: paths, and all of access control and TLS."""


@dataclass(frozen=True, slots=True)
class NamesrvConfig:
    """All settings of a name server."""

    listen_port: int = 9876
    """0: any free port."""

    bind_address: str = "0.0.0.0"

    kv_config_path: str = ""
    """File of the key-value table; empty: in memory only."""

    config_store_path: str = ""
    """File to which request 318 writes the changed configuration; empty: none."""

    order_message_enable: bool = False
    """Adds `orderTopicConf` to routes."""

    return_order_topic_config: bool = True
    """Sends the ORDER_TOPIC_CONFIG table to brokers that register."""

    support_acting_master: bool = False
    """Shows the slave with the smallest id as master while a group has no master."""

    notify_min_broker_id_changed: bool = False
    """Notifies the brokers of a group (request 905) when the smallest id among them changes."""

    delete_topic_with_registration: bool = False
    """Removes topics that a broker's periodic registration no longer contains.

    Only a table with SELF_TEST_TOPIC counts as complete: every broker has it, and a change of some topics
    does not contain it. Not for brokers that split their registration (enableSplitRegistration)."""

    all_topic_list_enable: bool = True
    topic_list_enable: bool = True

    wait_for_service: bool = False
    """Refuses route requests for a while after the start, until a first route is known."""

    wait_s: int = 45

    scan_interval_ms: int = 5000
    """Interval of the search for brokers that stopped sending heartbeats."""

    idle_s: int = 120
    """Connections without traffic are closed after this."""

    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"

    http_port: int = -1
    """Port of /rocketmq/nsaddr and /health; 0: any free port, -1: not served."""

    name_servers: str = ""
    """Answer of /rocketmq/nsaddr: `host:port;host:port`; empty: the address of this server."""

    name_server_reads: str = "open"
    """Whether anybody may read routes while access control is on: open, or signed for known users only."""

    cluster_name: str = "DefaultCluster"
    """The name of the cluster in policies such as `Cluster:DefaultCluster`."""

    proxies: str = ""
    """Proxies whose word about a client's address is believed, by the PROXY protocol."""

    access: AccessConfig = field(default_factory=AccessConfig)
    tls: TlsSettings = field(default_factory=TlsSettings)

    @classmethod
    def below_home(cls, home: str) -> "NamesrvConfig":
        """Returns the default configuration, with Apache's file paths below a user's `home`."""
        return cls(
            kv_config_path=f"{home}/namesrv/kvConfig.json",
            config_store_path=f"{home}/namesrv/namesrv.properties",
        )


def configure(config: NamesrvConfig, text: bytes | str) -> tuple[NamesrvConfig, list[str]]:
    """Returns `config` changed by properties text, and the list of unknown keys; raises ConfigError."""
    changes: dict[str, Any] = {}
    access: dict[str, Any] = {}
    tls = config.tls
    unknown = []
    for entry in parse_properties(text):
        setting = SETTINGS.get(entry.key)
        if setting is not None:
            changes[setting[0]] = setting[1](entry)
        elif (key := KEYS.get(entry.key)) is not None:
            access[key.field] = _access_value(entry)
        elif entry.key in tls_settings.BY_NAME:
            tls = tls_settings.changed(tls, entry.key, entry.value, entry.line)
        elif entry.key not in WITHOUT_EFFECT:
            unknown.append(entry.key)
    if not tls.config_file:  # else it may have what is missing
        tls_settings.check(tls)
    if access:
        changes["access"] = replace(config.access, **access)
    changed = replace(config, **changes, tls=tls)
    if (fault := check_access(changed.access)) is not None:
        raise ConfigError(fault.why, fault.key, 0)
    return changed, unknown


def properties(config: NamesrvConfig) -> dict[str, str]:
    """Returns all settings but passwords of TLS as texts, by Apache's property names; secrets as a mask."""
    own = {name: _text(getattr(config, field)) for name, (field, _) in SETTINGS.items()}
    access = {name: key.show(getattr(config.access, key.field)) for name, key in KEYS.items()}
    return own | access | tls_settings.shown(config.tls)


def stored_properties(config: NamesrvConfig, before: bytes) -> dict[str, str]:
    """Returns the settings for their file, whose contents are `before`: secrets that it has stay in it.

    Those that came another way are not written.
    """
    secrets = SECRET_KEYS | {name for name in tls_settings.BY_NAME if "password" in name.lower()}
    kept = {entry.key: entry.value for entry in parse_properties(before) if entry.key in secrets}
    return properties(config) | dict.fromkeys(SECRET_KEYS, "") | kept


def known_keys() -> tuple[str, ...]:
    return (*SETTINGS, *KEYS, *(key.name for key in tls_settings.KEYS), *sorted(WITHOUT_EFFECT))


def protected_keys(config: NamesrvConfig, text: bytes | str) -> list[str]:
    """Returns the keys in properties text that request 318 (update configuration) must not change."""
    black_list = {*PROTECTED, *(key.strip() for key in config.config_black_list.split(";"))}
    black_list |= tls_settings.BY_NAME.keys()
    return [entry.key for entry in parse_properties(text) if entry.key in black_list]


def _integer(low: int, high: int) -> Callable[[ConfEntry], int]:
    def read(entry: ConfEntry) -> int:
        try:
            number = int(entry.value.strip())
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise ConfigError(
                f"must be a number from {low} to {high}, got {entry.value!r}", entry.key, entry.line
            )
        return number

    return read


def _boolean(entry: ConfEntry) -> bool:
    value = entry.value.strip().lower()
    if value not in ("true", "false"):
        raise ConfigError(f"must be true or false, got {entry.value!r}", entry.key, entry.line)
    return value == "true"


def _access_value(entry: ConfEntry) -> Any:
    key, text = KEYS[entry.key], entry.value.strip()
    try:
        return key.read(text)
    except TextNotAccepted:
        got = "another text" if key.is_secret else repr(text)
        raise ConfigError(f"must be {key.accepts}, got {got}", entry.key, entry.line) from None


def _reads(entry: ConfEntry) -> str:
    value = entry.value.strip().lower()
    if value not in ("open", "signed"):
        raise ConfigError(f"must be open or signed, got {entry.value!r}", entry.key, entry.line)
    return value


def _proxies(entry: ConfEntry) -> str:
    try:
        return ";".join(proxies_of(entry.value))
    except ValueError:
        why = f"must be IP addresses or networks, but not all, separated by ;, got {entry.value!r}"
        raise ConfigError(why, entry.key, entry.line) from None


def _plain(entry: ConfEntry) -> str:
    return entry.value.strip()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_PORT = _integer(0, MAX_PORT)
_MAX_INT = 2**31 - 1

SETTINGS: dict[str, tuple[str, Callable[[ConfEntry], int | bool | str]]] = {
    "listenPort": ("listen_port", _PORT),
    "bindAddress": ("bind_address", _plain),
    "kvConfigPath": ("kv_config_path", _plain),
    "configStorePath": ("config_store_path", _plain),
    "orderMessageEnable": ("order_message_enable", _boolean),
    "returnOrderTopicConfigToBroker": ("return_order_topic_config", _boolean),
    "supportActingMaster": ("support_acting_master", _boolean),
    "notifyMinBrokerIdChanged": ("notify_min_broker_id_changed", _boolean),
    "deleteTopicWithBrokerRegistration": ("delete_topic_with_registration", _boolean),
    "enableAllTopicList": ("all_topic_list_enable", _boolean),
    "enableTopicList": ("topic_list_enable", _boolean),
    "needWaitForService": ("wait_for_service", _boolean),
    "waitSecondsForService": ("wait_s", _integer(0, _MAX_INT)),
    "scanNotActiveBrokerInterval": ("scan_interval_ms", _integer(1, _MAX_INT)),
    "serverChannelMaxIdleTimeSeconds": ("idle_s", _integer(1, _MAX_INT)),
    "configBlackList": ("config_black_list", _plain),
    "httpPort": ("http_port", _integer(-1, MAX_PORT)),
    "namesrvAddr": ("name_servers", _plain),
    "nameServerReads": ("name_server_reads", _reads),
    "clusterName": ("cluster_name", _plain),
    "proxyProtocolFrom": ("proxies", _proxies),
}
"""Property name to field and reader, but for the keys of access control, which brokers have too.

`httpPort`, `namesrvAddr`, `nameServerReads` and `proxyProtocolFrom` are Turbopump's, the others Apache's.
"""

WITHOUT_EFFECT = frozenset(
    (
        "rocketmqHome",
        "productEnvName",
        "clusterTest",
        "clientRequestThreadPoolNums",
        "clientRequestThreadPoolQueueCapacity",
        "defaultThreadPoolNums",
        "defaultThreadPoolQueueCapacity",
        "unRegisterBrokerQueueCapacity",
        "enableControllerInNamesrv",
        "serverWorkerThreads",
        "serverCallbackExecutorThreads",
        "serverSelectorThreads",
        "serverOnewaySemaphoreValue",
        "serverAsyncSemaphoreValue",
        "serverSocketSndBufSize",
        "serverSocketRcvBufSize",
        "serverSocketBacklog",
        "serverPooledByteBufAllocatorEnable",
        "serverNettyWorkerGroupEnable",
        "enableShutdownGracefully",
        "shutdownWaitTimeSeconds",
        "useEpollNativeSelector",
        "writeBufferHighWaterMark",
        "writeBufferLowWaterMark",
    )
)

assert {name for name, _ in SETTINGS.values()} | {"access", "tls"} == {
    one.name for one in fields(NamesrvConfig)
}
