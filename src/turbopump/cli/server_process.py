"""Runs a server process: descriptor limit, event loop, signals, orderly stop.

`serve` takes a function that starts servers and pushes their stops on a stack. It returns after one of
SIGNALS, when all servers have stopped, in reverse order. A second signal does not wait for them. Work
`beside` the servers runs until then; if it fails, the servers stop too and its error is raised.
"""

import asyncio
import contextlib
import gc
import logging
import resource
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from turbopump.runtime.tasks import Tasks

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

GARBAGE_AFTER = 100_000  # allocated and not freed containers between two garbage collections

StartServers = Callable[[contextlib.AsyncExitStack], Awaitable[None]]
Beside = Callable[[], Coroutine[Any, Any, None]]


def serve(start: StartServers, beside: Beside | None = None) -> int:
    """Runs servers that `start` starts and pushes on a stack, until a signal; returns the exit status."""
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(start, beside))


def raise_descriptor_limit() -> None:
    """Raises this process's soft limit of file descriptors to the hard limit, if allowed.

    It is 1024 in most shells, and a broker has many queues and clients.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS reports an infinite hard limit and refuses it
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def look_for_garbage_less_often() -> None:
    """Makes garbage collection rare, and exempts the objects of the start from it.

    With the usual 700 allocations it costs a tenth of a message of 1 KiB. Objects of the start stay, and
    messages make no reference cycles.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER, 20, 100)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(start: StartServers, beside: Beside | None = None) -> int:
    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()
    # A signal that the parent process set to ignore, as nohup does with SIGHUP, stays ignored.
    heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def stop() -> None:
        asked_to_stop.set()
        for number in heeded:
            loop.remove_signal_handler(number)

    for number in heeded:
        loop.add_signal_handler(number, stop)
    async with contextlib.AsyncExitStack() as stack:
        await start(stack)
        look_for_garbage_less_often()
        if beside is None:
            await asked_to_stop.wait()
        else:
            await _until(asked_to_stop, beside)
    return 0


async def _until(asked_to_stop: asyncio.Event, beside: Beside) -> None:
    """Runs `beside` until it ends, or until a stop is asked for, which cancels it. Raises its error."""
    tasks = Tasks(logging.getLogger(__name__))
    work = tasks.start(beside(), name="beside the servers", log_failure=False)
    stop = tasks.start(asked_to_stop.wait(), name="wait for a signal")
    try:
        await asyncio.wait((work, stop), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            await work
    finally:
        await tasks.close()
