"""Commands as real processes, each in a home directory of its own."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PROGRAMS = Path(sys.executable).parent
PATIENCE_S = 30.0
# A machine that is busy with other things must not make the broker refuse what waited for it.
PATIENT = {
    "TURBOPUMP_WAIT_TIME_MILLS_IN_SEND_QUEUE": "20000",
    "TURBOPUMP_OS_PAGE_CACHE_BUSY_TIME_OUT_MILLS": "20000",
}


class Server:
    """A server process and the lines it has printed."""

    def __init__(self, words: tuple[str, ...], environment: dict[str, str], directory: Path) -> None:
        self.process = subprocess.Popen(
            [PROGRAMS / words[0], *words[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            cwd=directory,
        )
        self.lines: list[str] = []
        self._arrived: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, pattern: str) -> re.Match[str]:
        while (line := self._arrived.get(timeout=PATIENCE_S)) is not None:
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no line like {pattern!r} in {self.lines}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return status

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._arrived.put(line)
        self._arrived.put(None)


class Home:
    """Runs commands with this directory as home and working directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment = {"HOME": str(path), "PATH": os.environ["PATH"], **PATIENT}
        self.servers: list[Server] = []

    def start(self, *words: str) -> Server:
        server = Server(words, self.environment, self.path)
        self.servers.append(server)
        return server

    def run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [PROGRAMS / words[0], *words[1:]],
            capture_output=True,
            input=stdin,
            env=self.environment,
            cwd=self.path,
            timeout=PATIENCE_S,
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def up(self, *words: str) -> Server:
        """`turbopump up` on free ports; the commands that follow find it."""
        server = self.start("turbopump", "up", "--namesrv-port", "0", "--broker-port", "0", *words)
        self.environment["NAMESRV_ADDR"] = server.wait_for(r"name server +(\S+)")[1]
        server.wait_for("Ctrl-C")
        return server


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    for server in home.servers:
        server.process.kill()
        server.process.wait()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], str]:
    """Writes a small file and gives its path."""

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write
