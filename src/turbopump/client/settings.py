"""Every setting of a client: its default, its bounds, what it means, and what Apache's clients call it.

The keyword arguments of the clients (`options.py`), the page docs/settings.md and the checks are generated
from these tables. Names are Apache's in Python's spelling; all durations are seconds, all sizes bytes.
`NOT_NEEDED` lists what Apache's clients need and this one does not, with the reason.
"""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from turbopump.client.errors import InvalidArgument
from turbopump.client.group.rebalance import Strategy, averagely
from turbopump.client.times import Time, start_ms
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.names import AUTO_CREATE_TOPIC

MIB = 1 << 20
LOOKS_LIKE_MS = 600.0  # seconds; a larger timeout was probably meant as milliseconds

T = TypeVar("T")


def setting(
    default: T,
    doc: str,
    java: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    unit: str = "",
    secret: bool = False,
) -> T:
    """Returns the dataclass field of a setting: default, description, Java name, bounds and unit.

    With `unit` "s" a number that looks like milliseconds is refused. The value of a `secret` is in no text:
    no `repr`, error, log line or report.
    """
    about = {"doc": doc, "java": java, "low": low, "high": high, "unit": unit, "secret": secret}
    return dataclasses.field(default=default, metadata=about, repr=not secret)


class MessageModel(Enum):
    """Whether one member of the group gets a message (CLUSTERING), or each (BROADCASTING)."""

    CLUSTERING = "clustering"
    BROADCASTING = "broadcasting"


class ConsumeFromWhere(Enum):
    """Where a group that never committed an offset begins to read a queue.

    A broker that still has a queue's first message in memory answers "0" for a new group, so LAST then begins
    at the first message too. A new or empty queue is read from its first message on, whenever that arrives,
    and so is the retry topic.
    """

    CONSUME_FROM_LAST_OFFSET = "last"
    CONSUME_FROM_FIRST_OFFSET = "first"
    CONSUME_FROM_TIMESTAMP = "timestamp"


class LatencyTable(Enum):
    """Which version of Apache's clients defines how long a producer avoids a slow broker."""

    V5 = "5.x"
    V4 = "4.x"


class AccessChannel(Enum):
    """How brokers are accessed, which changes the topic and the layout of message traces."""

    LOCAL = "local"
    CLOUD = "cloud"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings of every client."""

    client_ip: str = setting(
        "",
        "address in the client id; default: the local address of the connection to a name server",
        "clientIP",
    )
    instance_name: str = setting(
        "DEFAULT",
        "clients of one process with the same explicit name share connections; with DEFAULT each has its own",
        "instanceName",
    )
    namespace: str = setting("", "prefix `NS%` of topics and groups, invisible to the user", "namespace")
    namespace_v2: str = setting("", "sent as `nsd` and `ns` with each request", "namespaceV2")
    unit_mode: bool = setting(False, "the unit flag of sends and heartbeats", "unitMode")
    unit_name: str = setting("", "third part of the client id, and of the discovery URL", "unitName")
    name_server_domain: str = setting(
        "",
        "host[:port] asked over HTTP when no name server is configured; empty: no request, 127.0.0.1:9876 is "
        "used (Apache's clients ask jmenv.tbsite.net)",
        "rocketmq.namesrv.domain",
    )
    name_server_subgroup: str = setting(
        "nsaddr", "last part of the discovery URL", "rocketmq.namesrv.domain.subgroup"
    )
    poll_name_server_interval: float = setting(
        30.0, "interval between refreshes of routes", "pollNameServerInterval", low=0.01, unit="s"
    )
    heartbeat_broker_interval: float = setting(
        30.0, "interval between heartbeats", "heartbeatBrokerInterval", low=0.01, unit="s"
    )
    use_heartbeat_v2: bool = setting(
        False,
        "heartbeats include subscriptions only when they have changed (brokers of 5.x)",
        "useHeartbeatV2",
    )
    persist_consumer_offset_interval: float = setting(
        5.0, "interval between commits of offsets", "persistConsumerOffsetInterval", low=0.01, unit="s"
    )
    pull_time_delay_when_exception: float = setting(
        1.0, "pause after a pull that failed", "pullTimeDelayMillsWhenException", low=0, unit="s"
    )
    mq_client_api_timeout: float = setting(
        3.0, "timeout of routes, heartbeats and member lists", "mqClientApiTimeout", low=0.001, unit="s"
    )
    connect_timeout: float = setting(
        3.0,
        "timeout of a new connection",
        "com.rocketmq.remoting.client.connect.timeout",
        low=0.001,
        unit="s",
    )
    vip_channel_enabled: bool = setting(
        False, "send messages and offsets to the broker's port minus 2", "vipChannelEnabled"
    )
    decode_decompress_body: bool = setting(
        True, "decompress the bodies of received messages", "decodeDecompressBody"
    )
    use_tls: bool = setting(False, "use TLS to name servers and brokers", "useTLS")
    tls_trust_cert_path: str = setting(
        "",
        "PEM file of the authorities; without it the system's roots verify certificates and host names",
        "tls.client.trustCertPath",
    )
    tls_auth_server: bool = setting(
        True,
        "False: accept any certificate, which protects from eavesdroppers but not from a man in the middle "
        "(Apache's default)",
        "tls.client.authServer",
    )
    tls_cert_path: str = setting("", "PEM file of the client's certificate", "tls.client.certPath")
    tls_key_path: str = setting("", "PEM file of the client's key", "tls.client.keyPath")
    tls_key_password: str = setting("", "password of the client's key", "tls.client.keyPassword", secret=True)
    socks_proxy_config: str = setting(
        "", "JSON: networks and the SOCKS5 proxies to reach them", "socksProxyConfig", secret=True
    )
    access_key: str = setting(
        "", "name of the user as which all requests are signed; with `secret_key`", "AccessKey"
    )
    secret_key: str = setting("", "secret with which all requests are signed", "SecretKey", secret=True)
    security_token: str = setting(
        "", "token of temporary credentials, sent and signed with each request", "SecurityToken", secret=True
    )
    credentials_file: str = setting(
        "",
        "file of properties with AccessKey, SecretKey and perhaps SecurityToken, read when the client is "
        "made; used without `access_key` (Apache's clients read `~/key` by default)",
        "rocketmq.client.keyFile",
    )
    enable_trace: bool = setting(
        False, "write a record for each sent or consumed message to the trace topic", "enableTrace"
    )
    trace_topic: str = setting("", "trace topic; default: RMQ_SYS_TRACE_TOPIC", "traceTopic")
    trace_msg_batch_num: int = setting(
        10, "trace records per message of the trace topic, at most 20", "traceMsgBatchNum", low=1
    )
    access_channel: AccessChannel = setting(
        AccessChannel.LOCAL,
        "`cloud`: send traces to one topic per region, in the cloud's layout",
        "accessChannel",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """Settings of a producer."""

    telemetry: bool = setting(
        False, "OpenTelemetry spans and metrics; needs the extra `turbopump[telemetry]`", ""
    )
    enable_stream_request_type: bool = setting(
        False, "marks requests with `ReqT` and the client id with `@STREAM`", "enableStreamRequestType"
    )
    create_topic_key: str = setting(
        AUTO_CREATE_TOPIC, "template topic for topics that a send creates", "createTopicKey"
    )
    default_topic_queue_nums: int = setting(
        4, "number of queues of a topic that a send creates", "defaultTopicQueueNums", low=1
    )
    send_msg_timeout: float = setting(
        3.0, "timeout of a send, all tries together", "sendMsgTimeout", low=0.001, unit="s"
    )
    send_msg_max_timeout_per_request: float = setting(
        -1.0,
        "timeout of a try that is not the last; -1: only the timeout of the send",
        "sendMsgMaxTimeoutPerRequest",
    )
    compress_msg_body_over_howmuch: int = setting(
        4096, "compress bodies of at least this many bytes", "compressMsgBodyOverHowmuch", low=0
    )
    compress_level: int = setting(5, "compression level", "compressLevel", low=0, high=9)
    compress_type: str = setting("ZLIB", "compression: ZLIB, LZ4 or ZSTD", "compressType")
    retry_times_when_send_failed: int = setting(
        2, "how many tries follow a failed first try", "retryTimesWhenSendFailed", low=0
    )
    retry_another_broker_when_not_store_ok: bool = setting(
        False,
        "try another broker also when a message was stored less safely than asked",
        "retryAnotherBrokerWhenNotStoreOK",
    )
    max_message_size: int = setting(
        4 * MIB, "maximum size of a body, before compression", "maxMessageSize", low=1
    )
    retry_response_codes: frozenset[int] = setting(
        frozenset(
            {
                ResponseCode.TOPIC_NOT_EXIST,
                ResponseCode.SERVICE_NOT_AVAILABLE,
                ResponseCode.SYSTEM_ERROR,
                ResponseCode.SYSTEM_BUSY,
                ResponseCode.NO_PERMISSION,
                ResponseCode.NO_BUYER_ID,
                ResponseCode.NOT_IN_CURRENT_UNIT,
                ResponseCode.GO_AWAY,
            }
        ),
        "response codes after which another broker is tried",
        "retryResponseCodes",
    )
    send_latency_fault_enable: bool = setting(
        False, "avoid brokers for a while that were slow or failed", "sendLatencyFaultEnable"
    )
    start_detector_enable: bool = setting(
        False,
        "with send_latency_fault_enable: probe brokers that could not be reached",
        "startDetectorEnable",
    )
    detect_timeout: float = setting(0.2, "timeout of a probe", "detectTimeout", low=0.001, unit="s")
    detect_interval: float = setting(
        2.0, "interval between two probes of a broker", "detectInterval", low=0.01, unit="s"
    )
    latency_max: tuple[float, ...] = setting(
        (0.05, 0.1, 0.55, 1.8, 3.0, 5.0, 15.0),
        "latencies from which a broker is avoided, in steps",
        "latencyMax",
    )
    not_available_duration: tuple[float, ...] = setting(
        (0.0, 0.0, 2.0, 5.0, 6.0, 10.0, 30.0),
        "how long a broker is avoided, for each step",
        "notAvailableDuration",
    )
    latency_table: LatencyTable = setting(
        LatencyTable.V5,
        '"4.x" replaces the two settings above: 0.55 s is avoided for 30 s, 1 s for 60 s, failures for 600 s',
        "",
    )
    max_in_flight: int = setting(
        1024,
        "maximum number of sends in flight; more wait, within their timeout",
        "backPressureForAsyncSendNum",
        low=1,
    )
    max_in_flight_bytes: int = setting(
        100 * MIB, "maximum bytes of all bodies in flight", "backPressureForAsyncSendSize", low=1
    )
    auto_batch: bool = setting(
        False, "collect single sends without a timeout of their own into batches", "autoBatch"
    )
    batch_max_delay: float = setting(
        0.01,
        "how long the first message of an automatic batch waits for others",
        "batchMaxDelayMs",
        low=0.001,
        high=30,
    )
    batch_max_bytes: int = setting(
        32 * 1024, "an automatic batch with more bytes is sent at once", "batchMaxBytes", low=1, high=2 * MIB
    )
    total_batch_max_bytes: int = setting(
        32 * MIB,
        "maximum bytes of all automatic batches together; further messages are sent alone",
        "totalBatchMaxBytes",
        low=1,
    )
    check_thread_pool_max_size: int = setting(
        1, "how many calls of `check` run at the same time", "checkThreadPoolMaxSize", low=1
    )
    check_request_hold_max: int = setting(
        2000, "how many transaction checks may wait for `check`", "checkRequestHoldMax", low=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingSettings(ClientSettings):
    """Settings of push and pull consumers."""

    message_model: MessageModel = setting(
        MessageModel.CLUSTERING, "whether one member of the group gets a message, or each", "messageModel"
    )
    consume_from_where: ConsumeFromWhere = setting(
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, "where a new group begins", "consumeFromWhere"
    )
    consume_timestamp: Time | None = setting(
        None,
        "for CONSUME_FROM_TIMESTAMP: a datetime or ISO text with a time zone, milliseconds since 1970, a "
        "negative timedelta or an age such as `10m` before the start; default: half an hour before the start",
        "consumeTimestamp",
    )
    allocate_message_queue_strategy: Strategy = setting(
        averagely,
        "assigns queues to members; must be the same in all members",
        "allocateMessageQueueStrategy",
    )
    pull_threshold_for_queue: int = setting(
        1000, "maximum number of fetched messages of one queue", "pullThresholdForQueue", low=1, high=65535
    )
    pull_threshold_size_for_queue: int = setting(
        100 * MIB, "maximum bytes of fetched messages of one queue", "pullThresholdSizeForQueue", low=1
    )
    pull_batch_size_in_bytes: int = setting(
        256 * 1024, "maximum bytes of a pull (brokers of 5.x)", "pullBatchSizeInBytes", low=1
    )
    local_offset_store_dir: str = setting(
        str(Path("~") / ".rocketmq_offsets"),
        "directory of the offsets of a broadcasting consumer",
        "rocketmq.client.localOffsetStoreDir",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ReadingSettings):
    """Settings of a push consumer."""

    telemetry: bool = setting(
        False, "OpenTelemetry spans and metrics; needs the extra `turbopump[telemetry]`", ""
    )
    enable_stream_request_type: bool = setting(
        False, "marks requests with `ReqT` and the client id with `@STREAM`", "enableStreamRequestType"
    )
    consume_thread_min: int = setting(
        20, "number of workers that are kept ready", "consumeThreadMin", low=1, high=1000
    )
    consume_thread_max: int = setting(20, "maximum number of workers", "consumeThreadMax", low=1, high=1000)
    consume_concurrently_max_span: int = setting(
        2000,
        "maximum distance between the oldest unfinished and the newest offset of a queue",
        "consumeConcurrentlyMaxSpan",
        low=1,
        high=65535,
    )
    pull_threshold_for_topic: int = setting(
        -1,
        "maximum number of fetched messages of one topic, divided among its queues; -1: no limit",
        "pullThresholdForTopic",
    )
    pull_threshold_size_for_topic: int = setting(
        -1, "maximum bytes of fetched messages of one topic; -1: no limit", "pullThresholdSizeForTopic"
    )
    pull_interval: float = setting(0.0, "pause between pulls", "pullInterval", low=0, unit="s")
    consume_message_batch_max_size: int = setting(
        1, "maximum number of messages per call of a listener", "consumeMessageBatchMaxSize", low=1, high=1024
    )
    pull_batch_size: int = setting(32, "messages of a pull", "pullBatchSize", low=1, high=1024)
    post_subscription_when_pull: bool = setting(
        False, "send the expression with every pull", "postSubscriptionWhenPull"
    )
    max_reconsume_times: int = setting(
        -1,
        "maximum number of deliveries after the first; -1: 16, unlimited for ordered listeners",
        "maxReconsumeTimes",
        low=-1,
    )
    suspend_current_queue_time: float = setting(
        1.0,
        "pause of an ordered queue after a failed message",
        "suspendCurrentQueueTimeMillis",
        low=0.01,
        high=30,
    )
    consume_timeout: float = setting(
        900.0, "send a message back whose listener runs longer", "consumeTimeout", low=0.001
    )
    await_termination_when_shutdown: float = setting(
        30.0,
        "how long closing waits for running listeners (Apache's default of 0 interrupts them)",
        "awaitTerminationMillisWhenShutdown",
        low=0,
        unit="s",
    )
    rebalance_wait_interval: float = setting(
        20.0,
        "interval between rebalances",
        "rocketmq.client.rebalance.waitInterval",
        low=0.01,
        unit="s",
    )
    rebalance_lock_interval: float = setting(
        20.0,
        "interval between renewals of the locks of ordered queues",
        "rocketmq.client.rebalance.lockInterval",
        low=0.01,
        unit="s",
    )
    rebalance_lock_max_live_time: float = setting(
        30.0,
        "how long a lock is used without renewal",
        "rocketmq.client.rebalance.lockMaxLiveTime",
        low=0.01,
    )
    max_time_consume_continuously: float = setting(
        60.0,
        "how long an ordered queue is consumed before others get a turn",
        "rocketmq.client.maxTimeConsumeContinuously",
        low=0.01,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings(ReadingSettings):
    """Settings of a pull consumer."""

    telemetry: bool = setting(
        False, "OpenTelemetry spans and metrics; needs the extra `turbopump[telemetry]`", ""
    )
    enable_stream_request_type: bool = setting(
        True, "marks requests with `ReqT` and the client id with `@STREAM`", "enableStreamRequestType"
    )
    broker_suspend_max_time: float = setting(
        20.0,
        "how long the broker holds a pull that finds no message",
        "brokerSuspendMaxTimeMillis",
        low=0,
        unit="s",
    )
    consumer_timeout_when_suspend: float = setting(
        30.0,
        "timeout of a pull that the broker may hold",
        "consumerTimeoutMillisWhenSuspend",
        low=0.001,
        unit="s",
    )
    consumer_pull_timeout: float = setting(
        10.0,
        "timeout of a pull that the broker does not hold",
        "consumerPullTimeoutMillis",
        low=0.001,
        unit="s",
    )
    auto_commit: bool = setting(True, "commit regularly what `poll` gave out", "autoCommit")
    auto_commit_interval: float = setting(
        5.0, "interval between automatic commits", "autoCommitIntervalMillis", low=0.01, unit="s"
    )
    pull_batch_size: int = setting(10, "messages of a pull", "pullBatchSize", low=1, high=1024)
    pull_threshold_for_all: int = setting(
        10_000, "maximum number of fetched messages of all queues", "pullThresholdForAll", low=1
    )
    consume_max_span: int = setting(
        2000,
        "maximum distance between the oldest and the newest fetched offset of a queue",
        "consumeMaxSpan",
        low=1,
    )
    poll_timeout: float = setting(
        5.0, "how long `poll` waits by default", "pollTimeoutMillis", low=0, unit="s"
    )
    topic_metadata_check_interval: float = setting(
        30.0,
        "interval between checks for changed queues",
        "topicMetadataCheckIntervalMillis",
        low=0.01,
        unit="s",
    )
    max_reconsume_times: int = setting(
        16, "maximum number of deliveries after the first, for `send_back`", "maxReconsumeTimes", low=-1
    )


NOT_NEEDED: Mapping[str, str] = {
    "clientCallbackExecutorThreads": "callbacks run on the event loop",
    "asyncSenderExecutor": "awaiting a send occupies no thread",
    "callbackExecutor": "a future's callbacks run where you add them",
    "pullThreadNums": "waiting pulls occupy no thread",
    "adjustThreadPoolNumsThreshold": "it has no effect in Apache's client either",
    "decodeReadBody": "bodies are read when you ask for them",
    "retryTimesWhenSendAsyncFailed": "awaited sends retry as blocking ones do: retry_times_when_send_failed",
    "enableBackpressureForAsyncMode": "it is always on: max_in_flight",
    "maxPageSizeInGetMetadata": "lists are complete, or the tool says where they were cut",
    "language": "it is always PYTHON",
    "offsetStore": "it follows from message_model",
    "transactionListener": "Producer(check=…), and send_in_transaction(message, execute)",
    "checkThreadPoolMinSize": "threads are started when they are needed: check_thread_pool_max_size",
}
"""Java's name of a setting → why it has no keyword here."""

NOT_OFFERED: Mapping[str, str] = {
    "clientRebalance": "there is no POP mode: members divide the queues themselves",
    "popThresholdForQueue": "there is no POP mode",
    "popInvisibleTime": "there is no POP mode",
    "popBatchNums": "there is no POP mode",
}
"""Java's name of a setting → what Apache's clients can do and this one cannot."""


def check(settings: ClientSettings) -> None:
    """Raises InvalidArgument for the first value that has the wrong type or is out of bounds."""
    for field in dataclasses.fields(settings):
        value, about = getattr(settings, field.name), field.metadata
        _check_type(field.name, value, field.default, about["secret"])
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        low, high = about["low"], about["high"]
        if (low is not None and value < low) or (high is not None and value > high):
            allowed = f"at least {low}" if high is None else f"between {low} and {high}"
            raise InvalidArgument(f"{field.name} must be {allowed}, got {value}")
        if about["unit"] == "s" and value > LOOKS_LIKE_MS:
            raise InvalidArgument(
                f"{field.name} must be seconds, got {value}, which looks like milliseconds: "
                f"write {value / 1000}"
            )
    if isinstance(settings, ReadingSettings) and settings.consume_timestamp is not None:
        start_ms(settings.consume_timestamp, 0, "consume_timestamp")


def _check_type(name: str, value: object, default: object, is_secret: bool) -> None:
    kind = type(default)
    if kind not in (bool, int, float, str) or type(value) is kind:
        return
    if kind is float and type(value) is int:
        return
    shown = type(value).__name__ if is_secret else repr(value)
    raise InvalidArgument(f"{name} must be {_a(kind)}, got {shown}")


def _a(kind: type) -> str:
    return {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}[kind]


def _meant(kind: type[ClientSettings], name: str, value: Any) -> Any:
    """Returns the enum member that `value` names, or `value` itself for a setting that is no enum."""
    default = next(field.default for field in dataclasses.fields(kind) if field.name == name)
    if not isinstance(default, Enum) or isinstance(value, Enum):
        return value
    for choice in type(default):
        if value in (choice.value, choice.name):
            return choice
    words = ", ".join(repr(choice.value) for choice in type(default))
    raise InvalidArgument(f"{name} must be one of {words}, or of {type(default).__name__}, got {value!r}")


SECRETS = frozenset(field.name for field in dataclasses.fields(ClientSettings) if field.metadata["secret"])
"""Settings whose values are in no text."""


def every_name() -> frozenset[str]:
    """Returns the names of the settings of all kinds of clients."""
    kinds = (ProducerSettings, ConsumerSettings, PullSettings)
    return frozenset(field.name for kind in kinds for field in dataclasses.fields(kind))


S = TypeVar("S", bound=ClientSettings)


def made(kind: type[S], given: Mapping[str, Any], defaults: Mapping[str, Any] = {}) -> S:
    """Makes checked settings of a kind: `given` wins over `defaults`, these over the defaults of the kind.

    Raises InvalidArgument for a name in `given` that does not exist and for a value that is not valid.
    """
    known = {field.name for field in dataclasses.fields(kind)}
    for name in given:
        if name not in known:
            raise InvalidArgument(unknown(name, known))
    wanted = {**{name: value for name, value in defaults.items() if name in known}, **given}
    settings = kind(**{name: _meant(kind, name, value) for name, value in wanted.items()})
    check(settings)
    return settings


def unknown(name: str, known: Collection[str]) -> str:
    """Returns the error text for a setting that does not exist."""
    import difflib

    camel = "".join(part.title() if number else part for number, part in enumerate(name.split("_")))
    if why := NOT_NEEDED.get(name) or NOT_NEEDED.get(camel):
        return f"{name} is not needed here: {why}"
    if why := NOT_OFFERED.get(name) or NOT_OFFERED.get(camel):
        return f"{name} is not offered: {why}"
    near = difflib.get_close_matches(name, known, n=1)
    return f"there is no setting {name}" + (f"; did you mean {near[0]}?" if near else "")
