"""Headers about configuration, statistics and upkeep of a broker."""

from turbopump.protocol.headers.base import I64, Header


class GetBrokerConfigResponse(Header):
    """Response to 26: `version` is the JSON of a DataVersion; the body holds the properties text."""

    version: str


class ViewBrokerStatsDataRequest(Header):
    """Request 315, tool to broker: read one statistic, such as TOPIC_PUT_NUMS of a topic."""

    statsName: str
    statsKey: str


class CheckRocksdbCqWriteProgressRequest(Header):
    """Request 354, tool to broker: compare consume queues in RocksDB with those in files."""

    topic: str
    checkStoreTime: I64 | None = None


class ExportRocksdbConfigRequest(Header):
    """Request 355, tool to broker: export configuration from RocksDB to JSON files."""

    configType: str


class SetCommitLogReadModeRequest(Header):
    """Request 2004, tool to broker: set the kernel's read-ahead mode for the commit log."""

    READ_AHEAD_MODE: str


class ExchangeHaInfo(Header):
    """Request and response 906, between brokers: HA address and flushed offset; a query has no fields."""

    masterHaAddress: str | None = None
    masterFlushOffset: I64 | None = None
    masterAddress: str | None = None


class ResetMasterFlushOffsetRequest(Header):
    """Request 908 to a slave: set the flushed offset of the master that it knows."""

    masterFlushOffset: I64
