"""Topics: their list, their routes, their configuration and how full their queues are."""

from dataclasses import dataclass

from turbopump.client.admin.asking import Asking
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.headers.namesrv import GetRouteInfoRequest


@dataclass
class Topics:
    asking: Asking

    async def names(self) -> list[str]:
        """Every topic that a name server knows, system topics too."""
        answer = await self.asking.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(bodies.TopicList.decode(answer.body).topicList)

    async def route(self, topic: str) -> bodies.TopicRouteData:
        """Raises TopicNotFound when no broker has it."""
        header = GetRouteInfoRequest(topic=topic, acceptStandardJsonOnly=True)
        answer = await self.asking.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return bodies.TopicRouteData.decode(answer.body)
