import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import tests.simulation.raft
from tests.simulation.raft.check import check
from tests.simulation.raft.world import World

CHUNK = 20  # seeds per task of a process
MAX_TRANSCRIPTS = 3


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.raft",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=tests.simulation.raft.__doc__,
    )
    parser.add_argument("--seeds", type=int, default=2000, help="how many groups to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--nodes", type=int, help="how many members; otherwise the seed chooses 3 or 5")
    parser.add_argument("--seed", type=int, help="run this one alone")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _run_one(arguments.seed, arguments.nodes)
    return _run_many(arguments)


def _run_one(seed: int, nodes: int | None) -> int:
    try:
        tests.simulation.raft.run(seed, nodes)
    except AssertionError as error:
        print(f"seed {seed}: {error}")
        return 1
    print(f"seed {seed}: every promise was kept")
    return 0


def _run_many(arguments: argparse.Namespace) -> int:
    failed: Counter[str] = Counter()
    begin, slowest, virtual = time.monotonic(), 0.0, 0.0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for seed, found, calm, lasted in pool.map(partial(_verdict, arguments.nodes), seeds, chunksize=CHUNK):
            slowest, virtual = max(slowest, calm), virtual + lasted
            if found:
                failed[found.split(":")[0]] += 1
                print(f"seed {seed}: {found}", flush=True)
                if failed.total() <= MAX_TRANSCRIPTS:
                    _run_one(seed, arguments.nodes)
    took = time.monotonic() - begin
    print(
        f"{arguments.seeds} seeds, {failed.total()} failed, {arguments.seeds / took:.0f} seeds/s, "
        f"{virtual / arguments.seeds / 1000:.0f} s of virtual time each, "
        f"progress within {slowest:.1f} leader timeouts of the last fault"
    )
    for name, count in failed.most_common():
        print(f"  {count} × {name}")
    return 1 if failed else 0


def _verdict(nodes: int | None, seed: int) -> tuple[int, str, float, float]:
    """Runs a seed; returns its first failure (or nothing), how long progress took, and the run."""
    try:
        world = World(seed, nodes)
        found = check(world.run())
    except Exception as error:
        return seed, f"{type(error).__name__}: {error}", 0.0, 0.0
    text = f"{found[0].name}: {found[0].what}" if found else ""
    return seed, text, world.calm_ms / world.plan.timeout_ms, world.now


if __name__ == "__main__":
    sys.exit(main())
