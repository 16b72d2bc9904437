"""`turbopump send`: sends messages and prints the result of each."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta

from turbopump.cli import connect
from turbopump.cli.arguments import count, text
from turbopump.cli.exits import FAILED, warn
from turbopump.cli.failures import USAGE_ERROR, CommandFailure
from turbopump.cli.times import point_in_time
from turbopump.client.errors import SendFailed
from turbopump.client.message import Message, MessageQueue, SendResult, SendStatus
from turbopump.client.produce.selectors import by_hash
from turbopump.client.produce.sender import DEFAULTS, Pick, Sender
from turbopump.client.routes import RoundRobin
from turbopump.client.rules import SendRules, check_topic
from turbopump.protocol.errors import Refused
from turbopump.protocol.ids import UniqueIds
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.times import format_time, parse_duration_s


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("topic", metavar="TOPIC")
    option("body", metavar="BODY", nargs="?", default="-", help="text to send (default: -, read stdin)")
    option("--tag", type=text, default="", help="tag of the message, for filters of consumers")
    option(
        "--key", type=text, action="append", default=[], help="key to find the message by; may be repeated"
    )
    option(
        "--property",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="user property; may be repeated",
    )
    later = parser.add_mutually_exclusive_group()
    later.add_argument(
        "--delay", type=duration, metavar="TIME", help="deliver after this time: 30s, 10m, 1h30m"
    )
    later.add_argument(
        "--at",
        metavar="TIME",
        help="deliver at this time: 2026-11-01T12:00, local time, or with a zone: 2026-11-01T12:00Z",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--by", type=text, metavar="KEY", help="send messages with the same KEY to the same queue, in order"
    )
    where.add_argument("--queue", type=queue, metavar="[BROKER:]ID", help="send to this queue")
    option("--count", type=count, default=1, metavar="N", help="send it N times")
    option("--lines", action="store_true", help="send each line of the body as a message, except empty lines")
    option("--json", action="store_true", help="print the result as JSON, one object per message")
    connect.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    check_topic(options.topic)
    messages = messages_of(options, SystemClock().now_ms())
    # The topic is not checked here: the broker decides whether its system topics can be written.
    rules = SendRules(DEFAULTS.max_message_size, {options.topic})
    for message in messages:
        rules.check(message)
    return asyncio.run(_send_all(options, messages))


def messages_of(options: argparse.Namespace, now_ms: int) -> list[Message]:
    """Returns the messages to send, in order; `--count` repeats all of them."""
    at_ms = delivery_ms(options.at, now_ms) if options.at is not None else None
    bodies = list(lines_of(body_of(options.body))) if options.lines else [body_of(options.body)]
    made = [
        Message(
            options.topic,
            body,
            options.tag,
            tuple(options.key),
            dict(options.property),
            delay=options.delay,
            deliver_at=at_ms,
        )
        for body in bodies
    ]
    repeat: int = options.count
    return made * repeat


def lines_of(body: bytes) -> Iterator[bytes]:
    """Yields lines without their ends; skips empty ones with a warning, since brokers refuse them."""
    lines = body.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    lines = [line.removesuffix(b"\r") for line in lines]
    if empty := sum(not line for line in lines):
        warn(f"turbopump: {empty} empty line{'s are' if empty > 1 else ' is'} not sent")
    yield from filter(None, lines)


def delivery_ms(at: str, now_ms: int) -> int:
    found = point_in_time(at, now_ms, "--at")
    if found <= now_ms:
        when = format_time(found)
        raise CommandFailure(
            f"--at must be in the future, got {at} ({when}); --delay counts from now", USAGE_ERROR
        )
    return found


async def _send_all(options: argparse.Namespace, messages: Sequence[Message]) -> int:
    """Sends messages one by one, in order; raises the first failure. Returns the exit status."""
    status, sent = 0, 0
    async with connect.connected(options.namesrv) as here:
        # A random salt distinguishes runs: processes with the same address and perhaps the same pid.
        ids = UniqueIds("127.0.0.1", os.getpid(), here.clock.now_ms, here.chance.getrandbits(32))
        sender = Sender(here.client, here.routes, here.clock, ids, RoundRobin(here.chance))
        for message in messages:
            try:
                result = await sender.deliver(sender.prepare(message), pick=pick_of(options, message))
            except (SendFailed, Refused):
                if len(messages) > 1:
                    warn(f"turbopump: {sent} of {len(messages)} messages were sent")
                raise
            sent += 1
            print(json.dumps(fields(result)) if options.json else line(result), flush=True)
            if result.status is not SendStatus.SEND_OK:
                status = FAILED
            if message.is_delayed and result.recall_handle is None and sent == 1:
                warn("turbopump: the broker did not confirm the time: brokers before 5.0 deliver immediately")
    return status


def pick_of(options: argparse.Namespace, message: Message) -> Pick | None:
    if options.by is not None:
        select = by_hash(options.by)
        return lambda queues: select(queues, message)
    return None if options.queue is None else lambda queues: queue_among(queues, options.queue)


def queue_among(queues: Sequence[MessageQueue], wanted: tuple[str, int]) -> MessageQueue:
    broker, number = wanted
    found = [one for one in queues if one.id == number and broker in ("", one.broker)]
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"{one.broker}:{one.id}" for one in queues)
    what = "several brokers have it" if found else "there is none"
    raise CommandFailure(
        f"--queue {f'{broker}:' if broker else ''}{number}: {what}; write one of {there}", USAGE_ERROR
    )


def body_of(word: str) -> bytes:
    """Returns the bytes of a body argument, also if they are not valid UTF-8; for `-` those of stdin."""
    if word != "-":
        return os.fsencode(word)
    if sys.stdin is None:
        raise CommandFailure("cannot read the body: stdin is closed", USAGE_ERROR)
    return sys.stdin.buffer.read()


def fields(result: SendResult) -> dict[str, str | int]:
    """Returns the fields of a result in the order of printing; the receipt only if the broker sent one."""
    found: dict[str, str | int | None] = {
        "status": result.status.name,
        "msgId": result.message_id,
        "offsetMsgId": result.offset_message_id,
        "broker": result.queue.broker,
        "queue": result.queue.id,
        "offset": result.offset,
        "durability": result.durability,
        "replicas": result.replicas,
        "recallHandle": result.recall_handle,
    }
    return {name: value for name, value in found.items() if value is not None}


def line(result: SendResult) -> str:
    status, *rest = fields(result).items()
    return " ".join([str(status[1]), *(f"{name}={value}" for name, value in rest)])


# --- values of options -----------------------------------------------------------------------------------


def pair(word: str) -> tuple[str, str]:
    name, equals, value = text(word).partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {word!r}")
    return name, value


def duration(word: str) -> timedelta:
    try:
        return timedelta(seconds=parse_duration_s(word))
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def queue(word: str) -> tuple[str, int]:
    broker, _, number = word.rpartition(":")
    return broker, count(number)
