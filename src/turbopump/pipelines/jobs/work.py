"""What every job has in hand: a Spark session, what it was told, and a screen; and how rows are moved.

Moving from a topic is a stream with a checkpoint, so that a job that is started again goes on where it
ended; it takes what is there and ends, or with `follow` goes on until it is told to stop. From files it is
one batch.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

from turbopump.pipelines.jobs import ends
from turbopump.pipelines.jobs.end import End
from turbopump.pipelines.jobs.showing import Outcome, Row, Screen, Table
from turbopump.pipelines.jobs.spec import BadSpec, Given

CHECKPOINTS = Path(".turbopump") / "pipelines"
LOOK_S = 0.2
WIDTH = 30
NO_PARTS: tuple[str, ...] = ()
Change = Callable[[DataFrame], DataFrame]


@dataclass
class Work:
    spark: SparkSession
    given: Given
    screen: Screen
    job: str
    name_server: str
    stop: threading.Event = field(default_factory=threading.Event)

    # reading

    def source(self) -> End:
        return self._needed("from")

    def target(self) -> End:
        return self._needed("to")

    def _needed(self, key: str) -> End:
        end: End | None = self.given[key]
        if end is None:
            raise BadSpec(f"job {self.job} needs --{key}: turbopump pipeline {self.job} --help")
        return end

    def rows(self, **more: str) -> DataFrame:
        """All that the source has now, within the times and the condition that were given."""
        given = self.given
        options = {**more, **given["options"]}
        found = ends.read(self.spark, self.source(), self.name_server, options)
        return self.within(found)

    def within(self, rows: DataFrame) -> DataFrame:
        given = self.given
        return ends.within(rows, given.get("since"), given.get("until"), given.get("where"))

    # moving

    def move(self, change: Change, parts: tuple[str, ...] = NO_PARTS, **more: str) -> Outcome:
        """From the source through `change` to the target. `more`: options of the source."""
        begin = time.monotonic()
        end = self.source()
        moved = self._stream(change, parts, more) if end.is_topic else self._batch(change, parts, more)
        took = time.monotonic() - begin
        ways = {"from": str(end), "to": str(self.target())}
        return Outcome({**ways, "rows": moved, "seconds": took, "rowsPerSecond": moved / took})

    def _batch(self, change: Change, parts: tuple[str, ...], more: dict[str, str]) -> int:
        counted = Observation("moved")
        rows = change(self.rows(**more)).observe(counted, F.count(F.lit(1)).alias("rows"))
        with self.progress():
            ends.write(rows, self.target(), self.name_server, self.given["to_options"], parts)
        return int(counted.get["rows"])

    def _stream(self, change: Change, parts: tuple[str, ...], more: dict[str, str]) -> int:
        given = self.given
        options = {**more, **given["options"]}
        rows = self.within(ends.follow(self.spark, self.source(), self.name_server, options))
        checkpoint = given["checkpoint"] or self.checkpoint()
        self.screen.note(f"checkpoint: {checkpoint} (the same job goes on from there)")
        writer = ends.start(
            change(rows), self.target(), self.name_server, given["to_options"], parts, checkpoint
        )
        trigger = {"processingTime": given["every"]} if given["follow"] else {"availableNow": True}
        return self.watch(writer.queryName(self.name()).trigger(**trigger).start())

    def watch(self, query: Any) -> int:
        """Until the stream has ended, or was told to: how many rows went through."""
        while not query.awaitTermination(LOOK_S):
            if self.stop.is_set():
                query.stop()
        if query.exception() is not None:
            raise query.exception()
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    def name(self) -> str:
        """Of this job, by what it does: the same again tomorrow."""
        said = self.given.get("name") or f"{self.job}-{self.given['from']}-{self.given['to']}"
        return re.sub(r"[^A-Za-z0-9._%-]+", "-", said)

    def checkpoint(self) -> str:
        return str((CHECKPOINTS / self.name()).absolute())

    # results

    def table(self, key: str, title: str, rows: DataFrame, most: int | None = None) -> Table:
        found: list[Row] = [row.asDict() for row in (rows.limit(most) if most else rows).collect()]
        return Table(key, title, found, rows.columns)

    @contextmanager
    def progress(self) -> Iterator[None]:
        """A bar over all tasks that Spark has begun, while something runs; nothing where nobody looks."""
        if not self.screen.err.isatty():
            yield
            return
        ended = threading.Event()
        drawing = threading.Thread(target=self._draw, args=(ended,), daemon=True)
        drawing.start()
        try:
            yield
        finally:
            ended.set()
            drawing.join()
            self.screen.err.write("\r\x1b[K")

    def _draw(self, ended: threading.Event) -> None:
        tracker = self.spark.sparkContext.statusTracker()
        begin = time.monotonic()
        while not ended.wait(LOOK_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            total = sum(stage.numTasks for stage in stages if stage)
            done = sum(stage.numCompletedTasks for stage in stages if stage)
            self.screen.err.write(f"\r\x1b[K{bar(done, total)} {time.monotonic() - begin:.0f} s")
            self.screen.err.flush()


def bar(done: int, total: int) -> str:
    filled = WIDTH * done // total if total else 0
    return f"[{'#' * filled}{'.' * (WIDTH - filled)}] {done}/{total} tasks"
