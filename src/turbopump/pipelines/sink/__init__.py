"""Sink of format `rocketmq`: writes rows as messages, exactly once or at least once.

`columns.py` and `settings.py` check columns and options, `rows.py` and `frames.py` pack rows without a loop
over them, `row_pipeline.py` overlaps packing and sending, `at_least_once.py` and `exactly_once.py` send, and
`spark.py` has the classes that Spark calls; only it imports Spark.
"""

from collections.abc import Mapping
from typing import Any

from turbopump.pipelines import tables
from turbopump.pipelines.options import NO_VERSION, BadOption, FormatOption, text
from turbopump.pipelines.sink.settings import AT_LEAST_ONCE, EXACTLY_ONCE, SINK, SinkOptions, sink_of

SUBSCRIBE = FormatOption("subscribe", text, aliases=("topics",))
"""The source's option, which a table has too."""


def writer_of(options: Mapping[str, str], schema: Any, overwrite: bool) -> Any:
    """Returns Spark's writer of a batch to topics, or of INSERT INTO a table in Spark's catalog."""
    from turbopump.pipelines.sink import spark

    own = tables.for_writer(options, schema, "nameServer", (*SINK, SUBSCRIBE))
    is_table = any(tables.STORED in field.metadata for field in schema.fields)
    sink = sink_of(_to_topic(own), _columns(schema), overwrite, AT_LEAST_ONCE, is_table=is_table)
    return spark.BatchExactlyOnce(sink) if _is_exact(sink) else spark.BatchAtLeastOnce(sink)


def stream_writer_of(options: Mapping[str, str], schema: Any, overwrite: bool) -> Any:
    """Returns Spark's writer of a stream to topics. Raises BadOption, or CannotBeExact without a ledger."""
    from turbopump.pipelines.sink import exactly_once, spark

    sink = sink_of(options, _columns(schema), overwrite, EXACTLY_ONCE)
    if sink.version is not None:
        raise BadOption(NO_VERSION)
    if not _is_exact(sink):
        return spark.StreamAtLeastOnce(sink)
    exactly_once.check_brokers(sink)
    return spark.StreamExactlyOnce(sink)


def _to_topic(own: dict[str, str]) -> dict[str, str]:
    """Returns the options in lower case, with `topic` set to the topic that the table reads if it is one."""
    options = {name.lower(): text for name, text in own.items()}
    read = options.pop("subscribe", options.pop("topics", ""))
    if read and "topic" not in options:
        options["topic"] = read
    # A table that reads several topics has no single target: the column topic decides for each row.
    if "," in options.get("topic", ""):
        del options["topic"]
    return options


def _is_exact(sink: SinkOptions) -> bool:
    return sink.delivery == EXACTLY_ONCE


def _columns(schema: Any) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
