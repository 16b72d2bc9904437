"""Formats `rocketmq-faulty` and `rocketmq-delta-faulty`: writers with a misfortune at one point of one batch.

`fault` is point:batch:action. Points: `begun` (a task has sent a part), `sent` (a task is done), `written`
(all tasks are done), `decided` (the ledger knows), `committed` (Spark does not know yet). Actions: `kill` the
JVM with signal 9, `fail` with an exception, `fail-once` in the first attempt alone, `wait` until the file
`go` is there, `outrun`: the first attempt goes no further. `place` is a directory where driver, tasks and
test leave notes for each other.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource

from turbopump.pipelines.lake import spark as lake
from turbopump.pipelines.sink import exactly_once, spark, stream_writer_of

PATIENCE_S = 300.0
PARTITION = 0  # the one to which misfortunes of tasks happen


@dataclass(frozen=True)
class Fault:
    point: str
    batch: int
    action: str
    place: str

    def here(self, point: str, batch: int) -> None:
        if (point, batch) != (self.point, self.batch):
            return
        for name in (f"reached-{point}", f"reached-{point}-{_attempt()}"):
            (Path(self.place) / name).touch()
        if self.action == "kill":
            os.kill(int((Path(self.place) / "jvm").read_text()), signal.SIGKILL)
            time.sleep(PATIENCE_S)
        elif self.action == "wait":
            wait_for(Path(self.place) / "go")
        elif self.action == "outrun":
            self._outrun(point)
        elif self.action == "fail" or _attempt() == 0:
            raise RuntimeError(f"a misfortune at {point} of batch {batch}")

    def _outrun(self, point: str) -> None:
        """The second attempt does not win before the first has come so far."""
        if _attempt() == 0:
            time.sleep(PATIENCE_S)
        wait_for(Path(self.place) / f"reached-{point}-0")


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} did not come"
        time.sleep(0.05)


def _attempt() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


class Faulty(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq-faulty"

    def schema(self) -> str:
        return "body STRING"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        options = dict(self.options)
        point, batch, action = options.pop("fault").split(":")
        fault = Fault(point, int(batch), action, options.pop("place"))
        real = stream_writer_of(options, schema, overwrite)
        kind = ExactlyOnce if isinstance(real, spark.StreamExactlyOnce) else AtLeastOnce
        return kind(real._sink, fault)


class ExactlyOnce(spark.StreamExactlyOnce):
    def __init__(self, sink: Any, fault: Fault) -> None:
        super().__init__(sink)
        self._fault = fault

    def write(self, iterator: Iterator[Any]) -> Any:
        wrote = super().write(_until_begun(self._fault, iterator))
        _of_one_task(self._fault, "sent")
        return wrote

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        self._fault.here("written", batchId)
        end = exactly_once.end

        def end_later(ledger: Any, batch: int) -> None:
            self._fault.here("decided", batch)
            end(ledger, batch)

        exactly_once.end = end_later
        try:
            super().commit(messages, batchId)
        finally:
            exactly_once.end = end
        self._fault.here("committed", batchId)


class AtLeastOnce(spark.StreamAtLeastOnce):
    def __init__(self, sink: Any, fault: Fault) -> None:
        super().__init__(sink)
        self._fault = fault

    def write(self, iterator: Iterator[Any]) -> Any:
        wrote = super().write(_until_begun(self._fault, iterator))
        _of_one_task(self._fault, "sent")
        return wrote


class FaultyDelta(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq-delta-faulty"

    def schema(self) -> str:
        return "body STRING"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        options = dict(self.options)
        point, batch, action = options.pop("fault").split(":")
        fault = Fault(point, int(batch), action, options.pop("place"))
        return Delta(lake.lake_of(options, schema.names, overwrite), fault)


class Delta(lake.StreamWriter):
    def __init__(self, where: Any, fault: Fault) -> None:
        super().__init__(where)
        self._fault = fault

    def write(self, iterator: Iterator[Any]) -> Any:
        wrote = super().write(_until_begun(self._fault, iterator))
        _of_one_task(self._fault, "sent")
        return wrote

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        self._fault.here("written", batchId)
        super().commit(messages, batchId)
        self._fault.here("committed", batchId)


def _until_begun(fault: Fault, iterator: Iterator[Any]) -> Iterator[Any]:
    for number, batch in enumerate(iterator):
        if number == 2:  # the first was acknowledged, and the second is under way
            _of_one_task(fault, "begun")
        yield batch


def _of_one_task(fault: Fault, point: str) -> None:
    context = TaskContext.get()
    if context.partitionId() == PARTITION:
        fault.here(point, int(context.getLocalProperty(spark.BATCH_ID)))
