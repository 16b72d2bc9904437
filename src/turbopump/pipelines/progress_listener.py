"""Reports the progress of streams through Spark's listener.

Separate from `progress.py`: importing it needs Spark.
"""

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from turbopump.pipelines.progress import line


class ProgressListener(StreamingQueryListener):
    """Spark listener: calls `tell` with a line per micro-batch (empty ones if `empty`) and per failed query.

    Spark calls one event after the other, in a thread of its own.
    """

    def __init__(self, tell: Callable[[str], object], empty: bool) -> None:
        self._tell = tell
        self._empty = empty

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Does nothing: no rows were read yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = json.loads(event.progress.json)
        if self._empty or progress.get("numInputRows"):
            self._tell(line(progress))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Does nothing: no message came."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        if event.exception:
            self._tell(f"{str(event.id)[:8]} failed: {event.exception.splitlines()[0]}")
