"""Parses message bodies into columns: JSON by Spark's own reader, Avro by fastavro in the workers.

A body that does not fit gives a row of nulls and the reason in `bodyError`, so that no message is lost:
filter on `bodyError IS NULL`, and send the others to a place where somebody looks at them.
"""

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)
from pyspark.sql.types import StructType

from turbopump.pipelines.schema import TIME

ERROR = "bodyError"
FIELDS = "__fields"
SIMPLE = {
    "boolean": ("boolean", pa.bool_()),
    "int": ("int", pa.int32()),
    "long": ("bigint", pa.int64()),
    "float": ("float", pa.float32()),
    "double": ("double", pa.float64()),
    "bytes": ("binary", pa.binary()),
    "fixed": ("binary", pa.binary()),
    "string": ("string", pa.string()),
    "enum": ("string", pa.string()),
}
LOGICAL = {
    "date": ("date", pa.date32()),
    "timestamp-millis": ("timestamp", TIME),
    "timestamp-micros": ("timestamp", TIME),
}
"""Avro's name → Spark's and Arrow's."""

Words = tuple[str, pa.DataType]


class BadAvroSchema(ValueError):
    """The Avro schema is not a record, or has a type without a column of its kind."""


def json_body(messages: DataFrame, schema: str) -> DataFrame:
    """Adds the columns of the DDL `schema`, read from the JSON body, and `bodyError`."""
    text = F.col("body").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": ERROR}
    fields = F.from_json(text, f"{schema}, `{ERROR}` string", options)
    return _spread(messages.withColumn(FIELDS, fields))


def avro_body(messages: DataFrame, schema: str | dict[str, Any]) -> DataFrame:
    """Adds the columns of an Avro schema, read from the body, and `bodyError`.

    A body holds one bare record (no file header).
    """
    document = json.loads(schema) if isinstance(schema, str) else schema
    if not isinstance(document, dict) or document.get("type") != "record":
        raise BadAvroSchema("the schema of a body must be a record")
    error = {"name": ERROR, "type": "string"}
    sql, arrow = avro_words({**document, "fields": [*document["fields"], error]})
    fields = StructType.fromDDL(f"{FIELDS} {sql}").fields
    whole = StructType([*messages.schema.fields, *fields])
    return _spread(messages.mapInArrow(_avro_reader(document, arrow), whole))


def _spread(messages: DataFrame) -> DataFrame:
    """Replaces the struct column of body fields by its fields. Raises ValueError for names already in use."""
    own = {name.lower() for name in messages.columns}
    struct = messages.schema[FIELDS].dataType
    taken = [field.name for field in struct.fields if field.name.lower() in own]
    if taken:
        raise ValueError(
            f"the body has fields {', '.join(taken)}, which messages have themselves: "
            "select the columns you need first, or rename them"
        )
    return messages.select(*(name for name in messages.columns if name != FIELDS), f"{FIELDS}.*")


def avro_words(schema: Any) -> Words:
    """Returns Spark's name and Arrow's type for the type of an Avro schema. Raises BadAvroSchema."""
    if isinstance(schema, str):
        return _simple(schema)
    if isinstance(schema, list):
        return _union(schema)
    if schema.get("logicalType") in LOGICAL:
        return LOGICAL[schema["logicalType"]]
    match schema["type"]:
        case "record":
            return _record(schema["fields"])
        case "array":
            sql, arrow = avro_words(schema["items"])
            return f"array<{sql}>", pa.list_(arrow)
        case "map":
            sql, arrow = avro_words(schema["values"])
            return f"map<string,{sql}>", pa.map_(pa.string(), arrow)
        case inner:
            return avro_words(inner)


def _simple(name: str) -> Words:
    if name not in SIMPLE:
        raise BadAvroSchema(f"an Avro type must be one of {', '.join(SIMPLE)}, got {name!r}")
    return SIMPLE[name]


def _union(choices: list[Any]) -> Words:
    real = [choice for choice in choices if choice != "null"]
    if len(real) != 1:
        raise BadAvroSchema(f"a union must be of null and one type, got {choices}")
    return avro_words(real[0])


def _record(fields: list[Any]) -> Words:
    words = [(field["name"], *avro_words(field["type"])) for field in fields]
    sql = ",".join(f"`{name}`:{sql}" for name, sql, _ in words)
    return f"struct<{sql}>", pa.struct([pa.field(name, arrow) for name, _, arrow in words])


def _avro_reader(schema: dict[str, Any], arrow: pa.DataType) -> Any:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import fastavro  # in the worker

        parsed = fastavro.parse_schema(schema)
        for batch in batches:
            rows = [_avro_row(fastavro, parsed, body) for body in batch.column("body").to_pylist()]
            yield batch.append_column(FIELDS, pa.array(rows, arrow))

    return read


def _avro_row(fastavro: Any, schema: Any, body: bytes | None) -> dict[str, Any] | None:
    if body is None:
        return None
    stream = io.BytesIO(body)
    try:
        row: dict[str, Any] = fastavro.schemaless_reader(stream, schema)
    except Exception as error:
        return {ERROR: f"{type(error).__name__}: {error}"}
    rest = len(body) - stream.tell()
    return row if not rest else {ERROR: f"{rest} bytes after the record"}
