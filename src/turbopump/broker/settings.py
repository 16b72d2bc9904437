"""All keys of Apache's `broker.conf`: which field of `BrokerConfig` each sets, or why it sets none.

Four tables, and every key that Apache's 4.5 to 5.5 brokers read is in exactly one. `SETTINGS` have an
effect. `FIXED` are accepted at the value that leaves a feature off which we do not have and whose absence
must not go unnoticed: it would change what an acknowledgement means, the broker's role, or who may connect.
`LATER` belong to features to come and are named in a warning. `WITHOUT_EFFECT` tune threads, locks and
buffers that do not exist in this broker.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from turbopump.broker.readers import (
    ADDRESSES,
    BOOLEAN,
    COUNT,
    DELAY_LEVELS,
    DIRECTORY,
    HOST,
    HOURS,
    INTERVAL,
    KEYS,
    LABELS,
    MILLISECONDS,
    NAME,
    OPTIONAL_ADDRESS,
    OPTIONAL_HOST,
    PERCENT,
    PERCENT_OR_NONE,
    PORT,
    PRECISION,
    ROOT_DIRECTORY,
    TEXT,
    NotAccepted,
    ValueReader,
    choice,
    integer,
)
from turbopump.guard.config import APACHE_KEYS, OWN_KEYS, AccessKey, TextNotAccepted
from turbopump.protocol.conf import ConfigError
from turbopump.remoting.proxied import proxies_of
from turbopump.remoting.tls_settings import APACHE_NAMES, TlsKey
from turbopump.remoting.tls_settings import KEYS as TLS_KEYS

ROLE = choice("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")

EXPORTER = replace(
    choice("DISABLE", "PROM"),
    accepts="DISABLE or PROM (nothing is pushed; a collector of OpenTelemetry can scrape PROM)",
)

ALIKE = 0.6
"""How similar an unknown key is to a known one that is worth naming beside it."""

MISSPELT = 0.9
"""Unknown keys at least this similar to a known one are taken for a typing error."""

ROOT_DIR_PATH = "store.root_dir"


@dataclass(frozen=True, slots=True)
class Setting:
    path: str
    reader: ValueReader
    why: str = ""  # where the field itself does not say it
    important: bool = False  # shown by `mqbroker -m`
    hot: bool = False  # can be changed while the broker runs


_BROKER: dict[str, Setting] = {
    "brokerClusterName": Setting("identity.cluster_name", NAME, important=True),
    "brokerName": Setting("identity.broker_name", NAME, important=True),
    "brokerId": Setting("identity.broker_id", integer(-1, 2**31 - 1), important=True),
    "brokerRole": Setting("identity.role", ROLE, important=True),
    "bindAddress": Setting("listening.bind_address", HOST, important=True),
    "listenPort": Setting("listening.port", PORT, important=True),
    "brokerIP1": Setting("listening.advertised_address", HOST, important=True),
    "brokerIP2": Setting("listening.ha_address", HOST, important=True),
    "haListenPort": Setting("listening.ha_port", PORT),
    "serverChannelMaxIdleTimeSeconds": Setting("listening.idle_seconds", integer(1, 2**31 - 1, "seconds")),
    "namesrvAddr": Setting("name_servers.addresses", ADDRESSES, important=True),
    "registerNameServerPeriod": Setting("name_servers.period_ms", MILLISECONDS),
    "registerBrokerTimeoutMills": Setting("name_servers.timeout_ms", INTERVAL),
    "haMasterAddress": Setting("replication.master_address", OPTIONAL_ADDRESS),
    "haSendHeartbeatInterval": Setting("replication.heartbeat_ms", INTERVAL),
    "haHousekeepingInterval": Setting("replication.housekeeping_ms", INTERVAL),
    "haTransferBatchSize": Setting("replication.transfer_bytes", integer(1, 4_194_292, "bytes")),
    "haSlaveFallbehindMax": Setting("replication.max_gap_bytes", integer(1, 2**63 - 1, "bytes"), hot=True),
    "slaveTimeout": Setting("replication.timeout_ms", INTERVAL, hot=True),
    "inSyncReplicas": Setting("replication.in_sync", integer(1, 64), hot=True),
    "minInSyncReplicas": Setting("replication.min_in_sync", integer(1, 64), hot=True),
    "enableAutoInSyncReplicas": Setting("replication.auto_in_sync", BOOLEAN, hot=True),
    "slaveReadEnable": Setting("replication.slave_reads", BOOLEAN, important=True, hot=True),
    "offsetCheckInSlave": Setting("replication.offset_check_in_slave", BOOLEAN, hot=True),
    "enableDLegerCommitLog": Setting("dledger.enabled", BOOLEAN, important=True),
    "dLegerGroup": Setting("dledger.group", TEXT, important=True),
    "dLegerPeers": Setting("dledger.peers", TEXT, important=True),
    "dLegerSelfId": Setting("dledger.self_id", TEXT, important=True),
    "preferredLeaderId": Setting("dledger.preferred_leaders", TEXT),
    "storePathDLedgerCommitLog": Setting("store.dledger_data_dir", DIRECTORY, "data files of DLedger's log"),
    "autoCreateTopicEnable": Setting("topics.auto_create", BOOLEAN, important=True, hot=True),
    "defaultTopicQueueNums": Setting("topics.default_queues", integer(1, 65536)),
    "clusterTopicEnable": Setting("topics.cluster_topic", BOOLEAN),
    "brokerTopicEnable": Setting("topics.broker_topic", BOOLEAN),
    "traceTopicEnable": Setting("topics.trace_topic", BOOLEAN, important=True),
    "msgTraceTopicName": Setting("topics.trace_topic_name", NAME, important=True),
    "brokerPermission": Setting("topics.permission", integer(0, 7), important=True, hot=True),
    "validateSystemTopicWhenUpdateTopic": Setting("topics.guard_system_topics", BOOLEAN, hot=True),
    "enableMixedMessageType": Setting("topics.mixed_types", BOOLEAN, hot=True),
    "reviveQueueNum": Setting("topics.revive_queues", integer(1, 65536)),
    "autoCreateSubscriptionGroup": Setting("groups.auto_create", BOOLEAN, important=True, hot=True),
    "notifyConsumerIdsChangedEnable": Setting("groups.notify_members", BOOLEAN, hot=True),
    "channelExpiredTimeout": Setting("groups.member_timeout_ms", INTERVAL, hot=True),
    "enableCreateSysGroup": Setting("groups.create_system_groups", BOOLEAN, hot=True),
    "rocketmq.broker.rebalance.lockMaxLiveTime": Setting("groups.lock_ms", INTERVAL),
    "flushConsumerOffsetInterval": Setting("offsets.flush_interval_ms", INTERVAL),
    "consumerOffsetUpdateVersionStep": Setting("offsets.version_step", COUNT),
    "useServerSideResetOffset": Setting("offsets.reset_here", BOOLEAN, hot=True),
    "flushDelayOffsetInterval": Setting("delays.flush_interval_ms", INTERVAL),
    "transactionTimeOut": Setting("transactions.timeout_ms", MILLISECONDS),
    "transactionCheckInterval": Setting("transactions.check_interval_ms", INTERVAL),
    "transactionCheckMax": Setting("transactions.check_most", COUNT),
    "timerWheelEnable": Setting("timers.enabled", BOOLEAN),
    "timerPrecisionMs": Setting("timers.precision_ms", PRECISION),
    "timerMaxDelaySec": Setting("timers.max_delay_s", integer(1, 2**31 - 1, "seconds"), hot=True),
    "timerRollWindowSlot": Setting("timers.roll_window_slots", integer(2, 1_209_540)),
    "mappedFileSizeTimerLog": Setting("timers.log_file_size", integer(1024, 2**31 - 1, "bytes")),
    "timerFlushIntervalMs": Setting("timers.flush_interval_ms", INTERVAL),
    "recallMessageEnable": Setting("timers.recall", BOOLEAN, hot=True),
    "longPollingEnable": Setting("polling.long_polling", BOOLEAN, hot=True),
    "shortPollingTimeMills": Setting("polling.short_polling_ms", MILLISECONDS, hot=True),
    "litePullMessageEnable": Setting("polling.lite_pull", BOOLEAN, hot=True),
    "enablePropertyFilter": Setting("filters.enabled", BOOLEAN, important=True, hot=True),
    "filterSupportRetry": Setting("filters.retries", BOOLEAN),
    "enableCalcFilterBitMap": Setting("filters.bit_maps", BOOLEAN),
    "expectConsumerNumUseFilter": Setting("filters.expected_groups", integer(1, 10_000)),
    "maxErrorRateOfBloomFilter": Setting("filters.error_percent", integer(1, 99)),
    "filterDataCleanTimeSpan": Setting("filters.keep_ms", MILLISECONDS),
    "regionId": Setting("sending.region_id", TEXT),
    "traceOn": Setting("sending.trace_on", BOOLEAN),
    "startAcceptSendRequestTimeStamp": Setting("sending.accept_from_ms", MILLISECONDS),
    "configBlackList": Setting("remote.black_list", KEYS),
    "rejectTransactionMessage": Setting("sending.reject_transactions", BOOLEAN, important=True),
    "storeReplyMessageEnable": Setting("sending.store_replies", BOOLEAN, hot=True),
}

_STORE: dict[str, Setting] = {
    "storePathRootDir": Setting(
        "store.root_dir",
        ROOT_DIRECTORY,
        "directory for all files of the broker, except where another key names one",
        important=True,
    ),
    "storePathCommitLog": Setting(
        "store.commit_log_dir",
        DIRECTORY,
        "directory of the commit log files; empty: commitlog below storePathRootDir",
        important=True,
    ),
    "mappedFileSizeCommitLog": Setting(
        "store.commit_log_file_size",
        integer(4096, 2**31 - 1, "bytes"),
        "size of one commit log file in bytes",
    ),
    "mappedFileSizeConsumeQueue": Setting(
        "store.consume_queue_file_size",
        integer(20, 2**31 - 1, "bytes"),
        "size of one consume queue file in bytes",
    ),
    "mapperFileSizeBatchConsumeQueue": Setting(
        "store.batch_queue_file_size",
        integer(46, 2**31 - 1, "bytes"),
        "size of one batch consume queue file in bytes",
    ),
    "enableLmq": Setting(
        "store.light_queues",
        BOOLEAN,
        "a message can be in light queues (LMQ) too; has an effect only with enableMultiDispatch",
    ),
    "enableMultiDispatch": Setting(
        "store.multi_dispatch",
        BOOLEAN,
        "a message can be in light queues (LMQ) too; has an effect only with enableLmq",
    ),
    "maxLmqConsumeQueueNum": Setting(
        "store.max_light_queues",
        COUNT,
        "most light queues that can have messages; a send that needs one more is refused",
    ),
    "mappedFileSizeConsumeQueueExt": Setting(
        "store.consume_queue_ext_file_size",
        integer(64, 2**31 - 1, "bytes"),
        "size of one consume queue extension file in bytes",
    ),
    "enableConsumeQueueExt": Setting(
        "store.write_extensions",
        BOOLEAN,
        "keep tag codes, store times and bit maps in extension files of consume queues; makes sends slower",
    ),
    "maxHashSlotNum": Setting(
        "store.index_slots", COUNT, "number of hash slots in one index file", important=True
    ),
    "maxIndexNum": Setting("store.index_items", COUNT, "number of entries in one index file", important=True),
    "messageIndexEnable": Setting(
        "store.index_enabled",
        BOOLEAN,
        "index messages by their keys, so that they can be queried by key",
        important=True,
    ),
    "maxMessageSize": Setting(
        "store.max_message_size",
        integer(1, 16_000_000, "bytes"),
        "bytes of the largest accepted message body; larger ones are refused",
    ),
    "messageDelayLevel": Setting(
        "store.message_delay_levels",
        DELAY_LEVELS,
        "delays of levels 1, 2, …; messages that wait already keep their time of delivery",
    ),
    "flushDiskType": Setting(
        "store.flush_disk_type",
        choice("ASYNC_FLUSH", "SYNC_FLUSH"),
        "SYNC_FLUSH: a send is answered when its message is synced to disk; ASYNC_FLUSH: once in memory",
        important=True,
    ),
    "flushIntervalCommitLog": Setting(
        "store.flush_interval_ms",
        INTERVAL,
        "milliseconds between two flushes of the commit log to disk (ASYNC_FLUSH)",
        important=True,
    ),
    "flushCommitLogLeastPages": Setting(
        "store.flush_least_pages",
        integer(0, 2**31 - 1),
        "a flush is skipped while fewer pages of 4 KiB are new (ASYNC_FLUSH)",
    ),
    "flushCommitLogThoroughInterval": Setting(
        "store.flush_thorough_interval_ms",
        INTERVAL,
        "milliseconds after which a flush is not skipped, however little is new (ASYNC_FLUSH)",
    ),
    "syncFlushTimeout": Setting(
        "store.sync_flush_timeout_ms",
        INTERVAL,
        "milliseconds that a send waits for its flush; then it is answered FLUSH_DISK_TIMEOUT (SYNC_FLUSH)",
        important=True,
        hot=True,
    ),
    "flushIntervalConsumeQueue": Setting(
        "store.consume_queue_flush_interval_ms",
        INTERVAL,
        "milliseconds between two writes of consume queues to their files",
        important=True,
    ),
    "flushConsumeQueueThoroughInterval": Setting(
        "store.checkpoint_interval_ms",
        INTERVAL,
        "milliseconds between two checkpoints; after a crash the log is read again from the last one on",
    ),
    "osPageCacheBusyTimeOutMills": Setting(
        "store.page_cache_busy_ms",
        INTERVAL,
        "while a sync of the commit log takes longer than this many milliseconds, sends are refused",
        hot=True,
    ),
    "transientStorePoolEnable": Setting(
        "store.transient_pool",
        BOOLEAN,
        "keep new messages in memory and write them to the file every commitIntervalCommitLog (ASYNC_FLUSH "
        "only); those in memory are lost when the process dies",
        important=True,
    ),
    "transientStorePoolSize": Setting(
        "store.transient_pool_size",
        integer(1, 1024),
        "number of buffers of the transient store pool, each as large as a commit log file; sends are "
        "refused while none is free",
    ),
    "commitIntervalCommitLog": Setting(
        "store.commit_interval_ms",
        INTERVAL,
        "milliseconds between two writes of the transient store pool to the commit log file",
        important=True,
    ),
    "checkCRCOnRecover": Setting(
        "store.check_crc_on_recover",
        BOOLEAN,
        "verify the checksum of each message body when the log is recovered at a start",
    ),
    "accessMessageInMemoryMaxRatio": Setting(
        "store.access_in_memory_ratio",
        PERCENT_OR_NONE,
        "percent of the machine's memory: that many of the newest bytes of the log count as in memory, the "
        "others as on disk, for the limits of a pull; 0: all count as on disk",
        important=True,
        hot=True,
    ),
    "maxTransferBytesOnMessageInMemory": Setting(
        "store.max_bytes_in_memory",
        COUNT,
        "most bytes of messages in one pull answer when they count as in memory",
        important=True,
        hot=True,
    ),
    "maxTransferCountOnMessageInMemory": Setting(
        "store.max_count_in_memory",
        COUNT,
        "most messages in one pull answer when they count as in memory",
        important=True,
        hot=True,
    ),
    "maxTransferBytesOnMessageInDisk": Setting(
        "store.max_bytes_on_disk",
        COUNT,
        "most bytes of messages in one pull answer when they count as on disk",
        important=True,
        hot=True,
    ),
    "maxTransferCountOnMessageInDisk": Setting(
        "store.max_count_on_disk",
        COUNT,
        "most messages in one pull answer when they count as on disk",
        important=True,
        hot=True,
    ),
    "maxMsgsNumBatch": Setting(
        "store.max_query_count", COUNT, "most messages that one query by key returns", hot=True
    ),
    "defaultQueryMaxNum": Setting(
        "store.default_query_count", COUNT, "most messages that one query by unique key returns"
    ),
    "cleanResourceInterval": Setting(
        "store.clean_interval_ms", INTERVAL, "milliseconds between two searches for expired commit log files"
    ),
    "deleteCommitLogFilesInterval": Setting(
        "store.delete_file_pause_ms",
        MILLISECONDS,
        "milliseconds between the deletions of two commit log files",
        hot=True,
    ),
    "deleteFileBatchMax": Setting(
        "store.delete_files_at_once",
        COUNT,
        "most commit log files deleted after one search",
        important=True,
        hot=True,
    ),
    "deleteWhen": Setting(
        "store.delete_when",
        HOURS,
        "hours of the local day in which expired commit log files are deleted",
        important=True,
        hot=True,
    ),
    "fileReservedTime": Setting(
        "store.file_reserved_hours",
        integer(1, 2**31 - 1, "hours"),
        "hours that messages are kept: a commit log file expires this long after its last write",
        important=True,
        hot=True,
    ),
    "diskMaxUsedSpaceRatio": Setting(
        "store.disk_max_used_ratio",
        PERCENT,
        "while more than this part of the disk is used, expired files are deleted at any hour; taken as "
        "10 to 95",
        important=True,
        hot=True,
    ),
    "diskSpaceCleanForciblyRatio": Setting(
        "store.disk_force_clean_ratio",
        PERCENT,
        "while more than this part of the disk is used, the oldest files are deleted even before they "
        "expire; taken as 30 to 85",
        hot=True,
    ),
    "diskSpaceWarningLevelRatio": Setting(
        "store.disk_warning_ratio",
        PERCENT,
        "while more than this part of the disk is used, sends are refused; taken as 35 to 90",
        hot=True,
    ),
    "cleanFileForciblyEnable": Setting(
        "store.clean_forcibly",
        BOOLEAN,
        "delete files before they expire while the disk is fuller than diskSpaceCleanForciblyRatio",
        important=True,
        hot=True,
    ),
}

_WAITS: dict[str, Setting] = {
    "brokerFastFailureEnable": Setting("waits.enabled", BOOLEAN, hot=True),
    "waitTimeMillsInSendQueue": Setting("waits.send_ms", INTERVAL, hot=True),
    "waitTimeMillsInPullQueue": Setting("waits.pull_ms", INTERVAL, hot=True),
    "waitTimeMillsInLitePullQueue": Setting("waits.lite_pull_ms", INTERVAL, hot=True),
    "waitTimeMillsInHeartbeatQueue": Setting("waits.heartbeat_ms", INTERVAL, hot=True),
    "waitTimeMillsInTransactionQueue": Setting("waits.transaction_ms", INTERVAL, hot=True),
    "waitTimeMillsInAckQueue": Setting("waits.ack_ms", INTERVAL, hot=True),
    "waitTimeMillsInAdminBrokerQueue": Setting("waits.admin_ms", INTERVAL, hot=True),
}

OURS: dict[str, Setting] = {
    "dLegerHeartbeatInterval": Setting("dledger.heartbeat_ms", INTERVAL),
    "dLegerMaxMissedHeartbeats": Setting("dledger.max_missed_heartbeats", integer(1, 100)),
    "dLegerMinVoteWait": Setting("dledger.min_vote_wait_ms", INTERVAL),
    "dLegerMaxVoteWait": Setting("dledger.max_vote_wait_ms", INTERVAL),
    "dLegerQuorumTimeout": Setting("dledger.quorum_timeout_ms", INTERVAL),
    "transactionalIdRetentionHours": Setting(
        "transactions.id_retention_hours", integer(0, 2**31 - 1, "hours"), hot=True
    ),
    "filterModulePath": Setting("filters.module_dir", DIRECTORY),
    "filterModuleFuel": Setting("filters.module_fuel", integer(1000, 2**40)),
    "filterModuleMemoryMax": Setting("filters.module_memory", integer(65_536, 2**31 - 1, "bytes")),
    "maxTransferBytesInBulk": Setting(
        "store.max_bulk_bytes",
        integer(0, 8 << 20, "bytes"),
        "most bytes of messages in one pull answer to a client that asks for bulk, such as the Spark source; "
        "0: the limits of other pulls",
    ),
}
"""Keys that Apache does not have."""


def _reader(key: TlsKey) -> ValueReader:
    def read(text: str) -> object:
        try:
            return key.read(text)
        except ValueError:
            raise NotAccepted from None

    return ValueReader(key.accepts, read, key.show)


def _proxies(text: str) -> tuple[str, ...]:
    try:
        return proxies_of(text)
    except ValueError:
        raise NotAccepted from None


PROXIES = ValueReader("IP addresses or networks, but not all, separated by ;", _proxies, ";".join)


_METRICS: dict[str, Setting] = {
    "metricsExporterType": Setting("metrics.exporter", EXPORTER, important=True),
    "metricsPromExporterHost": Setting("metrics.host", OPTIONAL_HOST),
    "metricsPromExporterPort": Setting("metrics.port", PORT),
    "metricsLabel": Setting("metrics.labels", LABELS),
    "enableStatsMetrics": Setting("metrics.stats", BOOLEAN, hot=True),
    "enableRequestMetrics": Setting("metrics.requests", BOOLEAN, hot=True),
    "enableConnectionMetrics": Setting("metrics.connections", BOOLEAN, hot=True),
    "enableLagAndDlqMetrics": Setting("metrics.lag", BOOLEAN, hot=True),
    "enableMessageStoreMetrics": Setting("metrics.store", BOOLEAN, hot=True),
    "enableRemotingMetrics": Setting("metrics.remoting", BOOLEAN, hot=True),
}


def _access(keys: Mapping[str, AccessKey]) -> dict[str, Setting]:
    """Returns the rows of access control, whose keys name servers have too."""
    return {name: Setting(f"access.{key.field}", _access_reader(key)) for name, key in keys.items()}


def _access_reader(key: AccessKey) -> ValueReader:
    def read(text: str) -> Any:
        try:
            return key.read(text)
        except TextNotAccepted:
            raise NotAccepted from None

    return ValueReader(key.accepts, read, key.show, key.is_secret)


OURS |= _access(OWN_KEYS)
OURS["proxyProtocolFrom"] = Setting("listening.proxies", PROXIES)
OURS |= {key.name: Setting(f"tls.{key.field}", _reader(key)) for key in TLS_KEYS}

SETTINGS = _BROKER | _STORE | _WAITS | _METRICS | _access(APACHE_KEYS) | OURS

LEAST_PLAUSIBLE_MS = {
    "registerNameServerPeriod": 1_000,
    "registerBrokerTimeoutMills": 200,
    "channelExpiredTimeout": 1_000,
    "rocketmq.broker.rebalance.lockMaxLiveTime": 1_000,
    "flushConsumerOffsetInterval": 100,
    "flushDelayOffsetInterval": 100,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "timerFlushIntervalMs": 20,
    "haSendHeartbeatInterval": 100,
    "haHousekeepingInterval": 1_000,
    "slaveTimeout": 50,
    "dLegerHeartbeatInterval": 20,
    "dLegerMinVoteWait": 10,
    "dLegerMaxVoteWait": 20,
    "dLegerQuorumTimeout": 50,
    "shortPollingTimeMills": 20,
    "filterDataCleanTimeSpan": 1_000,
    "flushIntervalCommitLog": 10,
    "flushCommitLogThoroughInterval": 100,
    "syncFlushTimeout": 100,
    "flushIntervalConsumeQueue": 10,
    "flushConsumeQueueThoroughInterval": 100,
    "osPageCacheBusyTimeOutMills": 50,
    "commitIntervalCommitLog": 10,
    "cleanResourceInterval": 100,
    "waitTimeMillsInSendQueue": 10,
    "waitTimeMillsInPullQueue": 100,
    "waitTimeMillsInLitePullQueue": 100,
    "waitTimeMillsInHeartbeatQueue": 200,
    "waitTimeMillsInTransactionQueue": 100,
    "waitTimeMillsInAckQueue": 100,
    "waitTimeMillsInAdminBrokerQueue": 100,
}
"""Times in milliseconds: a smaller value, but 0, was probably meant in seconds and gets a warning."""

ANY_MS = frozenset({"deleteCommitLogFilesInterval", "startAcceptSendRequestTimeStamp"})
"""Milliseconds that may well be few, or are a point in time."""

ALIASES = {
    "haMaxGapNotInSync": "haSlaveFallbehindMax",
    # 4.5's spelling, still in most files that can be found
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
    "useTLS": "tlsEnable",
}

SYSTEM_PROPERTIES = APACHE_NAMES
"""Keys that Apache reads from system properties instead, by which they are accepted too."""


def canonical(key: str) -> str:
    """Returns the key of `SETTINGS` that another spelling means; any other key as it is."""
    return ALIASES.get(key) or SYSTEM_PROPERTIES.get(key, key)


@dataclass(frozen=True, slots=True)
class Fixed:
    accepted: frozenset[str]
    feature: str


def _only(accepted: str, feature: str) -> Fixed:
    return Fixed(frozenset({accepted}), feature)


_CONTROLLER = (
    "election of masters by a controller; use a DLedger group (enableDLegerCommitLog=true), "
    "or master and slave with `turbopump promote`"
)
_REPLICAS = "replication; one broker keeps the only copy"

FIXED: dict[str, Fixed] = {
    "enableControllerMode": _only("false", _CONTROLLER),
    "enableSlaveActingMaster": _only("false", "slaves acting as masters"),
    "totalReplicas": _only("1", _REPLICAS),
    "allAckInSyncStateSet": _only("false", _REPLICAS),
    "duplicationEnable": _only("false", _REPLICAS),
    "storeType": _only("default", "another store than the file store"),
    "messageStorePlugIn": _only("", "store plug-ins"),
    "rocksdbCQDoubleWriteEnable": _only("false", "queues in RocksDB"),
    "indexRocksDBEnable": _only("false", "an index in RocksDB"),
    "timerRocksDBEnable": _only("false", "timers in RocksDB"),
    "timerStopEnqueue": _only("false", "stopping timers; set timerWheelEnable"),
    "timerStopDequeue": _only("false", "stopping timers; set timerWheelEnable"),
    "transRocksDBEnable": _only("false", "transactions in RocksDB"),
    "readOnlyCommitLogStorePaths": _only("", "several commit log directories"),
    "enabledAppendPropCRC": _only("false", "a checksum over the properties of a record"),
    "forceVerifyPropCRC": _only("false", "a checksum over the properties of a record"),
    "rejectPullConsumerEnable": _only("false", "refusing pull consumers"),
    "fetchNamesrvAddrByAddressServer": _only("false", "asking an address server; set namesrvAddr"),
    "fetchNameSrvAddrByDnsLookup": _only("false", "asking DNS again and again; set namesrvAddr"),
    "inBrokerContainer": _only("false", "several brokers in one process"),
}


def _each(feature: str, keys: str) -> dict[str, str]:
    return dict.fromkeys(keys.split(), feature)


LATER: dict[str, str] = {
    **_each(
        "replication",
        """haFlowControlEnable maxHaTransferByteInSecond haMaxTimeSlaveNotCatchup asyncLearner
        syncFromLastFile syncMasterFlushOffsetWhenStartup maxSlaveResendLength recheckReputOffsetFromCq
        enableRemoteEscape brokerHeartbeatInterval brokerNotActiveTimeoutMillis sendHeartbeatTimeoutMillis
        syncBrokerMemberGroupPeriod compatibleWithOldNameSrv cleanOfflineBrokerInterval isolateLogEnable
        skipPreOnline forwardTimeout loadBalancePollNameServerInterval lockInStrictMode""",
    ),
    **_each(
        "election of masters by a controller",
        """controllerAddr fetchControllerAddrByDnsLookup syncBrokerMetadataPeriod checkSyncStateSetPeriod
        syncControllerMetadataPeriod controllerHeartBeatTimeoutMills brokerElectionPriority
        storePathEpochFile storePathBrokerIdentity""",
    ),
    **_each(
        "metrics of transactions, and transactions in RocksDB",
        """transactionMetricFlushInterval enableTransactionMetrics transWriteOriginTransHalfEnable
        transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads
        transactionCheckRocksdbQueueCapacity""",
    ),
    **_each("filter servers", "filterServerNums"),
    **_each(
        "POP consumption",
        """reviveInterval reviveScanTime reviveMaxSlow reviveAckWaitMs popPollingSize popPollingMapSize
        maxPopPollingSize popPollingMapExpireTimeSeconds enablePopBufferMerge popFromRetryProbability
        enableRetryTopicV2 retrieveMessageFromPopRetryTopicV1 popConsumerKVServiceEnable
        popConsumerKVServiceInit popConsumerKVServiceLog popConsumerFSServiceInit popCkMaxBufferSize
        popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut popInflightMessageThreshold
        enablePopMessageThreshold popLongPollingForceNotifyInterval popResponseReturnActualRetryTopic
        popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead enablePopBatchAck enablePopLog
        enablePopMetrics enableSkipLongAwaitingAck enableNotifyAfterPopOrderLockRelease
        enableNotifyBeforePopCalculateLag initPopOffsetByCheckMsgInMem appendAckAsync appendCkAsync
        skipWhenCKRePutReachMaxTimes defaultMessageRequestMode defaultPopShareQueueNum
        serverLoadBalancerEnable popFromRetryProbabilityForPriority popReviveConcurrency
        popReviveSkipIfGroupAbsent priorityOrderAsc useSeparateRetryQueue useMessageFilterForNotification
        maxMessageFilterNumForNotification clearRetryTopicWhenDeleteTopic""",
    ),
    **_each(
        "shutting out slow consumers",
        "disableConsumeIfConsumerReadSlowly consumerFallbehindThreshold",
    ),
    **_each("subscriptions kept by the broker", "useStaticSubscription"),
    **_each(
        "proxies",
        "enableBroadcastOffsetStore broadcastOffsetExpireSecond broadcastOffsetExpireMaxSecond",
    ),
    **_each(
        "metrics that are pushed; PROM lets a collector fetch them",
        """metricsGrpcExporterTarget metricsGrpcExporterHeader metricGrpcExporterTimeOutInMills
        metricGrpcExporterIntervalInMills metricLoggingExporterIntervalInMills metricsInDelta
        metricsExportBatchMaxDataPoints""",
    ),
    **_each(
        "compacted topics",
        """enableCompaction compactionMappedFileSize compactionCqMappedFileSize compactionScheduleInternal
        compactionThreadNum maxOffsetMapSize searchBcqByCacheEnable""",
    ),
    **_each(
        "lite topics",
        """enableLiteEventMode enableLitePopLog enableLmqQuota liteEventCheckInterval
        liteEventFullDispatchDelayTime liteEventFullDispatchDelayTimeForWildcardGroup
        liteLagCountMetricsEnable liteLagLatencyCollectEnable liteLagLatencyMetricsEnable liteLagLatencyTopK
        liteSubscriptionCheckInterval liteSubscriptionCheckTimeoutMills liteTtlCheckInterval
        maxClientEventCount maxLiteSubscriptionCount minLiteTTl""",
    ),
    **_each(
        "protection from readers of cold data",
        """coldDataFlowControlEnable coldDataScanEnable coldCtrStrategyEnable usePIDColdCtrStrategy
        cgColdReadThreshold globalColdReadThreshold""",
    ),
}

WITHOUT_EFFECT: frozenset[str] = frozenset(
    _each(
        "",
        """bitMapLengthConsumeQueueExt enableBatchPush
        timerGetMessageThreadNum timerPutMessageThreadNum timerCongestNumEachSlot timerSkipUnknownError
        timerWarmEnable timerCheckMetricsWhen timerColdDataCheckIntervalMs timerEnableCheckMetrics
        timerEnableRetryUntilSuccess timerInterceptDelayLevel timerMetricSmallThreshold
        timerProgressLogIntervalMs disappearTimeAfterStart allowRecallWhenBrokerNotWriteable
        appendTopicForTimerDeleteKey timerRecallToTimeWheelEnable timerRecallToTimelineEnable
        timerReputServiceCorePoolSize timerReputServiceMaxPoolSize timerReputServiceQueueCapacity
        timerRocksDBPrecisionMs timerRocksDBRollIntervalHours timerRocksDBRollMaxTps
        timerRocksDBRollRangeHours timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps
        timerWheelSnapshotFlush timerWheelSnapshotIntervalMs
        sendMessageThreadPoolNums putMessageFutureThreadPoolNums pullMessageThreadPoolNums
        litePullMessageThreadPoolNums ackMessageThreadPoolNums processReplyMessageThreadPoolNums
        queryMessageThreadPoolNums adminBrokerThreadPoolNums clientManageThreadPoolNums
        consumerManageThreadPoolNums loadBalanceProcessorThreadPoolNums heartbeatThreadPoolNums
        recoverThreadPoolNums transactionOpMsgMaxSize transactionOpBatchInterval
        endTransactionThreadPoolNums batchDispatchRequestThreadPoolNums
        dispatchCqThreads dispatchCqCacheNum recoverConcurrently sendThreadPoolQueueCapacity
        putThreadPoolQueueCapacity pullThreadPoolQueueCapacity litePullThreadPoolQueueCapacity
        ackThreadPoolQueueCapacity replyThreadPoolQueueCapacity queryThreadPoolQueueCapacity
        clientManagerThreadPoolQueueCapacity consumerManagerThreadPoolQueueCapacity
        heartbeatThreadPoolQueueCapacity endTransactionPoolQueueCapacity
        adminBrokerThreadPoolQueueCapacity loadBalanceThreadPoolQueueCapacity enableNetWorkFlowControl
        serverWorkerThreads
        serverCallbackExecutorThreads serverSelectorThreads serverOnewaySemaphoreValue
        serverAsyncSemaphoreValue serverSocketSndBufSize serverSocketRcvBufSize serverSocketBacklog
        serverPooledByteBufAllocatorEnable serverNettyWorkerGroupEnable useEpollNativeSelector
        writeBufferHighWaterMark writeBufferLowWaterMark enableShutdownGracefully shutdownWaitTimeSeconds
        enableFastChannelEventProcess clientWorkerThreads clientCallbackExecutorThreads
        clientOnewaySemaphoreValue clientAsyncSemaphoreValue clientChannelMaxIdleTimeSeconds
        clientSocketSndBufSize clientSocketRcvBufSize clientPooledByteBufAllocatorEnable
        clientCloseSocketIfTimeout connectTimeoutMillis channelNotActiveInterval disableCallbackExecutor
        disableNettyWorkerGroup enableReconnectForGoAway maxReconnectIntervalTimeSeconds
        scanAvailableNameSrv socksProxyConfig transferMsgByHeap useReentrantLockWhenPutMessage useABSLock
        spinLockCollisionRetreatOptimalDegree topicQueueLockNum debugLockEnable
        fastFailIfNoBufferInStorePool warmMapedFileEnable flushLeastPagesWhenWarmMapedFile
        dataReadAheadEnable diskFallRecorded asyncSendEnable putMessageTimeout maxAsyncPutMessageRequests
        writeWithoutMmap wakeCommitWhenPutMessage wakeFlushWhenPutMessage dispatchFromSenderThread
        enableAsyncReput putConsumeQueueDataByFileChannel enableBuildConsumeQueueConcurrently
        enableRunningFlagsInFlush enableAcceleratedRecovery maxRecoveryCommitlogFiles
        enableLogConsumeQueueRepeatedlyBuildWhenRecover maxChecksumRange sampleCountThreshold sampleSteps
        metricsOtelCardinalityLimit estimateAccumulation
        putMsgIndexHightWater messageIndexSafe pullBatchMaxMessageCount maxConsumeQueueScan
        travelCqFileNumWhenGetMessage maxFilterMessageSize accessMessageInMemoryHotRatio readUnCommitted
        mappedFileSwapEnable commitLogForceSwapMapInterval commitLogSwapMapInterval
        commitLogSwapMapReserveFileNum logicQueueForceSwapMapInterval logicQueueSwapMapInterval
        logicQueueSwapMapReserveFileNum cleanSwapedMapInterval correctLogicMinOffsetForceInterval
        correctLogicMinOffsetSleepInterval maxBatchDeleteFilesNum enableCleanExpiredOffset
        autoMessageVersionOnTopicLen maxTopicLength flushCommitLogTimed
        flushConsumeQueueLeastPages commitCommitLogLeastPages commitCommitLogThoroughInterval
        deleteConsumeQueueFilesInterval destroyMapedFileIntervalForcibly
        redeleteHangedFileInterval replicasPerDiskPartition logicalDiskSpaceCleanForciblyThreshold
        bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin enableRocksDBLog
        memTableFlushIntervalMs realTimePersistRocksDBConfig rocksdbCompressionType
        rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec
        configManagerVersion combineAssignOffsetCQType combineCQEnableCheckSelf combineCQLoadingCQTypes
        combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType combineCQUseRocksdbForLmq
        iteratorWhenUseRocksdbConsumeQueue maxRocksDBIndexQueryDays useSeparateStorePathForRocksdbCQ
        useSingleRocksDBForAllConfigs persistConsumerOffsetIncrementally checkCommitLogOffsetOnRecover
        commitLogRecoverMaxNum indexFileReadEnable indexFileWriteEnable sharedByteBufferNum forceRegister
        compressedRegister enableSingleTopicRegister enableSplitRegistration splitRegistrationSize
        enableSplitMetadata splitMetadataSize updateNameServerAddrPeriod fetchNamesrvAddrInterval
        highSpeedMode rocketmqHome brokerConfigPath accountStatsEnable
        accountStatsPrintZeroValues autoDeleteUnusedStats maxStatsIdleTimeInMinutes enableDetailStat
        enableLmqStats commercialBaseCount commercialBigCount commercialEnable commercialSizePerMsg
        commercialTimerCount commercialTransCount printChannelGroups printChannelGroupsMinNum
        enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit
        scheduleAsyncDeliverMaxResendNum2Blocked delayOffsetUpdateVersionStep enableScheduleMessageStats
        maxDelayTime isBrokerContainer isInBrokerContainer isScanAvailableNameSrv isEnableBatchPush
        timerEnableDisruptor flushConsumerOffsetHistoryInterval subscriptionExpiredTimeout
        realTimeNotifyConsumerChange enableRegisterProducer
        authConfigPath userCacheMaxNum userCacheExpiredSecond userCacheRefreshSecond
        aclCacheMaxNum aclCacheExpiredSecond aclCacheRefreshSecond statefulAuthenticationCacheMaxNum
        statefulAuthenticationCacheExpiredSecond statefulAuthorizationCacheMaxNum
        statefulAuthorizationCacheExpiredSecond clusterName configName""",
    )
)


@cache
def known_keys() -> tuple[str, ...]:
    return (*SETTINGS, *ALIASES, *FIXED, *LATER, *sorted(WITHOUT_EFFECT))


def seconds_warning(key: str, text: str) -> str | None:
    """Returns a warning if a time in ms is so short that seconds were probably meant; otherwise None.

    For example `transactionCheckInterval=10`, copied from a text that counts seconds.
    """
    if key not in LEAST_PLAUSIBLE_MS or not 0 < int(text) < LEAST_PLAUSIBLE_MS[key]:
        return None
    words = f"{key}={text} means {text} milliseconds, not seconds"
    return f"{words}; for {text} seconds write {key}={text}000"


def misspelt(key: str) -> str | None:
    """Returns the known key most similar to an unknown one; None when none is similar."""
    by_lower = {one.lower(): one for one in known_keys()}
    near = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=ALIKE)
    return by_lower[near[0]] if near else None


def unknown_key(key: str, line: int, known: Iterable[str]) -> str:
    """Returns the warning about an unknown key. Raises ConfigError if it is probably a misspelt known key.

    Apache ignores unknown keys without a warning.
    """
    by_lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=ALIKE)
    if near and difflib.SequenceMatcher(None, near[0], key.lower()).ratio() >= MISSPELT:
        raise ConfigError(f"unknown key; did you mean {by_lower[near[0]]}?", key, line)
    nearest = f" (the nearest known one is {by_lower[near[0]]})" if near else ""
    return f"line {line}: {key}: unknown key, no effect{nearest}"


@cache
def variable(key: str) -> str:
    """Returns the environment variable that sets a key: TURBOPUMP_FLUSH_DISK_TYPE for flushDiskType."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|\.", "_", key)
    return f"TURBOPUMP_{snake.upper()}"
