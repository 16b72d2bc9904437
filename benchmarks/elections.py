"""`python -m benchmarks.elections`: half an hour of full load on a DLedger group of ours, without elections.

Default intervals, 1 KiB messages, four connections with 64 requests in flight. The load takes both cores of
a small machine, so heartbeats compete with it. Once the disk is 30 % full, old files of the log are deleted
while it runs, or it would need 300 GB. Prints messages, errors, the longest time without an answer, and the
terms of all members before and after; exits with 1 when a term has changed or a send has failed.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.interop.asking import Refusal, asked

from turbopump.protocol.bodies import RaftStatus
from turbopump.protocol.codes import RequestCode as Code

from . import generator, report, servers
from .__main__ import write_results
from .quorum import Group, started
from .servers import OURS

FILE_BYTES = 256 << 20
# The least share of the disk from which files are deleted before they expire.
SHORT_LIFE = {"mappedFileSizeCommitLog": str(FILE_BYTES), "diskSpaceCleanForciblyRatio": "30"}
DELETE_INTERVAL_S = 10.0
WINDOW_S = 30.0


def main() -> int:
    options = arguments().parse_args()
    generator.build()
    servers.compile_ours()
    home = Path(options.dir)
    shutil.rmtree(home, ignore_errors=True)
    try:
        with started(OURS, home, SHORT_LIFE) as group:
            return hold(group, options.minutes, options.output)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.elections",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("--minutes", type=float, default=30.0)
    option("--dir", default=str(generator.CACHE / "elections"), help="where stores are kept")
    option("--output", metavar="NAME", help="write benchmarks/results/NAME.json and NAME.md")
    return parser


def hold(group: Group, minutes: float, output: str | None) -> int:
    """Keeps the load on the leader and returns 1 if any member has seen an election, or a send failed."""
    before, leader = statuses(group), group.leader()
    over = threading.Event()
    deleter = threading.Thread(target=delete_old_files, args=(group, over))
    deleter.start()
    deadline = time.monotonic() + minutes * 60
    count = errors = 0
    slowest_us = 0.0
    try:
        while time.monotonic() < deadline:
            sample = generator.run(
                "send",
                group.places[leader].broker_addr,
                group.pids,
                connections=4,
                in_flight=64,
                size=1024,
                duration=f"{WINDOW_S}s",
                warmup="0s",
            )
            count, errors = count + int(sample.rate * WINDOW_S), errors + sample.errors
            slowest_us = max(slowest_us, float(sample.raw["latency"].get("max_us", 0)))
            slowest = f"slowest answer {slowest_us / 1e3:,.0f} ms"
            print(f"{count:,} messages, {errors} errors, {slowest}", flush=True)
    finally:
        over.set()
        deleter.join()
    after = statuses(group)
    result = {
        "machine": report.machine(),
        "minutes": minutes,
        "messages": count,
        "errors": errors,
        "slowest_answer_ms": round(slowest_us / 1e3, 1),
        "members": {
            one.member: {
                "term": [one.term, other.term],
                "elections": [one.elections, other.elections],
            }
            for one, other in zip(before, after, strict=True)
        },
    }
    text = page(result)
    if output:
        write_results(output, result, text)
    else:
        print(text)
    return 0 if is_quiet(result) and errors == 0 else 1


def is_quiet(result: dict[str, Any]) -> bool:
    """Returns whether no member has changed its term."""
    return all(one["term"][0] == one["term"][1] for one in result["members"].values())


def page(result: dict[str, Any]) -> str:
    about = result["machine"]
    lines = [
        f"{result['minutes']:g} minutes at full load, default intervals; {about['cores']} cores, "
        f"load average {about['load_average_at_start']:.1f} at the end:",
        f"{result['messages']:,} messages, {result['errors']} errors, "
        f"slowest answer {result['slowest_answer_ms']:,.0f} ms.",
        "",
        "| member | term before | after | elections before | after |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, one in result["members"].items():
        lines.append(f"| {name} | {' | '.join(map(str, [*one['term'], *one['elections']]))} |")
    return "\n".join([*lines, "", "No election." if is_quiet(result) else "AN ELECTION HAPPENED.", ""])


def statuses(group: Group) -> list[RaftStatus]:
    return [RaftStatus.decode(asked(place.broker_addr, Code.RAFT_STATUS).body) for place in group.places]


def delete_old_files(group: Group, over: threading.Event) -> None:
    """Has all members delete old files, the leader's first, until `over`."""
    while not over.wait(DELETE_INTERVAL_S):
        for place in group.places:
            with contextlib.suppress(OSError, Refusal):
                asked(place.broker_addr, Code.DELETE_EXPIRED_COMMITLOG)


if __name__ == "__main__":
    sys.exit(main())
