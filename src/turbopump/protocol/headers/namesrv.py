"""Requests to a name server (100 to 106, 205 to 219, 322, 327, 901, 904) and its notice to brokers (905)."""

from turbopump.protocol.headers.base import I32, I64, Header


class PutKVConfigRequest(Header):
    """Request 100 to a name server: set a key of a namespace. Java accepts a missing value."""

    namespace: str
    key: str
    value: str | None = None


class GetKVConfigRequest(Header):
    """Request 101 to a name server: read a key of a namespace."""

    namespace: str
    key: str


class GetKVConfigResponse(Header):
    value: str | None = None


class DeleteKVConfigRequest(Header):
    """Request 102 to a name server: delete a key of a namespace."""

    namespace: str
    key: str


class GetKVListByNamespaceRequest(Header):
    """Request 219 to a name server: read all keys and values of a namespace."""

    namespace: str


class RegisterBrokerRequest(Header):
    """Request 103, broker to name server: register; the body is a RegisterBrokerBody."""

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
    """Response to 103: addresses of the master; set only for slaves."""

    haServerAddr: str | None = None
    masterAddr: str | None = None


class UnregisterBrokerRequest(Header):
    """Request 104, broker to name server: remove the broker from all routes."""

    brokerName: str
    brokerAddr: str
    clusterName: str
    brokerId: I64


class GetRouteInfoRequest(Header):
    """Request 105 to a name server: route of a topic. A missing topic is answered with code 17."""

    topic: str | None = None
    acceptStandardJsonOnly: bool | None = None


class WipeWritePermOfBrokerRequest(Header):
    """Request 205 to a name server: take the write permission from all topics of a broker."""

    brokerName: str


class WipeWritePermOfBrokerResponse(Header):
    wipeTopicCount: I32


class AddWritePermOfBrokerRequest(Header):
    """Request 327 to a name server: give back the write permission to all topics of a broker."""

    brokerName: str


class AddWritePermOfBrokerResponse(Header):
    addTopicCount: I32


class DeleteTopicFromNamesrvRequest(Header):
    """Request 216 to a name server: delete the route of a topic, or only its brokers in a cluster."""

    topic: str
    clusterName: str | None = None


class RegisterTopicRequest(Header):
    """Request 217 to a name server: register a topic with the queues in the body."""

    topic: str


class GetTopicsByClusterRequest(Header):
    """Request 224 to a name server: topics of the brokers of a cluster."""

    cluster: str


class QueryDataVersionRequest(Header):
    """Request 322, broker to name server: has its topic configuration changed since it registered?"""

    brokerName: str
    brokerAddr: str
    clusterName: str
    brokerId: I64


class QueryDataVersionResponse(Header):
    changed: bool


class GetBrokerMemberGroupRequest(Header):
    """Request 901 to a name server: addresses of the master and slaves of a broker name."""

    clusterName: str
    brokerName: str


class BrokerHeartbeatRequest(Header):
    """Request 904, broker to name server: the broker is alive."""

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
    """Request 905, name server to broker: the smallest broker id of its broker name has changed."""

    minBrokerId: I64 | None = None
    brokerName: str | None = None
    minBrokerAddr: str | None = None
    offlineBrokerAddr: str | None = None
    haBrokerAddr: str | None = None
