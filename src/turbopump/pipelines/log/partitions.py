"""Makes the partitions of a query: asks a store's files for what `plan.py` needs, without reading messages.

In: a store's files and a query. Out: partitions, whose ends are fixed from then on.
"""

from collections.abc import Iterator

from turbopump.pipelines.log.batch_queue import Queue, queue_of
from turbopump.pipelines.log.files import NoStore, StoreFiles
from turbopump.pipelines.log.index import look_up
from turbopump.pipelines.log.plan import (
    LogRecords,
    Partition,
    QueueEnds,
    QueuePositions,
    StoreQuery,
    check_topics,
    divided,
    log_ranges,
    narrowed,
    preferred_cuts,
)
from turbopump.pipelines.options import EARLIEST, LATEST, BadOption
from turbopump.store.pieces import LogPart

# Of a message in the log, also inside a batch: limits the number of rows that damaged queue files may claim.
MIN_MESSAGE_BYTES = 20


def partitions_of(files: StoreFiles, query: StoreQuery) -> list[Partition]:
    """Divides the parts of a store that answer the query into partitions, each for one reader.

    Raises NoStore, NoSuchTopic, OffsetsGone and BadOption.
    """
    if files.topics:
        check_topics(query, files.topics)
    if query.scan == "queue" and not files.queue_names and files.parts:
        raise NoStore(f"{files.directory} has no consume queues: read it with scan=log")
    files.warn_of_uncommitted(lambda: _physical_end([queue_of(files, name) for name in files.queue_names]))
    if query.key:
        return list(_by_key(files, query))
    if query.scan == "queue" or (not query.scan and files.queue_names):
        queues = [queue_of(files, name) for name in files.queue_names if query.wants(name)]
        return divided([narrowed(query, _ends(queue, query)) for queue in queues], query.rows_per_partition)
    return list(_by_log(files, query))


def _ends(queue: Queue, query: StoreQuery) -> QueueEnds:
    since = None if query.since_ms is None else queue.first_since(query.since_ms)
    until = None if query.until_ms is None else queue.first_since(query.until_ms)
    return QueueEnds(queue.name, queue.begin, queue.end, since, until)


def _by_log(
    files: StoreFiles, query: StoreQuery, begin: int = 0, stop: int | None = None
) -> Iterator[Partition]:
    """Yields partitions of the commit log in [begin, stop), log offsets at which records begin.

    Raises BadOption for a query by queue offsets.
    """
    if query.starting != QueuePositions(EARLIEST) or query.ending != QueuePositions(LATEST):
        raise BadOption(
            "startingOffsets and endingOffsets are queue offsets, which scan=log does not use: give times"
        )
    queues = [queue_of(files, name) for name in files.queue_names]
    end = files.log_end(_physical_end(queues))
    end = end if stop is None else min(end, files.begin_of(stop))
    begin = files.begin_of(begin)
    rows = sum(queue.end - queue.begin for queue in queues)
    per_byte = min(rows / max(end - files.log_begin, 1), 1 / MIN_MESSAGE_BYTES)
    for number, part in enumerate(files.parts):
        if part.end <= begin or part.start >= end or not _is_in_time(files, number, query):
            continue
        part = LogPart(max(part.start, begin), part.end - max(part.start, begin), part.path)
        wished = preferred_cuts(part.start, min(part.end, end), per_byte, query.rows_per_partition)
        cuts = [files.begin_of(cut) for at in wished if (cut := _record_at(queues, at)) is not None]
        yield from log_ranges(part, end, cuts)


def _physical_end(queues: list[Queue]) -> int:
    """Returns the log offset behind the last message that is in a queue."""
    return max((queue.physical_end() for queue in queues), default=0)


def _record_at(queues: list[Queue], physical: int) -> int | None:
    """Returns the log offset of the first record from `physical` on, by the queues' entries; None if none."""
    return min((at for queue in queues if (at := queue.first_at(physical)) is not None), default=None)


def _is_in_time(files: StoreFiles, number: int, query: StoreQuery) -> bool:
    """Tells whether log file `number` may hold messages stored in the time range of the query.

    Its messages were stored after its first, and before the first of the next file.
    """
    parts = files.parts
    first = files.store_time(files.first_record(parts[number]))
    if query.until_ms is not None and first is not None and first >= query.until_ms:
        return False
    after = files.store_time(files.first_record(parts[number + 1])) if number + 1 < len(parts) else None
    return query.since_ms is None or not after or after >= query.since_ms


def _by_key(files: StoreFiles, query: StoreQuery) -> Iterator[Partition]:
    """Yields partitions that may hold the query's key: records in the index, and log ranges not indexed."""
    topics = [topic for topic in files.topics if query.wants_topic(topic)]
    found = look_up(files, topics, query.key)
    if found is None:
        yield from _by_log(files, query)
        return
    yield from _by_log(files, query, stop=found.begin)
    if found.offsets:
        yield (LogRecords(found.offsets),)
    yield from _by_log(files, query, found.end)
