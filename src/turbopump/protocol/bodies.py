"""JSON bodies of requests and responses, as structs whose fields have their wire spelling.

Comes in: the body bytes, in fastjson's dialect or in standard JSON; `X.decode(data)` gives the struct or
raises `BrokenBody`. Goes out: `value.encode()`, the way Java writes it: keys in alphabetical order, what is
None left out, everything else present, maps with integer or queue keys in the dialect. Reading is as
lenient as Java's: unknown keys are ignored, a missing or null field has Java's default, a number may be
quoted.
"""

import struct
import zlib
from functools import total_ordering
from typing import Any, Self, TypeVar

import msgspec

from turbopump.protocol import dialect
from turbopump.protocol.codes import V5_0_0, VERSION
from turbopump.protocol.compression import expand_zlib
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.headers.base import I32, I64

MAX_DIALECT_BYTES = 4 * 1024 * 1024
"""Longest body in the dialect; standard JSON is bounded by the frame alone."""

T = TypeVar("T")


def decode(kind: type[T], data: bytes) -> T:
    """The body as this struct."""
    decoder = _decoder(kind)
    try:
        return decoder.decode(data)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        data = dialect.standard(data, MAX_DIALECT_BYTES)
    try:
        return decoder.decode(data)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        pass  # maybe a null where Java has a default
    try:
        return decoder.decode(_to_json(_without_nulls(msgspec.json.decode(data))))  # type: ignore[no-any-return]
    except (ValueError, OverflowError, RecursionError) as error:
        raise BrokenBody(f"no {kind.__name__}: {error}") from None


class Body(msgspec.Struct, omit_defaults=True):
    """Written by msgspec. A default of None is left out; any other one comes from a factory, which msgspec
    writes.
    """

    @classmethod
    def decode(cls, data: bytes) -> Self:
        return decode(cls, data)

    def encode(self) -> bytes:
        return _to_json(self)


class DialectBody(Body):
    """Has a map with integer or queue keys somewhere inside."""

    def encode(self) -> bytes:
        return dialect.dumps(self)


@total_ordering
class MessageQueue(dialect.AsObject):
    """One queue of a topic on a broker. Also the key of maps, where Java writes the object itself."""

    __slots__ = ("brokerName", "queueId", "topic")

    def __init__(self, brokerName: str, queueId: int, topic: str) -> None:  # noqa: N803
        self.brokerName = brokerName
        self.queueId = queueId
        self.topic = topic

    def __repr__(self) -> str:
        return f"MessageQueue({self.brokerName!r}, {self.queueId}, {self.topic!r})"

    def __hash__(self) -> int:
        return hash((self.topic, self.brokerName, self.queueId))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageQueue) and self._order() == other._order()

    def __lt__(self, other: "MessageQueue") -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[str, str, int]:
        return self.topic, self.brokerName, self.queueId

    def to_wire(self) -> dict[str, Any]:
        return {"brokerName": self.brokerName, "queueId": self.queueId, "topic": self.topic}


class _QueueFields(msgspec.Struct):
    brokerName: str = ""
    queueId: I32 = 0
    topic: str = ""


def _always(value: Any) -> Any:
    """A default that is written all the same."""
    return msgspec.field(default_factory=lambda: value)


def _list() -> Any:
    return msgspec.field(default_factory=lambda: [])


def _map() -> Any:
    return msgspec.field(default_factory=lambda: {})


def _new(kind: Any) -> Any:
    return msgspec.field(default_factory=lambda: kind())


# --- route -------------------------------------------------------------------------------------------


class BrokerData(DialectBody):
    brokerAddrs: dict[int, str] = _map()
    brokerName: str = _always("")
    cluster: str = _always("")
    enableActingMaster: bool | None = None
    zoneName: str | None = None


class QueueData(Body):
    brokerName: str = _always("")
    perm: I32 = _always(0)
    readQueueNums: I32 = _always(0)
    topicSysFlag: I32 = _always(0)
    writeQueueNums: I32 = _always(0)
    topicSynFlag: I32 | None = None
    """What 4.8 and older call topicSysFlag; only read."""

    def __post_init__(self) -> None:
        if self.topicSynFlag is not None:
            self.topicSysFlag, self.topicSynFlag = self.topicSynFlag, None


class TopicRouteData(DialectBody):
    brokerDatas: list[BrokerData] = _list()
    filterServerTable: dict[str, list[str]] = _map()
    orderTopicConf: str | None = None
    queueDatas: list[QueueData] = _list()
    topicQueueMappingByBroker: dict[str, Any] | None = None


class ClusterInfo(DialectBody):
    brokerAddrTable: dict[str, BrokerData] = _map()
    clusterAddrTable: dict[str, list[str]] = _map()


class BrokerMemberGroup(DialectBody):
    brokerAddrs: dict[int, str] = _map()
    brokerName: str = _always("")
    cluster: str = _always("")


class GetBrokerMemberGroupResponseBody(DialectBody):
    brokerMemberGroup: BrokerMemberGroup | None = None


# --- topics ------------------------------------------------------------------------------------------


class DataVersion(Body):
    counter: I64 = _always(0)
    stateVersion: I64 = _always(0)
    timestamp: I64 = _always(0)


class TopicConfig(Body):
    attributes: dict[str, str] | None = None
    order: bool = _always(False)
    perm: I32 = _always(6)
    readQueueNums: I32 = _always(16)
    topicFilterType: str = _always("SINGLE_TAG")
    topicName: str = _always("")
    topicSysFlag: I32 = _always(0)
    writeQueueNums: I32 = _always(16)


class TopicConfigSerializeWrapper(Body):
    dataVersion: DataVersion = _new(DataVersion)
    mappingDataVersion: DataVersion | None = None
    topicConfigTable: dict[str, TopicConfig] = _map()
    topicQueueMappingDetailMap: dict[str, Any] | None = None
    topicQueueMappingInfoMap: dict[str, Any] | None = None


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper):
    """What 5.x answers to code 21: the mappings of static topics are there even when empty."""

    dataVersion: DataVersion = _new(DataVersion)
    mappingDataVersion: DataVersion | None = _new(DataVersion)
    topicConfigTable: dict[str, TopicConfig] = _map()
    topicQueueMappingDetailMap: dict[str, Any] | None = _map()
    topicQueueMappingInfoMap: dict[str, Any] | None = _map()


class CreateTopicListRequestBody(Body):
    topicConfigList: list[TopicConfig] = _list()


class RegisterBrokerBody(Body):
    filterServerList: list[str] = _list()
    topicConfigSerializeWrapper: TopicConfigSerializeWrapper = _new(TopicConfigSerializeWrapper)

    @classmethod
    def decode_compressed(cls, data: bytes, version: int = VERSION) -> Self:
        """The form of `compressed=true`: below. Brokers before 5.0 send no mappings at its end."""
        reader = _Reader(expand_zlib(data))
        wrapper = TopicConfigSerializeWrapper(dataVersion=DataVersion.decode(reader.block()))
        for _ in range(reader.count()):
            topic = _topic_of_text(reader.block())
            wrapper.topicConfigTable[topic.topicName] = topic
        servers = reader.block()
        body = cls(decode(list[str], servers) if servers else [], wrapper)
        if version >= V5_0_0 and not reader.at_end:
            mappings = [decode(dict[str, Any], reader.block()) for _ in range(reader.count())]
            wrapper.topicQueueMappingInfoMap = {str(mapping.get("topic")): mapping for mapping in mappings}
        return body

    def encode_compressed(self, version: int = VERSION) -> bytes:
        """zlib of: DataVersion, count and topics as text, filter servers, and from 5.0 on count and
        mappings.
        """
        wrapper = self.topicConfigSerializeWrapper
        topics = wrapper.topicConfigTable.values()
        out = [_block(wrapper.dataVersion.encode()), _I32.pack(len(topics))]
        out += [_block(_text_of_topic(topic)) for topic in topics]
        out.append(_block(_to_json(self.filterServerList)))
        if version >= V5_0_0:
            mappings = (wrapper.topicQueueMappingInfoMap or {}).values()
            out.append(_I32.pack(len(mappings)))
            out += [_block(_to_json(mapping)) for mapping in mappings]
        return zlib.compress(b"".join(out), 9)


# --- clients -----------------------------------------------------------------------------------------


class ProducerData(Body):
    groupName: str = _always("")


class SubscriptionData(Body):
    """`codeSet` are the Java hashes of the tags; Go clients send them as text."""

    classFilterMode: bool = _always(False)
    codeSet: list[I32] = _list()
    expressionType: str | None = _always("TAG")
    subString: str | None = None
    subVersion: I64 = _always(0)
    tagsSet: list[str] = _list()
    topic: str = _always("")


class BloomFilterData(Body):
    bitNum: I32 = _always(0)
    bitPos: list[I32] = _list()


class ConsumerFilterData(Body):
    bloomFilterData: BloomFilterData | None = None
    bornTime: I64 = _always(0)
    clientVersion: I64 = _always(0)
    consumerGroup: str = _always("")
    dead: bool = _always(False)
    deadTime: I64 = _always(0)
    expression: str = _always("")
    expressionType: str = _always("")
    topic: str = _always("")


class FilterDataMapByTopic(Body):
    groupFilterData: dict[str, ConsumerFilterData] = _map()
    topic: str = _always("")


class ConsumerFilterWrapper(Body):
    """A consumerFilter.json."""

    filterDataByTopic: dict[str, FilterDataMapByTopic] = _map()


class ConsumerData(Body):
    consumeFromWhere: str | None = None
    consumeType: str | None = None
    groupName: str = _always("")
    messageModel: str | None = None
    subscriptionDataSet: list[SubscriptionData] = _list()
    unitMode: bool = _always(False)


class HeartbeatData(Body):
    clientID: str | None = None
    consumerDataSet: list[ConsumerData] = _list()
    heartbeatFingerprint: I32 = _always(0)
    producerDataSet: list[ProducerData] = _list()
    withoutSub: bool = _always(False)


class CheckClientRequestBody(Body):
    clientId: str | None = None
    group: str | None = None
    namespace: str | None = None
    subscriptionData: SubscriptionData | None = None


class ConsumerListBody(Body):
    consumerIdList: list[str] = _list()


class Connection(Body):
    clientAddr: str = _always("")
    clientId: str = _always("")
    language: str = _always("JAVA")
    version: I32 = _always(0)


class ConsumerConnection(Body):
    """Tools use every field without asking whether it is there."""

    connectionSet: list[Connection] = _list()
    consumeFromWhere: str = _always("CONSUME_FROM_LAST_OFFSET")
    consumeType: str = _always("CONSUME_PASSIVELY")
    messageModel: str = _always("CLUSTERING")
    subscriptionTable: dict[str, SubscriptionData] = _map()


class ProducerConnection(Body):
    connectionSet: list[Connection] = _list()


class ProducerInfo(Body):
    """`remoteIP` has a leading slash, `Connection.clientAddr` has none."""

    clientId: str = _always("")
    language: str = _always("JAVA")
    lastUpdateTimestamp: I64 = _always(0)
    remoteIP: str = _always("")
    version: I32 = _always(0)


class ProducerTableInfo(Body):
    data: dict[str, list[ProducerInfo]] = _map()


class QuerySubscriptionResponseBody(Body):
    group: str | None = None
    subscriptionData: SubscriptionData | None = None
    topic: str | None = None


# --- queues and locks --------------------------------------------------------------------------------


class LockBatchRequestBody(Body):
    clientId: str = _always("")
    consumerGroup: str = _always("")
    mqSet: list[MessageQueue] = _list()
    onlyThisBroker: bool | None = None


class UnlockBatchRequestBody(LockBatchRequestBody):
    pass


class LockBatchResponseBody(Body):
    lockOKMQSet: list[MessageQueue] = _list()


class QueryAssignmentRequestBody(Body):
    clientId: str = _always("")
    consumerGroup: str = _always("")
    messageModel: str = _always("CLUSTERING")
    strategyName: str = _always("AVG")
    topic: str = _always("")


class MessageQueueAssignment(Body):
    attachments: dict[str, str] | None = None
    messageQueue: MessageQueue | None = None
    mode: str = _always("PULL")


class QueryAssignmentResponseBody(Body):
    messageQueueAssignments: list[MessageQueueAssignment] | None = None


class SetMessageRequestModeRequestBody(Body):
    consumerGroup: str = _always("")
    mode: str = _always("PULL")
    popShareQueueNum: I32 = _always(0)
    topic: str = _always("")


class MessageRequestModeTable(Body):
    """The body of code 402, and messageRequestMode.json."""

    messageRequestModeMap: dict[str, dict[str, SetMessageRequestModeRequestBody]] = _map()


class BatchAck(Body):
    """`b` is the base64 of a bit set in little-endian order: bit i acknowledges offset so + i."""

    b: str = _always("")
    c: str = _always("")
    it: I64 = _always(0)
    pt: I64 = _always(0)
    q: I32 = _always(0)
    r: str = _always("0")
    rq: I32 = _always(0)
    so: I64 = _always(0)
    t: str = _always("")


class BatchAckMessageRequestBody(Body):
    acks: list[BatchAck] = _list()
    brokerName: str = _always("")


# --- groups ------------------------------------------------------------------------------------------


class CustomizedRetryPolicy(Body):
    next: list[I64] = _list()


class ExponentialRetryPolicy(Body):
    initial: I64 = _always(5000)
    max: I64 = _always(7200000)
    multiplier: I64 = _always(2)


class GroupRetryPolicy(Body):
    customizedRetryPolicy: CustomizedRetryPolicy | None = None
    exponentialRetryPolicy: ExponentialRetryPolicy | None = None
    type: str = _always("CUSTOMIZED")


class SimpleSubscriptionData(Body):
    expression: str | None = None
    expressionType: str | None = None
    topic: str | None = None
    version: I64 = _always(0)


class SubscriptionGroupConfig(Body):
    attributes: dict[str, str] = _map()
    brokerId: I64 = _always(0)
    consumeBroadcastEnable: bool = _always(True)
    consumeEnable: bool = _always(True)
    consumeFromMinEnable: bool = _always(True)
    consumeMessageOrderly: bool = _always(False)
    consumeTimeoutMinute: I32 = _always(15)
    groupName: str = _always("")
    groupRetryPolicy: GroupRetryPolicy = _new(GroupRetryPolicy)
    groupSysFlag: I32 = _always(0)
    notifyConsumerIdsChangedEnable: bool = _always(True)
    retryMaxTimes: I32 = _always(16)
    retryQueueNums: I32 = _always(1)
    subscriptionDataSet: list[SimpleSubscriptionData] | None = None
    whichBrokerWhenConsumeSlowly: I64 = _always(1)


class SubscriptionGroupWrapper(Body):
    dataVersion: DataVersion = _new(DataVersion)
    forbiddenTable: dict[str, dict[str, I32]] | None = None
    subscriptionGroupTable: dict[str, SubscriptionGroupConfig] = _map()


class CreateSubscriptionGroupListRequestBody(Body):
    groupConfigList: list[SubscriptionGroupConfig] = _list()


class GroupForbidden(Body):
    group: str | None = None
    readable: bool | None = None
    topic: str | None = None


# --- offsets and statistics --------------------------------------------------------------------------


class ConsumerOffsetSerializeWrapper(DialectBody):
    """Keys of the tables are `topic@group`, then queue ids. 4.9 has the offset table alone."""

    dataVersion: DataVersion | None = None
    groupTopicMap: dict[str, list[str]] | None = None
    offsetTable: dict[str, dict[int, I64]] = _map()
    pullOffsetTable: dict[str, dict[int, I64]] | None = None


class DelayOffsetSerializeWrapper(DialectBody):
    dataVersion: DataVersion | None = None
    offsetTable: dict[int, I64] = _map()


class TopicOffset(Body):
    lastUpdateTimestamp: I64 = _always(0)
    maxOffset: I64 = _always(0)
    minOffset: I64 = _always(0)


class TopicStatsTable(DialectBody):
    offsetTable: dict[MessageQueue, TopicOffset] = _map()
    topicPutTps: float | None = None


class OffsetWrapper(Body):
    brokerOffset: I64 = _always(0)
    consumerOffset: I64 = _always(0)
    lastTimestamp: I64 = _always(0)
    pullOffset: I64 | None = None


class ConsumeStats(DialectBody):
    consumeTps: float = _always(0.0)
    offsetTable: dict[MessageQueue, OffsetWrapper] = _map()


class ConsumeStatsList(DialectBody):
    brokerAddr: str | None = None
    consumeStatsList: list[dict[str, list[ConsumeStats]]] = _list()
    totalDiff: I64 = _always(0)
    totalInflightDiff: I64 | None = None


class BrokerStatsItem(Body):
    avgpt: float = _always(0.0)
    sum: I64 = _always(0)
    tps: float = _always(0.0)


class BrokerStatsData(Body):
    statsDay: BrokerStatsItem = _new(BrokerStatsItem)
    statsHour: BrokerStatsItem = _new(BrokerStatsItem)
    statsMinute: BrokerStatsItem = _new(BrokerStatsItem)


class ResetOffsetBody(DialectBody):
    """Written with bare object keys and no blanks: Go clients read nothing else."""

    offsetTable: dict[MessageQueue, I64] = _map()


class QueueOffset(Body):
    brokerName: str = _always("")
    offset: I64 = _always(0)
    queueId: I32 = _always(0)
    topic: str = _always("")


class ResetOffsetBodyForC(Body):
    offsetTable: list[QueueOffset] = _list()


class GetConsumerStatusBody(DialectBody):
    consumerTable: dict[str, dict[MessageQueue, I64]] = _map()
    messageQueueTable: dict[MessageQueue, I64] = _map()


class QueryCorrectionOffsetBody(DialectBody):
    correctionOffsets: dict[int, I64] = _map()


class QueueTimeSpan(Body):
    consumeTimeStamp: I64 = _always(0)
    consumeTimeStampStr: str | None = None
    delayTime: I64 = _always(0)
    maxTimeStamp: I64 = _always(0)
    maxTimeStampStr: str | None = None
    messageQueue: MessageQueue | None = None
    minTimeStamp: I64 = _always(0)
    minTimeStampStr: str | None = None


class QueryConsumeTimeSpanBody(Body):
    consumeTimeSpanSet: list[QueueTimeSpan] = _list()


class ConsumeQueueData(Body):
    bitMap: str | None = None
    eval: bool = _always(False)
    extendDataJson: str | None = None
    msg: str | None = None
    physicOffset: I64 = _always(0)
    physicSize: I32 = _always(0)
    tagsCode: I64 = _always(0)


class QueryConsumeQueueResponseBody(Body):
    filterData: str | None = None
    maxQueueIndex: I64 = _always(0)
    minQueueIndex: I64 = _always(0)
    queueData: list[ConsumeQueueData] = _list()
    subscriptionData: SubscriptionData | None = None


# --- what a consumer tells about itself --------------------------------------------------------------


class ProcessQueueInfo(Body):
    """Spelled `droped`, as Java does."""

    cachedMsgCount: I32 = _always(0)
    cachedMsgMaxOffset: I64 = _always(0)
    cachedMsgMinOffset: I64 = _always(0)
    cachedMsgSizeInMiB: I32 = _always(0)
    commitOffset: I64 = _always(0)
    droped: bool = _always(False)
    lastConsumeTimestamp: I64 = _always(0)
    lastLockTimestamp: I64 = _always(0)
    lastPullTimestamp: I64 = _always(0)
    locked: bool = _always(False)
    transactionMsgCount: I32 = _always(0)
    transactionMsgMaxOffset: I64 = _always(0)
    transactionMsgMinOffset: I64 = _always(0)
    tryUnlockTimes: I64 = _always(0)


class PopProcessQueueInfo(Body):
    droped: bool = _always(False)
    lastPopTimestamp: I64 = _always(0)
    waitAckCount: I32 = _always(0)


class ConsumeStatus(Body):
    consumeFailedMsgs: I64 = _always(0)
    consumeFailedTPS: float = _always(0.0)
    consumeOKTPS: float = _always(0.0)
    consumeRT: float = _always(0.0)
    pullRT: float = _always(0.0)
    pullTPS: float = _always(0.0)


class ConsumerRunningInfo(DialectBody):
    jstack: str | None = None
    mqPopTable: dict[MessageQueue, PopProcessQueueInfo] | None = None
    mqTable: dict[MessageQueue, ProcessQueueInfo] = _map()
    properties: dict[str, str] = _map()
    statusTable: dict[str, ConsumeStatus] = _map()
    subscriptionSet: list[SubscriptionData] = _list()
    userConsumerInfo: dict[str, str] | None = None


class ConsumeMessageDirectlyResult(Body):
    autoCommit: bool = _always(True)
    consumeResult: str | int | None = None
    order: bool = _always(False)
    remark: str | None = None
    spentTimeMills: I64 = _always(0)


# --- lists -------------------------------------------------------------------------------------------


class TopicList(Body):
    brokerAddr: str | None = None
    topicList: list[str] = _list()


class GroupList(Body):
    groupList: list[str] = _list()


class TimingCount(Body):
    count: I64 = _always(0)
    timeStamp: I64 = _always(0)


class TimerMetrics(Body):
    """How many timed messages wait, by topic."""

    dataVersion: DataVersion = _new(DataVersion)
    timingCount: dict[str, TimingCount] = _map()


class KVTable(Body):
    table: dict[str, str] = _map()


class HAClientRuntimeInfo(Body):
    lastReadTimestamp: I64 = _always(0)
    lastWriteTimestamp: I64 = _always(0)
    masterAddr: str | None = None
    masterFlushOffset: I64 = _always(0)
    maxOffset: I64 = _always(0)
    transferredByteInSecond: I64 = _always(0)


class HAConnectionInfo(Body):
    addr: str | None = None
    diff: I64 = _always(0)
    inSync: bool = _always(False)
    slaveAckOffset: I64 = _always(0)
    transferFromWhere: I64 = _always(0)
    transferredByteInSecond: I64 = _always(0)


class HARuntimeInfo(Body):
    haClientRuntimeInfo: HAClientRuntimeInfo = _new(HAClientRuntimeInfo)
    haConnectionInfo: list[HAConnectionInfo] = _list()
    inSyncSlaveNums: I32 = _always(0)
    master: bool = _always(True)
    masterCommitLogMaxOffset: I64 = _always(0)


class UserInfo(Body):
    password: str | None = None
    userStatus: str | None = None
    userType: str | None = None
    username: str | None = None


class AclEntry(Body):
    actions: list[str] | None = None
    decision: str | None = None
    resource: str | None = None
    sourceIps: list[str] | None = None


class AclPolicy(Body):
    entries: list[AclEntry] | None = None
    policyType: str | None = None


class AclInfo(Body):
    policies: list[AclPolicy] | None = None
    subject: str | None = None


# --- reading and writing -----------------------------------------------------------------------------

_I32 = struct.Struct(">i")
_WORDS = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")


def _write_custom(value: Any) -> Any:
    if isinstance(value, MessageQueue):
        return value.to_wire()
    raise NotImplementedError(type(value))


def _read_custom(kind: type[Any], value: Any) -> Any:
    """A queue as an object, or as the text of one where it is a key. The text may itself be an older form."""
    if kind is not MessageQueue:
        raise NotImplementedError(kind)
    if isinstance(value, str):
        fields = msgspec.json.decode(value, type=_QueueFields, strict=False)
    else:
        fields = msgspec.convert(_without_nulls(value), _QueueFields, strict=False)
    return MessageQueue(fields.brokerName, fields.queueId, fields.topic)


_to_json = msgspec.json.Encoder(enc_hook=_write_custom).encode


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = msgspec.json.Decoder(kind, strict=False, dec_hook=_read_custom)
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


class _Reader:
    """Blocks with an i32 length before each."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._data)

    def count(self) -> int:
        after = self._at + 4
        if after > len(self._data):
            raise BrokenBody("a compressed registration ends too early")
        (number,) = _I32.unpack_from(self._data, self._at)
        self._at = after
        return int(number)

    def block(self) -> bytes:
        length = self.count()
        after = self._at + length
        if length < 0 or after > len(self._data):
            raise BrokenBody(f"a block of {length} bytes in a compressed registration")
        block = self._data[self._at : after]
        self._at = after
        return block


def _block(data: bytes) -> bytes:
    return _I32.pack(len(data)) + data


def _text_of_topic(topic: TopicConfig) -> bytes:
    text = (
        f"{topic.topicName} {topic.readQueueNums} {topic.writeQueueNums} {topic.perm} {topic.topicFilterType}"
    )
    return text.encode() + (b" " + _to_json(topic.attributes) if topic.attributes is not None else b"")


def _topic_of_text(text: bytes) -> TopicConfig:
    """`name readQueues writeQueues perm filterType`, then from 5.x on the attributes as JSON."""
    try:
        words = text.decode().split(" ", 5)
        topic = msgspec.convert(dict(zip(_WORDS, words, strict=False)), TopicConfig, strict=False)
    except ValueError as error:
        raise BrokenBody(f"no topic in a compressed registration: {error}") from None
    if len(words) < len(_WORDS):
        raise BrokenBody(f"a topic of {len(words)} words in a compressed registration")
    if len(words) > len(_WORDS) and words[-1]:
        topic.attributes = decode(dict[str, str], words[-1].encode())
    return topic
