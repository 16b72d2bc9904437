"""Requests to a name server (100 to 106, 205 to 219, 322, 327, 901, 904) and its notice to brokers (905)."""

from turbopump.protocol.headers.base import I32, I64, Header


class PutKVConfigRequest(Header):
    """Code 100. Java accepts a missing value."""

    namespace: str
    key: str
    value: str | None = None


class GetKVConfigRequest(Header):
    """Code 101."""

    namespace: str
    key: str


class GetKVConfigResponse(Header):
    value: str | None = None


class DeleteKVConfigRequest(Header):
    """Code 102."""

    namespace: str
    key: str


class GetKVListByNamespaceRequest(Header):
    """Code 219."""

    namespace: str


class RegisterBrokerRequest(Header):
    """Code 103."""

    brokerName: str
    brokerAddr: str
    clusterName: str
    haServerAddr: str
    brokerId: I64
    heartbeatTimeoutMillis: I64 | None = None
    enableActingMaster: bool | None = None
    compressed: bool = False
    bodyCrc32: I32 = 0


class RegisterBrokerResponse(Header):
    """Answer to code 103; the fields are set only for slaves."""

    haServerAddr: str | None = None
    masterAddr: str | None = None


class UnregisterBrokerRequest(Header):
    """Code 104."""

    brokerName: str
    brokerAddr: str
    clusterName: str
    brokerId: I64


class GetRouteInfoRequest(Header):
    """Code 105. A missing topic is answered as one without a route (17)."""

    topic: str | None = None
    acceptStandardJsonOnly: bool | None = None


class WipeWritePermOfBrokerRequest(Header):
    """Code 205."""

    brokerName: str


class WipeWritePermOfBrokerResponse(Header):
    wipeTopicCount: I32


class AddWritePermOfBrokerRequest(Header):
    """Code 327."""

    brokerName: str


class AddWritePermOfBrokerResponse(Header):
    addTopicCount: I32


class DeleteTopicFromNamesrvRequest(Header):
    """Code 216."""

    topic: str
    clusterName: str | None = None


class RegisterTopicRequest(Header):
    """Code 217."""

    topic: str


class GetTopicsByClusterRequest(Header):
    """Code 224."""

    cluster: str


class QueryDataVersionRequest(Header):
    """Code 322."""

    brokerName: str
    brokerAddr: str
    clusterName: str
    brokerId: I64


class QueryDataVersionResponse(Header):
    changed: bool


class GetBrokerMemberGroupRequest(Header):
    """Code 901."""

    clusterName: str
    brokerName: str


class BrokerHeartbeatRequest(Header):
    """Code 904."""

    clusterName: str
    brokerAddr: str
    brokerName: str
    brokerId: I64 | None = None
    epoch: I32 | None = None
    maxOffset: I64 | None = None
    confirmOffset: I64 | None = None
    heartbeatTimeoutMills: I64 | None = None  # Apache's spelling
    electionPriority: I32 | None = None


class NotifyMinBrokerIdChangeRequest(Header):
    """Code 905, name server to broker."""

    minBrokerId: I64 | None = None
    brokerName: str | None = None
    minBrokerAddr: str | None = None
    offlineBrokerAddr: str | None = None
    haBrokerAddr: str | None = None
