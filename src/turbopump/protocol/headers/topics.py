"""Headers about topics and groups of a broker: their configuration (17, 21, 200 …) and clients."""

from turbopump.protocol.headers.base import I32, Header


class CreateTopicRequest(Header):
    """Request 17 to a broker: create or change a topic. A missing topic is refused as blank (29).

    Missing numbers are refused with code 1, as by Java.
    """

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
    """Request 21 to a broker: topics, in pages for 5.5 slaves and tools; without a header all at once."""

    topicSeq: I32 = 0
    dataVersion: str | None = None
    maxTopicNum: I32 | None = None


class GetAllTopicConfigResponse(Header):
    totalTopicNum: I32 | None = None


class GetTopicConfigRequest(Header):
    """Request 351 to a broker: configuration of one topic."""

    topic: str
    lo: bool | None = None


class DeleteTopicRequest(Header):
    """Request 215 to a broker: delete a topic. A missing topic is refused as blank."""

    topic: str = ""


class GetAllSubscriptionGroupRequest(Header):
    """Request 201 to a broker: configurations of groups, in pages like `GetAllTopicConfigRequest`."""

    groupSeq: I32 = 0
    dataVersion: str | None = None
    maxGroupNum: I32 | None = None


class GetAllSubscriptionGroupResponse(Header):
    totalGroupNum: I32 | None = None


class GetSubscriptionGroupConfigRequest(Header):
    """Request 352 to a broker: configuration of one group."""

    group: str


class DeleteSubscriptionGroupRequest(Header):
    """Request 207 to a broker: delete a group, and its offsets if `cleanOffset` (4.9: `removeOffset`)."""

    groupName: str
    cleanOffset: bool | None = None
    removeOffset: bool | None = None

    @property
    def cleans_offsets(self) -> bool:
        return bool(self.cleanOffset or self.removeOffset)


class UpdateGroupForbiddenRequest(Header):
    """Request 353 to a broker: forbid or allow a group to read a topic; None: only query."""

    group: str
    topic: str
    readable: bool | None = None


class GetTopicStatsRequest(Header):
    """Request 202 to a broker: smallest and largest offset of each queue of a topic."""

    topic: str


class GetConsumeStatsRequest(Header):
    """Request 208 to a broker: committed and largest offset of each queue of a group."""

    consumerGroup: str
    topic: str | None = None
    topicList: str | None = None


class GetBrokerConsumeStatsRequest(Header):
    """Request 317 to a broker: committed and largest offsets of all groups; or of ordered topics only."""

    isOrder: bool = False


class GetConsumerConnectionListRequest(Header):
    """Request 203 to a broker: connected clients and subscriptions of a consumer group."""

    consumerGroup: str


class GetProducerConnectionListRequest(Header):
    """Request 204 to a broker: connected clients of a producer group."""

    producerGroup: str


class QueryTopicConsumeByWhoRequest(Header):
    """Request 300 to a broker: groups that consume a topic."""

    topic: str


class QueryTopicsByConsumerRequest(Header):
    """Request 343 to a broker: topics that a group consumes."""

    group: str


class QuerySubscriptionByConsumerRequest(Header):
    """Request 345 to a broker: the subscription of a group to a topic."""

    group: str
    topic: str | None = None


class QueryConsumeTimeSpanRequest(Header):
    """Request 303 to a broker: store times of first, last and last consumed message of each queue."""

    topic: str
    group: str


class QueryCorrectionOffsetRequest(Header):
    """Request 308 to a broker: smallest committed offsets of a topic by queue, over other groups."""

    compareGroup: str
    topic: str
    filterGroups: str | None = None


class CloneGroupOffsetRequest(Header):
    """Request 314 to a broker: copy the committed offsets of one group to another."""

    srcGroup: str
    destGroup: str
    topic: str | None = None
    offline: bool = False
