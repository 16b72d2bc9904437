"""Failures that a person can act on: one line for stderr and an exit status.

What is not recognised here is a fault of ours and keeps its traceback.
"""

import errno
import re

from turbopump.broker.consume.filter_modules import FiltersNotInstalled
from turbopump.cli.ending import ASKED_WRONGLY as ASKED_WRONGLY
from turbopump.cli.ending import FAILED as FAILED
from turbopump.client.errors import InvalidArgument, SendFailed, TopicUnknown
from turbopump.protocol.errors import Refused
from turbopump.runtime.disk import AlreadyLocked
from turbopump.store.errors import UnusableStore

LONGEST_QUOTE = 40

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
        case TopicUnknown():
            return Failure(error.remark)
        case SendFailed() if (refused := refusal_of(error)) is not None:
            return explain(refused)
        case Refused():
            return Failure(f"refused: {str(error).splitlines()[0]}")  # Apache adds a line of advice
        case InvalidArgument():
            return Failure(str(error), ASKED_WRONGLY)
        case UnicodeEncodeError():
            return Failure(unwritable(error), ASKED_WRONGLY if error.encoding == "utf-8" else FAILED)
        case AlreadyLocked():
            return Failure(f"the store is in use by another process ({error.strerror})")
        case OSError(errno=errno.EADDRINUSE | errno.EADDRNOTAVAIL | errno.EACCES) if error.filename is None:
            return Failure(cannot_listen(error))
        case OSError():
            words = error.strerror or str(error) or type(error).__name__
            return Failure(f"{error.filename}: {words}" if error.filename else words)
        case UnusableStore() | FiltersNotInstalled():
            return Failure(str(error))
        case _:
            return None


def refusal_of(error: SendFailed) -> Refused | None:
    """The last word of a broker in the tries of a send, if one of them was answered."""
    refusals = [one.failure for one in error.tries if isinstance(one.failure, Refused)]
    return refusals[-1] if refusals else None


def unwritable(error: UnicodeEncodeError) -> str:
    """Words of a command line may hold bytes that are not UTF-8: Python hands them on as lone surrogates.
    Any other encoding is that of a terminal.
    """
    return f"{shortened(error.object)!r} cannot be written as {error.encoding}: {error.reason}"


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "…"


def cannot_listen(error: OSError) -> str:
    found = BIND_ADDRESS.search(str(error))
    where = f"{found[1]}:{found[2]}" if found else "the address"
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {where}: the port is in use, perhaps by a server that already runs"
    return f"cannot listen on {where}: {error.strerror}"
