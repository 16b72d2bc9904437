"""`python -m tests.interop.replication_table`: the life of each pair of masters and slaves, as a table.

Runs a pair of each kind (ours, Apache's 4.9.7 and 5.5.0 as master and as slave), notes what can be seen, and
writes `docs/results/replication.json` and the page `replication.md` beside it. `--page-only` writes the page.
`test_replication.py` demands the same of our pairs, and of Apache's what they are known to do.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path

from turbopump.client.message import SendStatus

from . import peers
from .replica_pair import PATIENCE_S, POLL_S, ReplicaPair, eventually

KINDS = (peers.OURS, "4.9.7", "5.5.0")
PAIRS = tuple(product(KINDS, KINDS))
READ_S = 30.0  # in which a slave must give out everything, once its master is dead
RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = """\
# Masters and slaves of Apache's and ours

One life of each pair: the master is alone, its slave comes empty, is frozen, killed and comes back; then the
master is killed and comes back. Made by `python -m tests.interop.replication_table` on {date} from what it
saw; `tests/interop/test_replication.py` demands it. `SYNC_MASTER`, `inSyncReplicas=2` and
`slaveReadEnable=true`; plain, tagged and delayed messages, batches, transactions, and timers where both know
them.

## Statuses of sends

{statuses}

**frozen** and **killed** are about the slave. 5.5.0 does not use `SLAVE_NOT_AVAILABLE`: without its slave
each send takes `slaveTimeout`, 3 s.

## Copies

{copies}

- **equal logs**: the files of both, byte for byte, with the slave and after both deaths.
- **metadata**: topics, settings of a group and its offset, the progress of delays, since 5.0 request modes
  and timers. What the slave did not have after {patience:g} s is named.
- **unread**: messages that the slave did not give out within {read:g} s after the master's death.
"""


@dataclass
class Cell:
    """What was seen in the life of a pair."""

    master: str
    slave: str
    alone: list[str] = field(default_factory=list)
    together: list[str] = field(default_factory=list)
    frozen: str = ""
    killed: str = ""
    is_equal: bool = False
    lacking: list[str] = field(default_factory=list)
    """Metadata that the slave did not get."""
    unread: int = 0
    """Messages that the slave did not give out when its master was dead."""
    back: str = ""
    """The answer that ends the wait for the master that has come back."""


def observe(master: str, slave: str, home: Path) -> Cell:
    """Runs the life of a pair, and returns what was seen."""
    cell = Cell(master, slave)
    with ReplicaPair(master, slave, home) as pair:
        cell.alone = _names(pair.load(1))
        pair.make_group()
        pair.start_slave()
        pair.send_until(SendStatus.SEND_OK)
        cell.together = _names(pair.load())
        pair.wait_copied()
        is_equal = pair.difference() == ""
        cell.lacking = _lacking(pair)
        pair.freeze_slave()
        cell.frozen = pair.send().name
        pair.thaw_slave()
        pair.send_until(SendStatus.SEND_OK)
        pair.slave.kill_broker()
        time.sleep(1.0)
        cell.killed = pair.send().name
        pair.slave.start_broker()
        pair.send_until(SendStatus.SEND_OK)
        pair.load(5)
        eventually(
            lambda: not pair.unread(pair.master), lambda: f"the master lacks {pair.unread(pair.master)}"
        )
        pair.wait_copied()
        pair.master.kill_broker()
        cell.unread = _unread(pair)
        pair.master.start_broker()
        pair.send_until(SendStatus.SEND_OK)
        cell.back = pair.send().name
        pair.load(5)
        eventually(
            lambda: not pair.unread(pair.master), lambda: f"the master lacks {pair.unread(pair.master)}"
        )
        pair.wait_copied()
        cell.is_equal = is_equal and pair.difference() == ""
    return cell


def _names(statuses: Iterable[SendStatus]) -> list[str]:
    return sorted(status.name for status in statuses)


def _lacking(pair: ReplicaPair) -> list[str]:
    """Returns the names of the metadata that differ for as long as we wait."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        wanted, found = pair.metadata_at(pair.master), pair.metadata_at(pair.slave)
        differing = [name for name, value in wanted.items() if found.get(name) != value]
        if not differing or time.monotonic() > deadline:
            return differing
        time.sleep(POLL_S)


def _unread(pair: ReplicaPair) -> int:
    deadline = time.monotonic() + READ_S
    while (unread := sum(pair.unread(pair.slave).values())) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return unread


# --- the page --------------------------------------------------------------------------------------------


def page(date: str, cells: list[Cell]) -> str:
    statuses = [["master", "slave", "alone", "with its slave", "frozen", "killed", "master back"]]
    statuses += [
        [*_pair(one), _joined(one.alone), _joined(one.together), one.frozen, one.killed, one.back]
        for one in cells
    ]
    copies = [["master", "slave", "equal logs", "metadata that the slave lacked", "unread"]]
    copies += [
        [*_pair(one), "yes" if one.is_equal else "**no**", ", ".join(one.lacking) or "none", str(one.unread)]
        for one in cells
    ]
    return PAGE.format(
        date=date, statuses=_table(statuses), copies=_table(copies), patience=PATIENCE_S, read=READ_S
    )


def _pair(cell: Cell) -> tuple[str, str]:
    return _shown(cell.master), _shown(cell.slave)


def _shown(kind: str) -> str:
    return kind if kind == peers.OURS else f"Apache {kind}"


def _joined(statuses: list[str]) -> str:
    return ", ".join(statuses)


def _table(rows: list[list[str]]) -> str:
    head, *rest = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *rest])


def write_page(results: Path = RESULTS) -> None:
    """Writes replication.md from replication.json."""
    found = json.loads((results / "replication.json").read_text())
    cells = [Cell(**one) for one in found["cells"]]
    (results / "replication.md").write_text(page(found["date"], cells))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.replication_table", description=__doc__)
    parser.add_argument(
        "--page-only", action="store_true", help="write the page from the figures that are there"
    )
    if not parser.parse_args().page_only:
        cells = []
        for master, slave in PAIRS:
            with tempfile.TemporaryDirectory() as home:
                cells.append(observe(master, slave, Path(home)))
            print(cells[-1], flush=True)
        date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
        document = {"date": date, "cells": [asdict(cell) for cell in cells]}
        (RESULTS / "replication.json").write_text(json.dumps(document, indent=1) + "\n")
    write_page()


if __name__ == "__main__":
    main()
