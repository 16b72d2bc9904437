"""Tells by the module of a connection's class which adapter it needs. No driver is imported."""

from collections.abc import Callable
from typing import Any

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.database.alchemy import AlchemyDriver, AsyncAlchemyDriver
from turbopump.transactions.database.django import DjangoDriver
from turbopump.transactions.database.driver import Driver
from turbopump.transactions.database.mariadb import AsyncmyDriver, PyMySQLDriver
from turbopump.transactions.database.postgresql import AsyncpgDriver, AsyncPsycopgDriver, PsycopgDriver
from turbopump.transactions.database.sqlite import AiosqliteDriver, SqliteDriver


def driver_of(connection: Any) -> Driver:
    """Returns the adapter for a connection. Raises InvalidArgument for an unknown kind of connection."""
    found = _adapter(type(connection))
    if found is None:
        kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
        raise InvalidArgument(
            "a connection must be one of sqlite3, aiosqlite, psycopg (3 or 2), asyncpg, PyMySQL, asyncmy, "
            f"aiomysql or Django, or a Connection or Session of SQLAlchemy, got {kind}"
        )
    return found(connection)


def is_async(connection: object) -> bool:
    """Returns whether a connection is async. Raises InvalidArgument for an unknown kind of connection."""
    return driver_of(connection).is_async


def is_known(connection: object) -> bool:
    """Returns whether `run_steps` accepts the object as a connection."""
    return _adapter(type(connection)) is not None


def package_of(kind: type) -> str:
    """Returns the package of the driver or library that a class of connections belongs to; "": none of them.

    A subclass of the user's belongs to the package of its base.
    """
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        if package in _ADAPTERS:
            return package
    return ""


def _adapter(kind: type) -> Callable[[Any], Driver] | None:
    for base in kind.__mro__:
        if found := _ADAPTERS.get(base.__module__.partition(".")[0]):
            return found(base)
    return None


def _django(connection: Any) -> Driver:
    return DjangoDriver(connection, driver_of)


_ADAPTERS: dict[str, Callable[[type], Callable[[Any], Driver] | None]] = {
    "aiomysql": lambda base: AsyncmyDriver if base.__name__ == "Connection" else None,
    "aiosqlite": lambda base: AiosqliteDriver,
    "asyncmy": lambda base: AsyncmyDriver if base.__name__ == "Connection" else None,
    "asyncpg": lambda base: AsyncpgDriver if "Connection" in base.__name__ else None,
    "django": lambda base: _django,
    "psycopg": lambda base: AsyncPsycopgDriver if base.__name__ == "AsyncConnection" else PsycopgDriver,
    "psycopg2": lambda base: PsycopgDriver,
    "pymysql": lambda base: PyMySQLDriver,
    "sqlalchemy": lambda base: AsyncAlchemyDriver if "asyncio" in base.__module__ else AlchemyDriver,
    "sqlite3": lambda base: SqliteDriver,
}
