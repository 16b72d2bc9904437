"""Runs a job: its Spark session, arguments and display, and how rows move from source to target.

Moving rows from a topic is a stream with a checkpoint, so that a job that is started again continues where it
ended; it reads what is there and ends, or with `follow` continues until it is stopped. From files it is one
batch. Either way rows are counted where they are read and where they are written.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

from turbopump.pipelines.credentials import shown
from turbopump.pipelines.jobs import checks, counts, endpoint_io
from turbopump.pipelines.jobs.checkpoints import HadoopDirectory, check_parquet, claim
from turbopump.pipelines.jobs.counts import RowCounts, counts_of, refusal
from turbopump.pipelines.jobs.display import Display, JobResult, ResultTable, Row
from turbopump.pipelines.jobs.endpoint import JobEndpoint
from turbopump.pipelines.jobs.fingerprint import fingerprint
from turbopump.pipelines.jobs.row_counter import RowCounter
from turbopump.pipelines.jobs.spec import Given

CHECKPOINTS = Path(".turbopump") / "pipelines"
POLL_INTERVAL_S = 0.2
BAR_WIDTH = 30
NO_PARTS: tuple[str, ...] = ()
OBSERVATION_TIMEOUT_S = 60.0
ALL_ROWS = "true"
Change = Callable[[DataFrame], DataFrame]


@dataclass
class JobRun:
    """One run of a job, given to the job's function: session, arguments, display and shared operations."""

    spark: SparkSession
    given: Given
    screen: Display
    job: str
    name_server: str
    stop: threading.Event = field(default_factory=threading.Event)
    is_deduplication: bool = False
    """Rows that are read and not written count as duplicates."""
    is_malformed_allowed: bool = False
    """The job itself handles rows with an unreadable body."""
    count: Callable[..., DataFrame] = field(default_factory=lambda: _uncounted, init=False)
    """Counts the rows for which a condition is true, under one of the names in `counts.py`."""

    # reading

    def source(self) -> JobEndpoint:
        return checks.needed(self.job, self.given, "from")

    def target(self) -> JobEndpoint:
        return checks.needed(self.job, self.given, "to")

    def rows(self, **more: str) -> DataFrame:
        """Returns a batch DataFrame of all that the source has now, within the given times and condition."""
        options = self.options(more)
        if self._is_missing:
            found = endpoint_io.no_rows(self.spark, options)
        else:
            found = endpoint_io.read(self.spark, self.source(), self.name_server, options)
        return self.within(found)

    @cached_property
    def _is_missing(self) -> bool:
        """Whether the source is a dead-letter topic that does not exist yet."""
        end = self.source()
        if end.kind != "dlq" or endpoint_io.is_there(self.name_server, end.topic, self.given["options"]):
            return False
        self.screen.note(f"group {end.name} has no dead letters: topic {end.topic} does not exist")
        return True

    def options(self, more: dict[str, str]) -> dict[str, str]:
        """Returns the options for reading the source: `more`, the given times, then the user's options.

        `more`: for our formats only; other formats get the user's alone.
        """
        end, given = self.source(), self.given
        mine = more if end.kind in endpoint_io.OURS else {}
        return {
            **mine,
            **endpoint_io.positions(end, given.get("since"), given.get("until")),
            **given["options"],
        }

    def within(self, rows: DataFrame) -> DataFrame:
        given = self.given
        rows = endpoint_io.within(self.source(), rows, given.get("since"), given.get("until"))
        return rows.where(given["where"]) if given.get("where") else rows

    # moving

    def move(self, change: Change, parts: tuple[str, ...] = NO_PARTS, **more: str) -> JobResult:
        """Copies rows from the source through `change` to the target; with --explain only describes that.

        `more`: options of the source. Rows that were dropped without permission make the result a failure.
        """
        begin = time.monotonic()
        end, target = self.source(), self.target()
        if self.given["explain"]:
            return self.explained(change, more, end.is_topic and not self._is_missing)
        if self._is_missing and not self.given["follow"]:
            moved = RowCounts()
        else:
            moved = self._stream(change, parts, more) if end.is_topic else self._batch(change, parts, more)
        took = time.monotonic() - begin
        if self.is_deduplication:
            moved = moved.without_duplicates()
        ways = {"from": str(end), "to": str(target)}
        pace = {"seconds": took, "rowsPerSecond": moved.read / took}
        return self.checked_for_drops(JobResult({**ways, **moved.summary(), **pace}), moved)

    def checked_for_drops(self, outcome: JobResult, moved: RowCounts) -> JobResult:
        """Returns the result, marked as failed if rows were dropped that --allow does not permit."""
        allowed = {*self.given["allow"], *(["malformed"] if self.is_malformed_allowed else [])}
        why = refusal(moved, allowed)
        if why is not None:
            self.screen.note(f"error: {why}")
            outcome.is_failure = True
        return outcome

    def _batch(self, change: Change, parts: tuple[str, ...], more: dict[str, str]) -> RowCounts:
        seen: dict[str, Observation] = {}

        def count(rows: DataFrame, name: str, which: str = ALL_ROWS) -> DataFrame:
            seen[name] = Observation(name)
            return rows.observe(seen[name], F.count_if(F.expr(which)).alias(counts.ROWS))

        self.count = count
        rows = count(change(count(self.rows(**more), counts.READ)), counts.WRITTEN)
        with self.progress():
            endpoint_io.write(rows, self.target(), self.name_server, self.given["to_options"], parts)
        return counts_of({name: self._observed(name, one) for name, one in seen.items()})

    def _observed(self, name: str, observation: Observation) -> dict[str, Any]:
        """Returns the metrics of an observation; {} with a warning if Spark does not report them in time.

        Spark may have removed the observation from its plan.
        """
        found: list[dict[str, Any]] = []
        asking = threading.Thread(target=lambda: found.append(observation.get), daemon=True)
        asking.start()
        asking.join(OBSERVATION_TIMEOUT_S)
        if not found:
            self.screen.note(f"warning: Spark did not report the number of rows ({name}); shown as 0")
        return found[0] if found else {}

    def _stream(self, change: Change, parts: tuple[str, ...], more: dict[str, str]) -> RowCounts:
        given = self.given
        checkpoint = given["checkpoint"] or self.checkpoint()
        self._claim(checkpoint)
        rows = self.streamed(change, more)
        self.screen.note(f"checkpoint: {checkpoint} (the same job continues from there)")
        writer = endpoint_io.start(
            rows, self.target(), self.name_server, given["to_options"], parts, checkpoint
        )
        trigger = {"processingTime": given["every"]} if given["follow"] else {"availableNow": True}
        tally = RowCounter(self.name())
        self.spark.streams.addListener(tally)
        try:
            self.watch(writer.queryName(self.name()).trigger(**trigger).start())
            return tally.result()
        finally:
            self.spark.streams.removeListener(tally)

    def streamed(self, change: Change, more: dict[str, str]) -> DataFrame:
        """Returns the stream after `change`, with observations that count rows read and written."""

        def count(rows: DataFrame, name: str, which: str = ALL_ROWS) -> DataFrame:
            return rows.observe(name, F.count_if(F.expr(which)).alias(counts.ROWS))

        self.count = count
        found = endpoint_io.follow(self.spark, self.source(), self.name_server, self.options(more))
        if self.given.get("where"):
            found = count(found, counts.SOURCE)
        return count(change(count(self.within(found), counts.READ)), counts.WRITTEN)

    def _claim(self, checkpoint: str) -> None:
        folder = HadoopDirectory(self.spark, checkpoint)
        if self.target().kind == "parquet":
            check_parquet(folder, HadoopDirectory(self.spark, self.target().name))
        now = fingerprint(self.job, self.given, self.name_server, checks.texts_of(self.given))
        claim(folder, now, self.given["keep_checkpoint"], self.screen.note)

    def watch(self, query: Any) -> None:
        """Waits until the stream ends; stops it when `stop` is set. Raises the stream's error if it fails."""
        while not query.awaitTermination(POLL_INTERVAL_S):
            if self.stop.is_set():
                query.stop()
        if query.exception() is not None:
            raise query.exception()

    def explained(self, change: Change, more: dict[str, str], is_stream: bool = False) -> JobResult:
        """Returns a description of what the job would read and write, with Spark's plan; runs nothing."""
        end, given = self.source(), self.given
        options = self.options(more)
        rows = self.streamed(change, more) if is_stream else change(self.rows(**more))
        conditions = (
            [] if end.kind in endpoint_io.OURS else [name for name in ("since", "until") if given.get(name)]
        )
        lines = [
            f"{'stream' if is_stream else 'batch'} of {end}",
            *(f"pushed down to the source: {name}={value}" for name, value in sorted(shown(options).items())),
            *(f"done by Spark: {name} {given[name].with_zone()}" for name in conditions),
            *([f"done by Spark: where {given['where']}"] if given.get("where") else []),
            *([f"written to {given['to']}"] if given.get("to") else []),
        ]
        plan = (
            rows._jdf.queryExecution().toString() if is_stream else rows._jdf.queryExecution().simpleString()
        )
        told = [{"line": line} for line in [*lines, *str(plan).splitlines()]]
        return JobResult({"from": str(end)}, [ResultTable("explain", "What would run", told, ("line",))])

    def name(self) -> str:
        """Returns the user's name for the job, or one of job, source and target; the same in every run."""
        said = self.given.get("name") or f"{self.job}-{self.given['from']}-{self.given['to']}"
        return re.sub(r"[^A-Za-z0-9._%-]+", "-", said)

    def checkpoint(self) -> str:
        return str((CHECKPOINTS / self.name()).absolute())

    # results

    def table(self, key: str, title: str, rows: DataFrame, most: int | None = None) -> ResultTable:
        """Collects rows, at most `most`, into a table of the result."""
        found: list[Row] = [row.asDict() for row in (rows.limit(most) if most else rows).collect()]
        return ResultTable(key, title, found, rows.columns)

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Draws a progress bar over all tasks that Spark has begun, while the block runs.

        Draws nothing without a terminal.
        """
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
        while not ended.wait(POLL_INTERVAL_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            total = sum(stage.numTasks for stage in stages if stage)
            done = sum(stage.numCompletedTasks for stage in stages if stage)
            self.screen.err.write(f"\r\x1b[K{bar(done, total)} {time.monotonic() - begin:.0f} s")
            self.screen.err.flush()


def _uncounted(rows: DataFrame, name: str, which: str = ALL_ROWS) -> DataFrame:
    return rows


def bar(done: int, total: int) -> str:
    filled = BAR_WIDTH * done // total if total else 0
    return f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {done}/{total} tasks"
