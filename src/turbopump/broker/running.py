"""Work that goes on beside requests: it begins now and ends with the broker. A failure is logged."""

import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)


def keep_running(work: Coroutine[Any, Any, None], stack: AsyncExitStack) -> None:
    """Runs `work` in a task until `stack` is closed."""
    tasks = Tasks(log)
    tasks.start(work)
    stack.push_async_callback(tasks.close)
