"""Options of tables in Spark's catalog: CREATE TABLE t USING rocketmq OPTIONS (...), SELECT, INSERT, streams.

Spark gives a table's options to a Python data source once, when it asks for the columns of a table that names
none; every later query gets only its own options (`WITH (...)`, `.option(...)`). So the options are stored in
the metadata of one column, which Spark keeps in its catalog and passes to every reader. A writer gets the
columns of the rows, and these may carry the options of the table that the rows come from. The column is
therefore declared as varchar instead of string: for such a column Spark replaces the source's metadata by the
target's and removes the varchar mark. A column that still has the mark comes from another table.

In: options and columns, as Spark gives them. Out: the options that apply, or BadOption. No file, no server.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from turbopump.pipelines.credentials import SECRET_WORDS, words_of
from turbopump.pipelines.options import BadOption, FormatOption, FormatOptions, is_of_table, own_options

STORED = "rocketmq.options"
VARCHAR_MARK = "__CHAR_VARCHAR_TYPE_STRING"
"""Spark's name for the declared type of a column that it keeps as a string. Not part of its API, so a test
checks it.
"""
MAX_VARCHAR_LENGTH = (1 << 31) - 1


def with_options(
    schema: Any, given: Mapping[str, str], tables: Iterable[tuple[FormatOption, ...]], format: str
) -> Any:
    """Returns the columns unchanged, or for CREATE TABLE with its options attached.

    Raises BadOption for an option that the format does not have.
    """
    if not is_of_table(given):
        return schema
    found = own_options(given)
    every = {option.name: option for table in tables for option in table}
    if secrets := sorted(_canonical(name, every.values()) for name in found if name in SECRET_WORDS):
        raise BadOption(
            "a table's options are stored in Spark's catalog, where others can read them: give "
            f"{secrets[0]} to each query instead, WITH (`{secrets[0]}` = '...')"
        )
    unknown = {name: found[name] for name in found if not _is_known(name, tables)}
    FormatOptions(every.values(), unknown, format)  # raises BadOption for the first of them
    return _carrying(schema, found)


def for_reader(
    given: Mapping[str, str], schema: Any, needed: str, table: tuple[FormatOption, ...]
) -> dict[str, str]:
    """Returns a reader's options: the query's, with its table's added unless option `needed` is given."""
    own, carrier = own_options(given), _carrier(schema)
    if _gives(own, needed, table) or carrier is None:
        return own
    return _joined(carrier, own, table)


def for_writer(
    given: Mapping[str, str], schema: Any, needed: str, table: tuple[FormatOption, ...]
) -> dict[str, str]:
    """Returns the options of INSERT INTO, with its table's added unless option `needed` is given."""
    own, carrier = own_options(given), _carrier(schema)
    if _gives(own, needed, table) or carrier is None:
        return own
    if carrier.dataType.typeName() != "string" or VARCHAR_MARK in carrier.metadata:
        raise BadOption(
            f"Spark does not say which table these rows go to: give its options to the statement, "
            f"INSERT INTO t WITH (`{needed}` = '...') SELECT ..."
        )
    return _joined(carrier, own, table)


def _carrier(schema: Any) -> Any:
    """Returns the column that carries the options of a table in its metadata; None if there is none."""
    return next((field for field in schema.fields if STORED in field.metadata), None)


def _joined(carrier: Any, own: dict[str, str], table: tuple[FormatOption, ...]) -> dict[str, str]:
    return {**known(json.loads(carrier.metadata[STORED]), table), **own}


def hint(needed: str) -> str:
    """Returns advice about a missing option that a table of Spark's catalog may have lost."""
    return (
        f"a table in Spark's catalog keeps its options only if CREATE TABLE names no columns; otherwise give "
        f"them to each statement, FROM t WITH (`{needed}` = '...'), and to a stream's writer as options"
    )


def _carrying(schema: Any, options: dict[str, str]) -> Any:
    """Returns the columns with the options in the metadata of the first string column."""
    from pyspark.sql.types import StructField, StructType, VarcharType

    fields = list(schema.fields)
    strings = (at for at, field in enumerate(fields) if field.dataType.typeName() == "string")
    at = next(strings, 0)
    old = fields[at]
    kind = VarcharType(MAX_VARCHAR_LENGTH) if old.dataType.typeName() == "string" else old.dataType
    metadata = {**(old.metadata or {}), STORED: json.dumps(options, sort_keys=True)}
    fields[at] = StructField(old.name, kind, old.nullable, metadata)
    return StructType(fields)


def _canonical(name: str, options: Iterable[FormatOption]) -> str:
    """Returns an option's name as it is declared, from one of its names in lower case."""
    found = (option.name for option in options if name in words_of([option]))
    return next(found, name)


def _is_known(name: str, tables: Iterable[tuple[FormatOption, ...]]) -> bool:
    return any(name in _names(table) for table in tables)


def known(options: Mapping[str, str], table: tuple[FormatOption, ...]) -> dict[str, str]:
    """Returns those of the options that are declared in the format's table."""
    return {name: text for name, text in options.items() if name in _names(table)}


def _gives(own: Mapping[str, str], needed: str, table: tuple[FormatOption, ...]) -> bool:
    words = next((option.name, *option.aliases) for option in table if option.name == needed)
    return not {word.lower() for word in words}.isdisjoint(name.lower() for name in own)


def _names(table: tuple[FormatOption, ...]) -> set[str]:
    return {word.lower() for option in table for word in (option.name, *option.aliases)}
