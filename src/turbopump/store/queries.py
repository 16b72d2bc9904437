"""Finds messages by key: the index names candidates by hash, the log tells which of them carry the key."""

import contextlib
from collections.abc import Generator
from dataclasses import dataclass

from turbopump.protocol.hashing import index_hash
from turbopump.protocol.record import Record
from turbopump.store.config import StoreConfig
from turbopump.store.dispatch import Dispatcher
from turbopump.store.index import Index
from turbopump.store.message_log import MessageLog
from turbopump.store.slices import run_to_end


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Result of a key query: the records, oldest first; store time and log offset that the index reached."""

    records: list[bytes]
    index_timestamp: int
    index_offset: int


class KeyQueries:
    """Finds the records of a topic that carry a key."""

    def __init__(
        self, log: MessageLog, index: Index | None, dispatcher: Dispatcher, config: StoreConfig
    ) -> None:
        self._log = log
        self._index = index
        self._dispatcher = dispatcher
        self.configure(config)

    def configure(self, config: StoreConfig) -> None:
        self._max_count = config.max_query_count
        self.default_count = config.default_query_count
        """Messages that a query by unique key returns."""

    def query(self, topic: str, key: str, begin_ms: int, end_ms: int, max_count: int) -> QueryResult:
        """Returns the newest records, at most `max_count`, with this key or unique key in the time range."""
        return run_to_end(self.query_in_slices(topic, key, begin_ms, end_ms, max_count))

    def query_in_slices(
        self, topic: str, key: str, begin_ms: int, end_ms: int, max_count: int
    ) -> Generator[None, None, QueryResult]:
        """Generator version of `query`: returns the QueryResult, yields between slices of a long search."""
        if self._index is None:
            return QueryResult([], 0, 0)
        with contextlib.suppress(OSError):  # on a full disk the newest keys are not found yet
            self._dispatcher.put_all_keys()
        count = min(max_count, self._max_count)
        records = []
        offsets = yield from self._index.query(index_hash(f"{topic}#{key}"), begin_ms, end_ms, count)
        for offset in offsets:
            record = self._log.look_up(offset)
            # Another key may have the same hash.
            if record is not None and record.topic == topic and _carries(record, key):
                data = self._log.read(offset, record.size)
                if data is not None:
                    records.append(data)
        timestamp, offset = self._index.last_update
        return QueryResult(records, timestamp, offset)


def _carries(record: Record, key: str) -> bool:
    keys = record.keys
    return record.unique_key == key or (keys is not None and key in keys.split(" "))
