"""A Java process with Apache's mqadmin and clients in it: see Console.java and Scene.java."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import clients, processes
from .peers import Cluster

ANSWER_TIMEOUT_S = 120.0
COMMAND_LIMIT_S = 60.0
READ_SIZE = 1 << 16
CATCH_EXIT = "-Djava.security.manager=allow"  # Java since 18 must be told


@dataclass(frozen=True)
class Printed:
    """What became of one command. `endless`: it went on until it was interrupted."""

    status: int
    endless: bool
    text: str


class Console:
    """Commands run one after another; files that they write without being told where land in `work`."""

    def __init__(
        self, version: str, cluster: Cluster, work: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = work / f"console-{version}-on-{cluster.kind}.log"
        java, *options = clients.program_of(f"mqadmin-{version}", "Console", work)
        with self._log.open("wb") as log:
            self._process = processes.start(
                [java, CATCH_EXIT, f"-Djava.io.tmpdir={work}", *options, cluster.namesrv],
                subprocess.PIPE,
                {"HOME": str(work), **(environment or {})},
                stdin=subprocess.PIPE,
                stderr=log.fileno(),
                cwd=work,
            )
        self._unread = b""

    def mqadmin(self, *words: str, until: str = "") -> Printed:
        """One command; one that goes on for ever is interrupted when it has said `until`."""
        answer = self._ask("mqadmin", str(int(COMMAND_LIMIT_S * 1000)), until, *words)
        return Printed(answer["status"], answer["endless"], answer["printed"])

    def act(self, verb: str, *words: object) -> Any:
        """A verb of Scene.java."""
        return self._ask(verb, *map(str, words))

    def close(self) -> None:
        processes.kill_group(self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, *words: str) -> Any:
        assert self._process.stdin is not None
        assert not any("\t" in word or "\n" in word for word in words)
        self._process.stdin.write("\t".join(words).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._line())
        if isinstance(answer, dict) and "broken" in answer:
            raise RuntimeError(f"{' '.join(words)}: {answer['broken']}\n{self._tail()}")
        return answer

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while b"\n" not in self._unread:
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise RuntimeError(f"no answer within {ANSWER_TIMEOUT_S} s:\n{self._tail()}")
            more = os.read(pipe, READ_SIZE)
            if not more:
                raise RuntimeError(f"the process ended:\n{self._tail()}")
            self._unread += more
        line, self._unread = self._unread.split(b"\n", 1)
        return line

    def _tail(self, size: int = 4000) -> str:
        return self._log.read_text("utf-8", "replace")[-size:]
