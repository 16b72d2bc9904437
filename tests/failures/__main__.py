"""`python -m tests.failures --pair ours --minutes 3`: scenarios one after another until the time is over.

Prints a line for each run and a table at the end. Exits with 1 when our pair has lost, doubled or moved an
acknowledged message, or a consumer that ran all the time did not get it, when a history of our group is
not linearizable in the sense of `linear.py`, or when they did not become whole again; Apache's pairs and
groups are only counted.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tests.failures import group_report, group_runs, members, pairs, report, runs
from tests.failures.group_scenarios import GROUP_TABLE
from tests.failures.scenarios import TABLE
from tests.interop.peers import OURS

LAST_RUN_S = 20.0
"""No run begins in so many seconds before the end."""
RESULTS = Path(__file__).parents[2] / "docs" / "results"


@dataclass(frozen=True)
class FailureTable:
    """Pairs, or groups: what they run, and how it is told."""

    names: Sequence[str]
    """The scenarios, in the order of their table."""
    run: Callable[[str, Path, int, argparse.Namespace], Any]
    line: Callable[[Any], str]
    is_broken: Callable[[Any], bool]
    text_table: Callable[[list[Any]], str]
    save: Callable[[argparse.Namespace, float, list[Any]], None]


def main() -> int:
    options = _options()
    logging.getLogger("turbopump").setLevel(logging.CRITICAL)  # failing clients are what is wanted here
    if options.page_only:
        _write_pages()
        return 0
    table = GROUPS if options.pair in members.KINDS else PAIRS
    if unknown := set(options.scenario or ()) - set(table.names):
        raise SystemExit(
            f"--scenario must be one of {', '.join(table.names)}, got {', '.join(sorted(unknown))}"
        )
    chosen = [name for name in table.names if not options.scenario or name in options.scenario]
    began = time.monotonic()
    outcomes = run_all(table, chosen, options)
    minutes = (time.monotonic() - began) / 60
    print(f"\n{options.pair}, {minutes:.1f} minutes, seed {options.seed}\n{table.text_table(outcomes)}")
    if left := [name for name in chosen if name not in {one.scenario for one in outcomes}]:
        print(f"no time for: {', '.join(left)}")
    if options.json is not None:
        table.save(options, minutes, outcomes)
    if options.page:
        _write_pages()
    broken = sorted({one.scenario for one in outcomes if table.is_broken(one)})
    if _is_ours(options.pair) and broken:
        print(f"FAILED: {', '.join(broken)}; seed {options.seed}")
        return 1
    return 0


def run_all(table: FailureTable, chosen: list[str], options: argparse.Namespace) -> list[Any]:
    """Runs the scenarios in turn, `jobs` at a time, and begins none when the time is over."""
    home = Path(tempfile.mkdtemp(prefix="turbopump-failures-"))
    seconds, seed = options.minutes * 60, options.seed
    deadline = time.monotonic() + seconds - min(seconds / 2, LAST_RUN_S)
    numbers = count()
    outcomes: list[Any] = []

    def work() -> None:
        while time.monotonic() < deadline:
            number = next(numbers)
            scenario = chosen[(seed + number) % len(chosen)]
            here = home / f"{number}-{scenario}"
            outcome = table.run(scenario, here, seed + number // len(chosen), options)
            outcomes.append(outcome)
            is_kept = options.keep or (table.is_broken(outcome) and _is_ours(options.pair))
            print(f"{table.line(outcome)}{f'  (logs: {here})' if is_kept else ''}", flush=True)
            if not is_kept:
                shutil.rmtree(here, ignore_errors=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        for worker in [pool.submit(work) for _ in range(options.jobs)]:
            worker.result()
    if not any(home.iterdir()):
        home.rmdir()
    return outcomes


def _save_pairs(options: argparse.Namespace, minutes: float, outcomes: list[Any]) -> None:
    rows = report.rows_of(outcomes)
    report.save(options.json, options.pair, minutes, options.seed, rows, add=options.add)


def _save_groups(options: argparse.Namespace, minutes: float, outcomes: list[Any]) -> None:
    group_report.save(options.json, options.pair, minutes, options.seed, outcomes, options.add)


SCENARIOS = {one.name: one for one in TABLE}
GROUP_SCENARIOS = {one.name: one for one in GROUP_TABLE}
PAIRS = FailureTable(
    list(SCENARIOS),
    lambda name, home, seed, options: runs.run(SCENARIOS[name], options.pair, home, seed),
    report.line,
    lambda outcome: report.rows_of([outcome])[0].is_broken,
    lambda outcomes: report.text_table(report.rows_of(outcomes)),
    _save_pairs,
)
GROUPS = FailureTable(
    list(GROUP_SCENARIOS),
    lambda name, home, seed, options: group_runs.run(
        GROUP_SCENARIOS[name], options.pair, home, seed, options.rounds
    ),
    group_report.line,
    lambda outcome: outcome.is_broken,
    lambda outcomes: group_report.text_table(group_report.rows_of(outcomes)),
    _save_groups,
)


def _is_ours(kind: str) -> bool:
    return members.KINDS.get(kind, kind) == OURS


def _write_pages() -> None:
    report.write_page(RESULTS)
    group_report.write_page(RESULTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.failures", description=__doc__)
    parser.add_argument("--pair", choices=[*pairs.KINDS, *members.KINDS], default=OURS, help="whose brokers")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long it takes, about")
    parser.add_argument(
        "--seed", type=int, default=1, help="with which scenario to begin, and how long parts last"
    )
    parser.add_argument("--scenario", action="append", metavar="NAME", help="only these")
    parser.add_argument(
        "--jobs", type=int, default=2, help="how many pairs or groups at once; most of them wait"
    )
    parser.add_argument(
        "--rounds", type=int, default=group_runs.ROUNDS, help="how often a run of a group has its failure"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the logs of all runs, not only of those that failed"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument("--add", action="store_true", help="add the figures to those that the file has")
    parser.add_argument(
        "--page", action="store_true", help="write docs/results/failures.md and failures-groups.md afterwards"
    )
    parser.add_argument(
        "--page-only", action="store_true", help="write these pages from the figures that are there"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
