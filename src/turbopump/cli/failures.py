"""Explains failures that a user can act on: one line for stderr and an exit status.

An exception that is not recognised here is a bug and keeps its traceback.
"""

import errno
import re

from turbopump.broker.consume.filter_modules import FiltersNotInstalled
from turbopump.cli.exits import FAILED as FAILED
from turbopump.cli.exits import USAGE_ERROR as USAGE_ERROR
from turbopump.client.errors import InvalidArgument, SendFailed, TopicUnknown
from turbopump.guard.extra import ExtraMissing
from turbopump.guard.faults import AccessFileFault
from turbopump.protocol.conf import ConfigError
from turbopump.protocol.errors import Refused
from turbopump.runtime.disk import AlreadyLocked
from turbopump.store.errors import UnusableStore

MAX_QUOTE = 40

# asyncio and uvloop put the address into their OSError: ('127.0.0.1', 9876) or ('::', 9876, 0, 0).
BIND_ADDRESS = re.compile(r"\('([^']*)', (\d+)")


class CommandFailure(Exception):
    """A command failed; the text is the line to print."""

    def __init__(self, line: str, status: int = FAILED) -> None:
        super().__init__(line)
        self.status = status


def explain(error: BaseException) -> CommandFailure | None:
    match error:
        case CommandFailure():
            return error
        case BaseExceptionGroup():  # of concurrent tasks, explain the first that failed
            return explain(error.exceptions[0])
        case TopicUnknown():
            return CommandFailure(error.remark)
        case SendFailed() if (refused := refusal_of(error)) is not None:
            return explain(refused)
        case Refused():
            return CommandFailure(f"refused: {str(error).splitlines()[0]}")  # without Apache's line of advice
        case ConfigError():
            return CommandFailure(str(error), USAGE_ERROR)
        case InvalidArgument():
            return CommandFailure(str(error), USAGE_ERROR)
        case UnicodeEncodeError():
            return CommandFailure(
                encoding_failure(error), USAGE_ERROR if error.encoding == "utf-8" else FAILED
            )
        case ExtraMissing() | AccessFileFault():
            return CommandFailure(str(error), USAGE_ERROR)
        case AlreadyLocked():
            return CommandFailure(f"the store is in use by another process ({error.strerror})")
        case OSError(errno=errno.EADDRINUSE | errno.EADDRNOTAVAIL | errno.EACCES) if error.filename is None:
            return CommandFailure(cannot_listen(error))
        case OSError():
            words = error.strerror or str(error) or type(error).__name__
            return CommandFailure(f"{error.filename}: {words}" if error.filename else words)
        case UnusableStore() | FiltersNotInstalled():
            return CommandFailure(str(error))
        case _:
            return None


def refusal_of(error: SendFailed) -> Refused | None:
    """Returns the last refusal of a broker in the tries of a send; None if no broker refused."""
    refusals = [one.failure for one in error.tries if isinstance(one.failure, Refused)]
    return refusals[-1] if refusals else None


def encoding_failure(error: UnicodeEncodeError) -> str:
    """Returns the line to print about text that cannot be encoded.

    Arguments may contain bytes that are not UTF-8, which Python passes as lone surrogates. Any other encoding
    is that of a terminal.
    """
    return f"{shortened(error.object)!r} cannot be written as {error.encoding}: {error.reason}"


def shortened(text: str) -> str:
    return text if len(text) <= MAX_QUOTE else text[:MAX_QUOTE] + "…"


def cannot_listen(error: OSError) -> str:
    found = BIND_ADDRESS.search(str(error))
    where = f"{found[1]}:{found[2]}" if found else "the address"
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {where}: the port is in use, perhaps by a server that is already running"
    return f"cannot listen on {where}: {error.strerror}"
