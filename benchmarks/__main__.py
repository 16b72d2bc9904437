"""`python -m benchmarks`: measures the figures of the documentation in one run on this machine."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from . import compare, flat, generator, profile, report, servers

RESULTS = Path(__file__).with_name("results")


def main() -> None:
    options = arguments().parse_args()
    generator.build()
    home = Path(options.dir)
    if options.profile:
        profile.profile(home, options.seconds)
    elif options.flat:
        kind = options.only[0] if options.only else servers.OURS
        result = flat.flat(flat.Plan(kind, options.log_gb, options.topics, options.seconds), home)
        write_results("flat", result, report.flat_markdown(result))
    else:
        about = report.machine()
        result = {"machine": about, **compare.compare(plan_of(options), home)}
        text = report.markdown(result)
        if options.quick or options.only:  # too rough to be written to results/
            print(f"\n{text}")
        else:
            write_results("latest", result, text)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    flag, option = "store_true", parser.add_argument
    option("--quick", action=flag, help="one round of short windows, for a rough figure")
    option("--only", action="append", choices=servers.ALL, help="only this server (may be repeated)")
    option("--rounds", type=int, default=3)
    option("--seconds", type=float, default=4.0, help="length of a measured window")
    option("--patience", type=float, default=10.0, help="seconds a window may wait for quiet cores")
    option("--profile", action=flag, help="sample where our broker spends its time")
    option("--flat", action=flag, help="measure cost per message by log size and number of topics")
    option("--log-gb", type=float, default=20.0, help="largest log of --flat")
    option("--topics", type=int, default=10_000, help="largest number of topics of --flat")
    option("--dir", default=str(generator.CACHE / "run"), help="where the servers keep their stores")
    return parser


def plan_of(options: argparse.Namespace) -> compare.Plan:
    kinds = tuple(options.only or servers.ALL)
    if options.quick:
        return compare.Plan(kinds, rounds=1, duration_s=1.5, warm_up_s=0.5, patience_s=0, used_memory=False)
    return compare.Plan(kinds, options.rounds, options.seconds, warm_up_s=1.0, patience_s=options.patience)


def write_results(name: str, result: dict[str, Any], text: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(text)
    print(f"\n{text}")


if __name__ == "__main__":
    main()
