"""`turbopump trace`: the way of one message, as clients with `enable_trace` told it to the trace topic.

What comes in: records of the trace topic that name the message. What goes out: who sent it, where it is
stored, to which groups it was delivered, how long that took and how it ended. Nothing is guessed: what no
client told is not shown.
"""

import argparse
import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from turbopump.admin.render import json_text
from turbopump.cli import connect
from turbopump.cli.failures import Failure
from turbopump.cli.records import moment
from turbopump.client.admin import Admin, NotFound
from turbopump.client.observe.trace import AFTER, BEFORE, END, PUB, Trace, TraceOutcome, decode
from turbopump.protocol import names
from turbopump.protocol.body_text import printable
from turbopump.protocol.errors import BrokenBody, TopicNotFound

MOST_MESSAGES = 512  # of the trace topic, for one message
INDENT = " " * 25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("message_id", metavar="ID", help="the sender's id, as receipts and consumers show it")
    parser.add_argument(
        "--topic", default=names.TRACE_TOPIC, metavar="TOPIC", help="trace topic (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    connect.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    async with connect.administration(options.namesrv) as admin:
        way = way_of(options.message_id, await told(admin, options.topic, options.message_id))
    print(json_text(way.document()) if options.json else "\n".join(way.lines()))
    return 0


@dataclass(frozen=True, slots=True)
class Told:
    """A record, and the host that wrote it."""

    trace: Trace
    host: str


async def told(admin: Admin, topic: str, message_id: str) -> list[Told]:
    """Raises Failure when there is nothing."""
    try:
        messages = await admin.messages.by_key(topic, message_id, MOST_MESSAGES)
    except (NotFound, TopicNotFound):
        messages = []
    found = []
    for message in messages:
        try:
            records = decode(message.body.decode("utf-8", "replace"))
        except BrokenBody:
            continue
        host = message.born_host.rpartition(":")[0]
        found += [Told(record, host) for record in records if record.message_id == message_id]
    if not found:
        raise Failure(
            f"no trace of {message_id} in {topic}: clients write one when they have enable_trace=True "
            "(and a moment later), and brokers when they have traceOn=true"
        )
    return found


# --- the way ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Delivery:
    group: str | None
    host: str
    began_ms: int
    cost_ms: int | None
    """None: its end was not told, or not yet."""
    is_success: bool
    outcome: str
    retry_times: int
    after_send_ms: int | None


@dataclass
class Way:
    message_id: str
    sends: list[Told] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    ends: list[Told] = field(default_factory=list)
    """Of its transaction."""

    def lines(self) -> Iterator[str]:
        """For a terminal."""
        yield printable(self._title())
        for one in self.sends:
            yield printable(f"{moment(one.trace.time_ms)}  {_sent(one)}")
            yield printable(f"{INDENT}stored at {one.trace.store_host} as {one.trace.offset_message_id}")
        if not self.sends:
            yield f"{INDENT}(its producer told nothing)"
        for one in self.ends:
            check = ", asked by the broker" if one.trace.from_check else ""
            text = f"transaction {one.trace.state} by {one.trace.group} on {one.host}{check}"
            yield printable(f"{moment(one.trace.time_ms)}  {text}")
        for delivery in self.deliveries:
            yield printable(f"{moment(delivery.began_ms)}  {_delivered(delivery)}")
        if not self.deliveries:
            yield f"{INDENT}(no consumer told of it)"

    def _title(self) -> str:
        if not self.sends:
            return self.message_id
        first = self.sends[0].trace
        marks = {"topic": first.topic, "tag": first.tags, "keys": first.keys, "bytes": first.body_size}
        return " ".join([self.message_id, *(f"{name}={value}" for name, value in marks.items() if value)])

    def document(self) -> dict[str, object]:
        first = self.sends[0].trace if self.sends else None
        return {
            "messageId": self.message_id,
            "topic": first.topic if first else None,
            "tags": first.tags if first else None,
            "keys": first.keys.split() if first and first.keys else [],
            "sends": [_send_document(one) for one in self.sends],
            "transactions": [
                {
                    "group": one.trace.group,
                    "host": one.host,
                    "time": one.trace.time_ms,
                    "state": one.trace.state,
                    "fromCheck": one.trace.from_check,
                }
                for one in self.ends
            ],
            "deliveries": [
                {
                    "group": one.group,
                    "host": one.host,
                    "time": one.began_ms,
                    "costMs": one.cost_ms,
                    "success": one.is_success,
                    "outcome": one.outcome,
                    "retryTimes": one.retry_times,
                    "afterSendMs": one.after_send_ms,
                }
                for one in self.deliveries
            ],
        }


def way_of(message_id: str, records: Iterable[Told]) -> Way:
    """In the order of time. What comes before a delivery and after it belongs together by its request id."""
    way = Way(message_id)
    begins: dict[str | None, Told] = {}
    results: dict[str | None, Told] = {}
    places = {BEFORE: begins, AFTER: results}
    for one in sorted(records, key=lambda one: one.trace.time_ms):
        if one.trace.type in places:
            places[one.trace.type][one.trace.request_id] = one
        elif one.trace.type == PUB:
            way.sends.append(one)
        elif one.trace.type == END:
            way.ends.append(one)
    sent_ms = way.sends[0].trace.time_ms if way.sends else None
    for request_id in dict.fromkeys([*begins, *results]):
        way.deliveries.append(_delivery(begins.get(request_id), results.get(request_id), sent_ms))
    way.deliveries.sort(key=lambda one: one.began_ms)
    return way


def _delivery(begin: Told | None, result: Told | None, sent_ms: int | None) -> Delivery:
    known = begin or result
    assert known is not None
    began_ms = known.trace.time_ms if begin else known.trace.time_ms - known.trace.cost_ms
    return Delivery(
        group=known.trace.group,
        host=known.host,
        began_ms=began_ms,
        cost_ms=result.trace.cost_ms if result else None,
        is_success=result.trace.is_success if result else False,
        outcome=_word(result.trace.outcome) if result else "UNKNOWN",
        retry_times=begin.trace.retry_times if begin else 0,
        after_send_ms=began_ms - sent_ms if sent_ms is not None else None,
    )


def _word(outcome: int) -> str:
    return TraceOutcome(outcome).name if outcome in TraceOutcome._value2member_map_ else str(outcome)


def _sent(one: Told) -> str:
    trace = one.trace
    end = "" if trace.is_success else ", not as durable as asked"
    return f"sent by {trace.group} on {one.host} in {trace.cost_ms} ms{end}"


def _send_document(one: Told) -> dict[str, object]:
    trace = one.trace
    return {
        "group": trace.group,
        "host": one.host,
        "time": trace.time_ms,
        "costMs": trace.cost_ms,
        "success": trace.is_success,
        "storeHost": trace.store_host,
        "offsetMsgId": trace.offset_message_id,
        "bytes": trace.body_size,
        "region": trace.region,
    }


def _delivered(one: Delivery) -> str:
    times = f", retry {one.retry_times}" if one.retry_times else ""
    since = f", {one.after_send_ms} ms after the send" if one.after_send_ms is not None else ""
    if one.cost_ms is None:
        return f"delivered to {one.group} on {one.host}, not finished{times}{since}"
    end = "consumed" if one.is_success else f"failed ({one.outcome})"
    return f"delivered to {one.group} on {one.host}, {end} in {one.cost_ms} ms{times}{since}"
