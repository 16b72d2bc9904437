"""`turbopump tail`: the messages of a topic on the terminal, one line each, as they arrive; with `--to` also
in a Parquet file, which is whole however the reading ends.
"""

import argparse
import asyncio
import contextlib
import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from turbopump.cli import connect
from turbopump.cli.arguments import count
from turbopump.cli.ending import give_up_stdout, warn, when_nobody_reads
from turbopump.cli.failures import ASKED_WRONGLY, Failure
from turbopump.client.errors import InvalidArgument
from turbopump.client.follow import Following, StartOf, Take
from turbopump.client.message import MessageQueue
from turbopump.client.pull import Puller
from turbopump.client.rules import check_topic
from turbopump.client.subscription import choice
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.ids import offset_id
from turbopump.protocol.names import SQL92
from turbopump.protocol.record import Record, body_of

if TYPE_CHECKING:
    from turbopump.pipelines.keeping import Keeping

UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--from",
        dest="start",
        default="last",
        metavar="WHERE",
        help="first, last (default: only what is new), an offset, a time (2025-06-30T12:00) or an age (10m)",
    )
    parser.add_argument("-n", dest="limit", type=count, metavar="N", help="stop after N messages")
    parser.add_argument(
        "--tag", action="append", default=[], help="only messages with this tag; may be repeated"
    )
    parser.add_argument(
        "--sql", metavar="EXPR", help="only messages of which this SQL92 condition on properties is true"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument(
        "--to", metavar="FILE", help="also into this Parquet file, as `turbopump export` writes"
    )
    connect.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    check_topic(options.topic)  # a topic that cannot be would be waited for without end
    printer = Printer(options.json, options.limit)
    with kept(options.to, printer) if options.to else contextlib.nullcontext(printer.take) as take:
        if options.limit != 0:
            _until_enough(options, take)
    return 0


def _until_enough(options: argparse.Namespace, take: Take) -> None:
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):  # how one ends it
        asyncio.run(_tail(options, take))


@contextlib.contextmanager
def kept(path: str, printer: "Printer") -> Iterator[Take]:
    """Shown and written. What has come by then is in the file even when the reading fails."""
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


def _keeping(path: str) -> "Keeping":
    try:
        from turbopump.pipelines.keeping import Keeping
        from turbopump.pipelines.parquet import ParquetFile
        from turbopump.pipelines.schema import schema_of
    except ModuleNotFoundError as error:
        raise Failure(f"--to needs PyArrow: pip install 'turbopump[arrow]' ({error})") from None
    schema = schema_of()
    return Keeping(ParquetFile(path, schema), schema)


async def _tail(options: argparse.Namespace, take: Take) -> None:
    task = asyncio.current_task()
    assert task is not None
    if options.to:  # as at Ctrl-C: `timeout 60 turbopump tail …` and what runs in the background end this way
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with connect.connected(options.namesrv) as here:
        when_nobody_reads(task.cancel)
        start = parse_start(options.start, here.clock.now_ms())
        puller = Puller(here.client, here.routes)
        tags = frozenset(options.tag)
        sql = wanted_by(options.sql, tags)
        following = Following(puller, here.routes, here.clock, options.topic, tags, notice, sql)
        await following.run(start.of(puller), take)


def wanted_by(sql: str | None, tags: frozenset[str]) -> str:
    try:
        expression, kind = choice(" || ".join(sorted(tags)), sql, None)
    except InvalidArgument as error:
        raise Failure(str(error), ASKED_WRONGLY) from None
    return expression if kind == SQL92 else ""


def notice(text: str) -> None:
    warn(f"turbopump: {text}")


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin in each queue: at an end of it, at an offset, or at a time."""

    end: str = ""
    offset: int = 0
    time_ms: int | None = None

    def of(self, puller: Puller) -> StartOf:
        async def start(queue: MessageQueue) -> int:
            if self.end == "last":
                return await puller.max_offset(queue)
            if self.time_ms is not None:
                return await puller.offset_at(queue, self.time_ms)
            return max(self.offset, await puller.min_offset(queue))

        return start


def parse_start(text: str, now_ms: int) -> Start:
    if text in ("first", "last"):
        return Start(end=text)
    if text.isdecimal():
        return Start(offset=int(text))
    return Start(time_ms=parse_time(text, now_ms, "first, last, an offset, "))


def parse_time(text: str, now_ms: int, others: str = "") -> int:
    """A moment, or how long ago it was. `others` are words that would have done as well."""
    if text[:-1].isdecimal() and text[-1] in UNITS_MS:
        return now_ms - int(text[:-1]) * UNITS_MS[text[-1]]
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        accepted = f"{others}a time such as 2025-06-30T12:00 or an age such as 10m"
        raise Failure(f"{text}: not one of {accepted}", ASKED_WRONGLY) from None


@dataclass
class Printer:
    as_json: bool
    left: int | None

    def take(self, record: Record, queue: MessageQueue) -> bool:
        try:
            print(json.dumps(fields(record)) if self.as_json else line(record), flush=True)
        except BrokenPipeError:  # `turbopump tail | head` has seen enough
            give_up_stdout()
            return False
        if self.left is not None:
            self.left -= 1
        return self.left is None or self.left > 0


def line(record: Record) -> str:
    marks = {"queue": record.queue_id, "offset": record.queue_offset, "tag": record.tags, "keys": record.keys}
    words = [f"{name}={value}" for name, value in marks.items() if value is not None]
    return printable(f"{moment(record.store_timestamp)} {' '.join(words)} | {text_of(record)}")


def moment(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):  # no such year
        return f"{time_ms} ms"


def printable(text: str) -> str:
    """One line, and nothing that a terminal would obey: a message may hold any character."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def fields(record: Record) -> dict[str, object]:
    return {
        "topic": record.topic,
        "queue": record.queue_id,
        "offset": record.queue_offset,
        "msgId": record.unique_key,
        "offsetMsgId": offset_id(record.store_host, record.physical_offset),
        "stored": record.store_timestamp,
        "born": record.born_timestamp,
        "tag": record.tags,
        "keys": record.keys,
        "properties": record.property_map(),
        "body": text_of(record),
    }


def text_of(record: Record) -> str:
    try:
        return body_of(record).decode("utf-8", "backslashreplace")
    except BrokenBody as error:
        return f"({len(record.body)} bytes that cannot be read: {error})"
