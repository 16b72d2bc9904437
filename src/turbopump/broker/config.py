"""The broker's configuration as one frozen value, and its reading from file, environment and flags.

In: the text of a `broker.conf`, the environment and the flags of the command line, later ones override
earlier ones. Out: a `BrokerConfig` and warnings for the operator. Which of Apache's keys sets
which field is in `settings.py`. Nothing here reads a file or the environment by itself.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from turbopump.broker import settings
from turbopump.broker.readers import NotAccepted, ValueReader
from turbopump.guard.config import AccessConfig, check_access
from turbopump.protocol.conf import ConfEntry, ConfigError, parse_properties
from turbopump.remoting import tls_settings
from turbopump.remoting.tls_settings import TlsSettings
from turbopump.replication.dledger.group import DLedgerGroup, slave_id
from turbopump.store.config import StoreConfig

__all__ = ["BrokerConfig", "ConfigError", "LoadedConfig", "load", "parse_properties", "printed", "show"]


MasterRole = Literal["ASYNC_MASTER", "SYNC_MASTER"]


def _why(default: Any, why: str) -> Any:
    return field(default=default, metadata={"why": why})


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Name and role of the broker in its cluster."""

    cluster_name: str = _why("DefaultCluster", "brokers of one cluster are shown and administered together")
    broker_name: str = _why("", "clients know the broker's queues by it; empty: the host name")
    broker_id: int = _why(0, "0 is the master; each slave of a broker name has another id above 0")
    role: Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"] = _why(
        "ASYNC_MASTER", "SYNC_MASTER answers a send when a slave has the message; SLAVE copies its master"
    )

    @property
    def is_slave(self) -> bool:
        return self.role == "SLAVE"


@dataclass(frozen=True, slots=True)
class ListenConfig:
    """Addresses and ports that the broker listens on, and those that it announces."""

    bind_address: str = _why("0.0.0.0", "where to listen; 127.0.0.1 keeps other machines out")
    port: int = _why(
        10911, "main port; the fast port is two below, the replication port one above; 0: any free"
    )
    advertised_address: str = _why(
        "", "what clients are told to connect to; empty: the primary local address"
    )
    ha_address: str = _why("", "what slaves are told to connect to; empty: the advertised one")
    ha_port: int = _why(0, "replication port; 0: main port + 1")
    idle_seconds: int = _why(120, "a connection that is silent for this time is closed")
    proxies: tuple[str, ...] = _why(
        (),
        "proxies on whose word the address of a client is believed, by the PROXY protocol (1 and 2); not on "
        "the ports of replication, DLedger and HTTP",
    )


@dataclass(frozen=True, slots=True)
class NameServerConfig:
    """Settings of the broker's registration with the name servers."""

    addresses: tuple[str, ...] = _why((), "the broker registers its topics with all of them")
    period_ms: int = _why(30_000, "how often the broker registers again; taken as 10 to 60 s")
    timeout_ms: int = _why(24_000, "how long one name server may take to answer")


@dataclass(frozen=True, slots=True)
class ReplicationRules:
    """Settings of replication: timeouts, how many brokers must have a message, reads from slaves."""

    master_address: str = _why(
        "", "replication address of the master, for a slave; empty: as the name servers say"
    )
    heartbeat_ms: int = _why(5_000, "a quiet connection between master and slave gets a heartbeat after this")
    housekeeping_ms: int = _why(20_000, "a silent connection between master and slave is closed after this")
    transfer_bytes: int = _why(32_768, "most bytes of the log that an Apache slave gets in one part")
    max_gap_bytes: int = _why(
        268_435_456, "a slave that is this far behind does not count: SLAVE_NOT_AVAILABLE"
    )
    timeout_ms: int = _why(3_000, "a send that slaves do not have after this is answered FLUSH_SLAVE_TIMEOUT")
    in_sync: int = _why(
        1, "brokers that must have a message before a SYNC_MASTER answers, itself included; at least 2 there"
    )
    min_in_sync: int = _why(
        1, "sends are refused while fewer brokers than this, itself included, are in sync"
    )
    auto_in_sync: bool = _why(
        False, "wait for no more brokers than are in sync, but for minInSyncReplicas at least"
    )
    slave_reads: bool = _why(
        False,
        "consumers that are far behind are sent to a slave; a slave sends only others back to its master",
    )
    offset_check_in_slave: bool = _why(
        False,
        "a slave moves a consumer that is outside of its queue, as a master would; otherwise it waits",
    )


@dataclass(frozen=True, slots=True)
class DLedgerRules:
    """Settings of a broker whose log is that of a DLedger group, which elects its master."""

    enabled: bool = _why(False, "the log is agreed on by a group of brokers, which elects the master")
    group: str = _why("", "name of the group, mostly the broker name")
    peers: str = _why("", "all members of the group: n0-host:port;n1-host:port;n2-host:port")
    self_id: str = _why("", "which of the members this broker is: n0")
    preferred_leaders: str = _why("", "members that lead whenever they can, separated by ;")
    heartbeat_ms: int = _why(2_000, "how often the leader sends heartbeats; the same in all members")
    max_missed_heartbeats: int = _why(3, "a leader that is silent for so many heartbeats is replaced")
    min_vote_wait_ms: int = _why(300, "how long a member waits at least before it asks for votes")
    max_vote_wait_ms: int = _why(1_000, "how long a member waits at most before it asks for votes")
    quorum_timeout_ms: int = _why(2_500, "a send that no majority has after this is answered with an error")


@dataclass(frozen=True, slots=True)
class TopicRules:
    """Settings of topics: automatic creation, permission of the broker, built-in topics."""

    auto_create: bool = _why(True, "a send to an unknown topic creates it; turn off in production")
    default_queues: int = _why(8, "queues of TBW102, the most that an auto-created topic gets")
    cluster_topic: bool = _why(True, "the topic named after the cluster can be read and written")
    broker_topic: bool = _why(True, "the topic named after the broker can be read and written")
    trace_topic: bool = _why(False, "offer the topic that clients send message traces to")
    trace_topic_name: str = _why("RMQ_SYS_TRACE_TOPIC", "name of the trace topic")
    permission: int = _why(6, "of the whole broker: 4 read, 2 write, 6 both; routes show it at once")
    guard_system_topics: bool = _why(True, "refuse to create, change or delete a system topic")
    mixed_types: bool = _why(False, "allow topics with message.type=MIXED")
    revive_queues: int = _why(8, "queues of the topic that POP consumption keeps its checkpoints in")


@dataclass(frozen=True, slots=True)
class GroupRules:
    """Settings of consumer groups and their members: creation, timeouts, queue locks."""

    auto_create: bool = _why(True, "a consumer of an unknown group creates it; turn off in production")
    notify_members: bool = _why(True, "tell the members of a group at once when one joins or leaves")
    member_timeout_ms: int = _why(120_000, "a client without a heartbeat for this time is removed")
    create_system_groups: bool = _why(True, "groups named CID_RMQ_SYS_… are created even without auto_create")
    lock_ms: int = _why(
        60_000, "an ordered consumer that does not renew its queue lock within this time loses it"
    )


@dataclass(frozen=True, slots=True)
class OffsetRules:
    """Settings of the committed offsets of consumer groups: when they are written, how they are reset."""

    flush_interval_ms: int = _why(5_000, "how often consumer offsets are written to disk")
    version_step: int = _why(500, "commits between two versions of the offset table")
    reset_here: bool = _why(
        True, "a reset takes effect at the broker; false: consumers are asked, as with 4.9"
    )


@dataclass(frozen=True, slots=True)
class DelayRules:
    """Settings of messages with a delay level."""

    flush_interval_ms: int = _why(10_000, "how often the progress of delayed messages is written to disk")


@dataclass(frozen=True, slots=True)
class TransactionRules:
    """Settings of transactions: when producers are asked, when half messages and transactional ids expire."""

    timeout_ms: int = _why(6_000, "producers are asked about a transaction that is open for this time")
    check_interval_ms: int = _why(30_000, "time between two rounds of checks")
    check_most: int = _why(15, "checks after which a transaction expires; it can be resumed")
    id_retention_hours: int = _why(
        2160,
        "a transactional id of a Spark sink expires after this time without use: the number of its last "
        "batch stays; 0: never. Must be longer than any pause of a job that is to be resumed",
    )


@dataclass(frozen=True, slots=True)
class TimerRules:
    """Settings of timers: messages with a delivery time of their own instead of a delay level."""

    enabled: bool = _why(True, "accept messages with a time of delivery of their own")
    precision_ms: int = _why(
        1_000, "length of a slot of the wheel; messages are delivered by the millisecond"
    )
    max_delay_s: int = _why(315_360_000, "how far ahead a message may be due: ten years; Apache's is 3 days")
    roll_window_slots: int = _why(
        172_800, "messages due later than this many slots are put into the wheel again on the way"
    )
    log_file_size: int = _why(104_857_600, "bytes of a file of the timer log; existing files keep their size")
    flush_interval_ms: int = _why(1_000, "how often the progress of timers is written to disk")
    recall: bool = _why(True, "let producers recall messages that wait")


@dataclass(frozen=True, slots=True)
class PollConfig:
    """Settings of long polling: pulls that find nothing and are held until a message arrives."""

    long_polling: bool = _why(True, "hold a pull that finds nothing until its own time limit")
    short_polling_ms: int = _why(1_000, "how long such a pull is held when long polling is off")
    max_parked: int = _why(100_000, "pulls held at once; one more is answered without waiting")
    max_suspend_ms: int = _why(120_000, "how long a pull is held at most, whatever it asks for")
    lite_pull: bool = _why(True, "serve the pulls of lite pull consumers")


@dataclass(frozen=True, slots=True)
class FilterRules:
    """Settings of message filters by SQL92 expressions and by filter modules (WebAssembly)."""

    enabled: bool = _why(False, "consumers may choose messages by SQL92 expressions over properties")
    retries: bool = _why(False, "expressions choose among messages that are tried again, too")
    bit_maps: bool = _why(False, "note with each message which groups want it (needs enableConsumeQueueExt)")
    expected_groups: int = _why(32, "groups with an expression for one topic that bit maps are made for")
    error_percent: int = _why(20, "how often a bit map may be wrong, so that the expression has to decide")
    keep_ms: int = _why(86_400_000, "how long the expression of a group that has left is remembered")
    module_dir: str = _why("", "where filter modules (WebAssembly) are; empty: there are none")
    module_fuel: int = _why(1_000_000, "instructions that a filter module has for one message; about 1 ms")
    module_memory: int = _why(16 << 20, "bytes of memory that a filter module may use")


@dataclass(frozen=True, slots=True)
class SendConfig:
    """Settings of sends, and of replies to request messages."""

    region_id: str = _why("DefaultRegion", "stamped on every message and answer")
    trace_on: bool = _why(True, "stamped on every message and answer: clients may trace it")
    accept_from_ms: int = _why(0, "sends before this time (ms since 1970) are refused")
    reject_transactions: bool = _why(False, "refuse transaction messages")
    store_replies: bool = _why(True, "keep the reply to a request message after it was handed to who asked")


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """Settings of configuration changes by request (`mqadmin updateBrokerConfig`)."""

    black_list: tuple[str, ...] = _why(
        ("configBlackList", "brokerConfigPath"),
        "keys that cannot be changed over the wire; those that name a path or a command are on it anyway",
    )


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """How long (ms) each kind of request may wait in the broker before it is refused with SYSTEM_BUSY."""

    enabled: bool = _why(True, "refuse requests (SYSTEM_BUSY) that waited too long before they were begun")
    send_ms: int = _why(200, "how long a send may wait")
    pull_ms: int = _why(5_000, "how long a pull may wait before it is looked at")
    lite_pull_ms: int = _why(5_000, "the same for pulls of lite pull consumers")
    heartbeat_ms: int = _why(31_000, "how long a heartbeat may wait")
    transaction_ms: int = _why(3_000, "how long the end of a transaction may wait")
    ack_ms: int = _why(3_000, "how long the acknowledgement of a POP consumer may wait")
    admin_ms: int = _why(5_000, "how long a request of a tool may wait")


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Settings of the metrics that are served for Prometheus."""

    exporter: Literal["DISABLE", "PROM"] = _why("DISABLE", "PROM serves figures for Prometheus at /metrics")
    host: str = _why("", "where /metrics is served; empty: bindAddress")
    port: int = _why(5557, "port of /metrics; 0: any free")
    labels: tuple[str, ...] = _why((), "put on every metric")
    stats: bool = _why(True, "show numbers of topics, groups and waiting requests")
    requests: bool = _why(True, "show messages and bytes in and out, and sizes of messages")
    connections: bool = _why(True, "show producers and consumers that are connected")
    lag: bool = _why(True, "show how far consumer groups are behind, and dead letters")
    store: bool = _why(True, "show the state of the store")
    remoting: bool = _why(True, "show how long requests take")


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The whole configuration of a broker."""

    identity: BrokerIdentity = field(default_factory=BrokerIdentity)
    listening: ListenConfig = field(default_factory=ListenConfig)
    name_servers: NameServerConfig = field(default_factory=NameServerConfig)
    replication: ReplicationRules = field(default_factory=ReplicationRules)
    dledger: DLedgerRules = field(default_factory=DLedgerRules)
    topics: TopicRules = field(default_factory=TopicRules)
    groups: GroupRules = field(default_factory=GroupRules)
    offsets: OffsetRules = field(default_factory=OffsetRules)
    delays: DelayRules = field(default_factory=DelayRules)
    transactions: TransactionRules = field(default_factory=TransactionRules)
    timers: TimerRules = field(default_factory=TimerRules)
    polling: PollConfig = field(default_factory=PollConfig)
    filters: FilterRules = field(default_factory=FilterRules)
    sending: SendConfig = field(default_factory=SendConfig)
    remote: RemoteConfig = field(default_factory=RemoteConfig)
    waits: WaitLimits = field(default_factory=WaitLimits)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    access: AccessConfig = field(default_factory=AccessConfig)
    tls: TlsSettings = field(default_factory=TlsSettings)
    store: StoreConfig = field(default_factory=StoreConfig)


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A checked configuration, and the warnings to log at start."""

    config: BrokerConfig
    warnings: tuple[str, ...] = ()


def load(
    file_text: bytes | str = b"",
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    host_name: str = "DEFAULT_BROKER",
) -> LoadedConfig:
    """Returns the checked configuration: default < file < environment < flags. Raises ConfigError.

    All of them use the keys and texts of the file. `host_name` is the default of brokerName.
    """
    environ = environ or {}
    entries = [
        *_from_file(file_text),
        *_from_environment(environ),
        *(_Sourced(key, text, f"flag for {key}") for key, text in (flags or {}).items()),
    ]
    warnings: list[str] = []
    config: BrokerConfig = _starting_point(environ, host_name)
    unused = _Unused()
    used = _last_of_each(entries, warnings)
    for entry in used.values():
        row = settings.SETTINGS.get(settings.canonical(entry.key))
        if row is not None:
            config = put(config, row.path, _value(row.reader, entry))
            if (words := settings.seconds_warning(entry.key, entry.text)) is not None:
                warnings.append(entry.blamed(words))
        else:
            _without_field(entry, warnings, unused)
    return LoadedConfig(_checked(config, used), (*warnings, *unused.warnings()))


def change(config: BrokerConfig, key: str, text: str) -> BrokerConfig:
    """Returns a copy of `config` with Apache's `key` set to `text`. Raises ConfigError for a bad value.

    A key that is neither in `settings.SETTINGS` nor another spelling of one raises KeyError.
    """
    row = settings.SETTINGS[settings.canonical(key)]
    return _checked(put(config, row.path, _value(row.reader, _Sourced(key, text, ""))), {})


def show(config: BrokerConfig, important_only: bool = False) -> dict[str, str]:
    """Returns Apache's keys with the text of the current value of each, for `mqbroker -p` and requests."""
    return {
        key: row.reader.show(get(config, row.path))
        for key, row in sorted(settings.SETTINGS.items())
        if row.important or not important_only
    }


def printed(config: BrokerConfig, important_only: bool = False) -> str:
    return "".join(f"{key}={text}\n" for key, text in show(config, important_only).items())


def get(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name)
    return config


def put(config: Any, path: str, value: Any) -> Any:
    """Returns a copy of `config` with the field at the dotted `path` replaced by `value`."""
    name, _, rest = path.partition(".")
    return replace(config, **{name: put(getattr(config, name), rest, value) if rest else value})


def paths(config: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields the dotted path and the description of every field of the configuration, also of nested ones."""
    for leaf in fields(config):
        value = getattr(config, leaf.name)
        if is_dataclass(value):
            yield from paths(value, f"{prefix}{leaf.name}.")
        else:
            yield prefix + leaf.name, leaf.metadata.get("why", "")


@dataclass(frozen=True, slots=True)
class _Sourced:
    """The text set for one key and where it was set (line, environment variable or flag), for errors."""

    key: str
    text: str
    source: str
    line: int = 0

    @property
    def place(self) -> str:
        return f"{self.key} in line {self.line}" if self.line else self.source

    def blamed(self, words: str) -> str:
        return f"line {self.line}: {words}" if self.line else f"{self.source}: {words}"

    def error(self, message: str) -> ConfigError:
        key = self.key if self.line or not self.source else self.source
        return ConfigError(message, key, self.line)


def _from_file(file_text: bytes | str) -> Iterator[_Sourced]:
    for entry in parse_properties(file_text):
        yield _of_entry(entry)


def _of_entry(entry: ConfEntry) -> _Sourced:
    return _Sourced(entry.key, entry.value.strip(), f"line {entry.line}: {entry.key}", entry.line)


def _from_environment(environ: Mapping[str, str]) -> Iterator[_Sourced]:
    if environ.get("NAMESRV_ADDR"):
        yield _Sourced("namesrvAddr", environ["NAMESRV_ADDR"], "environment variable NAMESRV_ADDR")
    for key in settings.known_keys():
        variable = settings.variable(key)
        if variable in environ:
            yield _Sourced(key, environ[variable].strip(), f"environment variable {variable}")


def _last_of_each(entries: list[_Sourced], warnings: list[str]) -> dict[str, _Sourced]:
    last: dict[str, _Sourced] = {}
    for entry in entries:
        earlier = last.pop(entry.key, None)
        if earlier is not None and earlier.line and entry.line:
            warnings.append(f"{entry.source}: already set in line {earlier.line}; the last one counts")
        last[entry.key] = entry
    return last


def _starting_point(environ: Mapping[str, str], host_name: str) -> BrokerConfig:
    config = BrokerConfig(identity=BrokerIdentity(broker_name=host_name))
    if home := environ.get("HOME"):
        config = replace(config, store=replace(config.store, root_dir=f"{home}/store"))
    if apache_home := environ.get("ROCKETMQ_HOME"):
        config = replace(config, access=replace(config.access, accounts_dir=f"{apache_home}/conf"))
    return config


def _value(reader: ValueReader, entry: _Sourced) -> Any:
    try:
        return reader.read(entry.text)
    except NotAccepted:
        got = "another text" if reader.is_secret else repr(entry.text)
        raise entry.error(f"must be {reader.accepts}, got {got}") from None


class _Unused:
    """Collects known keys that have no effect: one warning for each planned feature, one for all others."""

    def __init__(self) -> None:
        self.later: dict[str, list[str]] = {}
        self.without_effect: list[str] = []

    def warnings(self) -> Iterator[str]:
        for feature, places in sorted(self.later.items()):
            yield f"not supported yet, no effect: {', '.join(places)} ({feature})"
        if self.without_effect:
            yield "keys without effect here: " + ", ".join(sorted(self.without_effect))


def _without_field(entry: _Sourced, warnings: list[str], unused: _Unused) -> None:
    """Handles a key that sets no field: ignores it, adds to `unused` or `warnings`, or raises ConfigError.

    Raises for an unsupported value of a key whose feature is missing, and for a key that is probably
    misspelt.
    """
    fixed = settings.FIXED.get(entry.key)
    if fixed is not None:
        if entry.text.lower() not in fixed.accepted:
            raise entry.error(f"{entry.text!r} is not supported yet: {fixed.feature}")
    elif entry.key in settings.LATER:
        unused.later.setdefault(settings.LATER[entry.key], []).append(entry.place)
    elif entry.key in settings.WITHOUT_EFFECT:
        unused.without_effect.append(entry.key)
    else:
        warnings.append(settings.unknown_key(entry.key, entry.line, settings.known_keys()))


def _checked(config: BrokerConfig, used: Mapping[str, _Sourced]) -> BrokerConfig:
    """Returns `config` with the registration period cut to 10 to 60 s. Raises ConfigError for bad values.

    These are brokerId for the role, minInSyncReplicas above inSyncReplicas, listenPort, TLS without its
    files, and the keys of DLedger, which also decide what the log of the store is.
    `used`: where each key was set, for the error.
    """

    def error(message: str, key: str) -> ConfigError:
        return used[key].error(message) if key in used else ConfigError(message, key)

    config = _with_log(config, error)
    identity, rules = config.identity, config.replication
    if identity.is_slave and identity.broker_id < 1:
        raise error(f"a slave must have an id above 0, got {identity.broker_id}", "brokerId")
    if not identity.is_slave and identity.broker_id != 0:
        raise error(
            f"a master must have the id 0, got {identity.broker_id}; slaves set brokerRole=SLAVE", "brokerId"
        )
    if rules.min_in_sync > max(rules.in_sync, 2 if identity.role == "SYNC_MASTER" else 1):
        raise error("must not be more than inSyncReplicas", "minInSyncReplicas")
    if 0 < config.listening.port < 3:
        raise error("the fast port, two below, would not be a port", "listenPort")
    if (found := check_access(config.access)) is not None:
        raise error(found.why, found.key)
    if not config.tls.config_file:  # else it may have what is missing
        _check_tls(config.tls, error)
    period_ms = min(max(config.name_servers.period_ms, 10_000), 60_000)
    return replace(config, name_servers=replace(config.name_servers, period_ms=period_ms))


def _check_tls(settings: TlsSettings, error: Callable[[str, str], ConfigError]) -> None:
    try:
        tls_settings.check(settings)
    except ConfigError as bad:
        raise error(bad.message, bad.key) from None


def _with_log(config: BrokerConfig, error: Callable[[str, str], ConfigError]) -> BrokerConfig:
    """Returns `config` with the kind of log that enableDLegerCommitLog asks for, and its role.

    A group elects its master, so brokerRole and brokerId have no effect, as in Apache. Raises ConfigError.
    """
    rules = config.dledger
    if not rules.enabled:
        return replace(config, store=replace(config.store, dledger_id=""))
    try:
        group = DLedgerGroup.parse(rules.group, rules.self_id, rules.peers)
        slave_id(group.own_id)
    except ValueError as bad:
        raise error(str(bad), str(bad).split(" ", 1)[0]) from None
    for member in filter(None, rules.preferred_leaders.split(";")):
        if member not in group.addresses:
            raise error(f"must be one of {', '.join(group.addresses)}, got {member!r}", "preferredLeaderId")
    if rules.min_vote_wait_ms > rules.max_vote_wait_ms:
        raise error(
            f"must be at most {rules.max_vote_wait_ms}, got {rules.min_vote_wait_ms}", "dLegerMinVoteWait"
        )
    identity = replace(config.identity, role="SYNC_MASTER", broker_id=0)
    return replace(config, identity=identity, store=replace(config.store, dledger_id=group.own_id))
