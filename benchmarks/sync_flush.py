"""`python -m benchmarks.sync_flush`: measures sends that wait for the disk (SYNC_FLUSH).

Each connection sends a message of 1 KiB and waits for its answer, which comes after the sync; 4x64 has 64
requests in flight on each of four connections. Rates and latencies depend on the disk as much as on the
server; CPU time per message is the figure that repeats.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from pathlib import Path

from . import generator, servers
from .generator import Sample

SHAPES = {"1x1": (1, 1), "50x1": (50, 1), "4x64": (4, 64)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sync_flush", description=__doc__)
    option = parser.add_argument
    option("--seconds", type=float, default=4.0, help="length of a measured window")
    option("--rounds", type=int, default=3)
    option("--only", choices=servers.ALL, default=servers.OURS, help="the server to measure")
    option("--dir", default=str(generator.CACHE / "sync"), help="where the server keeps its store")
    options = parser.parse_args()
    generator.build()
    home = Path(options.dir)
    try:
        show(measure(options.only, home, options.rounds, options.seconds))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def measure(kind: str, home: Path, rounds: int, seconds: float) -> dict[str, list[Sample]]:
    running, _ = servers.start(kind, home, extra={"flushDiskType": "SYNC_FLUSH"})
    samples: dict[str, list[Sample]] = {name: [] for name in SHAPES}
    try:
        for _ in range(rounds):
            for name, (connections, in_flight) in SHAPES.items():
                shape: dict[str, object] = {"connections": connections, "in_flight": in_flight, "size": 1024}
                times: dict[str, object] = {"duration": f"{seconds}s", "warmup": "1s"}
                samples[name].append(running.load("send", **shape, **times))
    finally:
        running.stop()
    return samples


def show(samples: dict[str, list[Sample]]) -> None:
    print("| shape | messages/s | p50 us | CPU us per message | errors |")
    print("|---|---|---|---|---|")
    for name, found in samples.items():
        rate, p50, cpu = (
            statistics.median(getattr(one, field) for one in found) for field in ("rate", "p50_us", "cpu_us")
        )
        print(f"| {name} | {rate:,.0f} | {p50:,.0f} | {cpu:.0f} | {sum(one.errors for one in found)} |")


if __name__ == "__main__":
    main()
