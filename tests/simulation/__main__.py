import argparse
import importlib
import logging
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import tests.simulation

WORLDS = {
    "store": "tests.simulation.store",
    "delays": "tests.simulation.delays",
    "groups": "tests.simulation.groups",
    "transactions": "tests.simulation.transactions",
    "ledger": "tests.simulation.ledger",
    "globals": "tests.simulation.globals",
    "timers": "tests.simulation.timers",
    "cluster": "tests.simulation.cluster",
    "raft": "tests.simulation.raft",
    "dledger": "tests.simulation.dledger",
}
"""Name on the command line -> module with `run(seed)`, which raises AssertionError for a broken promise."""

CHUNK = 4  # seeds per task of a process


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=tests.simulation.__doc__,
    )
    parser.add_argument("--world", choices=WORLDS, default="store", help="what is simulated")
    parser.add_argument("--seeds", type=int, default=1000, help="how many worlds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="worlds at a time, a process each")
    parser.add_argument("--seed", type=int, help="run this one alone, and show where it fails")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell what happens")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        _begin(arguments.verbose)
        _run(arguments.world)(arguments.seed)
        print(f"seed {arguments.seed}: every promise was kept")
        return 0
    failed = 0
    begin = time.monotonic()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with ProcessPoolExecutor(arguments.jobs, initializer=_begin, initargs=(arguments.verbose,)) as pool:
        for trouble in pool.map(partial(_trouble, arguments.world), seeds, chunksize=CHUNK):
            if trouble is not None:
                failed += 1
                print(trouble, flush=True)
    took = time.monotonic() - begin
    print(f"{arguments.seeds} seeds, {failed} failed, {arguments.seeds / took:.0f} seeds/s")
    return 1 if failed else 0


def _begin(is_verbose: bool) -> None:
    level = logging.INFO if is_verbose else logging.CRITICAL
    logging.basicConfig(level=level, format="%(name)s: %(message)s")


def _run(world: str) -> Callable[[int], object]:
    run: Callable[[int], object] = importlib.import_module(WORLDS[world]).run
    return run


def _trouble(world: str, seed: int) -> str | None:
    """Runs a seed; returns its failure, or None."""
    try:
        _run(world)(seed)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"seed {seed}: {type(error).__name__} in {last.name}: {error}"
    return None


if __name__ == "__main__":
    sys.exit(main())
