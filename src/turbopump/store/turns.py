"""Long work in short slices: a generator that yields between them and returns its result at the end."""

import asyncio
from collections.abc import Generator
from typing import TypeVar

R = TypeVar("R")


def finish(work: Generator[object, None, R]) -> R:
    """All slices at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: R = end.value
            return result


async def take_turns(work: Generator[object, None, R]) -> R:
    """Between two slices whatever else waits on the loop has its turn."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: R = end.value
            return result
        await asyncio.sleep(0)
