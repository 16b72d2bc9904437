"""Options of the format `rocketmq-log`, and the query made from them."""

import logging
from typing import Any

from turbopump.filter import wanted_tags
from turbopump.pipelines.log.files import QueueName
from turbopump.pipelines.log.plan import ROWS_PER_PARTITION, QueuePositions, StoreQuery
from turbopump.pipelines.log.store_reader import BATCH_ROWS, RowFormat
from turbopump.pipelines.options import (
    EARLIEST,
    LATEST,
    BadOption,
    FormatOption,
    FormatOptions,
    choice,
    count,
    document,
    flag,
    pattern,
    text,
    time_ms,
    words,
)
from turbopump.pipelines.schema import BadColumn, Schema, schema_of

log = logging.getLogger(__name__)

FORMAT = "rocketmq-log"


def tag_list(given: str) -> frozenset[str]:
    """Reads tags as consumers subscribe to them, `a || b`; an empty set, for `*`, means any tag."""
    if not given.strip():
        raise ValueError("must be tags such as a || b")
    found = wanted_tags(given)
    if any("," in tag for tag in found):
        log.warning("Option tags=%s: tags are separated by ||, the comma is taken as part of a tag", given)
    return frozenset(found)


def numbers(given: str) -> frozenset[int]:
    try:
        return frozenset(int(word) for word in words(given))
    except ValueError:
        raise ValueError("must be queue ids separated by commas") from None


def positions(given: str) -> QueuePositions:
    word = given.strip().lower()
    if word in ("earliest", "latest"):
        return QueuePositions(EARLIEST if word == "earliest" else LATEST)
    return positions_of(document(given))


def positions_of(tree: Any) -> QueuePositions:
    """Reads queue offsets from `{"topic": {"queue": n}}`, or with a broker level. Raises ValueError."""
    found: dict[QueueName, int] = {}
    try:
        for topic, queues in tree.items():
            for word, at in queues.items():
                for queue_id, offset in at.items() if isinstance(at, dict) else [(word, at)]:
                    found[QueueName(topic, int(queue_id))] = int(offset)
    except (AttributeError, TypeError, ValueError):
        raise ValueError('must be earliest, latest or {"topic":{"queue":offset}}') from None
    return QueuePositions(EARLIEST, found)


TABLE = (
    FormatOption("path", text, help="the store directory, with commitlog/ in it"),
    FormatOption(
        "commitLogPath", words, help="directories of the log if it is elsewhere, separated by commas"
    ),
    FormatOption(
        "scan",
        choice("queue", "log"),
        "",
        help="`queue`: queue by queue, or `log`: in the order of storing; default: `queue`",
    ),
    FormatOption(
        "subscribe", words, (), ("topic",), "topics, separated by commas; default: all but the broker's own"
    ),
    FormatOption(
        "subscribePattern", pattern, "", help="a regular expression: all topics whose whole name it matches"
    ),
    FormatOption(
        "includeSystemTopics", flag, False, help="also read retry, dead-letter, delay and system topics"
    ),
    FormatOption("queue", numbers, None, ("queueId",), "queue ids, separated by commas"),
    FormatOption(
        "startingOffsets", positions, QueuePositions(EARLIEST), help='earliest, or {"topic":{"queue":offset}}'
    ),
    FormatOption(
        "endingOffsets",
        positions,
        QueuePositions(LATEST),
        help='latest, or {"topic":{"queue":offset}}; exclusive',
    ),
    FormatOption(
        "startingTimestamp",
        time_ms,
        None,
        help="messages stored at this time or later: ms since 1970, 2026-11-01T12:00:00Z (with its zone), or "
        "an age such as 10m",
    ),
    FormatOption("endingTimestamp", time_ms, None, help="messages stored before this time"),
    FormatOption(
        "tags", tag_list, frozenset(), ("subExpression",), "messages with one of these tags: a || b"
    ),
    FormatOption("key", text, "", help="messages with this key or message id, found through the index"),
    FormatOption("columns", words, (), help="the columns to read; Spark does not say which it needs"),
    FormatOption(
        "includeProperties",
        flag,
        False,
        ("includeHeaders",),
        "add the column `properties` (`headers` under `kafkaCompat`)",
    ),
    FormatOption("kafkaCompat", flag, False, help="columns by the names of Spark's Kafka connector"),
    FormatOption(
        "brokerName", text, None, help="value of the column brokerName, which the files do not have"
    ),
    FormatOption(
        "maxRecordsPerPartition",
        count(),
        ROWS_PER_PARTITION,
        help="largest number of rows that one task reads",
    ),
    FormatOption("arrowBatchRows", count(), BATCH_ROWS, help="largest number of rows in an Arrow batch"),
    FormatOption("failOnDataLoss", flag, True, help="`false`: skip missing or damaged messages"),
    FormatOption(
        "pushFilters",
        flag,
        False,
        help="apply the query's conditions while reading; needs spark.sql.python.filterPushdown.enabled=true",
    ),
)


def query_of(options: FormatOptions) -> StoreQuery:
    """Returns the store query that the options describe. Raises BadOption."""
    if options.is_given("subscribe") and options.is_given("subscribePattern"):
        raise BadOption("options subscribe and subscribePattern are both given: give one")
    starting, ending = options["startingOffsets"], options["endingOffsets"]
    if starting.default == LATEST:
        raise BadOption("startingOffsets must not be latest: a batch would be empty; use earliest")
    return StoreQuery(
        topics=options["subscribe"],
        pattern=options["subscribePattern"],
        has_system=options["includeSystemTopics"],
        queues=options["queue"],
        starting=starting,
        ending=QueuePositions(LATEST, ending.of) if ending.of else ending,
        since_ms=options["startingTimestamp"],
        until_ms=options["endingTimestamp"],
        tags=options["tags"],
        key=options["key"],
        scan=options["scan"],
        is_strict=options["failOnDataLoss"],
        rows_per_partition=options["maxRecordsPerPartition"],
    )


def rows_of(options: FormatOptions) -> RowFormat:
    return RowFormat(schema(options), options["brokerName"], options["arrowBatchRows"])


def schema(options: FormatOptions) -> Schema:
    try:
        return schema_of(
            options["columns"], has_properties=options["includeProperties"], is_kafka=options["kafkaCompat"]
        )
    except BadColumn as error:
        raise BadOption(f"option columns: {error}") from None
