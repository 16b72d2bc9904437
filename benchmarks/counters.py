"""Counts what a process does instead of how long it takes: user instructions, system calls, bytes written.

Instructions come from valgrind's callgrind, which runs the program on a simulated processor, about thirty
times slower; it counts user code of all threads and nothing of the kernel. System calls come from strace,
bytes written (with write(2), sockets included; not through mapped files) from `/proc`.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

TOTALS = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)
ATTACH_S = 20.0
POLL_S = 0.02


class NotCounted(Exception):
    """A counter is not installed, or its output was not understood."""


def check_valgrind() -> None:
    for program in ("valgrind", "callgrind_control"):
        if shutil.which(program) is None:
            raise SystemExit(
                f"benchmarks.instructions needs `{program}` on the PATH: install valgrind "
                "(Debian: apt-get install valgrind)"
            )


def has_strace() -> bool:
    return shutil.which("strace") is not None


# Instructions


def callgrind(directory: Path) -> tuple[str, ...]:
    """Returns the start of a command that counts; the output goes to `directory`, a file for each part."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return ("valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={directory}/part")


@dataclass
class Instructions:
    """The counter of a process that runs under callgrind."""

    pid: int
    directory: Path
    _dumps: int = field(default=0)

    def since_last(self) -> int:
        """Returns the instructions since the last call, or since the start of the process."""
        command = ["callgrind_control", "--dump", str(self.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self._dumps += 1
        part = self.directory / f"part.{self._dumps}"
        if done.returncode != 0 or not part.exists():
            raise NotCounted(f"no dump of process {self.pid}:\n{done.stdout}{done.stderr}")
        return instructions(part.read_text())


def at_end(directory: Path) -> int:
    """Returns the instructions of a process that has ended."""
    return instructions((directory / "part").read_text())


def instructions(dump: str) -> int:
    """Returns the total of a callgrind dump."""
    found = TOTALS.findall(dump)
    if not found:
        raise NotCounted("a callgrind dump must have a line `totals:`, and this one has none")
    return int(found[-1])


# System calls


@contextmanager
def system_calls(pid: int, output: Path) -> Iterator[dict[str, int]]:
    """Counts the system calls of all threads of a process: call -> number, filled in when the block ends."""
    found: dict[str, int] = {}
    log = output.with_suffix(".log")
    command = ["strace", "-f", "-c", "-o", str(output), "-p", str(pid)]
    with log.open("wb") as errors:
        tracer = subprocess.Popen(command, stderr=errors)
    try:
        wait_until_attached(tracer, log)
        yield found
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
    found.update(calls(output.read_text()))


def wait_until_attached(tracer: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + ATTACH_S
    while "attached" not in log.read_text():
        if tracer.poll() is not None or time.monotonic() > deadline:
            raise NotCounted(f"strace cannot attach:\n{log.read_text()}")
        time.sleep(POLL_S)


def calls(table: str) -> dict[str, int]:
    """Reads the table of `strace -c`: `% time, seconds, usecs/call, calls, [errors,] syscall`."""
    rows = [line.split() for line in table.splitlines()]
    found = {row[-1]: int(row[3]) for row in rows if len(row) in (5, 6) and row[3].isdigit()}
    total = found.pop("total", None)
    if total is None:
        raise NotCounted("a table of strace must have a row `total`, and this one has none")
    return found


def bytes_written(pid: int) -> int:
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        name, value = line.split(":")
        if name == "wchar":
            return int(value)
    raise NotCounted(f"/proc/{pid}/io has no wchar")
