"""Bodies about offsets, and statistics of topics, groups and brokers."""

from turbopump.protocol.bodies.base import Body, DialectBody, WireQueue, always, empty_list, empty_map, new
from turbopump.protocol.bodies.clients import SubscriptionData
from turbopump.protocol.bodies.topics import DataVersion
from turbopump.protocol.headers.base import I32, I64


class ConsumerOffsetSerializeWrapper(DialectBody):
    """Committed offsets: keys are `topic@group`, then queue ids. 4.9 has only the offset table."""

    dataVersion: DataVersion | None = None
    groupTopicMap: dict[str, list[str]] | None = None
    offsetTable: dict[str, dict[int, I64]] = empty_map()
    pullOffsetTable: dict[str, dict[int, I64]] | None = None


class DelayOffsetSerializeWrapper(DialectBody):
    dataVersion: DataVersion | None = None
    offsetTable: dict[int, I64] = empty_map()


class TopicOffset(Body):
    lastUpdateTimestamp: I64 = always(0)
    maxOffset: I64 = always(0)
    minOffset: I64 = always(0)


class TopicStatsTable(DialectBody):
    offsetTable: dict[WireQueue, TopicOffset] = empty_map()
    topicPutTps: float | None = None


class OffsetWrapper(Body):
    brokerOffset: I64 = always(0)
    consumerOffset: I64 = always(0)
    lastTimestamp: I64 = always(0)
    pullOffset: I64 | None = None


class ConsumeStats(DialectBody):
    consumeTps: float = always(0.0)
    offsetTable: dict[WireQueue, OffsetWrapper] = empty_map()


class ConsumeStatsList(DialectBody):
    brokerAddr: str | None = None
    consumeStatsList: list[dict[str, list[ConsumeStats]]] = empty_list()
    totalDiff: I64 = always(0)
    totalInflightDiff: I64 | None = None


class BrokerStatsItem(Body):
    avgpt: float = always(0.0)
    sum: I64 = always(0)
    tps: float = always(0.0)


class BrokerStatsData(Body):
    statsDay: BrokerStatsItem = new(BrokerStatsItem)
    statsHour: BrokerStatsItem = new(BrokerStatsItem)
    statsMinute: BrokerStatsItem = new(BrokerStatsItem)


class ResetOffsetBody(DialectBody):
    """New offsets of queues, written with bare object keys and no blanks: Go clients read nothing else."""

    offsetTable: dict[WireQueue, I64] = empty_map()


class QueueOffset(Body):
    brokerName: str = always("")
    offset: I64 = always(0)
    queueId: I32 = always(0)
    topic: str = always("")


class ResetOffsetBodyForC(Body):
    offsetTable: list[QueueOffset] = empty_list()


class GetConsumerStatusBody(DialectBody):
    consumerTable: dict[str, dict[WireQueue, I64]] = empty_map()
    messageQueueTable: dict[WireQueue, I64] = empty_map()


class QueryCorrectionOffsetBody(DialectBody):
    correctionOffsets: dict[int, I64] = empty_map()


class QueueTimeSpan(Body):
    consumeTimeStamp: I64 = always(0)
    consumeTimeStampStr: str | None = None
    delayTime: I64 = always(0)
    maxTimeStamp: I64 = always(0)
    maxTimeStampStr: str | None = None
    messageQueue: WireQueue | None = None
    minTimeStamp: I64 = always(0)
    minTimeStampStr: str | None = None


class QueryConsumeTimeSpanBody(Body):
    consumeTimeSpanSet: list[QueueTimeSpan] = empty_list()


class ConsumeQueueData(Body):
    bitMap: str | None = None
    eval: bool = always(False)
    extendDataJson: str | None = None
    msg: str | None = None
    physicOffset: I64 = always(0)
    physicSize: I32 = always(0)
    tagsCode: I64 = always(0)


class QueryConsumeQueueResponseBody(Body):
    filterData: str | None = None
    maxQueueIndex: I64 = always(0)
    minQueueIndex: I64 = always(0)
    queueData: list[ConsumeQueueData] = empty_list()
    subscriptionData: SubscriptionData | None = None
