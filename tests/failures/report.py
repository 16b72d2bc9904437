"""Figures of many runs as a table, as JSON, and as a page of the documentation. Pure but for the files."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tests.failures.count import Figures
from tests.failures.pairs import KINDS
from tests.failures.runs import COPIED_S, READ_S, Outcome
from tests.failures.scenarios import TABLE
from tests.failures.tables import markdown
from tests.interop.peers import OURS

COLUMNS = {
    "sent": "sent",
    "ok": "SEND_OK",
    "warned": "warned",
    "failed": "failed",
    "lost_ok": "lost, SEND_OK",
    "lost": "lost, all",
    "duplicates": "twice",
    "conflicts": "moved",
    "order": "order",
    "excused": "excused",
    "not_copied": "not copied",
    "unread": "unread",
}
PRINTED = COLUMNS | {"skipped": "skipped"}
"""Also of the unread: those that were acknowledged. Older files of figures do not have them."""
PAGE = """\
# Failures of real processes

Masters and slaves as processes under load, killed, stopped, cut off, with full, empty and lost disks:
`make failures` ([testing](../testing.md)). Pairs of our brokers and of Apache's 4.9.7 and 5.5.0 have the same
scenarios and settings: `SYNC_MASTER`, `ASYNC_FLUSH`, `inSyncReplicas=2`.
`python -m tests.failures --page-only` makes this page from `failures-*.json`, which the pieces `failures-...`
of `make test-long` write.

{runs}
{notes}
## Acknowledged and lost

Messages that were answered with `SEND_OK` and are missing, although a broker that has them by that receipt
was not destroyed; behind it, of how many, and in how many runs.

{lost}

## All figures

- **warned**: stored, with `FLUSH_SLAVE_TIMEOUT` or `SLAVE_NOT_AVAILABLE`: the master alone has it.
- **failed**: no receipt, so the message may be stored or not.
- **lost**: missing, although a broker that its receipt names has lost nothing since.
- **twice**, **moved**, **order**: messages at two offsets, at another offset than their receipt says, or
  behind one that was sent after their acknowledgement.
- **excused**: missing, and every broker that its receipt names was destroyed or taken out of the pair.
- **not copied**: at one broker of the pair and not at the other, {copied_s} s after the pair should be whole.
- **unread**: survived, and a consumer that ran all the time did not get it within {read_s} s after the end.
  At Apache's brokers a consumer that has read messages which were then lost goes on behind them, and misses
  what a new master stores there; ours send it back.

{all}
"""


@dataclass
class Row:
    """All runs of a scenario."""

    scenario: str
    runs: int = 0
    figures: Figures = field(default_factory=Figures)
    not_possible: str = ""
    errors: list[str] = field(default_factory=list)

    @property
    def is_broken(self) -> bool:
        """Whether a broker that keeps its promises cannot have given these figures."""
        figures = self.figures
        return bool(self.errors or figures.anomalies or figures.not_copied or figures.skipped)


def rows_of(outcomes: Iterable[Outcome]) -> list[Row]:
    """Adds up the runs of each scenario, in the order of the table."""
    rows: dict[str, Row] = {}
    for one in outcomes:
        row = rows.setdefault(one.scenario, Row(one.scenario))
        row.not_possible = one.not_possible
        if one.error:
            row.errors.append(one.error)
        elif not one.not_possible:
            row.runs += 1
            row.figures = _sum(row.figures, one.figures)
    return _in_order(rows.values())


def merged(one: Iterable[Row], other: Iterable[Row]) -> list[Row]:
    """Adds up the rows of two runs of the program, in the order of the table."""
    rows: dict[str, Row] = {}
    for row in (*one, *other):
        known = rows.get(row.scenario, Row(row.scenario))
        rows[row.scenario] = Row(
            row.scenario,
            known.runs + row.runs,
            _sum(known.figures, row.figures),
            row.not_possible,
            known.errors + row.errors,
        )
    return _in_order(rows.values())


def _in_order(rows: Iterable[Row]) -> list[Row]:
    order = [scenario.name for scenario in TABLE]
    return sorted(rows, key=lambda row: order.index(row.scenario))


def _sum(one: Figures, other: Figures) -> Figures:
    return Figures(**{each.name: getattr(one, each.name) + getattr(other, each.name) for each in fields(one)})


def line(outcome: Outcome) -> str:
    """Returns the line that is printed after a run."""
    what = outcome.not_possible and f"not possible here: {outcome.not_possible}"
    what = what or (outcome.error and f"ERROR {outcome.error}") or _words(outcome.figures)
    return f"{outcome.scenario:15} {outcome.seconds:5.1f} s  {what}"


def _words(figures: Figures) -> str:
    shown = [f"{getattr(figures, name)} {title}" for name, title in PRINTED.items() if getattr(figures, name)]
    return "; ".join([*shown, *figures.examples])


def text_table(rows: list[Row]) -> str:
    """Returns the table that is printed at the end."""
    lines = [f"{'scenario':15} {'runs':>5} " + " ".join(f"{title:>10.10}" for title in PRINTED.values())]
    for row in rows:
        if row.not_possible and not row.runs:
            lines.append(f"{row.scenario:15} not possible here: {row.not_possible}")
            continue
        values = " ".join(f"{getattr(row.figures, name):>10}" for name in PRINTED)
        errors = f"  {len(row.errors)} ended with an error" if row.errors else ""
        lines.append(f"{row.scenario:15} {row.runs:>5} {values}{errors}")
    return "\n".join(lines)


def save(path: Path, pair: str, minutes: float, seed: int, rows: list[Row], *, add: bool = False) -> None:
    """Writes the figures of a run; `add`: with those that the file has."""
    known: dict[str, Any] = {}
    if add and path.exists():
        known = json.loads(path.read_text())
        rows, minutes = merged(rows_in(known), rows), minutes + known["minutes"]
    figures = {
        "pair": pair,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "minutes": round(minutes, 1),
        "seed": seed,
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "scenarios": [asdict(row) for row in rows],
    }
    if "note" in known:
        figures["note"] = known["note"]
    path.write_text(json.dumps(figures, indent=1) + "\n")


def write_page(results: Path) -> None:
    """Writes failures.md from the figures of all kinds that are there."""
    paths = {kind: results / f"failures-{kind}.json" for kind in KINDS}
    found = {kind: json.loads(path.read_text()) for kind, path in paths.items() if path.exists()}
    (results / "failures.md").write_text(page(found))


def page(found: Mapping[str, Mapping[str, object]]) -> str:
    """Returns the page for the figures of each kind."""
    rows = {kind: {row.scenario: row for row in rows_in(one)} for kind, one in found.items()}
    runs = [["pair", "date", "minutes", "runs", "machine"]]
    for kind, one in found.items():
        total = sum(row.runs for row in rows[kind].values())
        runs.append(
            [_shown(kind), *(str(one[name]) for name in ("date", "minutes")), str(total), str(one["machine"])]
        )
    return PAGE.format(
        runs=markdown(runs),
        notes="".join(f"\n{_shown(kind)}: {one['note']}\n" for kind, one in found.items() if "note" in one),
        lost=markdown(_lost(rows)),
        all="\n\n".join(f"### {_shown(kind)}\n\n{markdown(_all(rows[kind]))}" for kind in rows),
        copied_s=f"{COPIED_S:g}",
        read_s=f"{READ_S:g}",
    )


def rows_in(figures: Mapping[str, object]) -> list[Row]:
    """Reads the rows of a file that `save` has written."""
    all_rows = figures["scenarios"]
    assert isinstance(all_rows, list)
    return [Row(**{**row, "figures": Figures(**row["figures"])}) for row in all_rows]


def _lost(rows: Mapping[str, Mapping[str, Row]]) -> list[list[str]]:
    table = [["failure", *(_shown(kind) for kind in rows)]]
    for scenario in TABLE:
        cells = [_lost_cell(rows[kind].get(scenario.name)) for kind in rows]
        table.append([f"`{scenario.name}`: {scenario.title}", *cells])
    totals = [sum((row.figures.lost_ok for row in one.values()), 0) for one in rows.values()]
    table.append(["all", *(f"**{total}**" for total in totals)])
    return table


def _lost_cell(row: Row | None) -> str:
    if row is None:
        return "not run"
    if not row.runs:
        return f"not possible: {row.not_possible}" if row.not_possible else "ended with an error"
    errors = f", and {len(row.errors)} runs with an error" if row.errors else ""
    lost = row.figures.lost_ok
    return f"{f'**{lost}**' if lost else 0} of {row.figures.ok} in {row.runs}{errors}"


def _all(rows: Mapping[str, Row]) -> list[list[str]]:
    return [
        ["scenario", "runs", *COLUMNS.values()],
        *(
            [row.scenario, str(row.runs), *(str(getattr(row.figures, name)) for name in COLUMNS)]
            for row in rows.values()
        ),
    ]


def _shown(kind: str) -> str:
    return kind if kind == OURS else f"Apache {kind}"
