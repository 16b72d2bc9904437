"""Format `rocketmq` as Spark sees it: its name, its columns, its readers and writers.

In: the options of a query. Out: readers (`source/`) and writers (`sink/`). Wrong options raise BadOption when
the query is planned, not when it runs.
"""

from importlib import import_module
from typing import Any

from pyspark.sql.datasource import DataSource

from turbopump.pipelines import tables
from turbopump.pipelines.options import is_of_table, own_options
from turbopump.pipelines.sink.settings import SINK
from turbopump.pipelines.source.settings import FORMAT, OPTIONS, query_of, schema_of_options

NAME_SERVER = "nameServer"


class RocketMq(DataSource):
    """Spark's data source `rocketmq`: reads and writes topics through their brokers."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> Any:
        if not is_of_table(self.options):
            return schema_of_options(self.options).ddl
        return self._table_schema()

    def _table_schema(self) -> Any:
        """Returns the columns for CREATE TABLE, whose options may be for reading, writing or both."""
        from pyspark.sql.pandas.types import from_arrow_schema

        own = tables.known(own_options(self.options), OPTIONS)
        columns = from_arrow_schema(schema_of_options(own).arrow)
        return tables.with_options(columns, self.options, (OPTIONS, SINK), FORMAT)

    def reader(self, schema: Any) -> Any:
        from turbopump.pipelines.source.reader import BatchReader

        return BatchReader(query_of(self._for_reader(schema), is_stream=False))

    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        from turbopump.pipelines.source.reader import StreamReader

        return StreamReader(query_of(self._for_reader(schema), is_stream=True))

    def writer(self, schema: Any, overwrite: bool) -> Any:
        return _sink().writer_of(self.options, schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        return _sink().stream_writer_of(self.options, schema, overwrite)

    def _for_reader(self, schema: Any) -> dict[str, str]:
        return tables.for_reader(self.options, schema, NAME_SERVER, OPTIONS)


def _sink() -> Any:
    """Returns the module of the sink, imported on first use: a query that only reads does not load it."""
    return import_module("turbopump.pipelines.sink")
