"""`turbopump quickstart`: runs the producer or consumer of RocketMQ's quick start, same topic and groups."""

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable

from turbopump.admin.message_text import message_text
from turbopump.admin.sending import result_text
from turbopump.cli import connect
from turbopump.cli.arguments import add_action, count
from turbopump.cli.exits import on_closed_stdout, warn
from turbopump.client.admin import Admin
from turbopump.client.message import Message, MessageExt
from turbopump.client.push.consumer import Consumer
from turbopump.client.settings import ConsumeFromWhere
from turbopump.protocol.errors import Refused

TOPIC = "TopicTest"
TAG = "TagA"
PRODUCER_GROUP = "please_rename_unique_group_name"
CONSUMER_GROUP = "please_rename_unique_group_name_4"
MESSAGES = 1000
SEND_TIMEOUT_S = 20.0
AFTER_FAILURE_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    roles = parser.add_subparsers(dest="role", metavar="ROLE", required=True)
    for name, (summary, _) in ROLES.items():
        role = add_action(roles, name, summary, f"turbopump quickstart {name} -n 10")
        role.add_argument("--topic", default=TOPIC, help=f"default: {TOPIC}")
        if name == "producer":
            role.add_argument(
                "-n",
                dest="count",
                type=count,
                default=MESSAGES,
                metavar="N",
                help=f"number of messages (default: {MESSAGES})",
            )
        else:
            role.add_argument(
                "-n",
                dest="count",
                type=count,
                metavar="N",
                help="stop after N messages (default: at Ctrl-C)",
            )
            role.add_argument("--group", default=CONSUMER_GROUP, help=f"default: {CONSUMER_GROUP}")
        connect.add_argument(role)


def run(options: argparse.Namespace) -> int:
    _, role = ROLES[options.role]
    return asyncio.run(_run(options, role))


async def _run(
    options: argparse.Namespace, role: Callable[[argparse.Namespace, Admin], Awaitable[int]]
) -> int:
    async with connect.administration(options.namesrv) as admin:
        return await role(options, admin)


async def produce(options: argparse.Namespace, admin: Admin) -> int:
    """Sends messages one by one and prints each answer in a line. Returns the exit status."""
    producer = admin.producer(PRODUCER_GROUP)
    failed = 0
    for number in range(options.count):
        message = Message(options.topic, b"Hello RocketMQ %d" % number, TAG)
        try:
            result = await producer.send(message, SEND_TIMEOUT_S)
        except (Refused, OSError) as error:
            if number == 0:  # no server or no topic: the other sends would fail too
                raise
            failed += 1
            warn(f"message {number} was not sent: {str(error).splitlines()[0]}")
            await admin.clock.sleep(AFTER_FAILURE_S)
        else:
            print(result_text(result), flush=True)
    return 1 if failed else 0


async def consume(options: argparse.Namespace, admin: Admin) -> int:
    """Prints messages from the first on, until Ctrl-C, the limit or a closed stdout; returns exit status."""
    if options.count == 0:
        return 0
    enough = asyncio.Event()
    got = 0

    consumer = Consumer(
        options.group,
        name_servers=admin.name_servers.addresses,
        world=admin.world,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )

    @consumer.on(options.topic)
    async def listen(message: MessageExt) -> None:
        nonlocal got
        try:
            print(f"{options.group} Receive New Messages: [{message_text(message)}] ", flush=True)
        except BrokenPipeError:  # not a failure of the message
            enough.set()
        got += 1
        if options.count is not None and got >= options.count:
            enough.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # not on every system
            loop.add_signal_handler(number, enough.set)
    on_closed_stdout(enough.set)
    async with consumer:
        print("Consumer Started.", flush=True)
        await enough.wait()
    return 0


ROLES: dict[str, tuple[str, Callable[[argparse.Namespace, Admin], Awaitable[int]]]] = {
    "producer": (f"send {MESSAGES} messages to {TOPIC}", produce),
    "consumer": (f"print the messages of {TOPIC} as they are pushed to a consumer group", consume),
}
