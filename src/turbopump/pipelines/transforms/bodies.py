"""Bodies as columns: JSON by Spark's own reader, Avro by fastavro in the workers.

A body that does not fit gives a row of nulls and its text in `bodyError`, so that nothing is lost on the way:
filter on `bodyError IS NULL`, and send the others where somebody looks.
"""

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)
from pyspark.sql import types as T  # noqa: N812

ERROR = "bodyError"
FIELDS = "__fields"
SIMPLE = {
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "bytes": T.BinaryType(),
    "string": T.StringType(),
    "enum": T.StringType(),
}
LOGICAL = {
    "date": T.DateType(),
    "timestamp-millis": T.TimestampType(),
    "timestamp-micros": T.TimestampType(),
    "uuid": T.StringType(),
}


class BadAvroSchema(ValueError):
    """What cannot be read, or has no column of its kind."""


def json_body(messages: DataFrame, schema: str) -> DataFrame:
    """All columns, those of the DDL `schema` read from the body, and `bodyError`."""
    text = F.col("body").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": ERROR}
    fields = F.from_json(text, f"{schema}, `{ERROR}` string", options)
    return _spread(messages.withColumn(FIELDS, fields))


def avro_body(messages: DataFrame, schema: str | dict[str, Any]) -> DataFrame:
    """The same by an Avro schema, for bodies that hold one bare record each (no file header)."""
    document = json.loads(schema) if isinstance(schema, str) else schema
    fields = avro_type(document)
    if not isinstance(fields, T.StructType):
        raise BadAvroSchema("the schema of a body must be a record")
    fields.add(ERROR, T.StringType())
    whole = T.StructType([*messages.schema.fields, T.StructField(FIELDS, fields)])
    return _spread(messages.mapInArrow(_avro_reader(document), whole))


def _spread(messages: DataFrame) -> DataFrame:
    own = {name.lower() for name in messages.columns}
    struct = messages.schema[FIELDS].dataType
    taken = [field.name for field in struct.fields if field.name.lower() in own]
    if taken:
        raise ValueError(
            f"the body has fields {', '.join(taken)}, which messages have themselves: "
            "select the columns you need first, or rename them"
        )
    return messages.select(*(name for name in messages.columns if name != FIELDS), f"{FIELDS}.*")


def avro_type(schema: Any) -> T.DataType:
    """Spark's type for an Avro schema. Raises BadAvroSchema."""
    if isinstance(schema, list):
        return _union(schema)
    if isinstance(schema, str):
        return _named(schema)
    if schema.get("logicalType") in LOGICAL:
        return LOGICAL[schema["logicalType"]]
    match schema["type"]:
        case "record":
            fields = [T.StructField(field["name"], avro_type(field["type"])) for field in schema["fields"]]
            return T.StructType(fields)
        case "array":
            return T.ArrayType(avro_type(schema["items"]))
        case "map":
            return T.MapType(T.StringType(), avro_type(schema["values"]))
        case "fixed":
            return T.BinaryType()
        case inner:
            return _named(inner) if isinstance(inner, str) else avro_type(inner)


def _named(name: str) -> T.DataType:
    if name not in SIMPLE:
        raise BadAvroSchema(f"there is no column for Avro type {name!r}")
    return SIMPLE[name]


def _union(choices: list[Any]) -> T.DataType:
    real = [choice for choice in choices if choice != "null"]
    if len(real) != 1:
        raise BadAvroSchema(f"a union must be of null and one type, not {choices}")
    return avro_type(real[0])


def _avro_reader(schema: dict[str, Any]) -> Any:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import fastavro  # in the worker

        parsed = fastavro.parse_schema(schema)
        for batch in batches:
            rows = [_avro_row(fastavro, parsed, body) for body in batch.column("body").to_pylist()]
            yield batch.append_column(FIELDS, pa.array(rows))

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
