"""Records which lines below a package a thread executes, and what several recordings have in common."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROUNDS = 16
QUIET_S = 0.03  # after this long without a line of the package, what was asked is done
LINES_TO_READ = 10
LEFT_OUT = ("cli/", "testing/")  # the command line that starts a server, and what only tests use

Line = tuple[str, str, int]  # file below the package, qualified name of the function, line
Round = tuple[dict[Line, None], set[str]]  # lines, calls into the compiled module


@dataclass
class Recorder:
    """Notes the lines that the thread which called `install` executes below the package."""

    package: str
    lines: dict[Line, None] = field(default_factory=dict)  # in the order in which they were first executed
    compiled: set[str] = field(default_factory=set)
    recording: bool = False
    last: float = 0.0
    _names: dict[CodeType, str] = field(default_factory=dict)

    def install(self) -> None:
        sys.settrace(self._entered)
        sys.setprofile(self._called)

    def uninstall(self) -> None:
        sys.settrace(None)
        sys.setprofile(None)

    def _entered(self, frame: FrameType, _event: str, _argument: object) -> Any:
        code = frame.f_code
        name = self._names.get(code)
        if name is None:
            path = code.co_filename
            name = path[len(self.package) + 1 :] if path.startswith(self.package) else ""
            self._names[code] = name = "" if name.startswith(LEFT_OUT) else name
        return self._executed if name else None

    def _executed(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            self.last = time.monotonic()
            if self.recording:
                code = frame.f_code
                self.lines[self._names[code], code.co_qualname, frame.f_lineno] = None
        return self._executed

    def _called(self, _frame: FrameType, event: str, called: Any) -> None:
        """Notes entries into the compiled module, whose lines cannot be seen."""
        if event == "c_call" and self.recording:
            owner = getattr(called, "__self__", None)
            module = getattr(type(owner), "__module__", "") or ""
            if module.startswith("turbopump."):
                self.compiled.add(f"{type(owner).__name__}.{called.__name__}")
            elif str(getattr(owner, "__name__", "")).startswith("turbopump."):
                self.compiled.add(called.__name__)

    def begin(self) -> None:
        self.lines, self.compiled = {}, set()
        self.recording = True

    def end(self) -> Round:
        self.recording = False
        return self.lines, self.compiled

    @property
    def quiet_s(self) -> float:
        return time.monotonic() - self.last


@dataclass
class Walk:
    """What the rounds of a scenario have in common."""

    lines: list[Line]
    compiled: list[str]

    def without(self, idle: Walk) -> Walk:
        """Leaves out the files of which no other line is executed while the process is idle."""
        ticking = set(idle.lines)
        kept = {line[0] for line in self.lines if line not in ticking}
        return Walk([line for line in self.lines if line[0] in kept], self.compiled)

    def figures(self, package: Path) -> dict[str, Any]:
        on_path: dict[str, set[int]] = {}
        for file, _, line in self.lines:
            on_path.setdefault(file, set()).add(line)
        named = {(file, name) for file, name, _ in self.lines if not name.endswith(">")}
        return {
            "files": len(on_path),
            "files_to_read": sum(len(lines) >= LINES_TO_READ for lines in on_path.values()),
            "lines": sum(len((package / file).read_text().splitlines()) for file in on_path),
            "functions": len(named),
            "lines_on_path": sum(map(len, on_path.values())),
            "compiled_calls": self.compiled,
            "by_file": {file: len(lines) for file, lines in on_path.items()},
        }


def common(rounds: list[Round]) -> Walk:
    """Leaves what happened in every round, in the order of the last one."""
    everywhere = set.intersection(*(set(lines) for lines, _ in rounds))
    calls = set.intersection(*(compiled for _, compiled in rounds))
    return Walk([line for line in rounds[-1][0] if line in everywhere], sorted(calls))


def package_of(arguments: list[str]) -> Path:
    """The package of the tree that `--src` names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--src", required=True, help="directory that holds the package turbopump")
    package = Path(parser.parse_args(arguments[1:]).src).resolve() / "turbopump"
    found = importlib.util.find_spec("turbopump")
    if found is None or found.origin is None or Path(found.origin).parent != package:
        raise SystemExit(f"PYTHONPATH must begin with {package.parent}, got turbopump from {found}")
    return package
