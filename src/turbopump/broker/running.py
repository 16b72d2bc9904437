"""Work that goes on beside requests: it begins now and ends with the broker. One that fails says so."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

log = logging.getLogger(__name__)


def keep_running(work: Coroutine[Any, Any, None], stack: AsyncExitStack) -> None:
    task = asyncio.create_task(work)
    task.add_done_callback(_complain)

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)


def _complain(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s ended", task.get_name(), exc_info=error)
