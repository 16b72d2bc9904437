"""Shows where our broker spends its time under each shape of load, from the stacks of `sampler`."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path

from . import servers
from .compare import CELLS, PULL_TOPIC, Cell, print_now

MAX_SHOWN = 25
LOOP = ";runners.Runner.run:"


def profile(home: Path, seconds: float) -> None:
    for cell in CELLS:
        if cell.size == 1024:
            show(cell, stacks_under(cell, home, seconds))


def stacks_under(cell: Cell, home: Path, seconds: float) -> Counter[tuple[str, ...]]:
    found = home.parent / f"{cell.name.replace(' ', '-')}.stacks"
    program = (sys.executable, "-m", "benchmarks.sampler", str(found))
    server, _ = servers.start(servers.OURS, home / "profile", program)
    try:
        if cell.mode == "pull":
            server.load("send", count=50_000, in_flight=64, topic=PULL_TOPIC)
        sample = server.load(cell.mode, **cell.options(), warmup="0s", duration=f"{seconds}s")
        server.stop()
    finally:
        server.kill()
        shutil.rmtree(home / "profile", ignore_errors=True)
    print_now(f"\n{cell.name}: {sample.rate:,.0f}/s, {sample.cpu_us:.2f} us (sampled); stacks in {found}")
    return read(found)


def read(path: Path) -> Counter[tuple[str, ...]]:
    """Reads the stacks below the event loop; start-up and imports are not part of the cost of a message."""
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in path.read_text().splitlines():
        names, _, count = line.rpartition(" ")
        _, loop, below = names.partition(LOOP)
        if loop and "importlib" not in below:
            stacks[tuple(below.split(";")[1:]) or ("the loop itself",)] += int(count)
    return stacks


def show(cell: Cell, stacks: Counter[tuple[str, ...]]) -> None:
    total = sum(stacks.values()) or 1
    own: Counter[str] = Counter()
    under: Counter[str] = Counter()
    for names, count in stacks.items():
        if names:
            own[names[-1]] += count
        for function in {name.rpartition(":")[0] for name in names}:
            under[function] += count
    print_now(f"{'own':>6}  line")
    for name, count in own.most_common(MAX_SHOWN):
        print_now(f"{count / total:6.1%}  {name}")
    print_now(f"{'total':>6}  function with everything it calls")
    for name, count in under.most_common(MAX_SHOWN):
        print_now(f"{count / total:6.1%}  {name}")
