"""Commands that measure sends: sendMsgStatus, checkMsgSendRT; clusterRT uses parts of it."""

from collections.abc import Awaitable
from dataclasses import dataclass

from turbopump.admin.command import AdminCommand, Call
from turbopump.admin.options import defaulting, number, required, text
from turbopump.admin.render import TextTable
from turbopump.client.message import Message, SendResult
from turbopump.protocol.errors import Refused
from turbopump.runtime.clock import Clock

GROUP = "PID_SMSC"
SMALL = 16

TOPIC = required("t", "topic", "topic name", text)
AMOUNT = defaulting("a", "amount", "message amount | default 100", number, 100)
SIZE = defaulting("s", "size", "message size | default 128 Byte", number, 128)
BROKER = required(
    "b", "brokerName", "Broker Name e.g. clusterName_brokerName as DefaultCluster_broker-a", text
)
MESSAGE_SIZE = defaulting("s", "messageSize", "Message Size, Default: 128", number, 128)
COUNT = defaulting("c", "count", "send message count, Default: 50", number, 50)

SENDS = TextTable("%-32s  %-4s  %-20s    %s", ("#Broker Name", "#QID", "#Send Result", "#RT"))


@dataclass(frozen=True, slots=True)
class SendTiming:
    """Duration and result of one send; the result is None if the send failed."""

    elapsed_ms: int
    result: SendResult | None
    """None if the send failed."""


async def timed(clock: Clock, sending: Awaitable[SendResult]) -> SendTiming:
    begun = clock.monotonic()
    try:
        result = await sending
    except (OSError, Refused):
        result = None
    return SendTiming(round((clock.monotonic() - begun) * 1000), result)


async def send_msg_status(call: Call) -> None:
    """Runs `sendMsgStatus`: sends to the topic with the broker's name, which every broker has."""
    producer = call.admin.producer(GROUP)
    broker = call.given[BROKER]
    await producer.send(Message(broker, b"h" * SMALL))
    message = Message(broker, b"h" * call.given[MESSAGE_SIZE])
    with call.out.items() as item:
        for _ in range(call.given[COUNT]):
            begun = call.admin.clock.monotonic()
            result = await producer.send(message)
            elapsed_ms = round((call.admin.clock.monotonic() - begun) * 1000)
            item(
                {"rtMs": elapsed_ms, **result_fields(result)},
                [f"rt={elapsed_ms}ms, SendResult={result_text(result)}"],
            )


async def check_msg_send_rt(call: Call) -> None:
    topic, amount = call.given[TOPIC], call.given[AMOUNT]
    producer = call.admin.producer(GROUP)
    queues = (await call.admin.routes.find_or_template(topic)).publish
    message = Message(topic, b"a" * call.given[SIZE])
    call.out.line(SENDS.form % SENDS.headings)
    sends, elapsed_ms = [], 0
    for index in range(amount):
        queue = queues[index % len(queues)]
        sent = await timed(call.admin.clock, producer.send_to(queue, message))
        elapsed_ms += sent.elapsed_ms if index else 0  # the first one connects
        is_sent = sent.result is not None
        call.out.line(SENDS.row(queue.broker, queue.id, is_sent, sent.elapsed_ms))
        sends.append(
            {"brokerName": queue.broker, "queueId": queue.id, "sent": is_sent, "rtMs": sent.elapsed_ms}
        )
    average = elapsed_ms / max(amount - 1, 1)
    call.out.show({"sends": sends, "averageRtMs": average}, [f"Avg RT: {average:.2f}"])


def result_fields(result: SendResult) -> dict[str, object]:
    return {
        "sendStatus": result.status.name,
        "msgId": result.message_id,
        "offsetMsgId": result.offset_message_id,
        "topic": result.queue.topic,
        "brokerName": result.queue.broker,
        "queueId": result.queue.id,
        "queueOffset": result.offset,
    }


def result_text(result: SendResult) -> str:
    """Formats a result as Java's SendResult does."""
    queue = result.queue
    return (
        f"SendResult [sendStatus={result.status.name}, msgId={result.message_id}, "
        f"offsetMsgId={result.offset_message_id}, messageQueue=MessageQueue [topic={queue.topic}, "
        f"brokerName={queue.broker}, queueId={queue.id}], "
        f"queueOffset={result.offset}, recallHandle=null]"
    )


SEND_MSG_STATUS = AdminCommand(
    "sendMsgStatus", "Send msg to broker.", send_msg_status, (BROKER, MESSAGE_SIZE, COUNT)
)
CHECK_MSG_SEND_RT = AdminCommand(
    "checkMsgSendRT", "Check message send response time.", check_msg_send_rt, (TOPIC, AMOUNT, SIZE)
)
