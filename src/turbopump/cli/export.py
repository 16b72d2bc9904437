"""`turbopump export`: writes messages to Parquet, from a store directory or from the brokers of a topic."""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from turbopump.cli import connect
from turbopump.cli.failures import USAGE_ERROR, CommandFailure
from turbopump.cli.times import WHEN, point_in_time
from turbopump.client.pull.puller import Puller
from turbopump.protocol.names import ABSENT_BROKERS_NAMESPACE, KNOWN_BROKERS_NAMESPACE
from turbopump.runtime.clock import SystemClock

if TYPE_CHECKING:
    from turbopump.pipelines.parquet import ExportResult
    from turbopump.pipelines.schema import Schema

PARTS = ("topic", "date", "hour")
BETWEEN_LINES_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("directory", metavar="DIR", nargs="?", help="a store directory (default: read from brokers)")
    option("--to", required=True, metavar="PATH", help="file to write; with --by, an empty directory")
    option("--topic", action="append", default=[], help="only this topic; may be repeated for a directory")
    option("--pattern", default="", metavar="REGEX", help="only topics whose names match; for a directory")
    option("--system-topics", action="store_true", help="also retry, dead-letter, delay and system topics")
    option("--queue", action="append", type=int, metavar="ID", help="only this queue; may be repeated")
    option("--since", metavar="TIME", help=f"only messages stored at or after {WHEN}")
    option("--until", metavar="TIME", help=f"only messages stored before {WHEN}")
    option("--tag", action="append", default=[], help="only messages with this tag; may be repeated")
    option("--key", default="", help="only messages with this key or message id; for a directory")
    option("--columns", default="", metavar="A,B", help="only these columns, separated by commas")
    option("--properties", action="store_true", help="add the column properties")
    option("--by", default="", metavar="PARTS", help=f"a directory for each of {','.join(PARTS)}")
    option("--compression", default="zstd", choices=("zstd", "snappy", "gzip", "none"))
    option("--scan", default="", choices=("queue", "log"), help="how a directory is read (default: by queue)")
    option("--skip-missing", action="store_true", help="skip missing or damaged parts and missing brokers")
    option("--json", action="store_true", help="print the summary as JSON")
    connect.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    try:
        from turbopump.pipelines.log import BadColumn, NoStore, NoSuchTopic, OffsetsGone, RecordsLost
    except ModuleNotFoundError as error:
        raise CommandFailure(f"{error}") from None
    try:
        done = _export(options)
    except (NoStore, NoSuchTopic) as error:
        raise CommandFailure(f"{error}") from None
    except (OffsetsGone, RecordsLost) as error:
        raise CommandFailure(f"{error} (here: --skip-missing)") from None
    except BadColumn as error:
        raise CommandFailure(f"{error}", USAGE_ERROR) from None
    summary = f"{done.rows} messages in {done.files} files, {done.bytes >> 10} KiB: {done.path}"
    print(msgspec.json.encode(done).decode() if options.json else summary)
    return 0


def _export(options: argparse.Namespace) -> "ExportResult":
    from turbopump.pipelines.parquet import export, missing_for
    from turbopump.pipelines.schema import schema_of

    columns = [word.strip() for word in options.columns.split(",") if word.strip()]
    by = [word.strip() for word in options.by.split(",") if word.strip()]
    if wrong := [word for word in by if word not in PARTS]:
        raise CommandFailure(f"--by must be among {', '.join(PARTS)}, got {wrong[0]}", USAGE_ERROR)
    schema = schema_of(columns, has_properties=options.properties)
    if (missing := missing_for(by, schema)) is not None:
        raise CommandFailure(f"--by {options.by} needs the column {missing}", USAGE_ERROR)
    batches = _of_directory(options, schema) if options.directory else _of_brokers(options, schema)
    shown = ProgressLine(sys.stderr)
    return export(shown.passing(batches), schema, options.to, by, options.compression)


def _of_directory(options: argparse.Namespace, schema: "Schema") -> Iterator[Any]:
    from turbopump.pipelines.log import read_log

    yield from read_log(
        options.directory,
        options.topic,
        pattern=options.pattern,
        system_topics=options.system_topics,
        queue=options.queue,
        columns=schema.names,
        since=_moment(options.since, "--since"),
        until=_moment(options.until, "--until"),
        tags=options.tag,
        key=options.key,
        scan=options.scan,
        fail_on_data_loss=not options.skip_missing,
    )


def _of_brokers(options: argparse.Namespace, schema: "Schema") -> Iterator[Any]:
    if len(options.topic) != 1 or options.key or options.pattern or options.scan:
        raise CommandFailure(
            "without DIR, give one --topic; --key, --pattern and --scan need DIR", USAGE_ERROR
        )
    return _stepped(_pulled(options, schema))


async def _pulled(options: argparse.Namespace, schema: "Schema") -> AsyncIterator[Any]:
    from turbopump.pipelines.topic_reader import TopicQuery, read_topic

    wanted = TopicQuery(
        options.topic[0],
        schema,
        None if options.queue is None else frozenset(options.queue),
        _moment(options.since, "--since"),
        _moment(options.until, "--until"),
        frozenset(options.tag),
        is_strict=not options.skip_missing,
    )
    await _check_brokers(options)
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(connect.connected(options.namesrv))
        async for batch in read_topic(Puller(here.client, here.routes), here.routes, wanted):
            yield batch


async def _check_brokers(options: argparse.Namespace) -> None:
    """Raises CommandFailure if brokers of the topic are missing; only warns with --skip-missing."""
    topic = options.topic[0]
    async with connect.administration(options.namesrv) as admin:
        absent = await admin.name_servers.value(ABSENT_BROKERS_NAMESPACE, topic)
    if not absent:
        return
    words = f"topic {topic} has a part on brokers that are not registered: {absent.replace(';', ', ')}"
    if not options.skip_missing:
        forget = f"mqadmin deleteKvConfig -s {KNOWN_BROKERS_NAMESPACE} -k NAME"
        raise CommandFailure(
            f"{words}; start them, or use --skip-missing; `{forget}` forgets one that is gone for good"
        )
    print(f"turbopump: {words}; their messages are missing", file=sys.stderr)


def _stepped(batches: AsyncIterator[Any]) -> Iterator[Any]:
    """Yields the batches of an async iterator in a plain one, each awaited when the writer asks for it."""
    end = object()

    async def step() -> Any:
        return await anext(batches, end)

    with asyncio.Runner() as runner:
        while (batch := runner.run(step())) is not end:
            yield batch


def _moment(text: str | None, name: str) -> int | None:
    return None if text is None else point_in_time(text, SystemClock().now_ms(), name)


class ProgressLine:
    """Shows the progress of an export on a terminal; prints nothing elsewhere."""

    def __init__(self, to: TextIO | None) -> None:
        self._to = to if to is not None and to.isatty() else None
        self._next = 0.0
        self._rows = self._bytes = 0

    def passing(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
            self._show()
        if self._to is not None:
            self._to.write("\n")

    def _show(self) -> None:
        if self._to is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + BETWEEN_LINES_S
            self._to.write(f"\r{self._rows:,} messages, {self._bytes >> 20:,} MiB")
            self._to.flush()
