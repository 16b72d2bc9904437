"""Formats the progress of a stream: one line per micro-batch, with rows, speed, lag and durations.

In: what Spark reports about a trigger. Out: a line, or the numbers in it. The lag is counted in messages,
from the offsets that the source reports; committing a group's offsets at its brokers is the source's task
(`groupId`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turbopump.pipelines.source.offsets import positions_of

PARTS = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
"""Phases of a trigger, in the order in which they happen."""


@dataclass(frozen=True, slots=True)
class StreamLag:
    """Messages stored and not read yet: in all queues, and in the queues with the least and the most."""

    total: int = 0
    least: int = 0
    most: int = 0


def lag_of(source: Mapping[str, Any]) -> StreamLag:
    """Returns the lag of one source of a query; zero for a source of another format."""
    try:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        done, there = positions_of(end), positions_of(latest)
    except ValueError:
        return StreamLag()
    behind = [max(0, offset - done.get(queue, 0)) for queue, offset in there.items()]
    return StreamLag(sum(behind), min(behind), max(behind))


def _offsets(told: Any) -> Any:
    """Returns offsets as a document; Spark gives them as JSON text or as a document."""
    return json.loads(told) if isinstance(told, str) else told


def line(progress: Mapping[str, Any]) -> str:
    """Formats the progress of one micro-batch, as in `query.lastProgress`, as one line for people."""
    parts = progress.get("durationMs") or {}
    rows = int(progress.get("numInputRows") or 0)
    whole_ms = int(parts.get("triggerExecution") or 0)
    lags = [lag_of(source) for source in progress.get("sources") or ()]
    behind = sum(lag.total for lag in lags)
    name = progress.get("name") or str(progress.get("id"))[:8]
    speed = rows * 1000 // whole_ms if whole_ms else 0
    most = max((lag.most for lag in lags), default=0)
    worst = f" (most in one queue {most:,})" if behind else ""
    times = ", ".join(f"{part} {int(parts[part]):,}" for part in PARTS if part in parts)
    return (
        f"{name} batch {progress.get('batchId')}: {rows:,} rows, {speed:,} rows/s, {behind:,} behind{worst}, "
        f"{whole_ms:,} ms: {times}"
    )
