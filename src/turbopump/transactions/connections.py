"""Opens, uses and closes the connections and sessions that the user's `connect` makes."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any, TypeVar

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.database import DialectSteps, is_async, is_known, run_steps

T = TypeVar("T")


@contextmanager
def opened(connect: Callable[[], Any]) -> Iterator[Any]:
    """Opens a blocking connection by `connect`, yields it and closes it. Raises InvalidArgument if async.

    `connect` gives a connection or session, or a context manager around one, such as `pool.connection`.
    """
    given = connect()
    if isawaitable(given):
        if hasattr(given, "close"):
            given.close()
        raise InvalidArgument(
            "`connect` must make blocking connections here: async ones need an `async def` handler"
        )
    if not is_known(given) and hasattr(given, "__enter__"):
        with given as connection:
            yield connection
        return
    if is_async(given):
        raise InvalidArgument(
            "`connect` must make blocking connections here: async ones need an `async def` handler"
        )
    try:
        yield given
    finally:
        given.close()


class AsyncConnectionScope:
    """Async context manager: opens an async connection by `connect`, closes it. Refuses a blocking one."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._given: Any = None

    async def __aenter__(self) -> Any:
        given = self._connect()
        if isawaitable(given) and (is_known(given) or not hasattr(given, "__aenter__")):
            given = await given
        self._given = given
        if is_known(given):
            if not is_async(given):
                given.close()
                raise InvalidArgument(
                    "an `async def` handler needs async connections (psycopg.AsyncConnection, asyncpg, "
                    "asyncmy, aiosqlite, SQLAlchemy's AsyncSession): a blocking one would hold up the "
                    "whole event loop"
                )
            return given
        return await given.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        if is_known(self._given):
            await close(self._given)
        else:
            await self._given.__aexit__(*error)


async def close(connection: Any) -> None:
    """Closes an async connection. Those of asyncmy and aiomysql are closed by another name."""
    closed = getattr(connection, "ensure_closed", connection.close)()
    if isawaitable(closed):
        await closed


class UserConnections:
    """Runs steps on new connections that the user's `connect` makes, blocking or async.

    Blocking connections are made and used in a thread; which kind they are is known after the first one.
    """

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._is_async: bool | None = None

    async def perform(self, written: DialectSteps[T]) -> T:
        """Opens a connection, runs the steps on it, closes it, and returns the result of the steps."""
        if self._is_async is None:
            first = await asyncio.to_thread(self._first, written)
            if not self._is_async:
                return first  # type: ignore[no-any-return]
            return await perform_async(lambda: first, written)
        if self._is_async:
            return await perform_async(self._connect, written)
        return await asyncio.to_thread(perform_blocking, self._connect, written)

    def _first(self, written: DialectSteps[T]) -> Any:
        """Opens the first connection; returns it if it is async, else the result of the steps run on it."""
        given = self._connect()
        self._is_async = _gives_async(given)
        return given if self._is_async else perform_blocking(lambda: given, written)


def perform_blocking(connect: Callable[[], Any], written: DialectSteps[T]) -> T:
    """Opens a blocking connection, runs the steps on it, closes it, and returns the result of the steps."""
    with opened(connect) as connection:
        done: T = run_steps(connection, written)
        return done


async def perform_async(connect: Callable[[], Any], written: DialectSteps[T]) -> T:
    """Opens an async connection, runs the steps on it, closes it, and returns the result of the steps."""
    async with AsyncConnectionScope(connect) as connection:
        done: T = await run_steps(connection, written)
        return done


def _gives_async(given: Any) -> bool:
    if is_known(given):
        return is_async(given)
    return hasattr(given, "__await__") or hasattr(given, "__aenter__")
