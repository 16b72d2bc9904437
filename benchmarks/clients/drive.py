"""Runs one client process: `python -m benchmarks.clients.drive JOB` takes JSON, prints a `Measured`.

Our client runs in our environment, all others in the environment of the benchmark.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import uvloop

from .shapes import Job, Measured


def main() -> None:
    given: dict[str, Any] = json.loads(sys.argv[1])
    job = Job(**{**given, "pids": tuple(given["pids"])})
    print(json.dumps(asdict(measure(job))), flush=True)


def measure(job: Job) -> Measured:
    """Runs the job; every asyncio client runs on uvloop, ours and others."""
    adapter = importlib.import_module(f".with_{job.client}", __package__)
    shapes: dict[str, Callable[[Job], Measured | Awaitable[Measured]]] = adapter.SHAPES
    shape = shapes[job.shape]
    if not asyncio.iscoroutinefunction(shape):
        return shape(job)  # type: ignore[return-value]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        measured: Measured = runner.run(shape(job))
        return measured


if __name__ == "__main__":
    main()
