"""What a name server can be told, with Apache's names for it.

Comes in: defaults, then `.properties` text (a file of `mqnamesrv -c`, the body of request 318). Goes out: a
frozen value, and the same as properties for request 319. Apache's keys that tune threads and buffers which
do not exist here are accepted and have no effect.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from turbopump.protocol.conf import ConfEntry, ConfigError, parse_properties

PROTECTED = ("configBlackList", "configStorePath", "kvConfigPath")
"""Never changed by request 318."""


@dataclass(frozen=True, slots=True)
class NamesrvConfig:
    listen_port: int = 9876
    """0 chooses a free one."""

    bind_address: str = "0.0.0.0"

    kv_config_path: str = ""
    """Where the key-value table is kept; empty: in memory only."""

    config_store_path: str = ""
    """Where request 318 writes the changed configuration; empty: nowhere."""

    order_message_enable: bool = False
    """Give `orderTopicConf` with a route."""

    return_order_topic_config: bool = True
    """Give the ORDER_TOPIC_CONFIG table to a broker that registers."""

    support_acting_master: bool = False
    """Show the slave with the smallest id as master where a group has lost its own."""

    notify_min_broker_id_changed: bool = False
    """Tell the brokers of a group (request 905) when the smallest id among them changes."""

    delete_topic_with_registration: bool = False
    """Forget topics that a broker's periodic registration no longer names.

    Only a table with SELF_TEST_TOPIC is taken for the whole one: every broker has it, and a change of some
    topics does not name it. Not for brokers that split their registration (enableSplitRegistration)."""

    all_topic_list_enable: bool = True
    topic_list_enable: bool = True

    wait_for_service: bool = False
    """Refuse route requests for a while after the start, until a first route is known."""

    wait_s: int = 45

    scan_interval_ms: int = 5000
    """How often silent brokers are looked for."""

    idle_s: int = 120
    """Connections without traffic are closed after this."""

    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"

    http_port: int = -1
    """Port of /rocketmq/nsaddr and /health; 0 chooses a free one, -1: not served."""

    name_servers: str = ""
    """What /rocketmq/nsaddr answers: `host:port;host:port`; empty: the address of this server."""

    @classmethod
    def below(cls, home: str) -> "NamesrvConfig":
        """Defaults with the files where Apache's name server has them, below a user's home."""
        return cls(
            kv_config_path=f"{home}/namesrv/kvConfig.json",
            config_store_path=f"{home}/namesrv/namesrv.properties",
        )


def configure(config: NamesrvConfig, text: bytes | str) -> tuple[NamesrvConfig, list[str]]:
    """The configuration changed by properties text, and the keys that nobody knows. Raises ConfigError."""
    changes: dict[str, Any] = {}
    unknown = []
    for entry in parse_properties(text):
        setting = SETTINGS.get(entry.key)
        if setting is not None:
            changes[setting[0]] = setting[1](entry)
        elif entry.key not in WITHOUT_EFFECT:
            unknown.append(entry.key)
    return replace(config, **changes), unknown


def properties(config: NamesrvConfig) -> dict[str, str]:
    """The configuration by Apache's names."""
    return {name: _text(getattr(config, field)) for name, (field, _) in SETTINGS.items()}


def protected_keys(config: NamesrvConfig, text: bytes | str) -> list[str]:
    """The keys in the text that request 318 may not change."""
    black_list = {*PROTECTED, *(key.strip() for key in config.config_black_list.split(";"))}
    return [entry.key for entry in parse_properties(text) if entry.key in black_list]


def _integer(low: int, high: int) -> Callable[[ConfEntry], int]:
    def read(entry: ConfEntry) -> int:
        try:
            number = int(entry.value.strip())
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise ConfigError(
                f"{entry.value!r}: a number from {low} to {high} belongs here", entry.key, entry.line
            )
        return number

    return read


def _boolean(entry: ConfEntry) -> bool:
    value = entry.value.strip().lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{entry.value!r}: true or false belongs here", entry.key, entry.line)
    return value == "true"


def _plain(entry: ConfEntry) -> str:
    return entry.value.strip()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_PORT = _integer(0, 65_535)
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
    "httpPort": ("http_port", _integer(-1, 65_535)),
    "namesrvAddr": ("name_servers", _plain),
}
"""Property name to field and reader. `httpPort` and `namesrvAddr` are ours, the others Apache's."""

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

assert {field for field, _ in SETTINGS.values()} == {field.name for field in fields(NamesrvConfig)}
