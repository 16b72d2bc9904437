"""Keeps garbage collection in PySpark's workers from visiting all loaded modules after every task.

PySpark keeps its workers and collects garbage after every task. That visits everything that Spark, Arrow and
this package have loaded: 40 ms, several times the duration of a small task. After its first task a worker
freezes what it has loaded, once.
"""

import gc
from collections.abc import Iterable, Iterator
from typing import TypeVar

from pyspark import TaskContext

T = TypeVar("T")


def freeze_after(rows: Iterable[T]) -> Iterator[T]:
    """Yields the rows of a task; after a worker's first task exempts loaded objects from collection.

    Does nothing outside of a worker, or when objects were frozen before.
    """
    yield from rows
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
