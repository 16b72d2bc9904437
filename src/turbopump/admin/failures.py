"""Explains failures caused by a cluster or a user in one line. Bugs keep their traceback."""

from turbopump.admin.command import CommandFailed
from turbopump.client.admin import NotFound
from turbopump.protocol.errors import BrokenBody, BrokenRecord, Refused


def explain(error: BaseException) -> str | None:
    match error:
        case BaseExceptionGroup():  # of concurrent requests, explain the first that failed
            return explain(error.exceptions[0])
        case CommandFailed() | NotFound():
            return str(error)
        case Refused() | OSError():
            return line_of(error)
        case BrokenBody() | BrokenRecord():
            return f"cannot read an answer: {error}"
        case _:
            return None


def line_of(error: Refused | OSError) -> str:
    """Returns one line about an error: the refusing server, if known, or the file, and the reason."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    who = next(iter(getattr(error, "__notes__", ())), "refused")
    return f"{who}: {str(error).splitlines()[0]}"
