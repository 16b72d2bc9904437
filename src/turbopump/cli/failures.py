"""Failures that a person can act on: one line for stderr and an exit status.

What is not recognised here is a fault of ours and keeps its traceback.
"""

import errno
import re

from turbopump.broker.filter_modules import FiltersNotInstalled
from turbopump.protocol.errors import Refused
from turbopump.runtime.disk import AlreadyLocked
from turbopump.store.errors import UnusableStore

FAILED = 1
ASKED_WRONGLY = 2

# asyncio and uvloop put the address into their OSError: ('127.0.0.1', 9876) or ('::', 9876, 0, 0).
BIND_ADDRESS = re.compile(r"\('([^']*)', (\d+)")


class Failure(Exception):
    """Its text is the line to print."""

    def __init__(self, line: str, status: int = FAILED) -> None:
        super().__init__(line)
        self.status = status


def explain(error: BaseException) -> Failure | None:
    match error:
        case Failure():
            return error
        case BaseExceptionGroup():  # of tasks that ran side by side, the first that failed tells the story
            return explain(error.exceptions[0])
        case Refused():
            return Failure(f"refused: {str(error).splitlines()[0]}")  # Apache adds a line of advice
        case AlreadyLocked():
            return Failure(f"the store is in use by another process ({error.strerror})")
        case OSError(errno=errno.EADDRINUSE | errno.EADDRNOTAVAIL | errno.EACCES) if error.filename is None:
            return Failure(cannot_listen(error))
        case OSError() if error.strerror:
            return Failure(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
        case UnusableStore() | FiltersNotInstalled():
            return Failure(str(error))
        case _:
            return None


def cannot_listen(error: OSError) -> str:
    found = BIND_ADDRESS.search(str(error))
    where = f"{found[1]}:{found[2]}" if found else "the address"
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {where}: the port is in use, perhaps by a server that already runs"
    return f"cannot listen on {where}: {error.strerror}"
