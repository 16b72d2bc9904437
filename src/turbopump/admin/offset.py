"""Commands that change the offsets of a consumer group."""

from turbopump.admin.command import AdminCommand, Call
from turbopump.admin.options import boolean, defaulting, host_port, number, optional, required, text
from turbopump.admin.render import TextTable, front
from turbopump.admin.times import GivenTime, time
from turbopump.client.admin.offsets import END, Rollback
from turbopump.client.message import MessageQueue
from turbopump.protocol.errors import ConsumerNotOnline

GROUP = required("g", "group", "set the consumer group", text)
TOPIC = required("t", "topic", "set the topic", text)
THROUGH = optional("c", "cluster", "Cluster name or lmq parent topic, lmq is used to find the route.", text)

RESET = TextTable("%-40s  %-40s  %-40s", ("#brokerName", "#queueId", "#offset"), "%-40s  %-40d  %-40d")
ROLLBACK_FORM = "%-20s  %-20s  %-20s  %-20s  %-20s  %-20s"
ROLLBACK_ROW = "%-20s  %-20d  %-20d  %-20d  %-20d  %-20d"
ROLLBACK_HEADINGS = ("#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset")
STOPPED = TextTable(ROLLBACK_FORM, (*ROLLBACK_HEADINGS, "#resetOffset"), ROLLBACK_ROW)
SKIPPED = TextTable(ROLLBACK_FORM, (*ROLLBACK_HEADINGS, "#rollbackOffset"), ROLLBACK_ROW)

# --- resetOffsetByTime -----------------------------------------------------------------------------------

TIME = required("s", "timestamp", "set the timestamp[now|currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]", time)
FORCE = defaulting(
    "f", "force", "set the force rollback by timestamp switch[true|false]. Deprecated.", boolean, True
)
BROKER = optional("b", "broker", "broker addr", host_port)
QUEUE = optional("q", "queue", "queue id", number)
OFFSET = optional("o", "offset", "Expect queue offset, not support old version broker", number)


async def reset_by_time(call: Call) -> None:
    """Runs `resetOffsetByTime`: resets one queue (with -b and -q), else all queues of the topic.

    Brokers reset a topic themselves. If they refuse because the group is stopped (old brokers), the offset of
    each queue is committed instead.
    """
    broker, queue_id = call.given[BROKER], call.given[QUEUE]
    if broker is not None and queue_id is not None and queue_id >= 0:
        await reset_one_queue(call, broker, queue_id)
        return
    group, topic, force = call.given[GROUP], call.given[TOPIC], call.given[FORCE]
    asked = call.given[TIME]
    time_ms = asked.ms(call.admin.clock.now_ms)
    words = f"topic[{topic}], force[{str(force).lower()}], {time_text(asked, time_ms)}"
    try:
        found = await call.admin.offsets.reset(group, topic, time_ms, force)
    except ConsumerNotOnline:
        done = await call.admin.offsets.reset_stopped(group, topic, time_ms, force)
        call.out.line(f"reset consumer offset by specified consumerGroup[{group}], {words}")
        call.out.show(rollback_document(done), STOPPED.lines(map(rollback_row, done)))
        return
    call.out.line(f"start reset consumer offset by specified, group[{group}], {words}")
    call.out.show(reset_document(found), RESET.lines(reset_rows(found)))


async def reset_one_queue(call: Call, broker: str, queue_id: int) -> None:
    group, topic, asked = call.given[GROUP], call.given[TOPIC], call.given[TIME]
    time_ms = asked.ms(call.admin.clock.now_ms)
    call.out.line(
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], queueId[{queue_id}], "
        f"broker[{broker}], {time_text(asked, time_ms)}"
    )
    offset = call.given[OFFSET]
    if offset is None:
        queue = MessageQueue(topic, "", queue_id)
        offset = await call.admin.offsets.offset_at(broker, queue, time_ms)
    await call.admin.offsets.reset_queue(broker, group, topic, queue_id, offset)
    document = {"group": group, "topic": topic, "broker": broker, "queueId": queue_id, "offset": offset}
    call.out.show(document, [f"reset consumer offset to {offset}"])


def time_text(asked: GivenTime, time_ms: int) -> str:
    return f"timestamp(string)[{asked.text}], timestamp(long)[{time_ms}]"


# --- skipAccumulatedMessage ------------------------------------------------------------------------------

SKIP_FORCE = defaulting("f", "force", "set the force rollback by timestamp switch[true|false]", boolean, True)


async def skip_accumulated(call: Call) -> None:
    group, topic, force = call.given[GROUP], call.given[TOPIC], call.given[SKIP_FORCE]
    try:
        found = await call.admin.offsets.reset(group, topic, END, force)
    except ConsumerNotOnline:
        done = await call.admin.offsets.reset_stopped(group, topic, END, force)
        call.out.show(rollback_document(done), SKIPPED.lines(map(rollback_row, done)))
        return
    call.out.show(reset_document(found), RESET.lines(reset_rows(found)))


def reset_rows(found: dict[MessageQueue, int]) -> list[tuple[object, ...]]:
    return [(front(queue.broker, 32), queue.id, offset) for queue, offset in sorted(found.items())]


def reset_document(found: dict[MessageQueue, int]) -> dict[str, object]:
    rows = [
        {"brokerName": queue.broker, "queueId": queue.id, "offset": offset}
        for queue, offset in sorted(found.items())
    ]
    return {"offsets": rows}


def rollback_row(done: Rollback) -> tuple[object, ...]:
    return (
        *(front(done.queue.broker, 32), done.queue.id, done.broker_offset),
        *(done.consumer_offset, done.time_offset, done.reset_offset),
    )


def rollback_document(done: list[Rollback]) -> dict[str, object]:
    rows = [
        {
            "brokerName": one.queue.broker,
            "queueId": one.queue.id,
            "brokerOffset": one.broker_offset,
            "consumerOffset": one.consumer_offset,
            "timestampOffset": one.time_offset,
            "offset": one.reset_offset,
        }
        for one in done
    ]
    return {"offsets": rows}


# --- cloneGroupOffset ------------------------------------------------------------------------------------

SOURCE = required("s", "srcGroup", "set source consumer group", text)
TARGET = required("d", "destGroup", "set destination consumer group", text)
OFFLINE = optional("o", "offline", "the group or the topic is offline", text)


async def clone(call: Call) -> None:
    """Runs `cloneGroupOffset`: copies a group's offsets on the given topic to another group.

    Apache's tool copies those on every topic.
    """
    source, target, topic = call.given[SOURCE], call.given[TARGET], call.given[TOPIC]
    cloned = await call.admin.offsets.clone(source, target, topic)
    line = f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"
    document = {"srcGroup": source, "destGroup": target, "topic": topic} | reset_document(cloned)
    call.out.show(document, [line])


COMMANDS = (
    AdminCommand(
        "cloneGroupOffset", "Clone offset from other group.", clone, (SOURCE, TARGET, TOPIC, OFFLINE)
    ),
    AdminCommand(
        "resetOffsetByTime",
        "Reset consumer offset by timestamp(without client restart).",
        reset_by_time,
        (GROUP, TOPIC, TIME, FORCE, BROKER, QUEUE, OFFSET, THROUGH),
    ),
    AdminCommand(
        "skipAccumulatedMessage",
        "Skip all messages that are accumulated (not consumed) currently.",
        skip_accumulated,
        (GROUP, TOPIC, SKIP_FORCE, THROUGH),
    ),
)
