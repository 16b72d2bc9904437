"""`turbopump timers`: lists messages with a delivery time, and recalls one."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from turbopump.admin.message_text import document
from turbopump.cli import connect
from turbopump.cli.arguments import add_action, count
from turbopump.cli.dlq import beginning
from turbopump.cli.failures import CommandFailure
from turbopump.cli.listing import print_document, print_table
from turbopump.cli.records import moment
from turbopump.client.admin import Admin, NotFound
from turbopump.client.admin.timers import Timer
from turbopump.protocol.body_text import printable

SHOWN = 100
FORM = "%-23s  %-24s  %-32s  %-16s  %-24s  %s"
HEADINGS = ("#Due", "#Topic", "#Message ID", "#Tags", "#Body", "#Handle")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    shown = add_action(actions, "list", ACTIONS["list"][0], "turbopump timers list --topic orders")
    shown.add_argument("--topic", metavar="TOPIC", help="only messages for this topic")
    shown.add_argument(
        "-n",
        dest="limit",
        type=count,
        default=SHOWN,
        metavar="N",
        help=f"show at most N messages, the next first (default: {SHOWN})",
    )
    shown.add_argument("--json", action="store_true", help="print one JSON document")
    recall = add_action(actions, "recall", ACTIONS["recall"][0], "turbopump timers recall HANDLE")
    recall.add_argument(
        "handle", metavar="HANDLE", help="from `timers list`, or from the receipt of the send"
    )
    for action in (shown, recall):
        connect.add_argument(action)


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    _, action = ACTIONS[options.action]
    async with connect.administration(options.namesrv) as admin:
        try:
            return await action(options, admin)
        except NotFound as error:
            raise CommandFailure(str(error)) from None


async def _list(options: argparse.Namespace, admin: Admin) -> int:
    found = await admin.timers.pending(options.topic)
    shown = found[: options.limit]
    cut = f"{len(shown)} of {len(found)} are shown; use -n for more" if len(found) > len(shown) else ""
    if options.json:
        listed = {"count": len(found), "timers": [timer_document(timer) for timer in shown]}
        return print_document(listed, cut)
    return print_table(FORM, HEADINGS, map(row, shown), cut)


async def _recall(options: argparse.Namespace, admin: Admin) -> int:
    print(f"{await admin.timers.recall(options.handle)} is recalled")
    return 0


def row(timer: Timer) -> str:
    message = timer.message
    cells = (moment(timer.due_ms), timer.topic, message.message_id, message.tags or "", beginning(message))
    return printable(FORM % (*cells, timer.handle)).rstrip()


def timer_document(timer: Timer) -> dict[str, object]:
    return document(timer.message) | {
        "deliverMs": timer.due_ms,
        "realTopic": timer.topic,
        "recallHandle": timer.handle,
    }


ACTIONS: dict[str, tuple[str, Callable[[argparse.Namespace, Admin], Awaitable[int]]]] = {
    "list": ("list messages with a delivery time, the next first", _list),
    "recall": ("recall a message: it will not be delivered", _recall),
}
