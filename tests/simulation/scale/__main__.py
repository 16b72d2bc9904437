import argparse
import gc
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import tests.simulation.scale
from tests.simulation.scale.plan import Plan, add_arguments, plan, shape_as_json, shape_of
from tests.simulation.scale.world import PHASES, cold_start, life

from turbopump.testing.loop import run_virtual

COLD_START = "cold-start"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.scale",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=tests.simulation.scale.__doc__,
    )
    add_arguments(parser)
    parser.add_argument("--heartbeats", action="store_true", help="clients also send heartbeats to brokers")
    phases = (COLD_START, *PHASES)
    parser.add_argument("--phases", nargs="+", choices=phases, default=phases, help="only these (all)")
    parser.add_argument(
        "--json", type=Path, help="file that gets the figures of each phase beside those that it has"
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    # Millions of objects live as long as the world: the search for garbage would cost more than the world.
    gc.set_threshold(1_000_000, 50, 1000)
    drawn = plan(shape_of(arguments))
    run(drawn, arguments.heartbeats, arguments.phases, Results(drawn, arguments.heartbeats, arguments.json))
    return 0


class Results:
    """The figures of a plan, in a file if there is one: a run of some phases adds to an earlier one."""

    def __init__(self, drawn: Plan, heartbeats: bool, path: Path | None) -> None:
        self._path = path
        head = {
            "shape": shape_as_json(drawn.shape),
            "heartbeats": heartbeats,
            "topics": len(drawn.placement),
            "routes": drawn.routes,
            "routes_used": drawn.used,
        }
        known = json.loads(path.read_text()) if path is not None and path.exists() else {}
        is_same = all(known.get(key) == value for key, value in head.items())
        self.figures: dict[str, Any] = known if is_same else {**head, "life": {}}

    def write(self) -> None:
        if self._path is not None:
            self._path.write_text(json.dumps(self.figures, indent=1) + "\n")

    def print(self) -> None:
        print(json.dumps(self.figures, indent=1))


def run(drawn: Plan, heartbeats: bool, phases: list[str], results: Results) -> None:
    """Runs the phases of a plan; prints what happens, and at the end the figures."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)
        results.write()

    say(f"{len(drawn.placement)} topics, {drawn.routes} routes, {drawn.used} routes in use by clients")
    if COLD_START in phases:
        results.figures["cold_start"] = run_virtual(cold_start(drawn, heartbeats, say))
        say("cold start: measured")
    if set(phases) & set(PHASES):
        run_virtual(life(drawn, heartbeats, say, phases, results.figures["life"]))
    results.write()
    results.print()


if __name__ == "__main__":
    sys.exit(main())
