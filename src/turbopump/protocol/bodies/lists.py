"""Bodies with lists and tables that tools ask for: topics, groups, timers, HA state."""

from turbopump.protocol.bodies.base import Body, always, empty_list, empty_map, new
from turbopump.protocol.bodies.topics import DataVersion
from turbopump.protocol.headers.base import I32, I64


class TopicList(Body):
    brokerAddr: str | None = None
    topicList: list[str] = empty_list()


class GroupList(Body):
    groupList: list[str] = empty_list()


class TimingCount(Body):
    count: I64 = always(0)
    timeStamp: I64 = always(0)


class TimerMetrics(Body):
    """Number of waiting timed messages of each topic."""

    dataVersion: DataVersion = new(DataVersion)
    timingCount: dict[str, TimingCount] = empty_map()


class KVTable(Body):
    table: dict[str, str] = empty_map()


class HAClientRuntimeInfo(Body):
    lastReadTimestamp: I64 = always(0)
    lastWriteTimestamp: I64 = always(0)
    masterAddr: str | None = None
    masterFlushOffset: I64 = always(0)
    maxOffset: I64 = always(0)
    transferredByteInSecond: I64 = always(0)


class HAConnectionInfo(Body):
    addr: str | None = None
    diff: I64 = always(0)
    inSync: bool = always(False)
    slaveAckOffset: I64 = always(0)
    transferFromWhere: I64 = always(0)
    transferredByteInSecond: I64 = always(0)


class HARuntimeInfo(Body):
    haClientRuntimeInfo: HAClientRuntimeInfo = new(HAClientRuntimeInfo)
    haConnectionInfo: list[HAConnectionInfo] = empty_list()
    inSyncSlaveNums: I32 = always(0)
    master: bool = always(True)
    masterCommitLogMaxOffset: I64 = always(0)
