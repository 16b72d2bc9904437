"""Installs two checkouts of ours side by side, for `benchmarks.paired` and `benchmarks.instructions`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import compare

BEFORE, AFTER = "before", "after"
MIN_RATIO = 0.97
"""A load below this ratio fails a comparison: a message costs 3 % more than it did."""

CELLS = {cell.name: cell for cell in sorted(compare.CELLS, key=lambda cell: cell.mode != "pull")}
"""The pull comes first: brokers return fewer messages per pull the further the log has grown behind them."""

SEND_CLIENT = "client: send 1 KiB, 64 in flight"
PUSH_CLIENT = "client: push consumer, batches"
LOADS = (*CELLS, SEND_CLIENT, PUSH_CLIENT)


def add_arguments(parser: argparse.ArgumentParser, home: Path) -> None:
    """Adds the options that both comparisons have."""
    option = parser.add_argument
    option("--before", required=True, metavar="PATH", help="checkout before the change")
    option("--after", required=True, metavar="PATH", help="checkout after the change")
    option("--loads", action="append", choices=LOADS, metavar="LOAD", help=f"one of: {', '.join(LOADS)}")
    option("--dir", default=str(home), help="where stores and installations are kept")
    option("--output", metavar="NAME", help="write NAME.json and NAME.md")


def wanted_loads(options: argparse.Namespace) -> list[str]:
    return [load for load in LOADS if not options.loads or load in options.loads]


def installed(checkout: Path, target: Path) -> Path:
    """Installs a checkout into a directory, compiled module included: edits during the run do not matter."""
    if not (checkout / "src" / "turbopump").is_dir():
        raise SystemExit(f"benchmarks: {checkout} must be a checkout of turbopump, with src/turbopump")
    shutil.rmtree(target, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", str(target), str(checkout)], check=True)
    program = "import turbopump, turbopump.compiled as c; print(turbopump.__file__, c.twins() is not None)"
    command = [sys.executable, "-c", program]
    environment = environment_of(target)
    done = subprocess.run(command, env=environment, cwd=target, capture_output=True, text=True, check=True)
    file, is_compiled = done.stdout.split()
    if not file.startswith(str(target)):
        raise SystemExit(f"benchmarks: turbopump must come from {target}, got {file}")
    if is_compiled != "True":
        raise SystemExit(f"benchmarks: {checkout} has no compiled module; install a C compiler")
    return target


def environment_of(source: Path, *more: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (source, *more)))}


def commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
