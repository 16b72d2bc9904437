"""Long work in short slices: a generator that yields between them and returns its result at the end."""

import asyncio
from collections.abc import Generator
from typing import TypeVar

R = TypeVar("R")


def run_to_end(work: Generator[object, None, R]) -> R:
    """Runs a generator to its end without a pause and returns its value."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: R = end.value
            return result


async def run_in_slices(work: Generator[object, None, R]) -> R:
    """Runs a generator to its end and returns its value; the event loop runs other work between slices."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: R = end.value
            return result
        await asyncio.sleep(0)
