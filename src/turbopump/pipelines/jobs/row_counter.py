"""Counts the rows of a stream over all of its micro-batches; Spark itself remembers the last 100."""

import json
import threading
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from turbopump.pipelines.jobs.counts import RowCounts, counts_of_progress

END_TIMEOUT_S = 60.0


class CountsLost(RuntimeError):
    """Spark did not report the end of a stream, so the number of its rows is unknown."""


class RowCounter(StreamingQueryListener):
    """Spark listener that adds up the row counts of one streaming query over all its micro-batches.

    Spark calls one event after the other, the end of the query last.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._counts = RowCounts()
        self._run: str | None = None
        self._ended = threading.Event()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        if event.name == self._name:
            self._run = str(event.runId)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = json.loads(event.progress.json)
        if progress["runId"] == self._run:
            self._counts = self._counts.plus(counts_of_progress(progress))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Does nothing: no rows were read."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        if str(event.runId) == self._run:
            self._ended.set()

    def result(self) -> RowCounts:
        """Waits for the query's end and returns its row counts. Raises CountsLost after END_TIMEOUT_S."""
        if not self._ended.wait(END_TIMEOUT_S):
            raise CountsLost(f"Spark has not reported the end of {self._name}: its rows cannot be counted")
        return self._counts
