"""`turbopump trace`: prints the path of one message, from the records of clients in the trace topic.

In: records of the trace topic about the message. Out: producer, storage, deliveries to groups, their times
and results. Nothing is guessed: only what clients recorded is shown.
"""

import argparse
import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from turbopump.admin.render import json_text
from turbopump.admin.trace import TracedRecord
from turbopump.cli import connect
from turbopump.cli.failures import CommandFailure
from turbopump.cli.records import moment
from turbopump.client.admin import Admin, NotFound
from turbopump.client.observe.trace import AFTER, BEFORE, END, PUB, TraceOutcome, decode
from turbopump.protocol import names
from turbopump.protocol.body_text import printable
from turbopump.protocol.errors import BrokenBody, TopicNotFound

MAX_MESSAGES = 512  # of the trace topic, per message
INDENT = " " * 25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "message_id", metavar="ID", help="message id of the producer, as in receipts and consumers"
    )
    parser.add_argument(
        "--topic", default=names.TRACE_TOPIC, metavar="TOPIC", help="trace topic (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    connect.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    async with connect.administration(options.namesrv) as admin:
        path = path_of(options.message_id, await traced_records(admin, options.topic, options.message_id))
    print(json_text(path.document()) if options.json else "\n".join(path.lines()))
    return 0


async def traced_records(admin: Admin, topic: str, message_id: str) -> list[TracedRecord]:
    """Returns the trace records of a message. Raises CommandFailure if there are none."""
    try:
        messages = await admin.messages.by_key(topic, message_id, MAX_MESSAGES)
    except (NotFound, TopicNotFound):
        messages = []
    found = []
    for message in messages:
        try:
            records = decode(message.body.decode("utf-8", "replace"))
        except BrokenBody:
            continue
        host = message.born_host.rpartition(":")[0]
        found += [TracedRecord(record, host) for record in records if record.message_id == message_id]
    if not found:
        raise CommandFailure(
            f"no trace of {message_id} in {topic}: clients with enable_trace=True write one "
            "after a short delay, and brokers with traceOn=true"
        )
    return found


# --- the path ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TracedDelivery:
    """One delivery of the traced message to a consumer group: when, how long, with which result."""

    group: str | None
    host: str
    began_ms: int
    cost_ms: int | None
    """None if the end is not recorded, or not yet."""
    is_success: bool
    outcome: str
    retry_times: int
    after_send_ms: int | None


@dataclass
class MessagePath:
    """Sends, deliveries and transaction ends of one message."""

    message_id: str
    sends: list[TracedRecord] = field(default_factory=list)
    deliveries: list[TracedDelivery] = field(default_factory=list)
    ends: list[TracedRecord] = field(default_factory=list)
    """Ends of its transaction."""

    def lines(self) -> Iterator[str]:
        """Yields the lines that show the path on a terminal."""
        yield printable(self._title())
        for one in self.sends:
            yield printable(f"{moment(one.trace.time_ms)}  {_sent(one)}")
            yield printable(f"{INDENT}stored at {one.trace.store_host} as {one.trace.offset_message_id}")
        if not self.sends:
            yield f"{INDENT}(no record of its producer)"
        for one in self.ends:
            check = ", asked by the broker" if one.trace.from_check else ""
            text = f"transaction {one.trace.state} by {one.trace.group} on {one.host}{check}"
            yield printable(f"{moment(one.trace.time_ms)}  {text}")
        for delivery in self.deliveries:
            yield printable(f"{moment(delivery.began_ms)}  {_delivered(delivery)}")
        if not self.deliveries:
            yield f"{INDENT}(no record of a consumer)"

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


def path_of(message_id: str, records: Iterable[TracedRecord]) -> MessagePath:
    """Returns the path in order of time; joins records before and after a delivery by request id."""
    path = MessagePath(message_id)
    begins: dict[str | None, TracedRecord] = {}
    results: dict[str | None, TracedRecord] = {}
    places = {BEFORE: begins, AFTER: results}
    for one in sorted(records, key=lambda one: one.trace.time_ms):
        if one.trace.type in places:
            places[one.trace.type][one.trace.request_id] = one
        elif one.trace.type == PUB:
            path.sends.append(one)
        elif one.trace.type == END:
            path.ends.append(one)
    sent_ms = path.sends[0].trace.time_ms if path.sends else None
    for request_id in dict.fromkeys([*begins, *results]):
        path.deliveries.append(_delivery(begins.get(request_id), results.get(request_id), sent_ms))
    path.deliveries.sort(key=lambda one: one.began_ms)
    return path


def _delivery(begin: TracedRecord | None, result: TracedRecord | None, sent_ms: int | None) -> TracedDelivery:
    known = begin or result
    assert known is not None
    began_ms = known.trace.time_ms if begin else known.trace.time_ms - known.trace.cost_ms
    return TracedDelivery(
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


def _sent(one: TracedRecord) -> str:
    trace = one.trace
    end = "" if trace.is_success else ", not as durable as requested"
    return f"sent by {trace.group} on {one.host} in {trace.cost_ms} ms{end}"


def _send_document(one: TracedRecord) -> dict[str, object]:
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


def _delivered(one: TracedDelivery) -> str:
    times = f", retry {one.retry_times}" if one.retry_times else ""
    since = f", {one.after_send_ms} ms after the send" if one.after_send_ms is not None else ""
    if one.cost_ms is None:
        return f"delivered to {one.group} on {one.host}, not finished{times}{since}"
    end = "consumed" if one.is_success else f"failed ({one.outcome})"
    return f"delivered to {one.group} on {one.host}, {end} in {one.cost_ms} ms{times}{since}"
