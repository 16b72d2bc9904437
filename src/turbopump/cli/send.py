"""`turbopump send`: one message, and what the broker says it did with it."""

import argparse
import asyncio
import json
import os
import sys

from turbopump.cli import connect
from turbopump.cli.arguments import text
from turbopump.cli.failures import ASKED_WRONGLY, Failure
from turbopump.client.message import Message, SendResult, SendStatus
from turbopump.client.routes import QueueChoice
from turbopump.client.rules import check_topic
from turbopump.client.sender import Sender
from turbopump.protocol.ids import UniqueIds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "body", metavar="BODY", nargs="?", default="-", help="the text to send; - reads stdin"
    )
    parser.add_argument("--tag", type=text, default="", help="the message's tag, by which consumers filter")
    parser.add_argument(
        "--key", type=text, action="append", default=[], help="a key to find it by; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    connect.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    check_topic(options.topic)
    message = Message(options.topic, body_of(options.body), options.tag, tuple(options.key))
    result = asyncio.run(_send(message, options.namesrv))
    print(json.dumps(fields(result)) if options.json else line(result))
    return 0 if result.status is SendStatus.SEND_OK else 1


def body_of(word: str) -> bytes:
    """Its bytes as they were typed, text or not."""
    if word != "-":
        return os.fsencode(word)
    if sys.stdin is None:
        raise Failure("there is no stdin to read the body from", ASKED_WRONGLY)
    return sys.stdin.buffer.read()


async def _send(message: Message, namesrv: str | None) -> SendResult:
    async with connect.connected(namesrv) as here:
        # Every run is a process of its own, so address and pid are told apart by the random salt.
        ids = UniqueIds("127.0.0.1", os.getpid(), here.clock.now_ms, here.chance.getrandbits(32))
        producer = Sender(here.client, here.routes, here.clock, ids, QueueChoice(here.chance))
        return await producer.send(message)


def fields(result: SendResult) -> dict[str, str | int]:
    """In the order in which a person wants to read them; the receipt only when the broker gave one."""
    found: dict[str, str | int | None] = {
        "status": result.status.name,
        "msgId": result.message_id,
        "offsetMsgId": result.offset_message_id,
        "broker": result.queue.broker,
        "queue": result.queue.id,
        "offset": result.offset,
        "durability": result.durability,
        "replicas": result.replicas,
    }
    return {name: value for name, value in found.items() if value is not None}


def line(result: SendResult) -> str:
    status, *rest = fields(result).items()
    return " ".join([str(status[1]), *(f"{name}={value}" for name, value in rest)])
