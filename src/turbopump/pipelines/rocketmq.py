"""Format `rocketmq` as Spark sees it: a name, columns, and who reads and writes.

In: the options of a query. Out: readers and writers, each of a room of its own; nothing is decided here.
Wrong options are told when the query is planned, not when it runs.
"""

from importlib import import_module
from typing import Any

from pyspark.sql.datasource import DataSource

from turbopump.pipelines.source.settings import query_of, schema_of_options


class RocketMq(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        return schema_of_options(self.options).ddl

    def reader(self, schema: Any) -> Any:
        from turbopump.pipelines.source.reader import BatchReader

        return BatchReader(query_of(self.options, is_stream=False))

    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        from turbopump.pipelines.source.reader import StreamReader

        return StreamReader(query_of(self.options, is_stream=True))

    def writer(self, schema: Any, overwrite: bool) -> Any:
        return _sink().writer_of(self.options, schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        return _sink().stream_writer_of(self.options, schema, overwrite)


def _sink() -> Any:
    """Who only reads does not load it."""
    return import_module("turbopump.pipelines.sink")
