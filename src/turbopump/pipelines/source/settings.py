"""Options for reading with format `rocketmq`, and the query made from them, which is also sent to workers.

In: Spark's strings. Out: a checked `SourceQuery`, or `BadOption`, which names the wrong option. Names are
those of Spark's Kafka connector, with RocketMQ's own as aliases.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from turbopump.client.errors import InvalidArgument
from turbopump.client.group.subscription import ALL, parse_expression
from turbopump.client.message import MessageQueue
from turbopump.client.options import ClientOptions
from turbopump.filter import tags_of, text_of
from turbopump.pipelines import options as kinds
from turbopump.pipelines.credentials import CREDENTIALS, found_credentials, signing_options
from turbopump.pipelines.options import EARLIEST, BadOption, FormatOption, FormatOptions
from turbopump.pipelines.schema import BadColumn, Schema, schema_of
from turbopump.pipelines.source.offsets import positions_of, queues_of
from turbopump.pipelines.tables import hint
from turbopump.protocol.names import TAG

FORMAT = "rocketmq"
READERS = "TOOLS_CONSUMER"
"""The group that every broker lets pull without being registered."""
UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(given: str) -> float:
    """Returns seconds from a text such as `90s`, `15m` or `1h`; a number without a unit is milliseconds."""
    found = re.fullmatch(r"(\d+)\s*(ms|s|m|h|d)?", given.strip())
    if found is None:
        raise ValueError("must be a time such as 500ms, 90s, 15m or 1h")
    return int(found[1]) * UNITS_S[found[2] or "ms"]


def pattern(given: str) -> str:
    """Returns a regular expression without outer spaces. Raises ValueError if it is empty or not valid."""
    return kinds.text(kinds.pattern(given))


def offsets(given: str) -> str | dict[MessageQueue, int]:
    """Returns `earliest`, `latest`, or an offset per queue that JSON gives. Raises ValueError."""
    word = given.strip().lower()
    if word in ("earliest", "latest"):
        return word
    if not word.startswith("{"):
        raise ValueError('must be earliest, latest or JSON such as {"topic":{"broker":{"0":17,"1":-2}}}')
    return positions_of(kinds.document(given), EARLIEST)


def times(given: str) -> dict[MessageQueue, int]:
    return positions_of(kinds.document(given))


def queues(given: str) -> tuple[dict[str, set[int]], set[MessageQueue]]:
    return queues_of(kinds.document(given))


OPTIONS = (
    FormatOption(
        "nameServer",
        kinds.servers,
        aliases=("rocketmq.namesrv.addr", "namesrvAddr"),
        help="`host:port` of the name servers, separated by `;`. Required",
    ),
    FormatOption(
        "subscribe", kinds.words, aliases=("topic", "topics"), help="the topics, separated by commas"
    ),
    FormatOption(
        "subscribePattern", pattern, help="a regular expression: all topics whose whole name it matches"
    ),
    FormatOption(
        "assign", queues, help='only these queues: `{"topic":[0,1]}` or `{"topic":{"broker-a":[0,1]}}`'
    ),
    FormatOption(
        "includeSystemTopics",
        kinds.flag,
        False,
        help="`subscribePattern` also matches retry, dead-letter, delay and system topics; `subscribe` can "
        "always name them",
    ),
    FormatOption(
        "startingOffsets",
        offsets,
        help='`earliest` (a batch), `latest` (a stream), or JSON `{"topic":{"broker":{"0":17}}}` with -2 for '
        "earliest and -1 for latest. A stream with a checkpoint continues from there instead",
    ),
    FormatOption(
        "endingOffsets",
        offsets,
        help="where a batch ends, exclusively: `latest`, or JSON with -1 for latest. An offset beyond a "
        "queue's end is an error; with `failOnDataLoss` false the queue is read to its end",
    ),
    FormatOption(
        "startingTimestamp",
        kinds.time_ms,
        help="begin at the first message stored at this time or later: ms since 1970, "
        "`2026-11-01T12:00:00Z` (with its zone), or an age such as `10m`",
    ),
    FormatOption(
        "endingTimestamp",
        kinds.time_ms,
        help="end a batch, or a stream with trigger availableNow, before the first message stored at this "
        "time or later",
    ),
    FormatOption(
        "startingOffsetsByTimestamp",
        times,
        help='a starting time per queue: `{"topic":{"broker":{"0":1700000000000}}}`',
    ),
    FormatOption("endingOffsetsByTimestamp", times, help="an ending time per queue, for a batch"),
    FormatOption(
        "startingOffsetsByTimestampStrategy",
        kinds.choice("error", "latest"),
        "error",
        help="what to do where no message is that recent: `error`, or `latest`: begin with the next message",
    ),
    FormatOption(
        "maxOffsetsPerTrigger",
        kinds.count(),
        help="largest number of messages in a micro-batch, approximately",
    ),
    FormatOption(
        "minOffsetsPerTrigger", kinds.count(), help="a micro-batch waits until this many messages are stored"
    ),
    FormatOption(
        "maxTriggerDelay",
        duration,
        900.0,
        help="longest time that a micro-batch waits for `minOffsetsPerTrigger`: `90s`, `15m`, `1h`",
    ),
    FormatOption("minPartitions", kinds.count(), help="smallest number of tasks: queues are split"),
    FormatOption(
        "maxRecordsPerPartition",
        kinds.count(),
        help="largest number of messages that one task reads; below 250,000 starting the task costs more "
        "than reading",
    ),
    FormatOption(
        "failOnDataLoss",
        kinds.flag,
        True,
        help="fail when messages that should be read no longer exist, or a queue is not the one that was "
        "read before (a topic that was recreated, another cluster); `false`: warn and continue with what is "
        "there",
    ),
    FormatOption(
        "allowMissingBrokers",
        kinds.flag,
        False,
        help="a batch, the start of a stream and `AvailableNow` need every broker that holds a part of the "
        "topics; `true`: warn and read without missing brokers. A stream reads them later",
    ),
    FormatOption(
        "expectedBrokers",
        kinds.words,
        (),
        help="names of brokers that must be available, separated by commas: for Apache's name servers, which "
        "forget a broker as soon as it stops",
    ),
    FormatOption(
        "tags",
        kinds.text,
        aliases=("subExpression",),
        help="only messages with these tags: `paid || shipped`",
    ),
    FormatOption(
        "sql", kinds.text, help="SQL92 condition over properties, evaluated by the broker: `price > 10`"
    ),
    FormatOption("columns", kinds.words, help="only these columns; others are not decoded"),
    FormatOption(
        "includeProperties",
        kinds.flag,
        False,
        aliases=("includeHeaders",),
        help="add the column `properties` (`headers` under `kafkaCompat`)",
    ),
    FormatOption("kafkaCompat", kinds.flag, False, help="columns by the names of Spark's Kafka connector"),
    FormatOption(
        "groupId",
        kinds.text,
        aliases=("rocketmq.group.id", "consumerGroup"),
        help="commit the progress for this group, so that `mqadmin consumerProgress` shows the lag",
    ),
    FormatOption("pullBatchSize", kinds.count(), 4096, help="messages per pull; brokers have limits too"),
    FormatOption(
        "pullTimeoutMs",
        kinds.count(),
        120_000,
        help="how long a task waits for an unavailable broker before it fails",
    ),
    FormatOption(
        "fetchOffset.numRetries", kinds.count(0), 3, help="how often a failed request for offsets is repeated"
    ),
    FormatOption("fetchOffset.retryIntervalMs", kinds.count(0), 1000, help="pause between these requests"),
    FormatOption(
        "useTls", kinds.flag, False, aliases=("rocketmq.use.tls",), help="connect to all servers by TLS"
    ),
    FormatOption(
        "tlsTrustCertPath", kinds.text, "", help="PEM file with the certificate authorities, on every worker"
    ),
    *CREDENTIALS,
)


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Says how servers are reached, and as which user; the key of a worker's cached connections."""

    name_server: str
    group: str = READERS
    use_tls: bool = False
    tls_trust_cert_path: str = ""
    credentials: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Settings that sign requests; empty: they are not signed."""

    @property
    def client_options(self) -> ClientOptions:
        return {
            **signing_options(self.credentials),
            "use_tls": self.use_tls,
            "tls_trust_cert_path": self.tls_trust_cert_path,
        }


@dataclass(frozen=True, slots=True)
class SourceFilter:
    """The filter of a query as sent to brokers: an expression of tags or SQL92, and the single tags."""

    expression: str = ALL
    kind: str = TAG
    tags: tuple[str, ...] = ()
    """Tags that are compared again here: brokers compare hashes."""

    @property
    def is_all(self) -> bool:
        return self.expression == ALL


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Selects queues by topic names, by a topic pattern, or one by one: one of these three is given."""

    named: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[dict[str, set[int]], set[MessageQueue]] | None = None
    with_system: bool = False

    def names(self) -> tuple[str, ...]:
        if self.assigned is None:
            return self.named
        everywhere, exactly = self.assigned
        return tuple(sorted({*everywhere, *(queue.topic for queue in exactly)}))

    def wants(self, queue: MessageQueue) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, queue.topic) is not None
        if self.assigned is None:
            return queue.topic in self.named
        everywhere, exactly = self.assigned
        return queue in exactly or queue.id in everywhere.get(queue.topic, ())

    def __str__(self) -> str:
        return f"topics that match {self.pattern}" if self.pattern is not None else ", ".join(self.names())


@dataclass(frozen=True, slots=True)
class Bound:
    """Start or end of a query: `earliest` or `latest`, offsets by queue, or store times in ms."""

    offsets: str | Mapping[MessageQueue, int] = "latest"
    time_ms: int | None = None
    times_ms: Mapping[MessageQueue, int] | None = None
    or_latest: bool = True
    """What to do where no message is that recent: begin with the next one, or raise."""


@dataclass(frozen=True, slots=True)
class SourceQuery:
    """All settings of one read from topics, from servers to retries. Sent to workers by pickle."""

    access: ClusterAccess
    topics: TopicSelection
    filter: SourceFilter
    schema: Schema
    start: Bound
    end: Bound
    group: str | None
    max_offsets: int | None
    min_offsets: int | None
    max_delay_s: float
    min_parts: int | None
    max_records: int | None
    fails_on_loss: bool
    allows_missing: bool
    expected: tuple[str, ...]
    pull_count: int
    patience_s: float
    tries: int
    pause_s: float


def query_of(given: Mapping[str, str], is_stream: bool) -> SourceQuery:
    """Returns the query that Spark's options describe. Raises BadOption."""
    options = FormatOptions(OPTIONS, given, FORMAT)
    return SourceQuery(
        access=_access(options),
        topics=_topics(options),
        filter=_filter(options),
        schema=schema(options),
        start=_start(options, is_stream),
        end=_end(options, is_stream),
        group=options["groupId"],
        max_offsets=options["maxOffsetsPerTrigger"],
        min_offsets=_min_offsets(options),
        max_delay_s=options["maxTriggerDelay"],
        min_parts=options["minPartitions"],
        max_records=options["maxRecordsPerPartition"],
        fails_on_loss=options["failOnDataLoss"],
        allows_missing=options["allowMissingBrokers"],
        expected=options["expectedBrokers"],
        pull_count=options["pullBatchSize"],
        patience_s=options["pullTimeoutMs"] / 1000,
        tries=1 + options["fetchOffset.numRetries"],
        pause_s=options["fetchOffset.retryIntervalMs"] / 1000,
    )


def schema_of_options(given: Mapping[str, str]) -> Schema:
    return schema(FormatOptions(OPTIONS, given, FORMAT))


def schema(options: FormatOptions) -> Schema:
    try:
        return schema_of(
            options["columns"] or (),
            has_properties=options["includeProperties"],
            is_kafka=options["kafkaCompat"],
        )
    except BadColumn as bad:
        raise BadOption(f"option columns: {bad}") from None


def _access(options: FormatOptions) -> ClusterAccess:
    where = options.need("nameServer", f"host:port, such as 127.0.0.1:9876. In SQL: {hint('nameServer')}")
    group = options["groupId"] or READERS
    signed = found_credentials(options)
    return ClusterAccess(";".join(where), group, options["useTls"], options["tlsTrustCertPath"], signed)


def _topics(options: FormatOptions) -> TopicSelection:
    options.one_of("subscribe", "subscribePattern", "assign", hint="what to read")
    return TopicSelection(
        options["subscribe"] or (),
        options["subscribePattern"],
        options["assign"],
        options["includeSystemTopics"],
    )


def _filter(options: FormatOptions) -> SourceFilter:
    if options.is_given("tags") and options.is_given("sql"):
        raise BadOption(
            "options tags and sql are both given: give sql alone, which can test the property TAGS"
        )
    try:
        expression, kind = parse_expression(options["tags"] or ALL, options["sql"], None)
    except InvalidArgument as bad:
        raise BadOption(f"option {bad}") from None
    if kind != TAG:
        return SourceFilter(expression, kind)
    tags = tags_of(expression)
    return SourceFilter(text_of(tags), kind, tags)


def _start(options: FormatOptions, is_stream: bool) -> Bound:
    _at_most_one(options, "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    given = options["startingOffsets"] or ("latest" if is_stream else "earliest")
    if not is_stream and (given == "latest" or _has(given, -1)):
        raise BadOption(
            "option startingOffsets: a batch cannot begin at the latest message: it would be empty"
        )
    return Bound(
        given,
        options["startingTimestamp"],
        options["startingOffsetsByTimestamp"],
        options["startingOffsetsByTimestampStrategy"] == "latest",
    )


def _end(options: FormatOptions, is_stream: bool) -> Bound:
    names = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    _at_most_one(options, *names)
    for name in names:
        if is_stream and name != "endingTimestamp" and options.is_given(name):
            raise BadOption(f"option {name}: a stream has no end; read a batch, or stop the query")
    given = options["endingOffsets"] or "latest"
    if given == "earliest" or _has(given, EARLIEST):
        raise BadOption("option endingOffsets: a batch cannot end at the earliest message: it would be empty")
    return Bound(given, options["endingTimestamp"], options["endingOffsetsByTimestamp"])


def _has(given: Any, offset: int) -> bool:
    return isinstance(given, dict) and offset in given.values()


def _at_most_one(options: FormatOptions, *names: str) -> None:
    found = [name for name in names if options.is_given(name)]
    if len(found) > 1:
        raise BadOption(f"options {' and '.join(found)} are both given: give one")


def _min_offsets(options: FormatOptions) -> int | None:
    minimum: int | None = options["minOffsetsPerTrigger"]
    maximum = options["maxOffsetsPerTrigger"]
    if minimum is not None and maximum is not None and minimum > maximum:
        raise BadOption(
            f"minOffsetsPerTrigger must be at most maxOffsetsPerTrigger ({maximum}), got {minimum}: lower "
            "it, or raise maxOffsetsPerTrigger"
        )
    return minimum
