"""Commands that print the messages of queues. They use no group's offsets and do not affect consumers."""

from collections import Counter
from collections.abc import Callable, Iterable

from turbopump.admin.command import AdminCommand, Call
from turbopump.admin.message_text import document, message_line, queue_text, shown_body
from turbopump.admin.options import UsageError, boolean, charset, defaulting, number, optional, required, text
from turbopump.admin.times import GivenTime, time
from turbopump.client.group.subscription import Subscription
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.pull.puller import PullResult, PullStatus

RULE = "-" * 56

Show = Callable[[object, Iterable[str]], None]

TOPIC = required("t", "topic", "topic name", text)
CHARSET = defaulting("c", "charsetName", "CharsetName(eg: UTF-8,GBK)", charset, "utf-8")
EXPRESSION = defaulting("s", "subExpression", "Subscribe Expression(eg: TagA || TagB)", text, "*")
TIMES = "timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"
BEGIN = optional("b", "beginTimestamp", f"Begin {TIMES}", time)
END = optional("e", "endTimestamp", f"End {TIMES}", time)

# --- printMsg --------------------------------------------------------------------------------------------

PRINT_BODY = defaulting("d", "printBody", "print body", boolean, True)
PARENT = optional("l", "lmqParentTopic", "Lmq parent topic, lmq is used to find the route.", text)


async def print_messages(call: Call) -> None:
    route = await call.admin.routes.find(call.given[TOPIC])
    with call.out.items() as show:
        for queue in route.subscribe:
            first, last = await bounds(call, queue, call.given[BEGIN], call.given[END])
            call.out.line(f"minOffset={first}, maxOffset={last}, {queue_text(queue)}")
            await print_queue(call, show, queue, first, await whole_window(call, queue, last))
            call.out.line(RULE)


async def print_queue(call: Call, show: Show, queue: MessageQueue, first: int, last: int) -> None:
    expression = call.given[EXPRESSION]
    async for result in call.admin.messages.pulls(queue, first, last, expression):
        if result.status is PullStatus.FOUND:
            for message in result.messages(queue, Subscription(queue.topic, expression)):
                show_one(call, show, message, call.given[PRINT_BODY])
        else:
            call.out.line(ended_line(queue, result))


def show_one(call: Call, show: Show, message: MessageExt, with_body: bool = True) -> None:
    body = shown_body(message, call.given[CHARSET]) if with_body else "NOT PRINT BODY"
    show(document(message), [message_line(message, body)])


def ended_line(queue: MessageQueue, result: PullResult) -> str:
    words = "no matched msg" if result.status is PullStatus.NO_MATCHED_MSG else "print msg finished"
    return f"{queue_text(queue)} {words}. status={result.status.name}, offset={result.next_offset}"


async def bounds(
    call: Call, queue: MessageQueue, begin: GivenTime | None, end: GivenTime | None
) -> tuple[int, int]:
    """Returns a queue's first offset and the one after its last, or the offsets at the given times."""
    puller, now = call.admin.messages.puller, call.admin.clock.now_ms
    first = await (puller.offset_at(queue, begin.ms(now)) if begin else puller.min_offset(queue))
    last = await (puller.offset_at(queue, end.ms(now)) if end else puller.max_offset(queue))
    return first, last


async def whole_window(call: Call, queue: MessageQueue, last: int) -> int:
    """Returns the offset before which to stop: `last`, or `last` + 1 if that message is in the time window.

    A broker of 4.x answers with the nearest message, which may be the last of the window; later ones with the
    first message behind it.
    """
    begin, end, now = call.given[BEGIN], call.given[END], call.admin.clock.now_ms
    message = await call.admin.messages.at_offset(queue, last) if end else None
    if end is None or message is None:
        return last
    belongs = (begin.ms(now) if begin else 0) <= message.store_timestamp < end.ms(now)
    return last + 1 if belongs else last


# --- printMsgByQueue -------------------------------------------------------------------------------------

BROKER = required("a", "brokerName", "broker name", text)
QUEUE_ID = required("i", "queueId", "queue id", number)
PRINT = defaulting("p", "print msg", "print msg. eg: true | false(default)", boolean, False)
WITH_BODY = defaulting("d", "printBody", "print body. eg: true | false(default)", boolean, False)
BY_TAG = defaulting("f", "calculate", "calculate by tag. eg: true | false(default)", boolean, False)


async def print_messages_of_queue(call: Call) -> None:
    queue = MessageQueue(call.given[TOPIC], call.given[BROKER], call.given[QUEUE_ID])
    first, last = await bounds(call, queue, call.given[BEGIN], call.given[END])
    last = await whole_window(call, queue, last)
    tags: Counter[str] = Counter()
    messages = []
    subscription = Subscription(queue.topic, call.given[EXPRESSION])
    async for result in call.admin.messages.pulls(queue, first, last, subscription.expression):
        for message in result.messages(queue, subscription):
            tags[message.tags or ""] += 1
            if call.given[PRINT] and call.out.as_json:
                messages.append(document(message))
            elif call.given[PRINT]:
                body = shown_body(message, call.given[CHARSET])
                shown = body if call.given[WITH_BODY] else "NOT PRINT BODY"
                call.out.line(message_line(message, shown))
    counted = tags.most_common() if call.given[BY_TAG] else []
    lines = [f"Tag: {tag:<30} Count: {count}" for tag, count in counted if tag]
    call.out.show({"messages": messages, "tags": dict(counted), "count": tags.total()}, lines)


# --- consumeMessage --------------------------------------------------------------------------------------

FROM_TOPIC = required("t", "topic", "Topic name", text)
FROM_BROKER = optional("b", "brokerName", "Broker name", text)
FROM_QUEUE = optional("i", "queueId", "Queue Id", number)
FROM_OFFSET = optional("o", "offset", "Queue offset", number)
AS_GROUP = optional("g", "consumerGroup", "Consumer group name", text)
SINCE = optional("s", "beginTimestamp", f"Begin {TIMES}", time)
UNTIL = optional("e", "endTimestamp", f"End {TIMES}", time)
COUNT = defaulting("c", "MessageNumber", "Number of message to be consumed", number, 128)


async def consume_messages(call: Call) -> None:
    """Runs `consumeMessage`: prints the oldest messages of a topic or queue. Commits no offset."""
    check_reading(call)
    given = call.given
    topic, broker, queue_id, offset = (
        given[FROM_TOPIC],
        given[FROM_BROKER],
        given[FROM_QUEUE],
        given[FROM_OFFSET],
    )
    left = given[COUNT]
    queues = (await call.admin.routes.find(topic)).subscribe
    if broker is not None and queue_id is not None:
        queues = (MessageQueue(topic, broker, queue_id),)
    with call.out.items() as show:
        for queue in queues:
            first, last = await bounds(call, queue, given[SINCE], given[UNTIL])
            if offset is not None and offset > last:
                call.out.line(f"{queue_text(queue)} no matched msg, offset={offset}")
                continue
            first = max(first, offset or 0)
            end = last + 1  # one pull more, which reports the end of the queue
            if last - first > left:
                call.out.line(f"The older {left} message of the {queue.id} queue will be provided")
                end = first + left
            left -= await consume_queue(call, show, queue, first, end)
            if left <= 0:
                break


async def consume_queue(call: Call, show: Show, queue: MessageQueue, first: int, end: int) -> int:
    shown = 0
    group, reading = call.given[AS_GROUP], call.admin.messages
    if group:
        reading = reading.as_group(group)
    async for result in reading.pulls(queue, first, end):
        messages = result.messages(queue, Subscription(queue.topic))
        if not messages:
            call.out.line(ended_line(queue, result))
            continue
        call.out.line("Consume ok")
        for message in messages:
            show_one(call, show, message)
        shown += len(messages)
    return shown


def check_reading(call: Call) -> None:
    given, now = call.given, call.admin.clock.now_ms
    since, until = given[SINCE], given[UNTIL]
    if given[COUNT] <= 0:
        raise UsageError("Please input a positive messageNumber!")
    if given[FROM_QUEUE] is not None and given[FROM_BROKER] is None:
        raise UsageError("Please set the brokerName before queueId!")
    if given[FROM_OFFSET] is not None and given[FROM_QUEUE] is None:
        raise UsageError("Please set queueId before offset!")
    if since and since.ms(now) > now():
        raise UsageError("Please set the beginTimestamp before now!")
    if until and until.ms(now) > now():
        raise UsageError("Please set the endTimestamp before now!")
    if since and until and since.ms(now) > until.ms(now):
        raise UsageError("Please make sure that the beginTimestamp is less than or equal to the endTimestamp")


COMMANDS = (
    AdminCommand(
        "printMsg",
        "Print Message Detail.",
        print_messages,
        (TOPIC, CHARSET, EXPRESSION, BEGIN, END, PRINT_BODY, PARENT),
    ),
    AdminCommand(
        "printMsgByQueue",
        "Print Message Detail by queueId.",
        print_messages_of_queue,
        (TOPIC, BROKER, QUEUE_ID, CHARSET, EXPRESSION, BEGIN, END, PRINT, WITH_BODY, BY_TAG),
    ),
    AdminCommand(
        "consumeMessage",
        "Consume message.",
        consume_messages,
        (FROM_TOPIC, FROM_BROKER, FROM_QUEUE, FROM_OFFSET, AS_GROUP, SINCE, UNTIL, COUNT),
    ),
)
