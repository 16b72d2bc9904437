"""Lists, shows and resolves global transactions for `turbopump transactions`; shows half messages too."""

import argparse
import getpass
import os
import socket
from collections.abc import AsyncIterator, Mapping

import msgspec

from turbopump.admin.message_text import document
from turbopump.admin.render import json_text
from turbopump.cli.dlq import beginning
from turbopump.cli.failures import CommandFailure
from turbopump.cli.listing import print_table
from turbopump.cli.records import moment
from turbopump.client.admin import Admin, NotFound
from turbopump.client.admin.global_transactions import BookEntry, branches, history
from turbopump.client.admin.transactions import asked, group_of, topic_of
from turbopump.client.message import MessageExt
from turbopump.protocol.body_text import printable
from turbopump.protocol.errors import Refused
from turbopump.protocol.global_transactions import GlobalKind, GlobalState, GlobalTransaction

HALF = "half"
KINDS = (HALF, *GlobalKind)
OPEN, EXPIRED = "open", "expired"
STATES = (*GlobalState, EXPIRED)
NOT_ENDED = (GlobalState.OPEN, GlobalState.DECIDED, GlobalState.PARKED)
LIST_FORM = "%-8s  %-5s  %-40s  %-23s  %-8s  %-23s  %-16s  %-16s  %s"
LIST_HEADINGS = (
    *("#State", "#Kind", "#Transaction", "#Opened", "#Decision", "#Next Try", "#Group", "#Broker"),
    "#Last Error",
)
EVENT_FORM = "%-23s  %-16s  %-32s  %s"
EVENT_HEADINGS = ("#Time", "#Event", "#Branch", "#Data")
TEXT_SHOWN = 200


# --- list ------------------------------------------------------------------------------------------------


async def listed(admin: Admin, kind: str, state: str, group: str, before_ms: int) -> list[BookEntry]:
    """Returns global transactions, those that wait for an operator first, then the oldest first.

    Without a state: those that have not ended.
    """
    found = [
        entry
        async for entry in admin.global_transactions.all(kind, state, group, before_ms)
        if state or entry.transaction.state in NOT_ENDED
    ]
    return sorted(
        found, key=lambda one: (one.transaction.state != GlobalState.PARKED, one.transaction.opened_ms)
    )


def row(entry: BookEntry) -> str:
    one = entry.transaction
    cells = (one.state, one.kind, one.gid, moment(one.opened_ms), one.decision or "-", _time(one.next_try_ms))
    return printable(LIST_FORM % (*cells, one.group, entry.broker, _short(one.error))).rstrip()


def entry_document(entry: BookEntry) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(entry.transaction)
    return found | {"broker": entry.broker, "state": str(entry.transaction.state)}


def _time(time_ms: int) -> str:
    return moment(time_ms) if time_ms else "-"


def _short(text: str) -> str:
    return text if len(text) <= TEXT_SHOWN else text[:TEXT_SHOWN] + "…"


# --- show ------------------------------------------------------------------------------------------------


async def show(options: argparse.Namespace, admin: Admin) -> int:
    """Prints a transaction with its plan, branches and history, or a half message."""
    try:
        entry = await admin.global_transactions.find(options.id, options.group)
    except NotFound as not_found:
        found = await half_message(admin, options.id)
        if found is None:
            raise CommandFailure(f"{not_found}, and no half message has this id") from None
        return _show_half(options, *found)
    if options.json:
        print(json_text(_shown_document(entry)))
        return 0
    for name, value in _facts(entry).items():
        print(printable(f"{name:<10}  {value}"))
    print()
    known = branches(entry.transaction)
    print_table(
        "%-32s  %-16s  %s",
        ("#Branch", "#Last Event", "#At"),
        (printable(f"{one.branch:<32}  {one.event or '-':<16}  {_time(one.at_ms)}") for one in known),
    )
    print()
    rows = (
        printable(EVENT_FORM % (moment(one.at_ms), one.event, one.branch, _short(one.data))).rstrip()
        for one in history(entry.transaction)
    )
    return print_table(EVENT_FORM, EVENT_HEADINGS, rows)


def _facts(entry: BookEntry) -> Mapping[str, str]:
    one = entry.transaction
    found = {
        "gid": one.gid,
        "group": one.group,
        "kind": one.kind,
        "state": one.state,
        "decision": _decision(one),
        "outcome": one.outcome or "-",
        "opened": moment(one.opened_ms),
        "deadline": _time(one.deadline_ms),
        "owner": f"{one.owner or '-'}, lease {one.lease} until {_time(one.lease_until_ms)}",
        "next try": _time(one.next_try_ms),
        "last error": one.error or "-",
        "broker": f"{entry.broker} at {entry.address}",
        "messages": f"at {', '.join(one.brokers)}" if one.brokers else "-",
        "plan": _short(one.plan) or "-",
    }
    return {name: str(value) for name, value in found.items()}


def _decision(one: GlobalTransaction) -> str:
    return f"{one.decision} by {one.decided_by} at {moment(one.decided_ms)}" if one.decision else "-"


def _shown_document(entry: BookEntry) -> dict[str, object]:
    events = [msgspec.to_builtins(one) for one in history(entry.transaction)]
    known = [msgspec.to_builtins(one) for one in branches(entry.transaction)]
    return entry_document(entry) | {"history": events, "branchStates": known}


async def half_message(admin: Admin, message_id: str) -> tuple[str, MessageExt] | None:
    """Returns the half message of this id with its state, open or expired; None: there is none."""
    found: dict[str, AsyncIterator[MessageExt]] = {
        OPEN: admin.transactions.open(),
        EXPIRED: admin.transactions.expired(),
    }
    for state, halves in found.items():
        async for half in halves:
            if message_id in (half.message_id, half.offset_message_id):
                return state, half
    return None


def half_document(half: MessageExt) -> dict[str, object]:
    return document(half) | {
        "realTopic": topic_of(half),
        "producerGroup": group_of(half),
        "asked": asked(half),
    }


def _show_half(options: argparse.Namespace, state: str, half: MessageExt) -> int:
    if options.json:
        print(json_text({"kind": HALF, "state": state, **half_document(half)}))
        return 0
    facts = {
        "message": half.message_id,
        "kind": HALF,
        "state": state,
        "sent": moment(half.born_timestamp),
        "asked": f"{asked(half)} times",
        "producers": group_of(half),
        "topic": topic_of(half),
        "body": beginning(half),
    }
    for name, value in facts.items():
        print(printable(f"{name:<10}  {value}"))
    return 0


# --- retry, resolve --------------------------------------------------------------------------------------


async def retry(options: argparse.Namespace, admin: Admin) -> int:
    """Has a global transaction tried again now, or the producers of an expired half message asked again."""
    try:
        entry = await admin.global_transactions.resolve(
            options.id, "retry", operator(), options.because, group=options.group
        )
    except NotFound as not_found:
        found = await half_message(admin, options.id)
        if found is None:
            raise CommandFailure(f"{not_found}, and no half message has this id") from None
        await _resume(admin, *found)
    except Refused as refused:
        raise CommandFailure(f"cannot retry {options.id}: {refused.remark}") from None
    else:
        words = f"by the next client of group {entry.transaction.group} that claims it"
        print(printable(f"{options.id} will be tried again {words}"))
    return 0


async def _resume(admin: Admin, state: str, half: MessageExt) -> None:
    if state == OPEN:
        raise CommandFailure(
            f"{half.message_id} is an open half message: its producers are asked in each round"
        )
    try:
        await admin.transactions.resume(half)
    except Refused as refused:
        raise CommandFailure(f"cannot retry {half.message_id}: {refused.remark}") from None
    print(f"{half.message_id} resumed")


async def resolve(options: argparse.Namespace, admin: Admin) -> int:
    """Decides a global transaction by hand, or notes that a branch was ended by hand."""
    action = "done" if options.done else "commit" if options.commit else "abort"
    try:
        entry = await admin.global_transactions.resolve(
            options.id,
            action,
            operator(),
            options.because,
            branch=options.done or "",
            heuristic=options.heuristic,
            group=options.group,
        )
    except NotFound as not_found:
        if await half_message(admin, options.id) is not None:
            raise CommandFailure(
                f"{options.id} is a half message, which its producers commit or roll back: `turbopump "
                "transactions retry` asks them again"
            ) from None
        raise CommandFailure(str(not_found)) from None
    except Refused as refused:
        raise CommandFailure(f"cannot resolve {options.id}: {refused.remark}") from None
    one = entry.transaction
    what = f"branch {options.done} is noted as done" if options.done else f"the decision is {one.decision}"
    print(printable(f"{options.id}: {what}; the state is {one.state}"))
    return 0


def operator() -> str:
    """Returns who runs this command, as the history of a transaction shows it."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        name = f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}"
