"""Files become part of a Delta table in one commit, which also says of which batch they are.

In: the files of the tasks that count. Out: nothing; the table has them, once. The commit holds the
transaction `rmq:<id>` with the number of the batch, so a batch that comes again is recognised, and of two
drivers that commit the same one Delta lets the first. It holds the offsets that the rows reach, too.
"""

import json
import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from turbopump.pipelines.lake.files import OFFSET, File, Files, Reached, merge

TRIES = 5
OFFSETS = "rocketmq.offsets"
KEEP = timedelta(days=7)
REPEATED = "%d rows of batch %d of %s are not written again: the table at %s has batches up to %d of this id"

log = logging.getLogger(__name__)


class OtherTable(ValueError):
    """The table at this place has other columns, or other partitions."""


class AlreadyWritten(ValueError):
    """The transactional id has written a batch, and nothing tells whether this one is the same."""


def commit(
    root: str,
    partition_by: tuple[str, ...],
    written: Sequence[Files],
    id: str,
    batch: int,
    *,
    may_repeat: bool = True,
) -> bool:
    """False: the batch was committed before. `id` is empty: there is no batch that could come again. Without
    `may_repeat` a batch under an id that has one already raises AlreadyWritten.
    """
    from deltalake.exceptions import CommitFailedError

    files = [file for one in written for file in one.files]
    if not files:
        return True
    schema = next(pa.ipc.read_schema(pa.py_buffer(one.schema)) for one in written if one.schema)
    for left in reversed(range(TRIES)):
        table = _table(root, schema, partition_by)
        if id and (last := _last(table, id)) >= batch:
            if not may_repeat:
                raise already_written(id, root)
            rows = sum(file.rows for file in files)
            log.warning(REPEATED, rows, batch, id, root, last)
            return False
        try:
            _append(table, schema, partition_by, files, _properties(written, id, batch))
            return True
        except CommitFailedError:  # somebody was first: with this batch, or with something else
            if not left:
                raise
    raise AssertionError("unreachable")


def app(id: str) -> str:
    return f"rmq:{id}"


def already_written(id: str, where: str) -> AlreadyWritten:
    return AlreadyWritten(
        f"transactionalId {id!r} has already written a batch to {where}. Give each batch its number with the "
        "option txnVersion (in foreachBatch the batch id): numbers up to the last one are passed over, "
        "others are written. Or give another transactionalId"
    )


def last_version(root: str, id: str) -> int:
    """The number of the id's last batch in the table; -1: there is none, or no table."""
    from deltalake import DeltaTable

    return _last(DeltaTable(root), id) if DeltaTable.is_deltatable(root) else -1


def _last(table: Any, id: str) -> int:
    version = table.transaction_version(app(id))
    return -1 if version is None else int(version)


def _append(
    table: Any, schema: Any, partition_by: tuple[str, ...], files: list[File], properties: Any
) -> None:
    from deltalake import Schema

    table.create_write_transaction(
        [_action(file) for file in files],
        mode="append",
        schema=Schema.from_arrow(schema),
        partition_by=list(partition_by),
        commit_properties=properties,
    )


def _table(root: str, schema: Any, partition_by: tuple[str, ...]) -> Any:
    """As it is now; made, if it is not there."""
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
    _check(root, table, wanted, partition_by)
    return table


def _check(root: str, table: Any, wanted: Any, partition_by: tuple[str, ...]) -> None:
    there, given = ({one.name: str(one.type) for one in each.fields} for each in (table.schema(), wanted))
    if there != given:
        differ = sorted({name for name in there | given if there.get(name) != given.get(name)})
        raise OtherTable(
            f"the table at {root} differs in {', '.join(differ)}: select its columns, or give another path"
        )
    if tuple(table.metadata().partition_columns) != partition_by:
        has = ",".join(table.metadata().partition_columns)
        raise OtherTable(f"the table at {root} has partitionBy={has!r}, not {','.join(partition_by)!r}")


def _properties(written: Sequence[Files], id: str, batch: int) -> Any:
    from deltalake import CommitProperties, Transaction

    offsets: Reached = {}
    for one in written:
        merge(offsets, one.reached)
    metadata = {OFFSETS: json.dumps(offsets, sort_keys=True)} if offsets else {}
    return CommitProperties(
        custom_metadata=metadata, app_transactions=[Transaction(app(id), batch)] if id else None
    )


def _action(file: File) -> Any:
    from deltalake.transaction import AddAction

    stats: dict[str, Any] = {"numRecords": file.rows}
    if file.offsets is not None:
        stats |= {"minValues": {OFFSET: file.offsets[0]}, "maxValues": {OFFSET: file.offsets[1]}}
    now_ms = int(time.time() * 1000)
    return AddAction(file.path, file.size, dict(file.values), now_ms, True, json.dumps(stats))


def compact(path: str, *, keep: timedelta = KEEP, target_bytes: int | None = None) -> dict[str, Any]:
    """Makes few large files of many small ones, and removes those that no version of the last `keep` has:
    also what attempts that failed have left. Streams may go on writing meanwhile, provided that none of
    their batches takes as long as `keep`.

        lake.compact("/lake/orders")
    """
    from deltalake import DeltaTable

    table = DeltaTable(path)
    figures: dict[str, Any] = table.optimize.compact(target_size=target_bytes)
    hours = int(keep / timedelta(hours=1))
    removed = table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
    return figures | {"filesVacuumed": len(removed)}


def offsets(path: str) -> Reached:
    """Up to where a table's rows reach, as its commits say: where another reader would go on."""
    from deltalake import DeltaTable

    found: Reached = {}
    for one in DeltaTable(path).history():
        merge(found, json.loads(one.get(OFFSETS, "{}")))
    return found
