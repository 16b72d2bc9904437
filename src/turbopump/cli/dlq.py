"""`turbopump dlq`: lists the dead letters of a consumer group, sends them again, exports them to a file."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TextIO

from turbopump.admin.message_text import document
from turbopump.admin.render import cut_line, json_text
from turbopump.cli import connect
from turbopump.cli.arguments import add_action, count
from turbopump.cli.exits import warn
from turbopump.cli.failures import FAILED, USAGE_ERROR, CommandFailure
from turbopump.cli.listing import print_document, print_table
from turbopump.cli.records import moment
from turbopump.cli.times import WHEN, point_in_time
from turbopump.client.admin import Admin, NotFound
from turbopump.client.admin.dead_letters import DeadLetters, Target, Window, origin_of
from turbopump.client.admin.messages import FOREVER_MS
from turbopump.client.message import MessageExt
from turbopump.protocol.body_text import body_text, printable
from turbopump.protocol.errors import BrokenBody, Refused

GROUP_OF_SENDER = "turbopump-dlq"
SHOWN = 100
RESENT = 1000
BODY_SHOWN = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (summary, _) in ACTIONS.items():
        action = add_action(actions, name, summary, EXAMPLES[name])
        action.add_argument("group", metavar="GROUP", help="the consumer group")
        _add_selection(action)
        if name == "list":
            action.add_argument(
                "-n",
                dest="limit",
                type=count,
                default=SHOWN,
                metavar="N",
                help=f"show at most N letters (default: {SHOWN})",
            )
            action.add_argument("--json", action="store_true", help="print one JSON document")
        if name == "resend":
            action.add_argument(
                "-n",
                dest="limit",
                type=count,
                default=RESENT,
                metavar="N",
                help=f"send at most N letters (default: {RESENT})",
            )
            action.add_argument("--all", action="store_true", help="send every dead letter of the group")
            action.add_argument(
                "--to-topic",
                action="store_true",
                help="send to the original topic: every group that reads it gets them",
            )
            action.add_argument(
                "--again", action="store_true", help="also letters that were sent again before"
            )
            action.add_argument("--json", action="store_true", help="print one JSON document")
        if name == "export":
            action.add_argument("-n", dest="limit", type=count, metavar="N", help="export at most N letters")
            action.add_argument(
                "-o", dest="file", default="-", metavar="FILE", help="write to FILE (default: stdout)"
            )
        connect.add_argument(action)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--id", action="append", default=[], help="only this letter, by any of its ids; may be repeated"
    )
    parser.add_argument("--since", metavar="TIME", help=f"only letters that were given up at or after {WHEN}")
    parser.add_argument(
        "--until", metavar="TIME", help=f"only letters that were given up at or before {WHEN}"
    )


def run(options: argparse.Namespace) -> int:
    _, action = ACTIONS[options.action]
    return asyncio.run(_run(options, action))


@dataclass
class DeadLetterCommand:
    """One call of `turbopump dlq`: its options and a client."""

    options: argparse.Namespace
    admin: Admin
    letters: DeadLetters

    async def chosen(self) -> AsyncIterator[MessageExt]:
        if self.options.id:
            for message_id in self.options.id:
                yield await self.letters.with_id(message_id)
            return
        now_ms = self.admin.clock.now_ms()
        since = _time(self.options.since, now_ms, "--since", 0)
        until = _time(self.options.until, now_ms, "--until", FOREVER_MS)
        async for letter in self.letters.within(Window(since, until)):
            yield letter


def _time(text: str | None, now_ms: int, name: str, default_ms: int) -> int:
    return default_ms if text is None else point_in_time(text, now_ms, name)


async def _run(options: argparse.Namespace, action: Callable[[DeadLetterCommand], Awaitable[int]]) -> int:
    if options.id and (options.since or options.until):
        raise CommandFailure("--id cannot be combined with --since or --until", USAGE_ERROR)
    async with connect.administration(options.namesrv) as admin:
        letters = DeadLetters(admin.messages, admin.routes, options.group)
        try:
            return await action(DeadLetterCommand(options, admin, letters))
        except NotFound as error:
            raise CommandFailure(str(error)) from None


# --- list ------------------------------------------------------------------------------------------------

FORM = "%-32s  %-23s  %-7s  %-24s  %-16s  %-16s  %s"
HEADINGS = ("#Message ID", "#Died", "#Retries", "#Topic", "#Tags", "#Keys", "#Body")


async def _list(command: DeadLetterCommand) -> int:
    shown: list[MessageExt] = []
    cut = ""
    async for letter in command.chosen():
        if len(shown) == command.options.limit:
            cut = f"{command.options.limit} letters are shown, there are more; use -n for more"
            break
        shown.append(letter)
    if command.options.json:
        found = {"group": command.options.group, "messages": [letter_document(letter) for letter in shown]}
        return print_document(found, cut)
    return print_table(FORM, HEADINGS, map(row, shown), cut)


def row(letter: MessageExt) -> str:
    keys = " ".join(letter.keys)
    cells = (letter.message_id, moment(letter.store_timestamp), letter.reconsume_times, origin_of(letter))
    return printable(FORM % (*cells, letter.tags or "", keys, beginning(letter))).rstrip()


def beginning(letter: MessageExt) -> str:
    try:
        text = body_text(letter.body)
    except BrokenBody:
        return f"({len(letter.record.body)} unreadable bytes)"
    return text if len(text) <= BODY_SHOWN else text[:BODY_SHOWN] + "…"


def letter_document(letter: MessageExt) -> dict[str, object]:
    return document(letter) | {"originTopic": origin_of(letter)}


# --- resend ----------------------------------------------------------------------------------------------


@dataclass
class ResendOutcome:
    """Result of sending one dead letter again."""

    letter: MessageExt
    status: str
    detail: str
    target: str = ""

    def line(self) -> str:
        to = f" to {self.target}" if self.target else ""
        return printable(f"{self.letter.message_id} {self.status}{to} {self.detail}").rstrip()

    def document(self) -> dict[str, object]:
        return {
            "msgId": self.letter.message_id,
            "dlqOffsetMsgId": self.letter.offset_message_id,
            "status": self.status,
            "topic": self.target or None,
            "detail": self.detail,
        }


async def _resend(command: DeadLetterCommand) -> int:
    """Sends the chosen dead letters again, skips those sent before, and returns the exit status."""
    options = command.options
    if not (options.id or options.since or options.until or options.all):
        raise CommandFailure("choose letters: --id, --since, --until or --all", USAGE_ERROR)
    target = Target.TOPIC if options.to_topic else Target.GROUP
    outcomes: list[ResendOutcome] = []
    sent = 0
    cut = ""
    async for letter in command.chosen():
        if sent == options.limit:
            cut = f"{sent} letters were sent, there are more; run the command again to continue"
            break
        outcome = await resend_one(command, letter, target)
        sent += outcome.status != ALREADY
        outcomes.append(outcome)
        if not options.json:
            print(outcome.line(), flush=True)
    failed = sum(outcome.status == NOT_SENT for outcome in outcomes)
    if options.json:
        found = {"group": options.group, "results": [outcome.document() for outcome in outcomes]}
        print(json_text(found | ({"cut": cut} if cut else {})))
    else:
        print(summary(outcomes))
        if cut:
            print(cut_line(cut))
    return FAILED if failed else 0


SENT, ALREADY, NOT_SENT = "resent", "already resent", "not sent"


async def resend_one(command: DeadLetterCommand, letter: MessageExt, target: Target) -> ResendOutcome:
    try:
        topic = command.letters.target_of(letter, target)
        earlier = [] if command.options.again else await command.letters.copies(letter, target)
        if earlier:
            return ResendOutcome(letter, ALREADY, f"offsetMsgId={earlier[0].offset_message_id}", topic)
        result = await command.letters.resend(letter, target, command.admin.producer(GROUP_OF_SENDER))
    except (Refused, OSError, BrokenBody, NotFound) as error:
        return ResendOutcome(letter, NOT_SENT, str(error).splitlines()[0])
    return ResendOutcome(letter, SENT, f"offsetMsgId={result.offset_message_id}", topic)


def summary(outcomes: list[ResendOutcome]) -> str:
    counts = {status: sum(one.status == status for one in outcomes) for status in (SENT, ALREADY, NOT_SENT)}
    return ", ".join(f"{count} {status}" for status, count in counts.items())


# --- export ----------------------------------------------------------------------------------------------


async def _export(command: DeadLetterCommand) -> int:
    """Writes the chosen dead letters to a file or stdout, a JSON object per line; returns the exit status."""
    options = command.options
    count, is_cut = 0, False
    with output(options.file) as to:
        async for letter in command.chosen():
            if count == options.limit:
                is_cut = True
                break
            to.write(json_text(letter_document(letter)) + "\n")
            count += 1
    words = f"{count} dead letters of group {options.group} exported"
    warn(words + (f" {cut_line('there are more; use -n for more')}" if is_cut else ""))
    return 0


def output(file: str) -> AbstractContextManager[TextIO]:
    return nullcontext(sys.stdout) if file == "-" else open(file, "w", encoding="utf-8")


EXAMPLES = {
    "list": "turbopump dlq list billing --since 1h",
    "resend": "turbopump dlq resend billing --all\nturbopump dlq resend billing --since 1d --to-topic",
    "export": "turbopump dlq export billing -o dead.jsonl",
}

ACTIONS: dict[str, tuple[str, Callable[[DeadLetterCommand], Awaitable[int]]]] = {
    "list": ("show the dead letters of a group", _list),
    "resend": ("send dead letters again, to be consumed by the group, each once", _resend),
    "export": ("write dead letters as JSON, one per line", _export),
}
