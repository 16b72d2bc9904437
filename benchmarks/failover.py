"""Measures what clients notice when a master is killed and returns: a part of `benchmarks.replicas`.

Two broker names, one of them with a slave; a producer and push consumers of our client and of Java's at once,
with their default intervals. The consumers were stopped for a while, so that messages remain to be read when
the master is killed. The script, and what is checked meanwhile, is `tests/interop/master_death.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.interop import clients, master_death

from . import report

CLIENTS = (clients.PYTHON, "java-4.9.8")
SECONDS = {
    "send_s": "first send after the kill",
    "pause_s": "longest pause of sends",
    "read_s": "first read from the slave",
    "drained_s": "all read",
    "back_s": "first send to the old master after its start",
}


def measure(kinds: Iterable[str], times: int, home: Path) -> list[dict[str, Any]]:
    """Kills the master of a cluster of each kind in turn; returns a row for each client and run.

    Raises RuntimeError if a message was lost: such times would mean nothing.
    """
    rows = []
    wanted = list(kinds)
    for number in range(times):
        for kind in wanted:
            seen = master_death.observe(CLIENTS, kind, home / f"{kind}-{number}")
            if seen.problems:
                raise RuntimeError(f"{len(seen.problems)} problems, the first: {seen.problems[0]}")
            for experience in seen.experiences:
                print(f"{kind}, {experience}", flush=True)
                rows.append({"cluster": kind, **asdict(experience)})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Returns a line for each client and run, in seconds."""
    header = [
        "cluster",
        "client",
        *(f"{words}, s" for words in SECONDS.values()),
        "sends failed",
        "read twice",
    ]
    lines = [
        [
            row["cluster"],
            "ours" if row["client"] == clients.PYTHON else row["client"],
            *(f"{row[name]:.2f}" for name in SECONDS),
            str(row["failed"]),
            str(row["stay"]["repeated"]),
        ]
        for row in rows
    ]
    return report.table(header, lines)
