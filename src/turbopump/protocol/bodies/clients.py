"""Bodies about clients: their heartbeats, and the answers of brokers about them."""

from typing import Annotated

from turbopump.protocol.bodies.base import Body, always, empty_list, empty_map
from turbopump.protocol.bodies.lenient import java_enum
from turbopump.protocol.headers.base import I32, I64

ConsumeFromWhere = Annotated[
    str,
    java_enum(
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
]
ConsumeType = Annotated[str, java_enum("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")]
MessageModel = Annotated[str, java_enum("BROADCASTING", "CLUSTERING", "LITE_SELECTIVE")]


class ProducerData(Body):
    groupName: str = always("")


class SubscriptionData(Body):
    """A subscription of a group to a topic; `codeSet` has the Java hashes of the tags.

    Go clients send them as text.
    """

    classFilterMode: bool = always(False)
    codeSet: list[I32] = empty_list()
    expressionType: str | None = always("TAG")
    subString: str | None = None
    subVersion: I64 = always(0)
    tagsSet: list[str] = empty_list()
    topic: str = always("")


class BloomFilterData(Body):
    bitNum: I32 = always(0)
    bitPos: list[I32] = empty_list()


class ConsumerFilterData(Body):
    bloomFilterData: BloomFilterData | None = None
    bornTime: I64 = always(0)
    clientVersion: I64 = always(0)
    consumerGroup: str = always("")
    dead: bool = always(False)
    deadTime: I64 = always(0)
    expression: str = always("")
    expressionType: str = always("")
    topic: str = always("")


class FilterDataMapByTopic(Body):
    groupFilterData: dict[str, ConsumerFilterData] = empty_map()
    topic: str = always("")


class ConsumerFilterWrapper(Body):
    """The contents of consumerFilter.json: the SQL92 filters of groups, by topic."""

    filterDataByTopic: dict[str, FilterDataMapByTopic] = empty_map()


class ConsumerData(Body):
    consumeFromWhere: ConsumeFromWhere | None = None
    consumeType: ConsumeType | None = None
    groupName: str = always("")
    messageModel: MessageModel | None = None
    subscriptionDataSet: list[SubscriptionData] = empty_list()
    unitMode: bool = always(False)


class HeartbeatData(Body):
    clientID: str | None = None
    consumerDataSet: list[ConsumerData] = empty_list()
    heartbeatFingerprint: I32 = always(0)
    producerDataSet: list[ProducerData] = empty_list()
    withoutSub: bool = always(False)


class CheckClientRequestBody(Body):
    clientId: str | None = None
    group: str | None = None
    namespace: str | None = None
    subscriptionData: SubscriptionData | None = None


class ConsumerListBody(Body):
    consumerIdList: list[str] = empty_list()


class ClientConnection(Body):
    clientAddr: str = always("")
    clientId: str = always("")
    language: str = always("JAVA")
    version: I32 = always(0)


class ConsumerConnection(Body):
    """Answer to request 203: clients and subscriptions of a group. Apache's tools expect every field."""

    connectionSet: list[ClientConnection] = empty_list()
    consumeFromWhere: str = always("CONSUME_FROM_LAST_OFFSET")
    consumeType: str = always("CONSUME_PASSIVELY")
    messageModel: str = always("CLUSTERING")
    subscriptionTable: dict[str, SubscriptionData] = empty_map()


class ProducerConnection(Body):
    connectionSet: list[ClientConnection] = empty_list()


class ProducerInfo(Body):
    """One producer in the table of all producers. `remoteIP` has a leading slash, unlike `clientAddr`."""

    clientId: str = always("")
    language: str = always("JAVA")
    lastUpdateTimestamp: I64 = always(0)
    remoteIP: str = always("")
    version: I32 = always(0)


class ProducerTableInfo(Body):
    data: dict[str, list[ProducerInfo]] = empty_map()


class QuerySubscriptionResponseBody(Body):
    group: str | None = None
    subscriptionData: SubscriptionData | None = None
    topic: str | None = None
