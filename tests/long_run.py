"""`python -m tests.long_run [--piece NAME …] [--status]`: the pieces of `.ci/long`, one after another.

Each writes its figures to `docs/results/long-<piece>.json` when it ends. A piece that has passed at this
commit is not run again, so a run can be stopped at any time and continued; the piece that was stopped begins
from its start. Commits that change nothing but `docs/results` do not count, and a piece that passed with
uncommitted changes is run again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = "docs/results"
OUTCOME = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")
LAST_LINES = 20
NOISE = re.compile(r"^[.sxFE]+ *\[ *\d+%\]$|^make\[\d+\]: (Entering|Leaving) directory ")
"""Lines that say nothing about the result: pytest's progress, and the directories of make."""


@dataclass(frozen=True)
class Piece:
    name: str
    command: str


@dataclass(frozen=True)
class Result:
    """What a piece leaves in its file."""

    piece: str
    command: str
    commit: str
    dirty: bool
    date: str
    minutes: float
    machine: str
    load_before: float
    status: int
    tests: dict[str, int] = field(default_factory=dict)
    last_lines: list[str] = field(default_factory=list)

    @property
    def word(self) -> str:
        return "passed" if self.status == 0 else f"FAILED, status {self.status}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.long_run", description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument("--piece", action="append", default=[], help="only this one; may be repeated")
    parser.add_argument("--status", action="store_true", help="print what was run, and run nothing")
    options = parser.parse_args()
    pieces = parse((options.root / ".ci/long").read_text())
    if unknown := [name for name in options.piece if name not in {piece.name for piece in pieces}]:
        parser.error(f"--piece must be one of .ci/long, got {', '.join(unknown)}")
    if not options.status:
        run_all(options.root, [one for one in pieces if not options.piece or one.name in options.piece])
    print(table(options.root, pieces))
    results = [load(options.root, piece) for piece in pieces]
    failed = [one.piece for one in results if one is not None and one.status]
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    return 1 if failed else 0


def parse(text: str) -> list[Piece]:
    """Reads lines `name command`."""
    pieces: dict[str, Piece] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, _, command = line.partition(" ")
        if not command.strip() or name in pieces:
            raise ValueError(f"a piece must be a new name and a command, got {line!r}")
        pieces[name] = Piece(name, command.strip())
    return list(pieces.values())


def run_all(root: Path, pieces: list[Piece]) -> None:
    for number, piece in enumerate(pieces, 1):
        title = f"== {number} of {len(pieces)}, {piece.name}"
        if is_done(root, piece):
            print(f"{title}: has passed at this commit", flush=True)
            continue
        print(f"{title}: {piece.command}", flush=True)
        result = run(root, piece)
        path_of(root, piece).parent.mkdir(parents=True, exist_ok=True)
        path_of(root, piece).write_text(json.dumps(asdict(result), indent=1) + "\n")
        print(f"== {piece.name} {result.word}, {result.minutes:.1f} minutes", flush=True)


def run(root: Path, piece: Piece, clock: Callable[[], float] = time.monotonic) -> Result:
    """Runs a piece, and prints what it prints."""
    commit, dirty = state_of(root)
    began, load = clock(), os.getloadavg()[0]
    environment = {"HYPOTHESIS_PROFILE": "long", **os.environ, "CI": "true"}
    lines = []
    with subprocess.Popen(
        ["bash", "-c", piece.command],
        cwd=root,
        env=environment,
        text=True,
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            lines.append(line.rstrip())
    return Result(
        piece=piece.name,
        command=piece.command,
        commit=commit,
        dirty=dirty,
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        minutes=round((clock() - began) / 60, 2),
        machine=f"{os.cpu_count()} cores, Python {platform.python_version()}",
        load_before=round(load, 1),
        status=process.returncode,
        tests=counts(lines),
        last_lines=last_lines(lines, root),
    )


def last_lines(lines: list[str], root: Path) -> list[str]:
    """Returns the last lines that say something, with paths of the checkout relative to it."""
    kept = [line for line in lines if line and not NOISE.match(line)][-LAST_LINES:]
    return [line.replace(f"{root}/", "") for line in kept]


def counts(lines: list[str]) -> dict[str, int]:
    """Adds up the last lines of pytest, such as `3 failed, 97 passed in 4.56s`."""
    found: dict[str, int] = {}
    for line in lines:
        if re.search(r" in [\d.]+s\b", line):
            for number, outcome in OUTCOME.findall(line):
                outcome = outcome.removesuffix("s") if outcome.startswith("error") else outcome
                found[outcome] = found.get(outcome, 0) + int(number)
    return found


def is_done(root: Path, piece: Piece) -> bool:
    """Whether the piece, with this command, has passed at this commit."""
    result = load(root, piece)
    if result is None or result.status or result.dirty or result.command != piece.command:
        return False
    return (result.commit, False) == state_of(root)


def load(root: Path, piece: Piece) -> Result | None:
    path = path_of(root, piece)
    return Result(**json.loads(path.read_text())) if path.exists() else None


def path_of(root: Path, piece: Piece) -> Path:
    return root / RESULTS / f"long-{piece.name}.json"


def state_of(root: Path) -> tuple[str, bool]:
    """Returns the last commit that changed more than results, and whether more than them is uncommitted."""
    outside = ("--", ".", f":(exclude){RESULTS}")
    commit = _git(root, "log", "-1", "--format=%H", *outside).strip()
    return commit, bool(_git(root, "status", "--porcelain", *outside).strip())


def table(root: Path, pieces: list[Piece]) -> str:
    commit, _ = state_of(root)
    rows = [f"{'piece':15} {'result':20} {'minutes':>8}  {'tests':24} {'commit':10} date"]
    for piece in pieces:
        result = load(root, piece)
        if result is None:
            rows.append(f"{piece.name:15} not run")
            continue
        tests = ", ".join(f"{number} {outcome}" for outcome, number in result.tests.items())
        age = "this" if result.commit == commit and not result.dirty else result.commit[:9]
        age += "+" if result.dirty else ""
        rows.append(
            f"{piece.name:15} {result.word:20} {result.minutes:8.1f}  {tests:24} {age:10} {result.date}"
        )
    done = sum(is_done(root, piece) for piece in pieces)
    return "\n".join([*rows, f"{done} of {len(pieces)} pieces have passed at this commit"])


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, text=True, capture_output=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
