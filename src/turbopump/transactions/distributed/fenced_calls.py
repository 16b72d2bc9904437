"""Calls the functions of a participant in this process: in a transaction of its database, behind the fence.

In: functions and a call. Out: what the function returned, as JSON, from the fence if it was done before.
Blocking functions and connections are used in a thread, from the connection's opening to its end.
"""

import asyncio
import inspect
import logging
from collections.abc import Collection
from concurrent.futures import Executor
from typing import Any

from turbopump.transactions.connections import AsyncConnectionScope, opened
from turbopump.transactions.distributed.participants import BranchCall, BranchFunctions, encoded
from turbopump.transactions.fence import FencedBlock, fenced, forget, is_retriable

log = logging.getLogger(__name__)

DEADLOCK_TRIES = 5
"""Of the whole transaction, when the database has undone it because of another one."""


class FencedCalls:
    """Calls functions of participants; those that block, in these threads."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads

    async def perform(self, functions: BranchFunctions, call: BranchCall) -> str:
        """Calls the function of the phase once, however often this is asked; returns its result as JSON.

        Raises what the function raises, FenceRefused, NotTried and Contradicted.
        """
        if functions.connect is None:
            return await self._call_plain(functions, call)
        for _ in range(DEADLOCK_TRIES - 1):
            try:
                return await self._perform(functions, call)
            except Exception as error:
                if not is_retriable(error):
                    raise
                log.info("%s of branch %s of %s is repeated: %s", call.phase, call.branch, call.gid, error)
        return await self._perform(functions, call)

    async def _perform(self, functions: BranchFunctions, call: BranchCall) -> str:
        if functions.is_async:
            return await _perform_async(functions, call)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _perform_blocking, functions, call)

    async def forget(self, functions: BranchFunctions, still_open: Collection[str]) -> int:
        """Deletes old rows of the fence of a participant; returns how many."""
        if functions.connect is None:
            return 0
        table = functions.fence.table
        if functions.is_async:
            async with AsyncConnectionScope(functions.connect) as connection:
                deleted: int = await forget(connection, still_open=still_open, table=table)
                return deleted

        def work() -> int:
            assert functions.connect is not None
            with opened(functions.connect) as connection:
                deleted: int = forget(connection, still_open=still_open, table=table)
                return deleted

        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _call_plain(self, functions: BranchFunctions, call: BranchCall) -> str:
        """Calls a function without a database: it gets the call, and recognises repetitions itself."""
        if not functions.has(call.phase):
            return ""
        function = functions.find(call.phase)
        arguments = functions.arguments(call)
        if inspect.iscoroutinefunction(function):
            return encoded(await function(call, *arguments))
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self._threads, lambda: function(call, *arguments))
        return encoded(await result if inspect.isawaitable(result) else result)


def _perform_blocking(functions: BranchFunctions, call: BranchCall) -> str:
    assert functions.connect is not None
    with opened(functions.connect) as connection, _fenced(functions, connection, call) as entered:
        if entered.is_first:
            result = functions.find(call.phase)(connection, *functions.arguments(call))
            entered.result = encoded(result)
    return entered.result


async def _perform_async(functions: BranchFunctions, call: BranchCall) -> str:
    assert functions.connect is not None
    async with (
        AsyncConnectionScope(functions.connect) as connection,
        _fenced(functions, connection, call) as entered,
    ):
        if entered.is_first:
            result = await functions.find(call.phase)(connection, *functions.arguments(call))
            entered.result = encoded(result)
    return entered.result


def _fenced(functions: BranchFunctions, connection: Any, call: BranchCall) -> FencedBlock:
    return fenced(connection, call.gid, call.branch, call.phase, fence=functions.fence)
