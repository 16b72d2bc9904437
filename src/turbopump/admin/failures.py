"""What a cluster or an operator may cause, as one line. A fault of ours has none and keeps its traceback."""

from turbopump.admin.command import Failed
from turbopump.client.admin import NotFound
from turbopump.protocol.errors import BrokenBody, BrokenRecord, Refused


def explain(error: BaseException) -> str | None:
    match error:
        case BaseExceptionGroup():  # of questions asked side by side, the first that failed tells the story
            return explain(error.exceptions[0])
        case Failed() | NotFound():
            return str(error)
        case Refused() | OSError():
            return line_of(error)
        case BrokenBody() | BrokenRecord():
            return f"an answer that cannot be read: {error}"
        case _:
            return None


def line_of(error: Refused | OSError) -> str:
    """Who refused, where it is known, and why. Apache adds a line of advice, which is left out."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    who = next(iter(getattr(error, "__notes__", ())), "refused")
    return f"{who}: {str(error).splitlines()[0]}"
