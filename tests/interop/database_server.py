"""What the real databases of the tests have in common: a process that is killed, paused and begun again.

They refuse to run as root: there they run as `nobody`, in a directory that belongs to it. What is committed
is written before the answer, but not synced to disk: in our tests processes die, not the machine.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import artifacts

START_TIMEOUT_S = 60


@dataclass
class DatabaseServer:
    """One server. Everything it has is below `home`, and is still there after a kill."""

    name: str
    home: Path
    command: list[str | Path]
    answers: Callable[[], None]
    """Connects once; raises while the server cannot be asked."""
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begins it, again on the same data and the same place, and waits until it answers."""
        with (self.home / "log").open("ab") as log:
            options = as_someone(self.home, self.environment)
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, **options)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                return self.answers()
            except Exception as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError(f"{self.name} did not start: {error}\n{self.log[-2000:]}") from None
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL, for its children too: one that lives on would keep the next start from the data."""
        if self.process is None:
            return
        children: list[int] = []
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)  # it begins no further children
            children = _children(self.process.pid)
            for child in children:
                _send(child, signal.SIGKILL)
            self.process.kill()
        self.process.wait(START_TIMEOUT_S)
        deadline = time.monotonic() + START_TIMEOUT_S
        while any(map(_lives, children)):  # until then they hold the shared memory, and the data
            assert time.monotonic() < deadline, f"children of {self.name} do not end"
            time.sleep(0.01)
        self.process = None

    def pause(self) -> None:
        """SIGSTOP, for its children too: it keeps its connections and answers nothing."""
        pids = self._pids()
        for pid in pids:
            _send(pid, signal.SIGSTOP)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not all(_is_stopped(pid) for pid in pids):  # a thread may go on for a moment
            assert time.monotonic() < deadline, f"{self.name} does not stop"
            time.sleep(0.002)

    def resume(self) -> None:
        for pid in self._pids():
            _send(pid, signal.SIGCONT)

    def close(self) -> None:
        """Ends it for good, and deletes all that it has."""
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    @property
    def log(self) -> str:
        return (self.home / "log").read_text(errors="replace")

    def _pids(self) -> list[int]:
        assert self.process is not None, f"{self.name} does not run"
        return [self.process.pid, *_children(self.process.pid)]


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                status = (entry / "stat").read_text()
            except OSError:  # it has ended
                continue
            if int(status.rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry.name))
    return found


def _is_stopped(pid: int) -> bool:
    """Whether all its threads are; a process that has ended is."""
    try:
        states = [
            (thread / "stat").read_text().rpartition(")")[2].split()[0]
            for thread in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:
        return not Path(f"/proc/{pid}").exists()
    return set(states) <= {"T", "t", "Z", "X"}


def _lives(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for has."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def hand_over(home: Path) -> None:
    """Gives all below `home` to the user that the server runs as."""
    if os.getuid() != 0:
        return
    user = _nobody()
    for directory, _, files in os.walk(home):
        os.chown(directory, user.pw_uid, user.pw_gid)
        for name in files:
            os.chown(Path(directory) / name, user.pw_uid, user.pw_gid, follow_symlinks=False)


def as_someone(home: Path, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Options of a process that must not be root's."""
    known = {"PATH": f"{os.defpath}:/usr/sbin:/sbin", "HOME": str(home), "LC_ALL": "C"} | (environment or {})
    common: dict[str, Any] = {"cwd": home, "env": known}
    if os.getuid() != 0:
        return common
    user = _nobody()
    return common | {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _nobody() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        raise artifacts.Missing(
            "a database server must not run as root, and there is no user nobody"
        ) from None
