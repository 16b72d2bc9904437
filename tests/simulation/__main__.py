import argparse
import importlib
import logging
import sys
import time
import traceback
from collections.abc import Callable

import tests.simulation

WORLDS = {
    "store": "tests.simulation.world",
    "delays": "tests.simulation.delays",
    "groups": "tests.simulation.groups",
    "transactions": "tests.simulation.transactions",
    "ledger": "tests.simulation.ledger",
    "timers": "tests.simulation.timers",
}
"""Name on the command line -> module with `run(seed)`, which raises AssertionError for a broken promise."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=tests.simulation.__doc__,
    )
    parser.add_argument("--world", choices=WORLDS, default="store", help="what is simulated")
    parser.add_argument("--seeds", type=int, default=1000, help="how many worlds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one alone, and show where it fails")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell what happens")
    arguments = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.CRITICAL, format="%(name)s: %(message)s"
    )
    run: Callable[[int], None] = importlib.import_module(WORLDS[arguments.world]).run
    if arguments.seed is not None:
        run(arguments.seed)
        print(f"seed {arguments.seed}: every promise was kept")
        return 0
    failed = 0
    begin = time.monotonic()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        try:
            run(seed)
        except Exception as error:
            failed += 1
            last = traceback.extract_tb(error.__traceback__)[-1]
            print(f"seed {seed}: {type(error).__name__} in {last.name}: {error}", flush=True)
    took = time.monotonic() - begin
    print(f"{arguments.seeds} seeds, {failed} failed, {arguments.seeds / took:.0f} seeds/s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
