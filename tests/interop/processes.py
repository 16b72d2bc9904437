"""Child processes that never outlive us: each has its own session and log, and dies with all it started."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

READY_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.05

_alive: set[Server] = set()


class Server:
    """A process in the background; a server is ready when its log says so."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as output:
            self._from = output.tell()
            self._process = start(command, output.fileno(), env)
        _alive.add(self)

    def wait_ready(self, text: str = "boot success") -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while text not in self._said():
            if self._process.poll() is not None:
                raise RuntimeError(
                    f"ended with {self._process.returncode} before it was ready:\n{self.tail()}"
                )
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"not ready after {READY_TIMEOUT_S} s:\n{self.tail()}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """SIGTERM, as an operator would; a server that does not end is killed and reported."""
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"did not stop within {STOP_TIMEOUT_S} s:\n{self.tail()}") from None
        self.kill()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def freeze(self) -> None:
        """SIGSTOP; returns when the process has stopped: on a busy machine its threads run on for a while."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self) -> None:
        """SIGKILL to the whole group; also right for one that has ended."""
        kill_group(self._process)
        _alive.discard(self)

    def tail(self, size: int = 4000) -> str:
        return self._said()[-size:]

    def _said(self) -> str:
        return self.log.read_bytes()[self._from :].decode("utf-8", "replace")


def run(command: Sequence[str], log: Path, timeout_s: float, env: Mapping[str, str] | None = None) -> None:
    """A client program, to its end; a failure shows what it printed."""
    with log.open("wb") as output:
        process = start(command, output.fileno(), env)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            kill_group(process)
    if code != 0:
        ended = f"took longer than {timeout_s} s" if code is None else f"ended with {code}"
        raise RuntimeError(f"{log.stem} {ended}:\n{log.read_text('utf-8', 'replace')[-4000:]}")


def start(
    command: Sequence[str],
    output: int,
    env: Mapping[str, str] | None,
    *,
    stdin: int = subprocess.DEVNULL,
    stderr: int = subprocess.STDOUT,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=output,
        stderr=stderr,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        start_new_session=True,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )


def kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@atexit.register
def kill_all() -> None:
    for server in list(_alive):
        server.kill()


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Even when the test run itself is killed with SIGKILL, nothing stays behind."""
    assert _libc is not None
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
