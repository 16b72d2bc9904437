"""Adds files to a Delta table in one commit, which also records the batch they belong to.

In: the files of the tasks that count. Out: nothing; the table has them, once. The commit holds the
transaction `rmq:<id>` with the number of the batch, so a repeated batch is recognised, and of two drivers
that commit the same batch Delta accepts the first. It also holds the offsets that the rows reach.
"""

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from turbopump.pipelines.lake.files import DataFile, Reached, WrittenFiles, merge, table_in_utc
from turbopump.pipelines.options import SECOND_BATCH

TRIES = 5
OFFSETS = "rocketmq.offsets"
KEEP = timedelta(days=7)
REPEATED = "Skipping %d rows of batch %d of %s: the table at %s already has batches up to %d of this id"

log = logging.getLogger(__name__)


class OtherTable(ValueError):
    """The existing table has other columns or partitions than the rows, or does not accept their nulls."""


class AlreadyWritten(ValueError):
    """The transactional id has written a batch, and it is unknown whether this one is the same."""


@dataclass(frozen=True, slots=True)
class WriteMode:
    """Flags of a commit: overwrite rows, merge or overwrite the schema, and skip a repeated batch."""

    overwrite: bool = False
    """The files replace all existing ones."""
    merge_schema: bool = False
    """Columns that the table lacks are added to it; those that the rows lack are null."""
    overwrite_schema: bool = False
    """With `overwrite`: the table gets the columns of the rows."""
    may_repeat: bool = True
    """A batch that the id has written already is skipped; otherwise it raises AlreadyWritten."""


APPEND = WriteMode()


def commit(
    root: str,
    partition_by: tuple[str, ...],
    written: Sequence[WrittenFiles],
    id: str,
    batch: int,
    how: WriteMode = APPEND,
    schema: Any = None,
) -> bool:
    """Commits the files of a batch to the Delta table; returns False if the batch was committed before.

    `id` is empty: the batch cannot be repeated. `schema`: of the rows, for a commit without rows.
    """
    from deltalake.exceptions import CommitFailedError

    files = [file for one in written for file in one.files]
    if not files and not (how.overwrite and schema is not None):
        return True
    found = (pa.ipc.read_schema(pa.py_buffer(one.schema)) for one in written if one.schema)
    rows_schema = nullable(next(found, None) or table_in_utc(schema.empty_table()).schema)
    for left in reversed(range(TRIES)):
        table = _table(root, rows_schema, partition_by, how)
        if id and (last := _last(table, id)) >= batch:
            if not how.may_repeat:
                raise already_written(id, root)
            rows = sum(file.rows for file in files)
            log.warning(REPEATED, rows, batch, id, root, last)
            return False
        check_nulls(root, table, files)
        try:
            _write(table, rows_schema, partition_by, files, _properties(written, id, batch), how)
            return True
        except CommitFailedError:  # another writer was first, with this batch or another commit
            if not left:
                raise
    raise AssertionError("unreachable")


def nullable(schema: Any) -> Any:
    """Returns the schema with all columns nullable, as Delta's own writers make them.

    A later batch may have nulls where this one has none.
    """
    return pa.schema([field.with_nullable(True) for field in schema])


def nulls_in(file: DataFile, name: str) -> int:
    """Returns how many rows of a file have no value in a column."""
    values = dict(file.values)
    if name in values:
        return file.rows if values[name] is None else 0
    return file.statistics.nulls.get(name, 0 if name in file.columns else file.rows)


def check_nulls(root: str, table: Any, files: Sequence[DataFile]) -> None:
    """Raises OtherTable for rows with a null in a column that is NOT NULL."""
    required = [field.name for field in table.schema().fields if not field.nullable]
    for file in files:
        for name in required:
            if nulls := nulls_in(file, name):
                raise OtherTable(
                    f"column {name} of the table at {root} is NOT NULL, and {nulls} rows have no value for it"
                )


def app(id: str) -> str:
    return f"rmq:{id}"


def already_written(id: str, where: str) -> AlreadyWritten:
    return AlreadyWritten(f"transactionalId {id!r} has already written a batch to {where}. {SECOND_BATCH}")


def last_version(root: str, id: str) -> int:
    """Returns the number of the id's last batch in the table; -1 if there is none, or no table."""
    from deltalake import DeltaTable

    return _last(DeltaTable(root), id) if DeltaTable.is_deltatable(root) else -1


def _last(table: Any, id: str) -> int:
    version = table.transaction_version(app(id))
    return -1 if version is None else int(version)


def _write(
    table: Any,
    schema: Any,
    partition_by: tuple[str, ...],
    files: list[DataFile],
    properties: Any,
    how: WriteMode,
) -> None:
    from deltalake import Schema

    table.create_write_transaction(
        [_action(file) for file in files],
        mode="overwrite" if how.overwrite else "append",
        schema=Schema.from_arrow(schema) if how.overwrite_schema else table.schema(),
        partition_by=list(partition_by),
        commit_properties=properties,
    )


def _table(root: str, schema: Any, partition_by: tuple[str, ...], how: WriteMode) -> Any:
    """Opens the Delta table; creates it if missing, adds columns if allowed. Raises OtherTable."""
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import DeltaError

    wanted = Schema.from_arrow(schema)
    if not DeltaTable.is_deltatable(root):
        try:
            DeltaTable.create(root, wanted, partition_by=list(partition_by))
        except DeltaError:
            if not DeltaTable.is_deltatable(root):  # else another driver has just made it
                raise
    table = DeltaTable(root)
    check_partitions(root, table, partition_by)
    if not (how.overwrite and how.overwrite_schema):
        added = new_columns(root, table.schema(), wanted, how.merge_schema)
        if added:  # a commit of its own: until the next one these columns are null
            table.alter.add_columns(added)
            log.warning("The table at %s has new columns: %s", root, ", ".join(one.name for one in added))
            table = DeltaTable(root)
    return table


def check_partitions(root: str, table: Any, partition_by: tuple[str, ...]) -> None:
    if tuple(table.metadata().partition_columns) != partition_by:
        has = ",".join(table.metadata().partition_columns)
        raise OtherTable(f"the table at {root} has partitionBy={has!r}, not {','.join(partition_by)!r}")


def new_columns(root: str, table: Any, wanted: Any, may_add: bool) -> list[Any]:
    """Returns the columns of the rows that the table lacks.

    Raises OtherTable for any other difference, and for new columns that may not be added.
    """
    there, given = ({one.name: str(one.type) for one in each.fields} for each in (table, wanted))
    differ = sorted({name for name in there | given if there.get(name) != given.get(name)})
    clash = [name for name in differ if name in there and name in given]
    if clash or (differ and not may_add):
        raise OtherTable(
            f"the table at {root} differs in {', '.join(clash or differ)}: select its columns, or give "
            "another path" + ("" if clash else "; the option mergeSchema=true adds columns that it lacks")
        )
    return [one for one in wanted.fields if one.name not in there]


def _properties(written: Sequence[WrittenFiles], id: str, batch: int) -> Any:
    from deltalake import CommitProperties, Transaction

    offsets: Reached = {}
    for one in written:
        merge(offsets, one.reached)
    metadata = {OFFSETS: json.dumps(offsets, sort_keys=True)} if offsets else {}
    return CommitProperties(
        custom_metadata=metadata, app_transactions=[Transaction(app(id), batch)] if id else None
    )


def _action(file: DataFile) -> Any:
    from deltalake.transaction import AddAction

    of = file.statistics
    stats = {"numRecords": file.rows, "minValues": of.lowest, "maxValues": of.highest, "nullCount": of.nulls}
    now_ms = int(time.time() * 1000)
    return AddAction(file.path, file.size, dict(file.values), now_ms, True, json.dumps(stats))


def upsert(frame: Any, path: str, keys: Sequence[str], id: str, version: int) -> bool:
    """Writes a batch's rows to a table: replaces those with the same keys, adds others. False: done before.

    This is what a stream in update mode needs, by foreachBatch. Each version of an id is written once;
    returns False if it was written before. The rows go through the driver's memory.

        counts.writeStream.outputMode("update").foreachBatch(
            lambda batch, number: lake.upsert(batch, "/lake/counts", ["topic"], "counts-v1", number)
        )
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError

    rows = table_in_utc(frame.toArrow())
    for left in reversed(range(TRIES)):
        _table(path, nullable(rows.schema), (), APPEND)
        table = DeltaTable(path)
        if (last := _last(table, id)) >= version:
            log.warning(REPEATED, len(rows), version, id, path, last)
            return False
        same = " AND ".join(f"t.`{key}` = s.`{key}`" for key in keys)
        merged = table.merge(rows, same, "s", "t", commit_properties=_properties([], id, version))
        try:
            merged.when_matched_update_all().when_not_matched_insert_all().execute()
            return True
        except CommitFailedError:
            if not left:
                raise
    raise AssertionError("unreachable")


def compact(path: str, *, keep: timedelta = KEEP, target_bytes: int | None = None) -> dict[str, Any]:
    """Merges small files into large ones, and removes files that no version of the last `keep` uses.

    Files of failed attempts are removed too. Streams may write meanwhile, provided that none of their batches
    takes as long as `keep`.

        lake.compact("/lake/orders")
    """
    from deltalake import DeltaTable

    table = DeltaTable(path)
    figures: dict[str, Any] = table.optimize.compact(target_size=target_bytes)
    hours = int(keep / timedelta(hours=1))
    removed = table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
    return figures | {"filesVacuumed": len(removed)}


def offsets(path: str) -> Reached:
    """Returns the offsets after a table's rows, by its commits: where another reader would continue."""
    from deltalake import DeltaTable

    found: Reached = {}
    for one in DeltaTable(path).history():
        merge(found, json.loads(one.get(OFFSETS, "{}")))
    return found
