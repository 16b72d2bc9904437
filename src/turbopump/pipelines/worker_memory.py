"""The processes in which Spark runs tasks: PySpark keeps them, and collects garbage after every task.

That walks through all that is loaded, Spark's, Arrow's and ours: 40 ms, several times what a small task
takes. After its first task a worker takes what it has then out of the collector's sight, once.
"""

import gc
from collections.abc import Iterable, Iterator
from typing import TypeVar

from pyspark import TaskContext

T = TypeVar("T")


def freeze_after(rows: Iterable[T]) -> Iterator[T]:
    """The rows of a task as they are. Behind the last of a worker's first task it settles; elsewhere than in
    a worker, and where somebody has done it before, nothing happens.
    """
    yield from rows
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
