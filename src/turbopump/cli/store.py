"""`turbopump store`: verifies a store directory, rebuilds queues and index, copies it, dumps its records."""

import argparse
import sys
import time
from collections.abc import Callable
from typing import TextIO

import msgspec

from turbopump.admin.render import json_text
from turbopump.cli.arguments import add_action, count
from turbopump.cli.failures import FAILED, CommandFailure
from turbopump.cli.records import fields, line
from turbopump.store.location import find_store
from turbopump.store.tools import Copied, Progress, Rebuilt, VerifyReport, backup, dump, rebuild, verify
from turbopump.store.tools import run as run_steps

BAR_WIDTH = 30
BETWEEN_BARS_S = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (summary, _) in ACTIONS.items():
        action = add_action(actions, name, summary, EXAMPLES[name])
        action.add_argument(
            "directory", metavar="DIR", help="store directory, with commitlog/ or dledger-ID/ in it"
        )
        action.add_argument("--json", action="store_true", help="print JSON")
        if name == "backup":
            action.add_argument("target", metavar="TARGET", help="directory that is empty or does not exist")
        if name == "dump":
            action.add_argument("--topic", help="only records of this topic")
            action.add_argument("--queue", type=int, metavar="ID", help="only records of this queue")
            action.add_argument(
                "--from", dest="begin", type=int, default=0, metavar="OFFSET", help="begin at this log offset"
            )
            action.add_argument("-n", dest="limit", type=count, metavar="N", help="stop after N records")


def run(options: argparse.Namespace) -> int:
    _, action = ACTIONS[options.action]
    return action(options, store_in(options.directory, with_dledger=True))


def store_in(directory: str, with_dledger: bool = False) -> str:
    """Returns the directory, or its subdirectory `store`, whichever has a commit log; else CommandFailure.

    With `with_dledger`, a log of DLedger counts as well.
    """
    found = find_store(directory, with_dledger)
    if found is None:
        raise CommandFailure(f"{directory} must be a store directory, but has no commitlog/")
    return found


def _verify(options: argparse.Namespace, directory: str) -> int:
    report = run_steps(verify(directory), ProgressBar(sys.stderr))
    _print(report, summary_of(report), options.json)
    return 0 if report.is_good else FAILED


def _rebuild(options: argparse.Namespace, directory: str) -> int:
    rebuilt = run_steps(rebuild(directory), ProgressBar(sys.stderr))
    text = f"{directory}: {rebuilt.queues} queues and the index rebuilt from {rebuilt.records} records"
    if rebuilt.unread_files:
        text += f"; {rebuilt.unread_files} files behind log offset {rebuilt.log_end} are unreadable"
    if rebuilt.damaged_timers:
        text += "; damaged timer files were removed: the next start rebuilds them from the log"
    _print(rebuilt, text, options.json)
    return FAILED if rebuilt.unread_files else 0


def _backup(options: argparse.Namespace, directory: str) -> int:
    copied = run_steps(backup(directory, options.target), ProgressBar(sys.stderr))
    text = (
        f"{directory} copied to {options.target}: {copied.log_files} log files from offset "
        f"{copied.log_begin}, {copied.bytes >> 20} MiB written, and {copied.tables} tables. "
    )
    _print(copied, text + (_restore_group(copied) if copied.dledger_id else RESTORE), options.json)
    return 0


RESTORE = "To restore, start a broker on the copy; its first start builds queues and index"


def _restore_group(copied: Copied) -> str:
    return (
        f"To restore the whole DLedger group, give each member this copy, with dledger-{copied.dledger_id} "
        "renamed to its own id. Never restore a single member from a copy: start it without its directory "
        "dledger-ID, and it copies the log from its group"
    )


def _dump(options: argparse.Namespace, directory: str) -> int:
    records = dump(directory, options.topic, options.queue, begin=options.begin, count=options.limit)
    for record in records:
        if options.json:
            shown = {**fields(record), "logOffset": record.physical_offset, "size": record.size}
            print(json_text(shown))
        else:
            print(f"{record.physical_offset} {record.topic} {line(record)}")
    return 0


EXAMPLES = {
    "verify": "turbopump store verify ./data",
    "rebuild": "turbopump store rebuild ./data",
    "backup": "turbopump store backup ./data/store /backup/store",
    "dump": "turbopump store dump ./data --topic orders -n 10 --json",
}

ACTIONS: dict[str, tuple[str, Callable[[argparse.Namespace, str], int]]] = {
    "verify": (
        "read every record and compare queues, index and timers with the log; changes nothing",
        _verify,
    ),
    "rebuild": ("rebuild consume queues and index from the commit log; the broker must be stopped", _rebuild),
    "backup": ("copy the store, also of a running broker, into a new directory", _backup),
    "dump": ("print the records of the commit log; changes nothing", _dump),
}


class ProgressBar:
    """A progress bar on a terminal; prints nothing elsewhere."""

    def __init__(self, to: TextIO | None) -> None:
        self._to = to if to is not None and to.isatty() else None
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        is_last = progress.done >= progress.total
        if self._to is None or (time.monotonic() < self._next and not is_last):
            return
        self._next = time.monotonic() + BETWEEN_BARS_S
        self._to.write("\r" + bar(progress) + ("\n" if is_last else ""))
        self._to.flush()


def bar(progress: Progress) -> str:
    share = progress.done / progress.total if progress.total else 1.0
    filled = round(share * BAR_WIDTH)
    sizes = f"{progress.done >> 20} of {progress.total >> 20} MiB"
    return f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {share:4.0%}  {sizes}"


def summary_of(report: VerifyReport) -> str:
    lines = [
        f"{report.directory}: {report.records} records in {len(report.topics)} topics, "
        f"log offsets {report.log_begin} to {report.log_end}, "
        + ("cleanly stopped" if report.is_clean else "in use or not cleanly stopped")
    ]
    for name, topic in sorted(report.topics.items()):
        lines.append(f"  {name}: {topic.records} records, {topic.bytes} bytes, {len(topic.queues)} queues")
    lines += [f"note: {note.text}" for note in report.notes]
    lines += [f"PROBLEM: {problem.text}" for problem in report.problems]
    total = sum(report.counts[kind] for kind in {problem.kind for problem in report.problems})
    verdict = f"{total} problems; `turbopump store rebuild` rebuilds queues and index"
    lines.append("sound" if report.is_good else verdict)
    return "\n".join(lines)


def _print(result: VerifyReport | Rebuilt | Copied, text: str, as_json: bool) -> None:
    print(msgspec.json.encode(result).decode() if as_json else text)
