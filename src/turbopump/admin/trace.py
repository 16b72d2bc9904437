"""`queryMsgTraceById`: prints producer and consumers of a message, from the trace topic."""

from collections.abc import Iterator
from dataclasses import dataclass

from turbopump.admin.command import AdminCommand, Call
from turbopump.admin.message_text import host_text, plain_body
from turbopump.admin.options import defaulting, number, required, text
from turbopump.admin.render import TextTable
from turbopump.admin.times import BEGIN, END, local_second
from turbopump.client.observe.trace import Trace, decode
from turbopump.protocol import names

ID = required("i", "msgId", "Message Id", text)
TRACE_TOPIC = defaulting("t", "traceTopic", "The name value of message trace topic", text, names.TRACE_TOPIC)
MAX_COUNT = defaulting(
    "c", "maxNum", "The maximum number of messages returned by the query, default:64", number, 64
)

FORM = "%-10s %-20s %-20s %-20s %-10s %-10s"
SENT = TextTable(FORM, ("#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"))
CONSUMED = TextTable(
    FORM, ("#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status")
)


@dataclass(frozen=True, slots=True)
class TracedRecord:
    """A trace record and the host that wrote it."""

    trace: Trace
    host: str

    def row(self, kind: str) -> tuple[str, ...]:
        trace = self.trace
        when = local_second(trace.time_ms)
        status = "success" if trace.is_success else "failed"
        return kind, trace.group or "null", self.host, when, f"{trace.cost_ms}ms", status


async def query_trace(call: Call) -> None:
    wanted = call.given[ID]
    messages = await call.admin.messages.by_key(
        call.given[TRACE_TOPIC], wanted, call.given[MAX_COUNT], call.given[BEGIN], call.given[END]
    )
    found = [
        TracedRecord(trace, host_text(message.record.born_host).rpartition(":")[0])
        for message in messages
        for trace in decode(plain_body(message).decode("utf-8", "replace"))
        if trace.message_id == wanted
    ]
    call.out.show({"traces": [trace_document(seen) for seen in found]}, lines(found))


def lines(found: list[TracedRecord]) -> Iterator[str]:
    for seen in found:
        if seen.trace.type == "Pub":
            yield from SENT.lines([seen.row("Pub")])
            yield ""
    consumed: dict[str, list[TracedRecord]] = {}
    for seen in found:
        if seen.trace.type == "SubAfter":
            consumed.setdefault(seen.trace.group or "null", []).append(seen)
    for of_group in consumed.values():
        yield from CONSUMED.lines(seen.row("Sub") for seen in of_group)
        yield ""


def trace_document(seen: TracedRecord) -> dict[str, object]:
    trace = seen.trace
    return {
        "type": trace.type,
        "group": trace.group,
        "topic": trace.topic,
        "clientHost": seen.host,
        "timestamp": trace.time_ms,
        "costTime": trace.cost_ms,
        "status": "success" if trace.is_success else "failed",
    }


COMMANDS = (
    AdminCommand(
        "queryMsgTraceById",
        "Query a message trace.",
        query_trace,
        (ID, TRACE_TOPIC, BEGIN, END, MAX_COUNT),
        aliases=("QueryMsgTraceById",),
    ),
)
