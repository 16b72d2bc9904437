"""Sending: choose a queue, send, and when a broker fails try another one within the same time limit.

A message keeps its unique key over all tries, so a consumer can tell a repetition from a second message.
"""

from dataclasses import dataclass

from turbopump.client.message import Message, MessageQueue, SendResult, SendStatus
from turbopump.client.name_servers import Calls
from turbopump.client.routes import NEW_TOPIC_QUEUES, QueueChoice, Route, Routes
from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.errors import TopicNotFound, refusal
from turbopump.protocol.headers.send import SendMessageResponse, SendMessageV2Request
from turbopump.protocol.ids import UniqueIds
from turbopump.protocol.names import AUTO_CREATE_TOPIC, RETRY_PREFIX
from turbopump.runtime.clock import Clock

SEND_TIMEOUT_S = 3.0
TRIES = 3

STORED = {int(status.value): status for status in SendStatus}
RETRIED = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Answers after which another broker may do better. Any other refusal is final."""


@dataclass
class Sender:
    """Sends messages on behalf of a producer group: what producers, tools and consumers that send back share.

    Example, given a `remoting.Client` and its `Routes`:

        sender = Sender(client, routes, clock, UniqueIds(ip, pid, clock.now_ms), QueueChoice(chance))
        result = await sender.send(Message("orders", b"...", tags="paid"))
    """

    calls: Calls
    routes: Routes
    clock: Clock
    unique_ids: UniqueIds
    choice: QueueChoice
    group: str = "CLIENT_INNER_PRODUCER"

    async def send(self, message: Message, timeout_s: float = SEND_TIMEOUT_S) -> SendResult:
        """Raises Refused when the brokers would not take it, OSError when none could be reached in time."""
        outgoing = self._outgoing(message)
        deadline = self.clock.monotonic() + timeout_s
        failed_broker: str | None = None
        failure: Exception = TimeoutError(f"not sent within {timeout_s} s")
        for _ in range(TRIES):
            left_s = deadline - self.clock.monotonic()
            if left_s <= 0:
                break
            route = await self.routes.find_or_template(message.topic)
            if not route.publish:
                raise TopicNotFound(f"no broker takes messages for topic {message.topic}")
            queue = self.choice.choose(route.publish, failed_broker)
            try:
                answer = await self._send_to(queue, route, outgoing, left_s)
            except OSError as error:
                failure = error
            else:
                if answer.code in STORED:
                    return result_of(answer, queue, outgoing.unique_key)
                failure = refusal(answer.code, answer.remark)
                if answer.code not in RETRIED:
                    raise failure
            failed_broker = queue.broker
            self.routes.doubt(message.topic)
        raise failure

    async def send_to(
        self, queue: MessageQueue, message: Message, timeout_s: float = SEND_TIMEOUT_S
    ) -> SendResult:
        """To this queue and no other, in one try. Raises Refused or OSError."""
        outgoing = self._outgoing(message)
        route = await self.routes.find_or_template(message.topic)
        answer = await self._send_to(queue, route, outgoing, timeout_s)
        if answer.code not in STORED:
            raise refusal(answer.code, answer.remark)
        return result_of(answer, queue, outgoing.unique_key)

    def _outgoing(self, message: Message) -> "_Outgoing":
        own = {**message.property_map(), properties.WAIT: "true"}
        unique_key = own.setdefault(properties.UNIQUE_KEY, self.unique_ids.next())
        times, most = 0, None
        if message.topic.startswith(RETRY_PREFIX):  # a copy sent back: the counters travel in the header
            times = int(own.pop(properties.RECONSUME_TIME, "0"))
            most = int(own.pop(properties.MAX_RECONSUME_TIMES, "0")) or None
        return _Outgoing(message, unique_key, properties.pack(own), times, most)

    async def _send_to(
        self, queue: MessageQueue, route: Route, outgoing: "_Outgoing", timeout_s: float
    ) -> Command:
        address = route.master(queue.broker)
        if address is None:
            raise ConnectionError(f"broker {queue.broker} has no master")
        message = outgoing.message
        header = SendMessageV2Request(
            producerGroup=self.group,
            topic=message.topic,
            defaultTopic=AUTO_CREATE_TOPIC,
            defaultTopicQueueNums=NEW_TOPIC_QUEUES,
            queueId=queue.id,
            sysFlag=0,
            bornTimestamp=self.clock.now_ms(),
            flag=message.flag,
            properties=outgoing.properties,
            reconsumeTimes=outgoing.reconsume_times,
            maxReconsumeTimes=outgoing.max_reconsume_times,
            bname=queue.broker,
        )
        return await self.calls.call(
            address, request(RequestCode.SEND_MESSAGE_V2, header, message.body), timeout_s
        )


@dataclass(frozen=True, slots=True)
class _Outgoing:
    """What is the same in every try."""

    message: Message
    unique_key: str
    properties: str
    reconsume_times: int
    max_reconsume_times: int | None


def result_of(answer: Command, queue: MessageQueue, unique_key: str) -> SendResult:
    header = SendMessageResponse.from_ext(answer.ext)
    receipt = answer.ext or {}
    replicas = receipt.get("replicas", "")
    return SendResult(
        status=STORED[answer.code],
        message_id=unique_key,
        offset_message_id=header.msgId,
        queue=MessageQueue(queue.topic, queue.broker, header.queueId),
        offset=header.queueOffset,
        durability=receipt.get("durability"),
        replicas=int(replicas) if replicas.isdecimal() else None,
    )
