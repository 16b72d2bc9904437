"""Checks the topic and queue that a send names, by Apache's rules in their order.

In: topic, queue and peer of a send. Out: the topic, or Refused. The kind of a message, and how it is stored,
is not known here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from turbopump.broker.config import BrokerConfig
from turbopump.broker.topics import Topic, TopicTable
from turbopump.protocol import properties
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.errors import Refused
from turbopump.protocol.headers.send import SendMessageRequest
from turbopump.protocol.names import NOT_FOR_SENDERS, check_topic
from turbopump.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class BrokerSendRules:
    """Settings of the broker that sends depend on; fixed at start."""

    broker_ip: str
    cluster: str
    region: str
    trace_on: bool
    max_message_size: int
    accepts_from_ms: int = 0
    rejects_transactions: bool = False

    def added_properties(self) -> bytes:
        """Returns the packed properties that the broker adds to each message: region, trace, cluster."""
        return properties.pack(
            {
                properties.MSG_REGION: self.region,
                properties.TRACE_ON: "true" if self.trace_on else "false",
                properties.CLUSTER: self.cluster,
            }
        ).encode()


def send_rules(config: BrokerConfig, broker_ip: str) -> BrokerSendRules:
    """Returns the settings of a broker that sends depend on."""
    sending = config.sending
    return BrokerSendRules(
        broker_ip,
        config.identity.cluster_name,
        sending.region_id,
        sending.trace_on,
        config.store.max_message_size,
        sending.accept_from_ms,
        sending.reject_transactions,
    )


class SendTargets:
    """Finds or creates the topic of a send, and refuses sends that are not allowed there."""

    def __init__(
        self,
        topics: TopicTable,
        rules: BrokerSendRules,
        clock: Clock,
        writable: Callable[[], bool] = lambda: True,
    ) -> None:
        self.topics = topics
        self.rules = rules
        self.writable = writable
        self._clock = clock

    def accepts(self) -> bool:
        """Returns whether sends are accepted by now (from startAcceptSendRequestTimeStamp on)."""
        return self._clock.now_ms() >= self.rules.accepts_from_ms

    def named(self, topic: str, queue_id: int, peer: tuple[str, int]) -> Topic:
        """Returns the topic if messages may be sent to this queue of it; otherwise raises Refused.

        Creates no topic other than a retry topic.
        """
        header = SendMessageRequest(queueId=queue_id, sysFlag=0, bornTimestamp=0, flag=0, topic=topic)
        return self.find(header, peer)

    def find(self, header: SendMessageRequest, peer: tuple[str, int]) -> Topic:
        """Returns the topic of a send, created if allowed, or raises Refused, by Apache's checks in order."""
        rules = self.rules
        if not self.accepts():
            remark = f"broker unable to service, until {rules.accepts_from_ms}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        check_topic(header.topic)
        if header.topic in NOT_FOR_SENDERS or self.topics.is_light(header.topic):
            remark = f"Sending message to topic[{header.topic}] is forbidden."
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        topic = self.topics.for_send(
            header.topic, header.defaultTopic, header.defaultTopicQueueNums, bool(header.unitMode), peer
        )
        if topic.order and not self.writable():
            remark = f"the broker[{rules.broker_ip}] sending message is forbidden"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        if header.queueId >= max(topic.read_queues, topic.write_queues):
            remark = f"request queueId[{header.queueId}] is illegal, {topic} Producer: {peer[0]}:{peer[1]}"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        return topic
