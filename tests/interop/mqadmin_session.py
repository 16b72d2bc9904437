"""One mqadmin, whosever it is, run command by command against one cluster: the facts that it printed."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from . import peers, printed
from .clients import Answers
from .console import Console, Printed
from .printed import Facts

Shape = Callable[[list[str]], Facts]

LONG_NAME = "x" * 128


class Tool(Protocol):
    """An mqadmin. `newer`: it has the options and commands of 5.x."""

    newer: bool

    def mqadmin(self, *words: str, until: str = "") -> Printed: ...


@dataclass
class Session:
    """Runs commands and keeps what they printed. Braces in a command are filled in from `facts`."""

    cluster: peers.Cluster
    scene: Console
    tool: Tool
    work: Path
    facts: dict[str, str] = field(default_factory=dict)
    answers: Answers = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.facts.update(
            broker=self.cluster.broker_addr, dead=f"{peers.HOST}:{peers.free_port()}", work=str(self.work)
        )
        self.facts["long"] = LONG_NAME
        self.clean = printed.Cleaner(
            {
                self.cluster.namesrv: "<namesrv>",
                self.cluster.broker_addr: "<broker>",
                self.facts["dead"]: "<dead>",
                str(self.cluster.place.home): "<home>",
                str(self.work): "<work>",
            }
        )

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """A part that cannot be set up is an answer too."""
        self._steps: dict[str, Any] = {}
        self.answers[name] = self._steps
        try:
            yield
        except (RuntimeError, OSError) as broken:
            self._steps["broken off"] = self.clean.line(str(broken).splitlines()[0])

    def __call__(
        self, line: str, shape: Shape | None = None, until: str = "", failure: Shape | None = None
    ) -> str:
        """One command; its raw text, for what must be read from it. `failure`: the shape of an exception."""
        words = shlex.split(line.format(**self.facts))
        begun = time.monotonic()
        done = self.tool.mqadmin(*words, "-n", self.cluster.namesrv, until=until)
        self.slow[line] = time.monotonic() - begun
        lines = self.clean.lines(done.text)
        if done.endless:  # being interrupted is an exception in Java
            lines = lines[: next((at for at, line in enumerate(lines) if "xception" in line), None)]
        facts: Facts = lines
        chosen = failure if any("<exception>" in line for line in lines) else shape
        if chosen is not None:
            facts = chosen(lines)
        if bodies := printed.body_files(done.text):
            facts = [*lines, *(f"body: {body}" for body in bodies)]
        if done.status != 0 or done.endless:
            facts = {"status": done.status, "endless": done.endless, "printed": facts}
        self.keep(line, facts)
        return done.text

    def keep(self, name: str, facts: Any) -> None:
        free, again = name, 2
        while free in self._steps:
            free, again = f"{name} ({again})", again + 1
        self._steps[free] = facts

    def write(self, name: str, value: Any) -> None:
        """A file for the next commands to read."""
        (self.work / name).write_text(json.dumps(value))

    def newer(self, line: str, shape: Shape | None = None) -> None:
        """One that only 5.x understands."""
        if self.tool.newer:
            self(line, shape)

    def file(self, name: str) -> None:
        """What the last command exported, if it did."""
        path = self.work / name
        self.keep(f"file {name}", printed.file(path, self.clean) if path.exists() else None)

    def act(self, verb: str, *words: object) -> Any:
        return self.scene.act(verb, *words)

    def ends(self, topic: str, queue: int, offset: int) -> None:
        self.act("ends", self.cluster.broker_addr, topic, queue, offset)

    def committed(self, group: str, topic: str, queue: int, offset: int) -> None:
        self.act("committed", self.cluster.broker_addr, group, topic, queue, offset)

    def send(self, name: str, topic: str, queue: int, tags: str, keys: str, body: str) -> None:
        """Its ids are facts from now on: {name} and {name_at}."""
        ids = self.act("send", topic, queue, tags, keys, body)
        self.facts[name], self.facts[f"{name}_at"] = ids["id"], ids["offsetId"]
