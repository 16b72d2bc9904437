"""Bodies about routes: the brokers of a topic and its queues on each."""

from typing import Any

from turbopump.protocol.bodies.base import Body, DialectBody, always, empty_list, empty_map
from turbopump.protocol.headers.base import I32


class BrokerData(DialectBody):
    brokerAddrs: dict[int, str] = empty_map()
    brokerName: str = always("")
    cluster: str = always("")
    enableActingMaster: bool | None = None
    zoneName: str | None = None


class QueueData(Body):
    brokerName: str = always("")
    perm: I32 = always(0)
    readQueueNums: I32 = always(0)
    topicSysFlag: I32 = always(0)
    writeQueueNums: I32 = always(0)
    topicSynFlag: I32 | None = None
    """Name of topicSysFlag in 4.8 and older; only read."""

    def __post_init__(self) -> None:
        if self.topicSynFlag is not None:
            self.topicSysFlag, self.topicSynFlag = self.topicSynFlag, None


class TopicRouteData(DialectBody):
    brokerDatas: list[BrokerData] = empty_list()
    filterServerTable: dict[str, list[str]] = empty_map()
    orderTopicConf: str | None = None
    queueDatas: list[QueueData] = empty_list()
    topicQueueMappingByBroker: dict[str, Any] | None = None


class ClusterInfo(DialectBody):
    brokerAddrTable: dict[str, BrokerData] = empty_map()
    clusterAddrTable: dict[str, list[str]] = empty_map()


class BrokerMemberGroup(DialectBody):
    brokerAddrs: dict[int, str] = empty_map()
    brokerName: str = always("")
    cluster: str = always("")


class GetBrokerMemberGroupResponseBody(DialectBody):
    brokerMemberGroup: BrokerMemberGroup | None = None
