"""Headers of pulls (11, 361) and of the pop family of 5.x."""

from turbopump.protocol.headers.base import I32, I64, Header

DEFAULT_MAX_BYTES = 262144
"""What 5.x push consumers ask for; 4.x pulls have no such field, and servers use this limit for them."""


class PullMessageRequest(Header):
    """Request 11, or 361 of pull consumers: messages of a queue from `queueOffset` on."""

    consumerGroup: str
    topic: str
    queueId: I32
    queueOffset: I64
    maxMsgNums: I32
    sysFlag: I32
    commitOffset: I64 = 0
    suspendTimeoutMillis: I64 = 0
    subscription: str | None = None
    subVersion: I64 = 0
    expressionType: str | None = None
    maxMsgBytes: I32 = DEFAULT_MAX_BYTES
    requestSource: I32 | None = None
    proxyFrowardClientId: str | None = None  # Apache's spelling
    liteTopic: str | None = None
    bname: str | None = None
    bulkBytes: I32 | None = None
    """Turbopump's own: greatest size of an answer to a bulk reader. Apache's brokers ignore it."""


class PullMessageResponse(Header):
    suggestWhichBrokerId: I64
    nextBeginOffset: I64
    minOffset: I64
    maxOffset: I64
    offsetDelta: I64 | None = None
    topicSysFlag: I32 | None = None
    groupSysFlag: I32 | None = None
    forbiddenType: I32 | None = None


class PopMessageRequest(Header):
    """Request 200050: messages of a topic, which stay invisible to others for `invisibleTime` ms."""

    consumerGroup: str
    topic: str
    queueId: I32
    maxMsgNums: I32
    invisibleTime: I64
    pollTime: I64
    bornTime: I64
    initMode: I32
    expType: str | None = None
    exp: str | None = None
    order: bool = False
    attemptId: str | None = None
    bname: str | None = None


class PopMessageResponse(Header):
    popTime: I64
    invisibleTime: I64
    reviveQid: I32
    restNum: I64
    startOffsetInfo: str | None = None
    msgOffsetInfo: str | None = None
    orderCountInfo: str | None = None


class AckMessageRequest(Header):
    """Request 200051: acknowledge one popped message."""

    consumerGroup: str
    topic: str
    queueId: I32
    extraInfo: str
    offset: I64
    liteTopic: str | None = None
    bname: str | None = None


class PeekMessageRequest(Header):
    """Request 200052: messages as for a pop, which stay visible."""

    consumerGroup: str
    topic: str
    queueId: I32
    maxMsgNums: I32
    bname: str | None = None


class ChangeInvisibleTimeRequest(Header):
    """Request 200053: change how long a popped message stays invisible."""

    consumerGroup: str
    topic: str
    queueId: I32
    extraInfo: str
    offset: I64
    invisibleTime: I64
    liteTopic: str | None = None
    suspend: bool = False
    bname: str | None = None


class ChangeInvisibleTimeResponse(Header):
    popTime: I64
    invisibleTime: I64
    reviveQid: I32


class NotificationRequest(Header):
    """Request 200054: wait until there is a message to pop."""

    consumerGroup: str
    topic: str
    queueId: I32
    pollTime: I64
    bornTime: I64
    order: bool = False
    attemptId: str | None = None
    expType: str | None = None
    exp: str | None = None
    bname: str | None = None


class NotificationResponse(Header):
    hasMsg: bool
    pollingFull: bool | None = None


class PollingInfoRequest(Header):
    """Request 200055: number of pops that wait for messages of a queue."""

    consumerGroup: str
    topic: str
    queueId: I32
    bname: str | None = None


class PollingInfoResponse(Header):
    pollingNum: I32
