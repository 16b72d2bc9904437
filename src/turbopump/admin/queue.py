"""`queryCq`: prints entries of a consume queue."""

from collections.abc import Iterator

from turbopump.admin.command import AdminCommand, Call
from turbopump.admin.options import defaulting, host_port, number, optional, required, text
from turbopump.admin.render import fields
from turbopump.client.admin import NotFound
from turbopump.protocol import bodies, dialect

RULE = "=" * 38

TOPIC = required("t", "topic", "topic name", text)
QUEUE = required("q", "queue", "queue num, ie. 1", number)
INDEX = required("i", "index", "start queue index.", number)
COUNT = defaulting("c", "count", "how many.", number, 10)
BROKER = optional("b", "broker", "broker addr.", host_port)
GROUP = optional("g", "consumer", "consumer group.", text)


async def query_queue(call: Call) -> None:
    topic, queue, index = call.given[TOPIC], call.given[QUEUE], call.given[INDEX]
    address = call.given[BROKER] or next(iter((await call.admin.topics.readers(topic)).values()))
    found = await call.admin.queues.entries(
        address, topic, queue, index, call.given[COUNT], call.given[GROUP]
    )
    if found is None:
        raise NotFound(f"queue {queue} of topic {topic} at {address} has no entry {index}")
    call.out.show(fields(found), lines(found, index))


def lines(found: bodies.QueryConsumeQueueResponseBody, index: int) -> Iterator[str]:
    if found.subscriptionData is not None:
        yield "Subscription data: "
        yield dialect.dumps_pretty(found.subscriptionData).decode()
        yield RULE
    if found.filterData is not None:
        yield "Filter data: "
        yield found.filterData
        yield RULE
    yield "Queue data: "
    yield f"max: {found.maxQueueIndex}, min: {found.minQueueIndex}"
    yield RULE
    for number_, entry in enumerate(found.queueData, index):
        yield f"idx: {number_}"
        yield entry_text(entry)
        yield RULE


def entry_text(entry: bodies.ConsumeQueueData) -> str:
    """Formats an entry as Java's ConsumeQueueData does."""
    quoted = {"extendDataJson": entry.extendDataJson, "bitMap": entry.bitMap, "msg": entry.msg}
    shown = {name: f"'{value if value is not None else 'null'}'" for name, value in quoted.items()}
    return (
        f"ConsumeQueueData{{physicOffset={entry.physicOffset}, physicSize={entry.physicSize}, "
        f"tagsCode={entry.tagsCode}, extendDataJson={shown['extendDataJson']}, bitMap={shown['bitMap']}, "
        f"eval={str(entry.eval).lower()}, msg={shown['msg']}}}"
    )


COMMANDS = (
    AdminCommand("queryCq", "Query cq command.", query_queue, (TOPIC, QUEUE, INDEX, COUNT, BROKER, GROUP)),
)
