"""Headers between clients and a broker: registration, and requests to clients (40, 220, 221, 307, 309)."""

from turbopump.protocol.headers.base import I32, I64, Header


class HeartbeatResponse(Header):
    """Response to 34, of 5.x only; without these fields a client sends full heartbeats."""

    IS_SUPPORT_HEART_BEAT_V2: bool | None = None
    IS_SUB_CHANGE: bool | None = None


class UnregisterClientRequest(Header):
    """Request 35, client to broker: leave a group; exactly one of the groups is set."""

    clientID: str
    producerGroup: str | None = None
    consumerGroup: str | None = None


class GetConsumerListByGroupRequest(Header):
    """Request 38 to a broker: client ids of the members of a consumer group."""

    consumerGroup: str


class NotifyConsumerIdsChangedRequest(Header):
    """Request 40, broker to consumer: the members of its group have changed."""

    consumerGroup: str


class ResetOffsetRequest(Header):
    """Request 222, tool to broker, and 220, broker to its consumers: reset a group's offsets."""

    topic: str
    group: str
    timestamp: I64
    isForce: bool = False
    queueId: I32 | None = None
    offset: I64 | None = None


class GetConsumerStatusRequest(Header):
    """Request 223, tool to broker, and 221, broker to consumer: consume offsets that consumers hold."""

    topic: str
    group: str
    clientAddr: str | None = None


class GetConsumerRunningInfoRequest(Header):
    """Request 307: state of a running consumer; the broker relays it to the client `clientId`."""

    consumerGroup: str
    clientId: str
    jstackEnable: bool = False


class ConsumeMessageDirectlyRequest(Header):
    """Request 309: consume one message now; the broker relays it to a consumer, the record as body."""

    consumerGroup: str
    clientId: str | None = None
    msgId: str | None = None
    brokerName: str | None = None
    topic: str | None = None
    topicSysFlag: I32 | None = None
    groupSysFlag: I32 | None = None
