"""Asks Apache's servers again and rewrites tests/compat/recorded.

Usage: python -m tests.interop.record [CLIENT-on-SERVER ...]
"""

from __future__ import annotations

import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path

from . import clients, peers, recordings


def main(wanted: list[str]) -> None:
    pairs = [pair for pair in recordings.PAIRS if not wanted or "-on-".join(pair) in wanted]
    with tempfile.TemporaryDirectory(prefix="record-") as work:
        for server, group in groupby(pairs, key=lambda pair: pair[1]):
            record(server, [client for client, _ in group], Path(work))


def record(server: str, names: list[str], work: Path) -> None:
    cluster = peers.start(server, peers.place(work / server))
    try:
        for client in names:
            begun = time.monotonic()
            target = recordings.save(client, server, clients.run_scenarios(client, cluster, work))
            print(f"{target.name}: {time.monotonic() - begun:.0f} s")
    finally:
        cluster.kill()


if __name__ == "__main__":
    main(sys.argv[1:])
