"""Topics and consumer groups of a broker: their configuration (17, 21, 200, 201 …) and their clients."""

from turbopump.protocol.headers.base import I32, Header


class CreateTopicRequest(Header):
    """Code 17. A missing topic is refused as blank (29); missing numbers with code 1, as by Java."""

    readQueueNums: I32
    writeQueueNums: I32
    perm: I32
    topicFilterType: str
    topic: str = ""
    defaultTopic: str = ""
    topicSysFlag: I32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class GetAllTopicConfigRequest(Header):
    """Code 21: pages, for 5.5 slaves and tools; older ones send no header and get everything."""

    topicSeq: I32 = 0
    dataVersion: str | None = None
    maxTopicNum: I32 | None = None


class GetAllTopicConfigResponse(Header):
    totalTopicNum: I32 | None = None


class GetTopicConfigRequest(Header):
    """Code 351."""

    topic: str
    lo: bool | None = None


class DeleteTopicRequest(Header):
    """Code 215. A missing topic is refused as blank."""

    topic: str = ""


class GetAllSubscriptionGroupRequest(Header):
    """Code 201: pages, like `GetAllTopicConfigRequest`."""

    groupSeq: I32 = 0
    dataVersion: str | None = None
    maxGroupNum: I32 | None = None


class GetAllSubscriptionGroupResponse(Header):
    totalGroupNum: I32 | None = None


class GetSubscriptionGroupConfigRequest(Header):
    """Code 352."""

    group: str


class DeleteSubscriptionGroupRequest(Header):
    """Code 207: the flag is `cleanOffset` from 5.x and `removeOffset` from 4.9."""

    groupName: str
    cleanOffset: bool | None = None
    removeOffset: bool | None = None

    @property
    def cleans_offsets(self) -> bool:
        return bool(self.cleanOffset or self.removeOffset)


class UpdateGroupForbiddenRequest(Header):
    """Code 353."""

    group: str
    topic: str
    readable: bool | None = None


class GetTopicStatsRequest(Header):
    """Code 202."""

    topic: str


class GetConsumeStatsRequest(Header):
    """Code 208."""

    consumerGroup: str
    topic: str | None = None
    topicList: str | None = None


class GetBrokerConsumeStatsRequest(Header):
    """Code 317."""

    isOrder: bool = False


class GetConsumerConnectionListRequest(Header):
    """Code 203."""

    consumerGroup: str


class GetProducerConnectionListRequest(Header):
    """Code 204."""

    producerGroup: str


class QueryTopicConsumeByWhoRequest(Header):
    """Code 300."""

    topic: str


class QueryTopicsByConsumerRequest(Header):
    """Code 343."""

    group: str


class QuerySubscriptionByConsumerRequest(Header):
    """Code 345."""

    group: str
    topic: str | None = None


class QueryConsumeTimeSpanRequest(Header):
    """Code 303."""

    topic: str
    group: str


class QueryCorrectionOffsetRequest(Header):
    """Code 308."""

    compareGroup: str
    topic: str
    filterGroups: str | None = None


class CloneGroupOffsetRequest(Header):
    """Code 314."""

    srcGroup: str
    destGroup: str
    topic: str | None = None
    offline: bool = False
