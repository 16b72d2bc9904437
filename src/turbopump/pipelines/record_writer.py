"""Writes single records, as they come, into a Parquet file: what `tail` shows, with the columns of an export.

In: records and the names of their brokers. Out: a file that is complete once it is closed. Memory holds at
most one row group.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from turbopump.pipelines.decode import batches
from turbopump.pipelines.parquet import ExportResult, ParquetFile
from turbopump.pipelines.record_positions import locate
from turbopump.pipelines.schema import Schema
from turbopump.protocol.record import Record, encode

MAX_BATCH_ROWS = 4096
MAX_BATCH_BYTES = 4 * 1024 * 1024
"""Records are converted to columns when this many have come."""


@dataclass
class RecordWriter:
    """Collects records in batches and adds them to a Parquet file."""

    file: ParquetFile
    schema: Schema
    _records: list[bytes] = field(default_factory=list, init=False)
    _brokers: list[str] = field(default_factory=list, init=False)
    _bytes: int = field(default=0, init=False)

    def add(self, record: Record, broker: str) -> None:
        self._records.append(encode(record))
        self._brokers.append(broker)
        self._bytes += len(self._records[-1])
        if len(self._records) >= MAX_BATCH_ROWS or self._bytes >= MAX_BATCH_BYTES:
            self._put()

    def close(self) -> ExportResult:
        self._put()
        return self.file.close()

    def _put(self) -> None:
        records, brokers = self._records, self._brokers
        self._records, self._brokers, self._bytes = [], [], 0
        ends = np.cumsum([0, *map(len, records)], dtype=np.int64)
        data, at = b"".join(records), 0
        for batch in batches(data, locate(data, ends[:-1]), self.schema, None, MAX_BATCH_ROWS):
            self.file.add(_named(batch, brokers[at : at + batch.num_rows]))
            at += batch.num_rows


def _named(batch: pa.RecordBatch, brokers: list[str]) -> pa.RecordBatch:
    """Returns the batch with one broker name per row in its column brokerName."""
    at = batch.schema.get_field_index("brokerName")
    columns = [*batch.columns[:at], pa.array(brokers, pa.string()), *batch.columns[at + 1 :]]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
