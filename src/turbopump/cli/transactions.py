"""`turbopump transactions`: lists, shows, retries and resolves transactions that have not ended.

Those are half messages, and global transactions over several participants (XA, 3PC, TCC, SAGA). It also lists
and forgets the transactional ids by which Spark's sinks write each batch exactly once.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from msgspec.structs import asdict

from turbopump.admin.render import json_text
from turbopump.cli import connect, global_transactions
from turbopump.cli.arguments import add_action, count, text
from turbopump.cli.dlq import beginning
from turbopump.cli.failures import FAILED, USAGE_ERROR, CommandFailure
from turbopump.cli.global_transactions import (
    EXPIRED,
    HALF,
    KINDS,
    OPEN,
    STATES,
    entry_document,
    half_document,
)
from turbopump.cli.listing import print_document, print_table
from turbopump.cli.records import moment
from turbopump.cli.times import point_in_time
from turbopump.client.admin import Admin
from turbopump.client.admin.global_transactions import BookEntry
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    shown = add_action(
        actions,
        "list",
        "show transactions that have not ended: half messages, XA, 3PC, TCC, SAGA",
        "turbopump transactions list -n 20\nturbopump transactions list --kind saga --older 5m",
    )
    shown.add_argument("--kind", choices=KINDS, default="", help="only this kind")
    shown.add_argument(
        "--state",
        choices=STATES,
        default="",
        help="only this state (default: all but ended)",
    )
    shown.add_argument("--older", metavar="AGE", help="only those opened before this age (5m) or time")
    shown.add_argument("--group", default="", help="only those of this group of coordinators or producers")
    shown.add_argument(
        "-n", dest="limit", type=count, default=SHOWN, metavar="N", help="show at most N of each"
    )
    shown.add_argument("--json", action="store_true", help="print one JSON document")
    one = add_action(
        actions,
        "show",
        "show one transaction: decision, plan, branches, history, next try, last error",
        "turbopump transactions show tp1.9bf2c7a1.000000000000000000000001",
    )
    one.add_argument("--json", action="store_true", help="print one JSON document")
    retried = add_action(
        actions,
        "retry",
        "have a transaction tried again now, or the producers of an expired half message asked again",
        "turbopump transactions retry order-4711",
    )
    retried.add_argument(
        "--because", type=text, default="retried by hand", metavar="TEXT", help="why; kept in its history"
    )
    resolved = add_action(
        actions,
        "resolve",
        "decide a global transaction by hand, or note that a branch was ended by hand",
        'turbopump transactions resolve order-4711 --done refund --because "paid back by hand, ticket 17"\n'
        'turbopump transactions resolve order-4711 --abort --because "the shop is closed"',
    )
    way = resolved.add_mutually_exclusive_group(required=True)
    way.add_argument("--commit", action="store_true", help="decide commit")
    way.add_argument("--abort", action="store_true", help="decide abort")
    way.add_argument("--done", type=text, metavar="BRANCH", help="this branch was ended by hand")
    resolved.add_argument(
        "--because", type=text, required=True, metavar="TEXT", help="why; kept in its history, with your name"
    )
    resolved.add_argument(
        "--heuristic",
        action="store_true",
        help="also against a decision that is made: participants may then end differently",
    )
    for action in (one, retried, resolved):
        action.add_argument("id", metavar="ID", help="gid of a global transaction, or id of a half message")
        action.add_argument("--group", default="", help="the group, if several have this gid")
    left = add_action(
        actions,
        "orphans",
        "show prepared branches of ours in databases, with the decision of the book",
        "turbopump transactions orphans --resource postgresql://bank@10.0.0.1/icbc",
    )
    left.add_argument(
        "--resource",
        action="append",
        required=True,
        type=text,
        metavar="URL",
        help="database: postgresql://USER@HOST/NAME, mariadb:// or mysql://; may be repeated. Passwords from "
        "PGPASSWORD or MYSQL_PWD, or in the URL",
    )
    left.add_argument("--json", action="store_true", help="print one JSON document")
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
    for action in (shown, one, retried, resolved, left, resumed, ids, forgotten):
        connect.add_argument(action)


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    async with connect.administration(options.namesrv) as admin:
        return await carry_out(options, admin)


async def carry_out(options: argparse.Namespace, admin: Admin) -> int:
    if options.action in ACTIONS:
        return await ACTIONS[options.action](options, admin)
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
    before_ms = 0
    if options.older:
        before_ms = point_in_time(options.older, admin.clock.now_ms(), "--older")
    halves = await _halves(options, admin, before_ms)
    entries: list[BookEntry] | None = None
    if options.kind != HALF and options.state != EXPIRED:
        entries = await global_transactions.listed(
            admin, options.kind, options.state, options.group, before_ms
        )
    cut = any(len(found) > options.limit for found in (*halves.values(), entries or ()))
    words = f"{options.limit} are shown, there are more; use -n for more" if cut else ""
    if options.json:
        shown: dict[str, object] = {
            state: [half_document(half) for half in found[: options.limit]] for state, found in halves.items()
        }
        if entries is not None:
            shown["global"] = [entry_document(entry) for entry in entries[: options.limit]]
        return print_document(shown, words)
    if halves:
        rows = (_row(state, half) for state, found in halves.items() for half in found[: options.limit])
        print_table(FORM, HEADINGS, rows, "" if entries else words)
    if entries or not halves:
        lines = map(global_transactions.row, (entries or [])[: options.limit])
        print_table(global_transactions.LIST_FORM, global_transactions.LIST_HEADINGS, lines, words)
    return 0


async def _halves(options: argparse.Namespace, admin: Admin, before_ms: int) -> dict[str, list[MessageExt]]:
    """Returns the half messages that are wanted, by their state, one more of each than are shown."""
    if options.kind not in ("", HALF):
        return {}
    if options.kind == HALF and options.state not in ("", OPEN, EXPIRED):
        raise CommandFailure(f"half messages are open or expired, got --state {options.state}", USAGE_ERROR)
    sources = {OPEN: admin.transactions.open, EXPIRED: admin.transactions.expired}
    wanted = [options.state] if options.state else list(sources)
    return {state: await _some(sources[state](), options, before_ms) for state in wanted if state in sources}


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


async def _some(
    halves: AsyncIterator[MessageExt], options: argparse.Namespace, before_ms: int
) -> list[MessageExt]:
    found: list[MessageExt] = []
    async for half in halves:
        if before_ms and half.born_timestamp >= before_ms:
            continue
        if options.group and group_of(half) != options.group:
            continue
        found.append(half)
        if len(found) > options.limit:
            break
    return found


def _row(state: str, half: MessageExt) -> str:
    cells = (state, half.message_id, moment(half.born_timestamp), asked(half), group_of(half), topic_of(half))
    return printable(FORM % (*cells, beginning(half))).rstrip()


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


async def _orphans(options: argparse.Namespace, admin: Admin) -> int:
    from turbopump.cli import orphans  # and with it the resources of XA, which nothing else here needs

    return await orphans.show(options, admin)


ACTIONS: dict[str, Callable[[argparse.Namespace, Admin], Awaitable[int]]] = {
    "show": global_transactions.show,
    "retry": global_transactions.retry,
    "resolve": global_transactions.resolve,
    "orphans": _orphans,
}
