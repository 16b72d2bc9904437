"""Format `rocketmq` as Spark sees it: a name, columns, and who reads and writes.

In: the options of a query. Out: readers and writers, each of a room of its own; nothing is decided here.
Wrong options are told when the query is planned, not when it runs.
"""

from functools import cached_property
from importlib import import_module
from typing import Any

from pyspark.sql.datasource import DataSource

from turbopump.pipelines.schema import Schema, schema_of


class RocketMq(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        return self._schema.ddl

    @cached_property
    def _schema(self) -> Schema:
        return schema_of()

    def writer(self, schema: Any, overwrite: bool) -> Any:
        return _sink().writer_of(self.options, schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        return _sink().stream_writer_of(self.options, schema, overwrite)


def _sink() -> Any:
    """Who only reads does not load it."""
    return import_module("turbopump.pipelines.sink")
