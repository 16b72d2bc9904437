"""Headers between clients and a broker: registration, and requests to clients (40, 220, 221, 307, 309)."""

from turbopump.protocol.headers.base import I32, I64, Header


class HeartbeatResponse(Header):
    """Code 34: 5.x only; without it a client sends full heartbeats."""

    IS_SUPPORT_HEART_BEAT_V2: bool | None = None
    IS_SUB_CHANGE: bool | None = None


class UnregisterClientRequest(Header):
    """Code 35: exactly one of the groups is set."""

    clientID: str
    producerGroup: str | None = None
    consumerGroup: str | None = None


class GetConsumerListByGroupRequest(Header):
    """Code 38."""

    consumerGroup: str


class NotifyConsumerIdsChangedRequest(Header):
    """Code 40, broker to consumer."""

    consumerGroup: str


class ResetOffsetRequest(Header):
    """Code 222 from a tool, and 220 from the broker to its consumers."""

    topic: str
    group: str
    timestamp: I64
    isForce: bool = False
    queueId: I32 | None = None
    offset: I64 | None = None


class GetConsumerStatusRequest(Header):
    """Code 223 from a tool, and 221 from the broker to a consumer."""

    topic: str
    group: str
    clientAddr: str | None = None


class GetConsumerRunningInfoRequest(Header):
    """Code 307, relayed by the broker to the client it names."""

    consumerGroup: str
    clientId: str
    jstackEnable: bool = False


class ConsumeMessageDirectlyRequest(Header):
    """Code 309, relayed by the broker with the record as body."""

    consumerGroup: str
    clientId: str | None = None
    msgId: str | None = None
    brokerName: str | None = None
    topic: str | None = None
    topicSysFlag: I32 | None = None
    groupSysFlag: I32 | None = None
