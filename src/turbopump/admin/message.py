"""Commands that find a message, send one, and deliver one to a consumer."""

import re
from collections.abc import Callable, Sequence

from turbopump.admin import message_reading, trace
from turbopump.admin.command import AdminCommand, Call, CommandFailed
from turbopump.admin.message_text import detail_lines, document, plain_body, queue_text, shown_body
from turbopump.admin.options import (
    UsageError,
    boolean,
    charset,
    choice,
    defaulting,
    flag,
    number,
    optional,
    required,
    text,
)
from turbopump.admin.render import TextTable, cut_line
from turbopump.admin.sending import GROUP, result_fields, result_text
from turbopump.admin.times import BEGIN, END, milliseconds
from turbopump.client.admin.groups import is_push
from turbopump.client.admin.messages import FOREVER_MS, MAX_UNIQUE, NoMessages, Track
from turbopump.client.message import CopiedMessage, Message, MessageExt, MessageQueue, SendStatus
from turbopump.protocol import bodies
from turbopump.protocol.errors import Refused

BODY_DIRECTORY = "/tmp/rocketmq/msgbodys"
FILE_NAME = re.compile(r"[0-9A-Za-z_-]+")
HOUR_MS = 3_600_000

THROUGH_CLUSTER = optional(
    "c", "cluster", "Cluster name or lmq parent topic, lmq is used to find the route.", text
)
CONSUMER_GROUP = optional("g", "consumerGroup", "consumer group name", text)
CLIENT_ID = optional("d", "clientId", "The consumer's client id", text)
BODY_FORMAT = optional("f", "bodyFormat", "print message body by the specified format", charset)

# --- queryMsgById ----------------------------------------------------------------------------------------

TOPIC_OF_ID = optional("t", "topic", "topic name", text)
IDS = required("i", "msgId", "Message Id", text)
RESEND = defaulting("s", "sendMessage", "resend message", boolean, False)
UNIT = optional("u", "unitName", "unit name", text)


async def query_by_id(call: Call) -> None:
    ids = [one.strip() for one in call.given[IDS].split(",") if one.strip()]
    found = [await find(call, message_id) for message_id in ids]
    if call.given[CONSUMER_GROUP] and call.given[CLIENT_ID]:
        await push(call, found)
    elif call.given[RESEND]:
        await resend(call, found)
    else:
        await show_messages(call, found, lambda message: detail_lines(message))


async def find(call: Call, message_id: str) -> MessageExt:
    """Finds a message by id; without a topic, as in 4.9, only by an id that contains the log offset."""
    topic = call.given[TOPIC_OF_ID]
    if topic:
        return await call.admin.messages.find(topic, message_id)
    return await call.admin.messages.at_offset_id(message_id)


async def push(call: Call, messages: Sequence[MessageExt]) -> None:
    """Makes the client that options name consume each message now, and prints the results."""
    group, client_id = call.given[CONSUMER_GROUP], call.given[CLIENT_ID]
    assert group is not None
    assert client_id is not None
    info = await call.admin.groups.running_info(group, client_id)
    if not is_push(info):
        raise CommandFailed(f"this {client_id} client is not push consumer ,not support direct push")
    results = []
    for message in messages:
        result = await call.admin.messages.consume_directly(message, group, client_id)
        results.append((message, result))
        call.out.line(directly_text(result))
    told = [
        {"msgId": message.message_id, "consumeResult": result.consumeResult, "remark": result.remark}
        | {"spentTimeMills": result.spentTimeMills, "order": result.order, "autoCommit": result.autoCommit}
        for message, result in results
    ]
    call.out.show({"results": told}, [])


def directly_text(result: bodies.ConsumeMessageDirectlyResult) -> str:
    fields = {
        "order": str(result.order).lower(),
        "autoCommit": str(result.autoCommit).lower(),
        "consumeResult": result.consumeResult if result.consumeResult is not None else "null",
        "remark": result.remark if result.remark is not None else "null",
        "spentTimeMills": result.spentTimeMills,
    }
    return f"ConsumeMessageDirectlyResult [{', '.join(f'{name}={value}' for name, value in fields.items())}]"


async def resend(call: Call, messages: Sequence[MessageExt]) -> None:
    producer = call.admin.producer("ReSendMsgById")
    results = []
    for message in messages:
        result = await producer.send(copy_of(message))
        call.out.line(f"prepare resend msg. originalMsgId={message.message_id}{result_text(result)}")
        results.append({"originalMsgId": message.message_id} | result_fields(result))
    call.out.show({"results": results}, [])


def copy_of(message: MessageExt, topic: str | None = None) -> Message:
    """Returns a copy of a message with all its properties, to send it again."""
    kept = message.record.property_map()
    wanted = topic or message.record.topic
    return CopiedMessage(wanted, message.body, properties=kept, flag=message.record.flag)


async def show_messages(
    call: Call, messages: Sequence[MessageExt], lines: Callable[[MessageExt], list[str]]
) -> None:
    """Prints each message and its state in each group; as text also saves its body to a file."""
    documents = []
    body_format = call.given[BODY_FORMAT]
    for position, message in enumerate(messages):
        copy = sum(one.message_id == message.message_id for one in messages[:position])
        tracks = await tracks_of(call, message)
        documents.append(document(message) | {"tracks": [track_document(track) for track in tracks]})
        if call.out.as_json:
            continue
        for line in lines(message):
            call.out.line(line)
        call.out.line(f"{'Message Body Path:':<20} {save_body(call, message, copy)}")
        if body_format:
            call.out.line(f"{'Message Body:':<20} {shown_body(message, body_format)}")
        call.out.line()
        call.out.line()
        for line in [track_text(track) for track in tracks] or ["WARN: No Consumer"]:
            call.out.line(line)
    call.out.show({"messages": documents}, [])


def save_body(call: Call, message: MessageExt, copy: int) -> str:
    """Writes the body to a file named after the message id, and returns its path.

    A sender can choose the id freely: one that is not a safe file name is replaced by the offset message id.
    """
    name = message.message_id if FILE_NAME.fullmatch(message.message_id) else message.offset_message_id
    path = f"{BODY_DIRECTORY}/{name}" + (f"_{copy}" if copy else "")
    call.disk.make_dirs(BODY_DIRECTORY)
    call.disk.write(path, plain_body(message), sync=False)
    return path


async def tracks_of(call: Call, message: MessageExt) -> list[Track]:
    try:
        return await call.admin.messages.tracks(message)
    except (Refused, OSError) as error:
        call.out.warn(f"cannot find the consumers of {message.message_id}: {error}")
        return []


def track_text(track: Track) -> str:
    reason = track.reason if track.reason is not None else "null"
    return f"MessageTrack [consumerGroup={track.group}, trackType={track.type.name}, exceptionDesc={reason}]"


def track_document(track: Track) -> dict[str, object]:
    return {"consumerGroup": track.group, "trackType": track.type.name, "exceptionDesc": track.reason}


# --- queryMsgByUniqueKey ---------------------------------------------------------------------------------

UNIQUE_KEY = required("i", "msgId", "Message Id", text)
TOPIC_OF_MESSAGE = required("t", "topic", "The topic of msg", text)
SHOW_ALL = flag("a", "showAll", f"Print all message, the limit is {MAX_UNIQUE}")
START_TIME = defaulting("s", "startTime", "Begin timestamp(ms) of storing", milliseconds, 0)
END_TIME = defaulting("e", "endTime", "End timestamp(ms) of storing", milliseconds, FOREVER_MS)


async def query_by_unique_key(call: Call) -> None:
    found = await call.admin.messages.by_unique_key(
        call.given[TOPIC_OF_MESSAGE], call.given[UNIQUE_KEY], call.given[START_TIME], call.given[END_TIME]
    )
    if call.given[CONSUMER_GROUP] and call.given[CLIENT_ID]:
        await push(call, found[:1])
        return
    shown = found if call.given[SHOW_ALL] else found[:1]
    await show_messages(call, shown, lambda message: detail_lines(message, with_offset_id=False))


# --- queryMsgByKey ---------------------------------------------------------------------------------------

TOPIC_NAME = required("t", "topic", "Topic name", text)
KEY = required("k", "msgKey", "Message Key", text)
MAX_COUNT = defaulting(
    "m", "maxNum", "The maximum number of messages returned by the query, default:64", number, 64
)
KEY_TYPE = defaulting(
    "p",
    "keyType",
    "Index key type, default index key type is K, you can use K for keys OR T for tags",
    choice("K", "T"),
    "K",
)
LAST_KEY = optional("l", "lastKey", "Last Key", text)

BY_KEY = TextTable(
    "%-50s %4s %40s %-200s", ("#Message ID", "#QID", "#Offset", "#IndexKey"), "%-50s %4d %40d %-200s"
)


async def query_by_key(call: Call) -> None:
    if call.given[KEY_TYPE] != "K" or call.given[LAST_KEY]:
        raise CommandFailed("not supported: only brokers of 5.5 have an index of tags and pages of it")
    topic, key, most = call.given[TOPIC_NAME], call.given[KEY], call.given[MAX_COUNT]
    found = await call.admin.messages.by_key(topic, key, most, call.given[BEGIN], call.given[END])
    cut = f"{most} messages are shown, there may be more; use -m for more" if len(found) >= most else None
    rows = [(one.message_id, one.record.queue_id, one.offset, index_key(one, topic, key)) for one in found]
    lines = [*BY_KEY.lines(rows), *([cut_line(cut)] if cut else [])]
    documents = [document(one) | {"indexKey": index_key(one, topic, key)} for one in found]
    call.out.show({"messages": documents} | ({"cut": cut} if cut else {}), (line.rstrip() for line in lines))


def index_key(message: MessageExt, topic: str, key: str) -> str:
    """Returns the index key that 5.5's tool prints, from which the next page of a query starts."""
    hour = message.store_timestamp // HOUR_MS * HOUR_MS
    return f"{hour}@{topic}@K@{key}@{message.message_id}@{message.record.physical_offset}"


# --- queryMsgByOffset ------------------------------------------------------------------------------------

TOPIC = required("t", "topic", "topic name", text)
BROKER_NAME = required("b", "brokerName", "Broker Name", text)
QUEUE_ID = required("i", "queueId", "Queue Id", number)
OFFSET = required("o", "offset", "Queue Offset", number)
ROUTE_TOPIC = optional("r", "routeTopic", "the topic which is used to find route info", text)


async def query_by_offset(call: Call) -> None:
    queue = MessageQueue(call.given[TOPIC], call.given[BROKER_NAME], call.given[QUEUE_ID])
    message = await call.admin.messages.at_offset(queue, call.given[OFFSET])
    if message is None:
        raise NoMessages(f"{queue_text(queue)} has no message at offset {call.given[OFFSET]}")
    await show_messages(call, [message], lambda message: detail_lines(message))


# --- sendMessage -----------------------------------------------------------------------------------------

BODY = required("p", "body", "UTF-8 string format of the message body", text)
KEYS = defaulting("k", "key", "Message keys", text, "")
TAGS = defaulting("c", "tags", "Message tags", text, "")
TO_BROKER = optional("b", "broker", "Send message to target broker", text)
TO_QUEUE = optional("i", "qid", "Send message to target queue", number)
TRACE = defaulting("m", "msgTraceEnable", "Message Trace Enable, Default: false", boolean, False)

SENT = TextTable("%-32s  %-4s  %-20s    %s", ("#Broker Name", "#QID", "#Send Result", "#MsgId"))


async def send_message(call: Call) -> None:
    topic, broker, queue_id = call.given[TOPIC_NAME], call.given[TO_BROKER], call.given[TO_QUEUE]
    if queue_id is not None and broker is None:
        raise UsageError("Broker name must be set if the queue is chosen!")
    if call.given[TRACE]:
        call.out.warn("-m has no effect: this command does not trace messages")
    keys = tuple(call.given[KEYS].split())
    message = Message(topic, call.given[BODY].encode(), call.given[TAGS], keys)
    producer = call.admin.producer(GROUP)
    if broker is not None and queue_id is not None:
        result = await producer.send_to(MessageQueue(topic, broker, queue_id), message)
    else:
        result = await producer.send(message)
    row = (result.queue.broker, result.queue.id, result.status.name, result.message_id)
    call.out.show(result_fields(result), SENT.lines([row]))
    if result.status is not SendStatus.SEND_OK:
        raise CommandFailed(f"stored, but {result.status.name}")


COMMANDS = (
    AdminCommand(
        "queryMsgById",
        "Query Message by Id.",
        query_by_id,
        (TOPIC_OF_ID, IDS, CONSUMER_GROUP, CLIENT_ID, RESEND, UNIT, BODY_FORMAT, THROUGH_CLUSTER),
    ),
    AdminCommand(
        "queryMsgByKey",
        "Query Message by Key.",
        query_by_key,
        (TOPIC_NAME, KEY, BEGIN, END, MAX_COUNT, THROUGH_CLUSTER, KEY_TYPE, LAST_KEY),
    ),
    AdminCommand(
        "queryMsgByUniqueKey",
        "Query Message by Unique key.",
        query_by_unique_key,
        (
            *(UNIQUE_KEY, CONSUMER_GROUP, CLIENT_ID, TOPIC_OF_MESSAGE, SHOW_ALL, THROUGH_CLUSTER),
            *(START_TIME, END_TIME),
        ),
    ),
    AdminCommand(
        "queryMsgByOffset",
        "Query Message by offset.",
        query_by_offset,
        (TOPIC, BROKER_NAME, QUEUE_ID, OFFSET, BODY_FORMAT, ROUTE_TOPIC),
    ),
    *trace.COMMANDS,
    *message_reading.COMMANDS,
    AdminCommand(
        "sendMessage",
        "Send a message.",
        send_message,
        (TOPIC_NAME, BODY, KEYS, TAGS, TO_BROKER, TO_QUEUE, TRACE),
    ),
)
