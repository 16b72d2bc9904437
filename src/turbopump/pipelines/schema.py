"""The columns of a message as a row, their types, and which of them a query has asked for.

In: options. Out: Arrow fields and Spark's names for them. Spark is not imported. Spark requires the schema of
the first batch to equal the declared one exactly, so both come from one list.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from turbopump.pipelines.refusals import nearest

TIME = pa.timestamp("us", tz="UTC")
PAIRS = pa.map_(pa.string(), pa.string())
HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)


class BadColumn(ValueError):
    """A column is unknown, missing or of a wrong type; the text has the fix."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name and its type for Arrow and for Spark."""

    name: str
    type: pa.DataType
    sql: str
    is_always: bool = True  # returned when a query names no columns


COLUMNS = (
    Column("topic", pa.string(), "string"),
    Column("brokerName", pa.string(), "string"),  # null when a store's files are read: they do not have it
    Column("queueId", pa.int32(), "int"),
    Column("queueOffset", pa.int64(), "bigint"),
    Column("msgId", pa.string(), "string"),  # the producer's unique id, else the offset id
    Column("tags", pa.string(), "string"),
    Column("keys", pa.string(), "string"),  # as stored: several are separated by spaces
    Column("body", pa.binary(), "binary"),  # decompressed
    Column("bornTimestamp", TIME, "timestamp"),
    Column("storeTimestamp", TIME, "timestamp"),
    Column("reconsumeTimes", pa.int32(), "int"),
    Column("flag", pa.int32(), "int"),
    Column("properties", PAIRS, "map<string,string>", is_always=False),  # includeProperties
    Column("sysFlag", pa.int32(), "int", is_always=False),
    Column("bornHost", pa.string(), "string", is_always=False),
    Column("storeHost", pa.string(), "string", is_always=False),
    Column("offsetMsgId", pa.string(), "string", is_always=False),
    Column("commitLogOffset", pa.int64(), "bigint", is_always=False),
    Column("storeSize", pa.int32(), "int", is_always=False),
)
"""A message as a row, by RocketMQ's own names."""

KAFKA_COLUMNS = (
    Column("key", pa.binary(), "binary"),  # the first of the keys
    Column("value", pa.binary(), "binary"),
    Column("topic", pa.string(), "string"),
    Column("partition", pa.int32(), "int"),  # the queue's id: not unique across brokers
    Column("offset", pa.int64(), "bigint"),
    Column("timestamp", TIME, "timestamp"),  # of the store
    Column("timestampType", pa.int32(), "int"),  # 1: set by the broker
    Column("headers", HEADERS, "array<struct<key:string,value:binary>>", is_always=False),  # includeHeaders
)
"""A message as a row, by the names of Spark's Kafka connector (`kafkaCompat`)."""


@dataclass(frozen=True)
class Schema:
    """The columns of one query, in the order in which they were asked for."""

    columns: tuple[Column, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    @property
    def ddl(self) -> str:
        """The names and types of the columns, as Spark's `schema()` takes them."""
        return ", ".join(f"`{column.name}` {column.sql}" for column in self.columns)


def schema_of(wanted: Sequence[str] = (), *, has_properties: bool = False, is_kafka: bool = False) -> Schema:
    """Returns the named columns in any case, or the default ones if none is named. Raises BadColumn."""
    table = KAFKA_COLUMNS if is_kafka else COLUMNS
    if wanted:
        return Schema(tuple(_find(name, table) for name in wanted))
    extra = {"properties", "headers"} if has_properties else set()
    return Schema(tuple(column for column in table if column.is_always or column.name in extra))


def _find(name: str, table: Iterable[Column]) -> Column:
    known = {column.name.lower(): column for column in table}
    if name.lower() not in known:
        names = {lower: column.name for lower, column in known.items()}
        hint = nearest(name.lower(), names, f"there are {', '.join(names.values())}")
        raise BadColumn(f"there is no column {name!r}: {hint}")
    return known[name.lower()]
