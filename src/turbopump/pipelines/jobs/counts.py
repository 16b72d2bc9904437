"""Counts the rows of a job by what happened to them: read, written, or dropped and why. Pure.

In: what Spark reports of each micro-batch, or what was observed in a batch. Out: `RowCounts`, for the summary
and for the exit status: rows that were dropped without permission are a failure.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

SOURCE, READ, MALFORMED, WRITTEN = (
    "turbopump-source",
    "turbopump-read",
    "turbopump-malformed",
    "turbopump-written",
)
"""Names of Spark's observations: before --where, after it, with an unreadable body, at the target."""
ROWS = "rows"
DROPS = ("late", "malformed")
"""Kinds of rows that a job must not drop unless it is allowed to."""


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Row counts of a job by what happened to the rows: written, duplicate, late, malformed, filtered."""

    read: int = 0
    """Rows that remain after --since, --until and --where."""
    written: int = 0
    duplicate: int = 0
    late: int = 0
    """Dropped by Spark because a watermark had passed them."""
    malformed: int = 0
    """Rows whose body could not be read."""
    filtered: int = 0
    """Rows of the source for which --where is not true."""

    def plus(self, other: "RowCounts") -> "RowCounts":
        return RowCounts(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def without_duplicates(self) -> "RowCounts":
        """Returns the counts of a job that drops duplicates: sets `duplicate` to `read` - `written` - `late`.

        The job must drop nothing else.
        """
        return replace(self, duplicate=max(0, self.read - self.written - self.late))

    def summary(self) -> dict[str, int]:
        return {one.name: getattr(self, one.name) for one in fields(self)}


def counts_of(observed: Mapping[str, Mapping[str, Any]], late: int = 0) -> RowCounts:
    """Returns the row counts of one batch, from Spark's observed metrics by observation name."""
    rows = {name: int(metrics.get(ROWS) or 0) for name, metrics in observed.items()}
    read = rows.get(READ, 0)
    filtered = max(0, rows[SOURCE] - read) if SOURCE in rows else 0
    return RowCounts(read, rows.get(WRITTEN, 0), 0, late, rows.get(MALFORMED, 0), filtered)


def counts_of_progress(progress: Mapping[str, Any]) -> RowCounts:
    """Returns the row counts of one micro-batch, from Spark's progress report about it."""
    operators: Iterable[Mapping[str, Any]] = progress.get("stateOperators") or ()
    late = sum(int(one.get("numRowsDroppedByWatermark") or 0) for one in operators)
    return counts_of(progress.get("observedMetrics") or {}, late)


def refusal(counts: RowCounts, allowed: Collection[str]) -> str | None:
    """Returns the error text if rows were dropped or unreadable beyond the `allowed` kinds; None if not."""
    dropped = [
        f"{getattr(counts, kind):,} {kind}" for kind in DROPS if getattr(counts, kind) and kind not in allowed
    ]
    if not dropped:
        return None
    hint = ",".join(kind for kind in DROPS if getattr(counts, kind))
    text = f"rows were dropped or have an unreadable body: {', '.join(dropped)}; --allow {hint} permits it"
    if counts.malformed and "malformed" not in allowed:
        text += ", and so does a query that uses the column bodyError to handle them"
    return text
