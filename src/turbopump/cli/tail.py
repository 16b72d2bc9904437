"""`turbopump tail`: prints the messages of a topic as they arrive, one line each.

With `--to` it also writes a Parquet file, which is complete however the command ends.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turbopump.cli import connect
from turbopump.cli.arguments import count
from turbopump.cli.exits import discard_stdout, on_closed_stdout, warn
from turbopump.cli.failures import USAGE_ERROR, CommandFailure
from turbopump.cli.records import Condition, Show, Wanted, show_format, show_json, show_line
from turbopump.cli.times import WHEN, point_in_time
from turbopump.client.errors import InvalidArgument
from turbopump.client.group.subscription import parse_expression
from turbopump.client.message import MessageQueue
from turbopump.client.pull.puller import Puller
from turbopump.client.pull.topic_reader import NoSuchQueue, StartOf, Take, TopicReader
from turbopump.client.rules import check_topic
from turbopump.protocol.names import SQL92
from turbopump.protocol.record import Record
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.times import MIN_MS

if TYPE_CHECKING:
    from turbopump.pipelines.record_writer import RecordWriter

TERMINAL_BODY_LIMIT = 1000
"""Characters of a body on a terminal; pipes and files get the whole body."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("topic", metavar="TOPIC")
    option(
        "--from",
        dest="start",
        default="last",
        metavar="WHERE",
        help=f"begin at: first, last (default: only new messages), an offset, {WHEN}",
    )
    option("-n", dest="limit", type=count, metavar="N", help="stop after N messages")
    option("--queue", action="append", type=count, metavar="ID", help="only this queue; may be repeated")
    option("--tag", action="append", default=[], help="only messages with this tag; may be repeated")
    option("--sql", metavar="EXPR", help="only messages for which this SQL92 condition on properties is true")
    option(
        "--where",
        metavar="EXPR",
        help="as --sql, but evaluated here, for brokers without SQL filters; also on queue, offset, stored, "
        "born, size and body",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object per line")
    form.add_argument(
        "--format",
        metavar="TEXT",
        help="format of a line: '{time} {queue}:{offset} {properties[amount]} {body}'",
    )
    option(
        "--body-limit",
        type=count,
        metavar="N",
        help=f"show at most N characters of a body; 0: all (default: {TERMINAL_BODY_LIMIT} on a terminal)",
    )
    option("--to", metavar="FILE", help="also write this Parquet file, as `turbopump export` does")
    connect.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    check_topic(options.topic)  # an invalid topic would be waited for forever
    printer = Printer(shown_by(options), options.limit)
    where = Condition(options.where).predicate() if options.where is not None else None
    with kept(options.to, printer) if options.to else contextlib.nullcontext(printer.take) as take:
        if options.limit != 0:
            _until_enough(options, chosen(where, take) if where else take)
    return 0


def shown_by(options: argparse.Namespace) -> Show:
    limit = options.body_limit
    if options.json:
        return show_json(limit or 0)
    if options.format is not None:
        return show_format(options.format, limit or 0)
    if limit is None:
        limit = TERMINAL_BODY_LIMIT if sys.stdout is not None and sys.stdout.isatty() else 0
    return show_line(limit)


def chosen(where: Wanted, take: Take) -> Take:
    """Returns a function that passes messages that match `where` to `take`, and skips the others."""
    return lambda record, queue: take(record, queue) if where(record) else True


def _until_enough(options: argparse.Namespace, take: Take) -> None:
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):  # the normal end
        asyncio.run(_tail(options, take))


@contextlib.contextmanager
def kept(path: str, printer: "Printer") -> Iterator[Take]:
    """Yields a function that prints messages and writes them to a file, which is complete in any case."""
    keeping = _keeping(path)

    def take(record: Record, queue: MessageQueue) -> bool:
        keeping.add(record, queue.broker)
        return printer.take(record, queue)

    try:
        yield take
    finally:
        try:
            done = keeping.close()
        except BaseException:
            keeping.file.discard()
            raise
        notice(f"{done.rows} messages, {done.bytes >> 10} KiB: {done.path}")


def _keeping(path: str) -> "RecordWriter":
    try:
        from turbopump.pipelines.parquet import ParquetFile
        from turbopump.pipelines.record_writer import RecordWriter
        from turbopump.pipelines.schema import schema_of
    except ModuleNotFoundError as error:
        raise CommandFailure(f"--to needs PyArrow: pip install 'turbopump[arrow]' ({error})") from None
    schema = schema_of()
    return RecordWriter(ParquetFile(path, schema), schema)


async def _tail(options: argparse.Namespace, take: Take) -> None:
    task = asyncio.current_task()
    assert task is not None
    if options.to:  # as Ctrl-C: `timeout 60 turbopump tail …` and background jobs end by SIGTERM
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    start = parse_start_position(options.start, SystemClock().now_ms())
    tags = frozenset(options.tag)
    sql = wanted_by(options.sql, tags)
    queues = frozenset(options.queue or ())
    async with connect.connected(options.namesrv) as here:
        on_closed_stdout(task.cancel)
        puller = Puller(here.client, here.routes)
        following = TopicReader(puller, here.routes, here.clock, options.topic, tags, notice, sql, queues)
        try:
            await following.run(start.of(puller), take)
        except NoSuchQueue as error:
            raise CommandFailure(f"--queue: {error}", USAGE_ERROR) from None


def wanted_by(sql: str | None, tags: frozenset[str]) -> str:
    try:
        expression, kind = parse_expression(" || ".join(sorted(tags)), sql, None)
    except InvalidArgument as error:
        raise CommandFailure(str(error), USAGE_ERROR) from None
    return expression if kind == SQL92 else ""


def notice(text: str) -> None:
    warn(f"turbopump: {text}")


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where reading begins in each queue: at its first message, at its end, at an offset, or at a time."""

    end: str = ""
    offset: int = 0
    time_ms: int | None = None

    def of(self, puller: Puller) -> StartOf:
        async def start(queue: MessageQueue) -> int:
            if self.end == "last":
                return await puller.max_offset(queue)
            if self.time_ms is not None:
                return await puller.offset_at(queue, self.time_ms)
            first = await puller.min_offset(queue)
            if self.offset:
                self._say_where(queue, first, await puller.max_offset(queue))
            return max(self.offset, first)

        return start

    def _say_where(self, queue: MessageQueue, first: int, end: int) -> None:
        where = f"queue {queue.id} of {queue.broker}"
        if self.offset > end:
            notice(f"--from {self.offset}: {where} ends at offset {end}, nothing is shown before")
        elif self.offset < first:
            notice(f"--from {self.offset}: {where} begins at offset {first}; older messages are deleted")


def parse_start_position(text: str, now_ms: int) -> StartPosition:
    """Parses --from: first, last, an offset or a time; a number from `MIN_MS` on is ms since 1970."""
    if text in ("first", "last"):
        return StartPosition(end=text)
    if text.isdecimal() and int(text) < MIN_MS:
        return StartPosition(offset=int(text))
    return StartPosition(time_ms=point_in_time(text, now_ms, "--from", "first, last or an offset"))


@dataclass
class Printer:
    """Prints messages until a limit or a closed stdout."""

    show: Show
    left: int | None

    def take(self, record: Record, queue: MessageQueue) -> bool:
        try:
            print(self.show(record), flush=True)
        except BrokenPipeError:  # the reader of stdout, as `head`, has closed it
            discard_stdout()
            return False
        if self.left is not None:
            self.left -= 1
        return self.left is None or self.left > 0
