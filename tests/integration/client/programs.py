"""Programs in processes of their own: they may be forked, interrupted and ended."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PATIENCE_S = 30.0

PREAMBLE = """
import os, signal, sys, threading, time
from turbopump import *
from turbopump import errors
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
def say(*words):
    print(*words, flush=True)
def end_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


class Program:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def line(self) -> str:
        """What it says next; empty when it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Its exit code, and what it said last, errors too."""
        out, errors = self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode, out + errors


@contextmanager
def program(text: str, name_servers: str) -> Iterator[Program]:
    """Without the warning of Python 3.12 and later that a process with threads is forked: it is."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PREAMBLE + textwrap.dedent(text)],
        env={**os.environ, "NAMESRV_ADDR": name_servers},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Program(process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # those that it forked too
        process.communicate()
