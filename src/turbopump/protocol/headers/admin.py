"""Configuration, statistics and upkeep of a broker."""

from turbopump.protocol.headers.base import I64, Header


class GetBrokerConfigResponse(Header):
    """Code 26: `version` is the JSON of a DataVersion; the body holds the properties text."""

    version: str


class ViewBrokerStatsDataRequest(Header):
    """Code 315."""

    statsName: str
    statsKey: str


class CheckRocksdbCqWriteProgressRequest(Header):
    """Code 354."""

    topic: str
    checkStoreTime: I64 | None = None


class ExportRocksdbConfigRequest(Header):
    """Code 355."""

    configType: str


class SetCommitLogReadModeRequest(Header):
    """Code 2004."""

    READ_AHEAD_MODE: str


class ExchangeHaInfo(Header):
    """Code 906, request and response; a request without fields is a query."""

    masterHaAddress: str | None = None
    masterFlushOffset: I64 | None = None
    masterAddress: str | None = None


class ResetMasterFlushOffsetRequest(Header):
    """Code 908."""

    masterFlushOffset: I64
