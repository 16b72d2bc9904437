"""`turbopump transactions`: lists open and expired transactions, and checks expired ones again.

Also lists and forgets the transactional ids by which Spark's sinks write each batch exactly once.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator

from msgspec.structs import asdict

from turbopump.admin.message_text import document
from turbopump.admin.render import json_text
from turbopump.cli import connect
from turbopump.cli.arguments import add_action, count
from turbopump.cli.dlq import beginning
from turbopump.cli.failures import FAILED, USAGE_ERROR, CommandFailure
from turbopump.cli.listing import print_document, print_table
from turbopump.cli.records import moment
from turbopump.client.admin import Admin
from turbopump.client.admin.transactions import asked, group_of, topic_of
from turbopump.client.message import MessageExt
from turbopump.protocol.body_text import printable
from turbopump.protocol.errors import Refused
from turbopump.protocol.ledger import BookSummary

SHOWN = 100
FORM = "%-8s  %-32s  %-23s  %-6s  %-24s  %-20s  %s"
HEADINGS = ("#State", "#Message ID", "#Sent", "#Asked", "#Producer Group", "#Topic", "#Body")
ID_FORM = "%-9s  %-16s  %-23s  %10s  %8s  %s"
ID_HEADINGS = ("#State", "#Home", "#Last Use", "#Batch", "#Open", "#Transactional Id")
OPEN, EXPIRED = "open", "expired"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    shown = add_action(
        actions, "list", "show open and expired transactions", "turbopump transactions list -n 20"
    )
    shown.add_argument(
        "-n", dest="limit", type=count, default=SHOWN, metavar="N", help="show at most N of each"
    )
    shown.add_argument("--json", action="store_true", help="print one JSON document")
    resumed = add_action(
        actions,
        "resume",
        "check expired transactions again with their producers",
        "turbopump transactions resume --all",
    )
    resumed.add_argument("--id", action="append", default=[], help="only this message; may be repeated")
    resumed.add_argument("--all", action="store_true", help="every expired transaction that has not ended")
    ids = add_action(
        actions,
        "ids",
        "show transactional ids: state, home, last use, last batch",
        "turbopump transactions ids --json",
    )
    ids.add_argument("--json", action="store_true", help="print one JSON document")
    forgotten = add_action(
        actions, "forget", "remove a transactional id and its book", "turbopump transactions forget orders-v1"
    )
    forgotten.add_argument("id", help="id as shown by `ids`; its batches can be written again afterwards")
    for action in (shown, resumed, ids, forgotten):
        connect.add_argument(action)


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    async with connect.administration(options.namesrv) as admin:
        return await carry_out(options, admin)


async def carry_out(options: argparse.Namespace, admin: Admin) -> int:
    if options.action == "list":
        return await _list(options, admin)
    if options.action == "ids":
        return await _ids(options, admin)
    if options.action == "forget":
        return await _forget(options, admin)
    if bool(options.id) == options.all:
        raise CommandFailure("choose transactions: --id or --all", USAGE_ERROR)
    return await _resume(options, admin)


async def _list(options: argparse.Namespace, admin: Admin) -> int:
    found = {
        OPEN: await _some(admin.transactions.open(), options.limit + 1),
        EXPIRED: await _some(admin.transactions.expired(), options.limit + 1),
    }
    cut = any(len(halves) > options.limit for halves in found.values())
    words = f"{options.limit} are shown, there are more; use -n for more" if cut else ""
    if options.json:
        shown = {
            state: [_document(half) for half in halves[: options.limit]] for state, halves in found.items()
        }
        return print_document(shown, words)
    rows = (_row(state, half) for state, halves in found.items() for half in halves[: options.limit])
    return print_table(FORM, HEADINGS, rows, words)


async def _ids(options: argparse.Namespace, admin: Admin) -> int:
    books = [book async for book in admin.transactions.ids()]
    if options.json:
        print(json_text([asdict(book) for book in books]))
        return 0
    return print_table(ID_FORM, ID_HEADINGS, map(_id_row, books))


def _id_row(book: BookSummary) -> str:
    batch = book.highest if book.highest >= 0 else "-"
    cells = (book.state, book.home, moment(book.used_ms), batch, book.open_messages, book.id)
    return printable(ID_FORM % cells)


async def _forget(options: argparse.Namespace, admin: Admin) -> int:
    try:
        brokers = await admin.transactions.forget(options.id)
    except Refused as refused:
        raise CommandFailure(f"cannot forget {options.id}: {refused.remark}") from None
    if not brokers:
        raise CommandFailure(f"no broker has the id {options.id}; `turbopump transactions ids` shows all ids")
    print(f"{options.id} forgotten by {brokers} brokers")
    return 0


async def _some(halves: AsyncIterator[MessageExt], most: int) -> list[MessageExt]:
    found: list[MessageExt] = []
    async for half in halves:
        found.append(half)
        if len(found) == most:
            break
    return found


def _row(state: str, half: MessageExt) -> str:
    cells = (state, half.message_id, moment(half.born_timestamp), asked(half), group_of(half), topic_of(half))
    return printable(FORM % (*cells, beginning(half))).rstrip()


def _document(half: MessageExt) -> dict[str, object]:
    return document(half) | {
        "realTopic": topic_of(half),
        "producerGroup": group_of(half),
        "asked": asked(half),
    }


async def _resume(options: argparse.Namespace, admin: Admin) -> int:
    """Makes brokers check expired transactions again; reports open and ended ones. Returns exit status."""
    wanted, failed = set(options.id), 0
    async for half in admin.transactions.expired():
        ids = {half.message_id, half.offset_message_id}
        if not options.all and not wanted & ids:
            continue
        wanted -= ids
        try:
            await admin.transactions.resume(half)
            print(f"{half.message_id} resumed")
        except Refused as refused:
            failed += not options.all
            print(f"{half.message_id} not resumed: {refused.remark}")
    for message_id in sorted(wanted):
        print(f"{message_id} not resumed: no such expired transaction")
    return FAILED if failed or wanted else 0
