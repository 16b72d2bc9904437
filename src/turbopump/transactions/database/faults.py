"""What an error of a database means, whichever driver raised it.

SQLAlchemy and Django wrap the errors of a driver; the driver's own is looked for below.
"""

from collections.abc import Iterator

LOCK_WAIT_TIMEOUT = 1205
"""MariaDB has undone the statement, not the transaction."""
DEADLOCK = 1213
"""MariaDB has undone the whole transaction."""
_BUSY_NUMBERS = frozenset({LOCK_WAIT_TIMEOUT, DEADLOCK})
_BUSY_STATES = frozenset({"40001", "40P01"})  # PostgreSQL: serialization failure, deadlock
_SQLITE_BUSY = frozenset({"SQLITE_BUSY", "SQLITE_BUSY_SNAPSHOT", "SQLITE_LOCKED"})


def is_retriable(error: BaseException) -> bool:
    """Returns whether a transaction failed because of another one at the same time.

    Roll it back, and do the whole of it again: nothing of it has been done.
    """
    for one in _chain(error):
        if number_of(one) in _BUSY_NUMBERS or state_of(one) in _BUSY_STATES:
            return True
        if getattr(one, "sqlite_errorname", "") in _SQLITE_BUSY:
            return True
    return False


def number_of(error: BaseException) -> int:
    """Returns MariaDB's number of an error; 0: it has none."""
    for one in _chain(error):
        if one.args and isinstance(one.args[0], int):
            return one.args[0]
    return 0


def state_of(error: BaseException) -> str:
    """Returns PostgreSQL's SQLSTATE of an error; "": it has none."""
    for one in _chain(error):
        for name in ("sqlstate", "pgcode"):
            if isinstance(state := getattr(one, name, None), str):
                return state
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yields the error, what it wraps, and what it was raised from."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        wrapped = getattr(one, "orig", None)
        one = wrapped if isinstance(wrapped, BaseException) else one.__cause__
