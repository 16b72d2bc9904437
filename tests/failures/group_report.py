"""Figures of groups of three as a table, as JSON, and as their part of the page. Pure but for the files."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tests.failures.callers import CALLERS, QUEUES
from tests.failures.group_runs import ROUNDS, GroupFigures, GroupOutcome
from tests.failures.group_scenarios import GROUP_TABLE
from tests.failures.linear import QueueAnomaly
from tests.failures.members import KINDS
from tests.failures.tables import markdown

COLUMNS = {
    "acknowledged": "acknowledged",
    "open": "open",
    "open_stored": "open, stored",
    "reads": "reads",
    "leaderships": "leaderships",
    "shared_terms": "shared terms",
    "diverged": "diverged",
    "twice": "sent twice",
}
ANOMALIES = tuple(QueueAnomaly)
SHOWN = {"group": "ours", "group-4.9.7": "Apache 4.9.7"}
PAGE = """\
# Histories of DLedger groups

Three brokers of one DLedger group as processes, of ours and of Apache's 4.9.7, killed with SIGKILL, stopped
with SIGSTOP, cut off from one another in both directions or in one, with full disks, and two failures at
once: `make failures PAIR=group` and `PAIR=group-4.9.7` ([testing](../testing.md)). Between the members
stand loopback proxies, no network namespaces; clients reach every member. `flushDiskType` is `ASYNC_FLUSH`.
Half of the runs of our group have heartbeats of 200 ms and vote waits of 50 to 200 ms, the other half, and
all of Apache's, the default intervals. {callers} clients append to {queues} queues and read them, one call
at a time each, with time-outs of 0.3 to 6 s. A run has its failure {rounds} times; then the group must
acknowledge again, all members are read, and `linear.py` decides for each queue whether the calls are
linearizable. `python -m tests.failures --page-only` makes this page from `failures-group*.json`, which the
pieces `failures-group` and `failures-group-4.9.7` of `make test-long` write.

{runs}
{notes}
## What is promised

All rows must be 0 for our group, except `deposed`, which no group without a question to its followers
before each read can keep at 0: a leader that was replaced and does not know it yet answers reads from what
it has. What it shows is committed, and is never lost; it may lack what a later leader has acknowledged.

{anomalies}

- **shared terms**: terms in which two members said that they lead. **diverged**: runs in which the members
  did not have the same messages 40 s after all failures had ended. **ended with an error**: mostly runs
  in which the group acknowledged nothing for 60 s after that.
- Apache's brokers acknowledge a message before its queue shows it, so a read right after an acknowledgement
  may be `stale` there without any failure.

## All figures

- **open**: appends with an error or without an answer. **open, stored**: of these, found at the end.
- **leaderships**: pairs of member and term that led. **sent twice**: messages that their client sent again
  after an error, and that are stored more than once. That is allowed: the answer says that the message may
  be stored.

{all}
"""


@dataclass
class GroupRow:
    """All runs of a scenario."""

    scenario: str
    runs: int = 0
    figures: GroupFigures = field(default_factory=GroupFigures)
    not_possible: str = ""
    errors: list[str] = field(default_factory=list)


def rows_of(outcomes: Iterable[GroupOutcome], known: Iterable[GroupRow] = ()) -> list[GroupRow]:
    """Adds up the runs of each scenario, in the order of the table; `known`: rows of earlier runs."""
    rows = {row.scenario: row for row in known}
    for one in outcomes:
        row = rows.setdefault(one.scenario, GroupRow(one.scenario))
        row.not_possible = one.not_possible
        if one.error:
            row.errors.append(one.error)
        elif not one.not_possible:
            row.runs += 1
            row.figures = _sum(row.figures, one.figures)
    order = [scenario.name for scenario in GROUP_TABLE]
    return sorted(rows.values(), key=lambda row: order.index(row.scenario))


def line(outcome: GroupOutcome) -> str:
    """Returns the line that is printed after a run."""
    figures = outcome.figures
    shown = [f"{getattr(figures, name)} {title}" for name, title in COLUMNS.items() if getattr(figures, name)]
    shown += [f"{count} {name}" for name, count in sorted(figures.anomalies.items())]
    what = outcome.not_possible and f"not possible here: {outcome.not_possible}"
    what = what or (outcome.error and f"ERROR {outcome.error}") or "; ".join([*shown, *figures.examples])
    return f"{outcome.scenario:17} {outcome.seconds:5.1f} s  {what}"


def text_table(rows: list[GroupRow]) -> str:
    """Returns the table that is printed at the end."""
    return "\n".join("  ".join(f"{cell:>12}" for cell in cells) for cells in _all(rows))


def save(
    path: Path, kind: str, minutes: float, seed: int, outcomes: Iterable[GroupOutcome], add: bool
) -> None:
    """Writes the figures of a run; `add`: with those that the file has."""
    known: dict[str, Any] = json.loads(path.read_text()) if add and path.exists() else {}
    figures = {
        "pair": kind,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "minutes": round(minutes + known.get("minutes", 0.0), 1),
        "seed": seed,
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "scenarios": [asdict(row) for row in rows_of(outcomes, rows_in(known) if known else ())],
    }
    if "note" in known:
        figures["note"] = known["note"]
    path.write_text(json.dumps(figures, indent=1) + "\n")


def rows_in(figures: Mapping[str, Any]) -> list[GroupRow]:
    """Reads the rows of a file that `save` has written."""
    rows = figures["scenarios"]
    return [GroupRow(**{**row, "figures": GroupFigures(**row["figures"])}) for row in rows]


def write_page(results: Path) -> None:
    """Writes failures-groups.md from the figures of all kinds that are there."""
    paths = {kind: results / f"failures-{kind}.json" for kind in KINDS}
    found = {kind: json.loads(path.read_text()) for kind, path in paths.items() if path.exists()}
    if found:
        (results / "failures-groups.md").write_text(page(found))


def page(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the page for the figures of each kind."""
    rows = {kind: rows_in(one) for kind, one in found.items()}
    runs = [["group", "date", "minutes", "runs", "machine"]]
    for kind, one in found.items():
        total = sum(row.runs for row in rows[kind])
        runs.append([SHOWN[kind], one["date"], str(one["minutes"]), str(total), one["machine"]])
    return PAGE.format(
        callers=CALLERS,
        queues=QUEUES,
        rounds=ROUNDS,
        runs=markdown(runs),
        notes="".join(f"\n{SHOWN[kind]}: {one['note']}\n" for kind, one in found.items() if "note" in one),
        anomalies=markdown(_anomalies(rows)),
        all="\n\n".join(f"### {SHOWN[kind]}\n\n{markdown(_all(rows[kind]))}" for kind in rows),
    )


def _anomalies(rows: Mapping[str, list[GroupRow]]) -> list[list[str]]:
    table = [["anomaly", *(SHOWN[kind] for kind in rows)]]
    for anomaly in ANOMALIES:
        counts = [sum(row.figures.anomalies.get(anomaly.name, 0) for row in one) for one in rows.values()]
        table.append([f"`{anomaly.name.lower()}`: {anomaly.value}", *map(_bold, counts)])
    for name in ("shared_terms", "diverged"):
        counts = [sum(getattr(row.figures, name) for row in one) for one in rows.values()]
        table.append([COLUMNS[name], *map(_bold, counts)])
    table.append(
        ["ended with an error", *(_bold(sum(len(row.errors) for row in one)) for one in rows.values())]
    )
    calls = [sum(row.figures.acknowledged + row.figures.reads for row in one) for one in rows.values()]
    return [*table, ["of acknowledged appends and reads", *(f"{count:,}" for count in calls)]]


def _all(rows: list[GroupRow]) -> list[list[str]]:
    seen = [one.name for one in ANOMALIES if any(one.name in row.figures.anomalies for row in rows)]
    table = [["scenario", "runs", "errors", *COLUMNS.values(), *(name.lower() for name in seen)]]
    for row in rows:
        if row.not_possible and not row.runs:
            table.append([row.scenario, f"not possible: {row.not_possible}"])
            continue
        figures = [getattr(row.figures, name) for name in COLUMNS]
        figures += [row.figures.anomalies.get(name, 0) for name in seen]
        table.append([row.scenario, str(row.runs), str(len(row.errors)), *map(str, figures)])
    return table


def _bold(count: int) -> str:
    return f"**{count}**" if count else "0"


def _sum(one: GroupFigures, other: GroupFigures) -> GroupFigures:
    names = [each.name for each in fields(one) if each.name != "anomalies"]
    added = {name: getattr(one, name) + getattr(other, name) for name in names}
    return GroupFigures(**added, anomalies=dict(Counter(one.anomalies) + Counter(other.anomalies)))
