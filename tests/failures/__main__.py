"""`python -m tests.failures --pair ours --minutes 3`: scenarios one after another until the time is over.

Prints a line for each run and a table at the end. Exits with 1 when our pair has lost, doubled or moved an
acknowledged message, or did not become whole again; Apache's pairs are only counted.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from tests.failures import report
from tests.failures.pairs import KINDS
from tests.failures.runs import Outcome, run
from tests.failures.scenarios import TABLE, Scenario
from tests.interop.peers import OURS

LAST_RUN_S = 20.0
"""No run begins in so many seconds before the end."""
RESULTS = Path(__file__).parents[2] / "docs" / "results"


def main() -> int:
    options = _options()
    logging.getLogger("turbopump").setLevel(logging.CRITICAL)  # failing clients are what is wanted here
    if options.page_only:
        report.write_page(RESULTS)
        return 0
    chosen = [one for one in TABLE if not options.scenario or one.name in options.scenario]
    began = time.monotonic()
    outcomes = run_all(chosen, options.pair, options.minutes * 60, options.seed, options.jobs, options.keep)
    minutes = (time.monotonic() - began) / 60
    rows = report.rows_of(outcomes)
    print(f"\n{options.pair}, {minutes:.1f} minutes, seed {options.seed}\n{report.text_table(rows)}")
    if left := [one.name for one in chosen if one.name not in {row.scenario for row in rows}]:
        print(f"no time for: {', '.join(left)}")
    if options.json is not None:
        report.save(options.json, options.pair, minutes, options.seed, rows, add=options.add)
    if options.page:
        report.write_page(RESULTS)
    broken = [row.scenario for row in rows if row.is_broken]
    if options.pair == OURS and broken:
        print(f"FAILED: {', '.join(broken)}; seed {options.seed}")
        return 1
    return 0


def run_all(
    chosen: list[Scenario], pair: str, seconds: float, seed: int, jobs: int, keep: bool = False
) -> list[Outcome]:
    """Runs the scenarios in turn, `jobs` at a time, and begins none when the time is over."""
    home = Path(tempfile.mkdtemp(prefix="turbopump-failures-"))
    deadline = time.monotonic() + seconds - min(seconds / 2, LAST_RUN_S)
    numbers = count()
    outcomes: list[Outcome] = []

    def work() -> None:
        while time.monotonic() < deadline:
            number = next(numbers)
            scenario = chosen[(seed + number) % len(chosen)]
            here = home / f"{number}-{scenario.name}"
            outcome = run(scenario, pair, here, seed + number // len(chosen))
            outcomes.append(outcome)
            is_good = not report.rows_of([outcome])[0].is_broken
            kept = "" if not keep and (is_good or pair != OURS) else f"  (logs: {here})"
            print(f"{report.line(outcome)}{kept}", flush=True)
            if not kept:
                shutil.rmtree(here, ignore_errors=True)

    with ThreadPoolExecutor(jobs) as pool:
        for worker in [pool.submit(work) for _ in range(jobs)]:
            worker.result()
    if not any(home.iterdir()):
        home.rmdir()
    return outcomes


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.failures", description=__doc__)
    parser.add_argument("--pair", choices=KINDS, default=OURS, help="whose brokers")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long it takes, about")
    parser.add_argument(
        "--seed", type=int, default=1, help="with which scenario to begin, and how long parts last"
    )
    parser.add_argument("--scenario", action="append", choices=[one.name for one in TABLE], help="only these")
    parser.add_argument("--jobs", type=int, default=2, help="how many pairs at once; most of them wait")
    parser.add_argument(
        "--keep", action="store_true", help="keep the logs of all runs, not only of those that failed"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument("--add", action="store_true", help="add the figures to those that the file has")
    parser.add_argument("--page", action="store_true", help="write docs/results/failures.md afterwards")
    parser.add_argument(
        "--page-only", action="store_true", help="write that page from the figures that are there"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
