"""Set-up of tests that read topics with Spark as streams."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.interop import peers

WAIT_S = 120


class Stream:
    """A query that is run again and again over one checkpoint, each time to the end of what is there."""

    def __init__(self, spark: Any, broker: peers.Cluster, topic: str, home: Any, **options: str) -> None:
        self.spark, self.home = spark, home
        self.options = {
            "nameServer": broker.namesrv,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "columns": "queueId,queueOffset",
            **options,
        }
        self.rows: list[tuple[int, int]] = []
        self.progress: list[dict[str, Any]] = []

    def run(self, fails_at: tuple[int, int] | None = None, **options: str) -> list[tuple[int, int]]:
        """What came, by queue and offset, unless the batch with this row fails."""
        self.rows = rows = []

        def keep(frame: Any, number: int) -> None:
            found = [(row.queueId, row.queueOffset) for row in frame.collect()]
            if fails_at in found:
                raise RuntimeError(f"a misfortune at {fails_at[1]}")
            rows.extend(found)

        source = self.spark.readStream.format("rocketmq").options(**{**self.options, **options}).load()
        query = (
            source.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.home / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(WAIT_S)
        finally:
            self.progress = [json.loads(one.json) for one in query.recentProgress]
            query.stop()
        return sorted(rows)


def pairs(number: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(number, offset) for offset in range(start, end)]


def wait_until(is_so: Any, query: Any = None) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        assert query is None or query.isActive, query.exception()
        time.sleep(0.05)
