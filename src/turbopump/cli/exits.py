"""Ends every command with an exit status, at most one line on stderr, and a flushed stdout.

This module is imported before the command and imports little, so that Ctrl-C during the other imports ends
the command quietly too. The code that explains failures is imported when there is one.
"""

import atexit
import fcntl
import os
import select
import stat
import sys
from collections.abc import Callable

FAILED = 1
USAGE_ERROR = 2
INTERRUPTED = 130


def exit_status(run: Callable[[], int], program: str) -> int:
    """Runs a command and returns its exit status. A closed stdout, as in `| head -1`, is no failure."""
    status = 0
    leaving: SystemExit | None = None
    try:
        try:
            status = run()
        except SystemExit as left:  # argparse exits so, with its help still in the buffer
            leaving = left
        flush()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError as error:
        status = status if is_stdout_closed() else report(error, program)
    except Exception as error:
        status = report(error, program)
    finally:
        discard_stdout_if_broken()
    if leaving is not None and status == 0:
        raise leaving
    return status


def end_where_arrow_is_loaded(status: int) -> None:
    """Ends the process at once if PyArrow is loaded; returns if not.

    Its threads may still release memory of Python's when the interpreter ends, and then abort the process:
    status -6 after a command that has succeeded, in one of fifty exports on a busy machine.
    """
    if "pyarrow" not in sys.modules:
        return
    atexit._run_exitfuncs()
    discard_stdout_if_broken()
    if sys.stderr is not None:
        sys.stderr.flush()
    os._exit(status)


def report(error: Exception, program: str) -> int:
    from turbopump.cli.failures import explain

    failure = explain(error)
    if failure is None:
        raise error
    warn(f"{program}: {one_line(str(failure))}")
    return failure.status


def warn(line: str) -> None:
    """Prints a line to stderr; nothing if it is closed, as after `2>&-`, where `print` would use stdout."""
    if sys.stderr is not None:
        print(line, file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    return " ".join(text.splitlines())


def flush() -> None:
    """Flushes stdout. Raises BrokenPipeError, or an OSError that names stdout.

    A failure at the end of the interpreter could not be explained.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, "stdout") from None


def is_stdout_closed() -> bool:
    """Tells whether stdout is a pipe or socket whose other end is closed."""
    if sys.stdout is None:
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # errors are always reported
    return bool(poll.poll(0))


def on_closed_stdout(end: Callable[[], object]) -> None:
    """Makes the event loop call `end` once the reader of stdout closes it, as in `tail t | head -1`."""
    import asyncio

    if sys.stdout is None or not is_end_of_pipe(pipe := sys.stdout.fileno()):
        return
    loop = asyncio.get_running_loop()

    def gone() -> None:
        loop.remove_reader(pipe)
        end()

    loop.add_reader(pipe, gone)  # this end is never readable; only closing the other end wakes it


def is_end_of_pipe(file: int) -> bool:
    """Tells whether a descriptor is the write end of a pipe; a FIFO open for both directions is not."""
    is_pipe = stat.S_ISFIFO(os.fstat(file).st_mode)
    return is_pipe and fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY


def discard_stdout_if_broken() -> None:
    """Discards stdout if it cannot be flushed: the interpreter would try again at its end and fail."""
    try:
        flush()
    except OSError:
        discard_stdout()


def discard_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
