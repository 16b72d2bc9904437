"""Decorators for tests that are coroutines: their arguments are fixtures and parameters, as of any test."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from turbopump.testing.loop import run_virtual

P = ParamSpec("P")
Test = Callable[P, Coroutine[Any, Any, None]]


def virtual(test: Test[P]) -> Callable[P, None]:
    """Runs a test in virtual time: a loop whose sleeps take no time."""

    @functools.wraps(test)
    def run(*args: P.args, **fixtures: P.kwargs) -> None:
        run_virtual(test(*args, **fixtures))

    return run


def in_loop(test: Test[P]) -> Callable[P, None]:
    """Runs a test in a loop of asyncio, in real time."""

    @functools.wraps(test)
    def run(*args: P.args, **fixtures: P.kwargs) -> None:
        asyncio.run(test(*args, **fixtures))

    return run
