"""Lists the connected producers and consumers of a group, as the brokers see them."""

from dataclasses import dataclass

from turbopump.client.admin.calls import AdminCalls, NotFound
from turbopump.client.admin.topics import Topics
from turbopump.protocol import bodies, names
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import ConsumerNotOnline, SystemFailure, TopicNotFound
from turbopump.protocol.headers.topics import (
    GetConsumerConnectionListRequest,
    GetProducerConnectionListRequest,
)


class NobodyOnline(NotFound):
    """No producer or consumer of the group is connected to the brokers that were asked."""


@dataclass
class Connections:
    """Lists the connected producers and consumers of a group, as the brokers see them.

    Example:

        for member in (await admin.connections.consumers("billing")).connectionSet:
            print(member.clientId, member.clientAddr, member.language)
    """

    asking: AdminCalls
    topics: Topics

    async def producers(self, group: str, topic: str) -> bodies.ProducerConnection:
        """Returns producers of the group at the first broker of the topic that has any. Raises NobodyOnline.

        Example:

            (await admin.connections.producers("orders", "OrderTopic")).connectionSet
        """
        header = GetProducerConnectionListRequest(group)
        for address in (await self.topics.readers(topic)).values():
            try:
                answer = await self.asking.ask(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
            except SystemFailure:  # how a broker says that it knows no such group
                continue
            found = bodies.ProducerConnection.decode(answer.body)
            if found.connectionSet:
                return found
        raise NobodyOnline(f"no producer of group {group} is online at the brokers of topic {topic}")

    async def all_producers(self, address: str) -> dict[str, list[bodies.ProducerInfo]]:
        """Returns the connected producers of one broker, by group. Brokers before 4.9 refuse."""
        answer = await self.asking.ask(address, RequestCode.GET_ALL_PRODUCER_INFO)
        return bodies.ProducerTableInfo.decode(answer.body).data

    async def consumers_at(self, address: str, group: str) -> bodies.ConsumerConnection:
        """Returns the consumers of the group that one broker knows. Raises NobodyOnline."""
        header = GetConsumerConnectionListRequest(group)
        try:
            answer = await self.asking.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except ConsumerNotOnline:
            raise NobodyOnline(f"no consumer of group {group} is online at {address}") from None
        return bodies.ConsumerConnection.decode(answer.body)

    async def consumers(self, group: str) -> bodies.ConsumerConnection:
        """Returns the consumers of the group on the first broker that has any: each registers at all brokers.

        The answer includes their subscriptions and how they consume. Raises NobodyOnline.
        """
        try:
            addresses = (await self.topics.readers(names.RETRY_PREFIX + group)).values()
        except TopicNotFound:
            raise NobodyOnline(f"no broker knows a consumer group {group}") from None
        for address in addresses:
            try:
                return await self.consumers_at(address, group)
            except NobodyOnline:
                continue
        raise NobodyOnline(f"no consumer of group {group} is online")
