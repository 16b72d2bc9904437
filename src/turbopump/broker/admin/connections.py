"""Shows connected clients (203, 204, 328), readers of a topic (300) and subscriptions of a group (345)."""

from turbopump.broker.groups.members import Member, Members
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import ConsumerNotOnline, SystemFailure
from turbopump.protocol.headers.topics import (
    GetConsumerConnectionListRequest,
    GetProducerConnectionListRequest,
    QuerySubscriptionByConsumerRequest,
    QueryTopicConsumeByWhoRequest,
)
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Answer, Request, Route, Routes


class ConnectionHandler:
    """Handles requests of tools about connected producers and consumers, and who reads a topic."""

    def __init__(self, members: Members[Connection], offsets: CommittedOffsets) -> None:
        self._members = members
        self._offsets = offsets

    def routes(self) -> Routes:
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: Route(GetConsumerConnectionListRequest, self.consumers),
            RequestCode.GET_PRODUCER_CONNECTION_LIST: Route(GetProducerConnectionListRequest, self.producers),
            RequestCode.GET_ALL_PRODUCER_INFO: Route(None, self.all_producers),
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Route(QueryTopicConsumeByWhoRequest, self.readers),
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: Route(
                QuerySubscriptionByConsumerRequest, self.subscription
            ),
        }

    def consumers(self, request: Request[GetConsumerConnectionListRequest]) -> Answer:
        name = request.header.consumerGroup
        group = self._members.consumer_group(name)
        if group is None:
            raise ConsumerNotOnline(f"the consumer group[{name}] not online")
        body = bodies.ConsumerConnection(
            connectionSet=[_connection(member) for member in group.members.values()],
            consumeFromWhere=group.consume_from_where,
            consumeType=group.consume_type,
            messageModel=group.message_model,
            subscriptionTable=group.subscriptions,
        )
        return Answer(body=body.encode())

    def producers(self, request: Request[GetProducerConnectionListRequest]) -> Answer:
        name = request.header.producerGroup
        members = self._members.producer_group(name)
        if not members:
            raise SystemFailure(f"the producer group[{name}] not exist")
        body = bodies.ProducerConnection(connectionSet=[_connection(member) for member in members])
        return Answer(body=body.encode())

    def all_producers(self, request: Request[None]) -> Answer:
        data = {
            group: [_producer(member) for member in self._members.producer_group(group)]
            for group in self._members.producer_groups()
        }
        return Answer(body=bodies.ProducerTableInfo(data=data).encode())

    def readers(self, request: Request[QueryTopicConsumeByWhoRequest]) -> Answer:
        """Answers with the groups that subscribe to a topic now, or have committed an offset on the topic."""
        topic = request.header.topic
        groups = {*self._members.groups_of_topic(topic), *self._offsets.groups_of_topic(topic)}
        return Answer(body=bodies.GroupList(groupList=sorted(groups)).encode())

    def subscription(self, request: Request[QuerySubscriptionByConsumerRequest]) -> Answer:
        header = request.header
        found = self._members.subscription(header.group, header.topic or "")
        body = bodies.QuerySubscriptionResponseBody(
            group=header.group, subscriptionData=found, topic=header.topic
        )
        return Answer(body=body.encode())


def _connection(member: Member[Connection]) -> bodies.ClientConnection:
    return bodies.ClientConnection(
        clientAddr=_address(member),
        clientId=member.client_id,
        language=member.language,
        version=member.version,
    )


def _producer(member: Member[Connection]) -> bodies.ProducerInfo:
    return bodies.ProducerInfo(
        clientId=member.client_id,
        language=member.language,
        lastUpdateTimestamp=member.seen_ms,
        remoteIP=f"/{_address(member)}",
        version=member.version,
    )


def _address(member: Member[Connection]) -> str:
    ip, port = member.connection.peer
    return f"{ip}:{port}"
