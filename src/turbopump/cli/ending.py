"""How every command ends: an exit status, at most one line on stderr, and nothing left in stdout's buffer.

This is imported before the command is, and imports little: Ctrl-C during the rest of the imports ends it
quietly too. What explains a failure is imported when there is one.
"""

import fcntl
import os
import select
import stat
import sys
from collections.abc import Callable

FAILED = 1
ASKED_WRONGLY = 2
INTERRUPTED = 130


def ended(run: Callable[[], int], program: str) -> int:
    """The exit status. A reader who has seen enough, as in `| head -1`, makes nothing a failure."""
    status = 0
    leaving: SystemExit | None = None
    try:
        try:
            status = run()
        except SystemExit as left:  # so does argparse, its help still in the buffer
            leaving = left
        flush()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError as error:
        status = status if is_unread() else told(error, program)
    except Exception as error:
        status = told(error, program)
    finally:
        give_up_stdout_if_broken()
    if leaving is not None and status == 0:
        raise leaving
    return status


def told(error: Exception, program: str) -> int:
    from turbopump.cli.failures import explain

    failure = explain(error)
    if failure is None:
        raise error
    warn(f"{program}: {one_line(str(failure))}")
    return failure.status


def warn(line: str) -> None:
    """On stderr. Where there is none, as after `2>&-`, `print` would choose stdout."""
    if sys.stderr is not None:
        print(line, file=sys.stderr, flush=True)


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


def when_nobody_reads(end: Callable[[], object]) -> None:
    """`turbopump tail t | head -1` ends with its first line, not when the next message cannot be shown."""
    import asyncio

    if sys.stdout is None or not is_end_of_pipe(pipe := sys.stdout.fileno()):
        return
    loop = asyncio.get_running_loop()

    def gone() -> None:
        loop.remove_reader(pipe)
        end()

    loop.add_reader(pipe, gone)  # our end has nothing to read; only that the other one is closed wakes it


def is_end_of_pipe(file: int) -> bool:
    """Not so a FIFO that is open for both: what we wrote there ourselves can be read."""
    is_pipe = stat.S_ISFIFO(os.fstat(file).st_mode)
    return is_pipe and fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY


def give_up_stdout_if_broken() -> None:
    """The interpreter would try it once more at its end, and complain on stderr."""
    try:
        flush()
    except OSError:
        give_up_stdout()


def give_up_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
