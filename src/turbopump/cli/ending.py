"""How every command ends: an exit status, at most one line on stderr, and nothing left in stdout's buffer.

This is imported before the command is, and imports little: Ctrl-C during the rest of the imports ends it
quietly too. What explains a failure is imported when there is one.
"""

import os
import select
import sys
from collections.abc import Callable

FAILED = 1
ASKED_WRONGLY = 2
INTERRUPTED = 130


def ended(run: Callable[[], int], program: str) -> int:
    """The exit status. A reader who has seen enough, as in `| head -1`, makes nothing a failure."""
    status = 0
    try:
        status = run()
        flush()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError as error:
        status = status if is_unread() else told(error, program)
    except Exception as error:
        status = told(error, program)
    finally:  # argparse leaves by SystemExit, its help still in the buffer
        give_up_stdout_if_broken()
    return status


def told(error: Exception, program: str) -> int:
    from turbopump.cli.failures import explain

    failure = explain(error)
    if failure is None:
        raise error
    print(f"{program}: {one_line(str(failure))}", file=sys.stderr)
    return failure.status


def one_line(text: str) -> str:
    return " ".join(text.splitlines())


def flush() -> None:
    """Here, not when the interpreter ends: then nobody could explain why it failed."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, "stdout") from None


def is_unread() -> bool:
    """Whether stdout is a pipe, or the like, whose other end is closed."""
    if sys.stdout is None:
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # errors are told unasked
    return bool(poll.poll(0))


def give_up_stdout_if_broken() -> None:
    """The interpreter would try it once more at its end, and complain on stderr."""
    try:
        flush()
    except OSError:
        give_up_stdout()


def give_up_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
